// The loop pipeline: every pass is a function from Function to Function, and pipeline() lists them in the
// order in which they run. Each pass has a .cpp of its own here. Below, each is described by one sentence, by
// what it needs (`pre:`), what it guarantees (`post:`) and an example (before => after). "Same values" means
// bit-identical results.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "codegen/loop/ir.h"
#include "codegen/schedule.h"
#include "codegen/target.h"

namespace ipex::loop {

struct LoopPass {
  std::string_view name;
  std::vector<Function> (*run)(std::vector<Function>, const Target&);
};
std::span<const LoopPass> pipeline();

// The pass of this name, or null. A name that the pass had in the last release is accepted too, with a
// warning.
const LoopPass* find_pass(std::string_view name);

// Runs the whole pipeline on a module. It verifies the module after each pass (with IPEX_VERIFY and in debug
// builds), dumps what a pass changed, and measures how long each takes.
std::vector<Function> run_pipeline(std::vector<Function> module, const Target& target,
                                   std::string_view stop_after = {});

// Runs the part of the pipeline whose result has no vectors, which print_cpp (loop/cpp.h) can write: up to
// tile_reduction, without block_products.
std::vector<Function> run_scalar_pipeline(std::vector<Function> module, const Target& target);

// simplify: simplifies index arithmetic and drops dead code (loop/simplify.h). It runs first, and last under
// the name final_simplify.
//   pre: verified; post: same values, never more nodes
//   for i in 0..4 { let j = i*2; y[j - i] = x[(i*8 + 3)//8] }   =>   for i in 0..4 { y[i] = x[i] }

// distribute: loop distribution. A nest that reduces down the columns of a matrix and then visits the same
// columns again becomes two nests.
//   pre: serial loops only; post: same values
//   for c { for r reduce(s) {..}; for q { y[q*C + c] = s } }
//   =>  for c { for r reduce(s) {..}; all[c] = s }; for c { for q { y[q*C + c] = all[c] } }
Function distribute(const Function& f, const Target& target);

// collapse_loops: loop interchange and coalescing. It orders perfect nests by memory and merges adjacent
// loops where every index allows it.
//   pre: serial loops only, simplified; post: same values, fewer loops
//   for i in 0..8 { for j in 0..4 { y[i*4 + j] = x[i*4 + j] } }   =>   for i in 0..32 { y[i] = x[i] }
Function collapse_loops(const Function& f);

// block_products: cache and register blocking of matrix products. Nests that multiply matrices of f32, f64
// or, where the CPU has dot products of bf16 pairs, bf16 become parallel blocks with packed panels and a
// micro-kernel that keeps a tile of sums in registers. The tile follows the target's registers. An input of
// bf16 that nothing else reads may be declared as f32, as in pack_dot_products.
//   pre: serial loops only; post: same values except for the order of each sum and fused multiply-adds
//   for i { for j { for k reduce(s) {} yield(s + a[i*K + k]*b[k*N + j]); c[i*N + j] = s } }
//   =>  for parallel block { for block of K { panels = b; for tile of i { for panel { for k reduce(..) } } };
//                            for i { for j { c[i*N + j] = sums[..] } } }
Function block_products(const Function& f, const Target& target);

// pack_dot_products: a sum of products of bf16 that are contiguous in memory multiplies two elements at once.
// An input that nothing else reads is declared as half as many f32, each of which holds the bits of a pair.
//   pre: serial loops only; post: same values except for the order of each sum; denormals may count as 0
//   for k in 0..64 reduce(s) {} yield(s + cast.f32(a[i*64 + k])*cast.f32(b[k]))
//   =>  for k in 0..32 reduce(s) {} yield(dot_bf16(a[i*32 + k], b[k], s))
Function pack_dot_products(const Function& f);

// apply_schedule: carries out what choose_schedule (schedule.h) decides: loop order, tiles, the parallel loop
// and its grain, the vector loop, its lanes and accumulators.
//   pre: serial loops only (a nest with parallel or vector loops is kept as it is)
//   post: loops are marked and tiles are split; same values except for the order of tiled reductions
//   for i in 0..8192 { y[i] = x[i] }
//   =>  for parallel t in 0..16 { for vector(lanes=16, unroll=4) i in t*512..t*512 + 512 { y[i] = x[i] } }
Function apply_schedule(const Function& f, const Schedule& schedule);

// tile_reduction: a reduction over a parallel loop becomes two stages: a partial result for each chunk, then
// a serial merge of the chunks.
//   pre: schedule applied
//   post: no parallel loop carries a Reduction; same values except for the order of merging
//   for parallel t reduce(s) {..} yield(y)
//   =>  for parallel t { part[t] = y }; for t reduce(s) {} yield(s + part[t])
Function tile_reduction(const Function& f, const Target& target);

// fuse_loops: loop fusion. A loop over rows and the following one, which sums the same rows, become one.
//   pre: reductions tiled; post: same values
//   for parallel i { y[i*C + ..] = .. }; for parallel t { part = 0; for i in t*K..t*K+K { part += .. } }
//   =>  for parallel t { part = 0; for i in t*K..t*K+K { y[i*C + ..] = ..; part += .. } }
Function fuse_loops(const Function& f, const Target& target);

// vectorize: rewrites vector loops to vector expressions with a masked tail. A reduction keeps `unroll`
// vectors of partial results, which are merged after the loop.
//   pre: For.kind marks the vector loops
//   post: no vector loop and no scalar remainder loop; same values except for the order of merging
//   for vector(lanes=16) i in 0..100 { y[i] = x[i] }   =>   for i in 0..6 {16 lanes}; the last 4 elements
Function vectorize(const Function& f, const Target& target);

// partition_loops: loop unswitching and index-set splitting. A loop is split, or repeated in the branches of
// an `if`, where comparisons of indices change their outcome.
//   pre: vectorized; post: same values; masks remain only where a vector or a window crosses an edge
//   for i in 0..8 { y[i] = x[i - 4 if i >= 4] }
//   =>  for i in 0..4 { y[i] = 0 }; for i in 4..8 { y[i] = x[i - 4] }
Function partition_loops(const Function& f);

// unroll_loops: fully unrolls short reductions of a constant number of iterations, innermost first.
//   pre: vectorized; post: same values
//   for r in 0..2 reduce(s = 0) {} yield(s + x[i + r])   =>   let s1 = 0 + x[i]; let s = s1 + x[i + 1]
Function unroll_loops(const Function& f);

// unroll_and_jam: unroll-and-jam of scans. A scan processes several rows at once.
//   pre: vectorized; post: same values
//   for parallel i { for j reduce(s) {..} }   =>   for parallel i' { for j reduce(s, s1, s2, s3) {..} }
Function unroll_and_jam(const Function& f, const Target& target);

// transpose_loads: vectors gathered down the columns of a matrix become contiguous loads of its rows and
// shuffles.
//   pre: vectorized; post: same values, in another order of iterations
//   for i { for j' { y[i*N + j' ..] = x[ramp(j'*8*M + i, M, 8)] } }
//   =>  for i' { for j' { 8 rows of x; 24 shuffles; 8 rows of y } }
Function transpose_loads(const Function& f, const Target& target);

// prefetch_rows: software prefetching. A loop that reads a row again, or rows that are far apart, prefetches
// the same place of the next row.
//   pre: vectorized; post: same values
//   for i { for j {.. x[i*N + j]}; for j {.. x[i*N + j]} }
//   =>  for i { for j {.. x[i*N + j]}; for j { prefetch(x[min(i + 1, last)*N + j]); .. x[i*N + j]} }
Function prefetch_rows(const Function& f, const Target& target);

// split_accumulators: multiple accumulators. A reduction whose every step depends on the one before is split
// into several that are independent of one another.
//   pre: vectorized; post: same values except for the order of merging
//   for r in 0..N reduce(s) {..}
//   =>  for r' in 0..N/4 reduce(s0, s1, s2, s3) {..}; let s = ((s0, s1), (s2, s3))
Function split_accumulators(const Function& f, const Target& target);

// deinterleave: a loop over vectors of bf16 computes on their even elements first and then on their odd ones.
//   pre: vectorized; post: same values except for the order in which lanes are reduced
//   y[i] = cast.bf16(f(cast.f32(x[i])))
//   =>  y[i] = cast.bf16(interleave(f(deinterleave(cast.f32(x[i])))))   with shuffles for both
Function deinterleave(const Function& f, const Target& target);

// block_sums: blocked summation. A long sum becomes a sum of sums of blocks, which rounds less. It is blocked
// once if its length is known only at run time, and not at all if the length depends on elements of a tensor.
//   pre: vectorized; post: same values except for the order of merging
//   for r in 0..N reduce(s) {..}
//   =>  for g in 0..N/128 reduce(s) { for r in g*128..g*128 + 128 reduce(p) {..} } yield(s + p)
Function block_sums(const Function& f, const Target& target);

// lower_math: math functions that have no instruction become polynomials. Functions that are left to Sleef
// stay Apply nodes, for which the emitter generates calls.
//   pre: any function
//   post: values within the error that math_table.def states; no Apply that it lists as a polynomial is left
//   y[i] = exp(x[i])   =>   let n = ..; let r = fma(n, -ln2, x[i]); y[i] = scale(fma(polynomial(r), r, 1), n)
Function lower_math(const Function& f, const Target& target);

// legalize: operations without an instruction become operations that have one: floor division and remainder,
// and comparisons of i64 indices along the lanes.
//   pre: any function; post: same values; no floordiv and no floormod is left
//   y[i] = x[i] // 8   =>   y[i] = shr(x[i], 3)
Function legalize(const Function& f, const Target& target);

// A parallel loop stays `for parallel` in the text at the end of the pipeline. The emitter
// (codegen/llvm/emit.cpp) outlines its body into a function of its own, which ipex_parallel_for calls.

}  // namespace ipex::loop

// The loop pipeline: each pass a function from Function to Function, in the order of pipeline(). One .cpp a
// pass.
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

// Runs the whole pipeline on a module: verifies after each pass (IPEX_VERIFY or debug), dumps what changed,
// times each.
std::vector<Function> run_pipeline(std::vector<Function> module, const Target& target,
                                   std::string_view stop_after = {});

// distribute: reductions down columns, and the loops over the same columns that use their results, become two
// nests.
//   pre: serial loops only; post: same values
//   for c { for r reduce(s) {..}; for q { y[q*C + c] = s } }
//   =>  for c { for r reduce(s) {..}; all[c] = s }; for c { for q { y[q*C + c] = all[c] } }
Function distribute(const Function& f);

// simplify: loop/simplify.h. Collapses perfectly nested loops whose indices allow it.
//   pre: verified; post: same values, fewer loops
//   for i in 0..8 { for j in 0..4 { y[i*4 + j] = x[i*4 + j] } }   =>   for i in 0..32 { y[i] = x[i] }
Function collapse_loops(const Function& f);

// block_products: nests that multiply matrices of f32, f64 or, where the CPU multiplies pairs of it, bf16
// become parallel blocks with packed panels and a micro-kernel that keeps a tile of sums in registers. The
// tile follows the target's registers. Inputs of bf16 that only it reads may become f32, as in pair_products.
//   pre: serial loops only; post: same values but for the order of each sum, and fused multiply-adds
//   for i { for j { for k reduce(s) {} yield(s + a[i*K + k]*b[k*N + j]); c[i*N + j] = s } }
//   =>  for parallel block { for piece of k { panels = b; for tile of i { for panel { for k reduce(..) } } };
//                            for i { for j { c[i*N + j] = sums[..] } } }
Function block_products(const Function& f, const Target& target);

// pair_products: sums of products of bf16 that lie side by side in memory multiply two terms at once; inputs
// that nothing else reads are read as half as many f32, each the bits of a pair.
//   pre: serial loops only; post: same values but for the order of each sum; denormals may count as 0
//   for k in 0..64 reduce(s) {} yield(s + cast.f32(a[i*64 + k])*cast.f32(b[k]))
//   =>  for k in 0..32 reduce(s) {} yield(dot_bf16(a[i*32 + k], b[k], s))
Function pair_products(const Function& f);

// choose_schedule + apply: decides order, tiles, parallel loop and grain, vector loop, lanes and
// accumulators, and rewrites the nest.
//   pre: serial loops only (loops already marked parallel or vector are kept); post: marked loops, tiles
//   split
Function apply_schedule(const Function& f, const Schedule& schedule);

// tile_reduction: a reduction too long for one thread becomes per-chunk partial states and a serial merge
// (two stages).
//   pre: schedule applied; post: no parallel loop carries a Reduction
Function tile_reduction(const Function& f, const Target& target);

// join_rows: a loop over rows and the one behind it that sums the same rows become one.
//   pre: reductions tiled; post: same values
//   for parallel i in 0..R { y[i*C + ..] = .. };  for parallel t { part = 0; for i in t*K..t*K+K { part += ..
//   } }
//   =>  for parallel t { part = 0; for i in t*K..t*K+K { y[i*C + ..] = ..;  part += .. } }
Function join_rows(const Function& f, const Target& target);

// vectorize: rewrites vector loops to vector expressions with a masked tail; reductions keep `unroll` vector
// states, merged after.
//   pre: For.kind vector loops; post: none; no scalar remainder loop
//   for vector(lanes=16) i in 0..100 { y[i] = x[i] }  =>  for i' in 0..6 {full} + one masked step
Function vectorize(const Function& f, const Target& target);

// partition_loops: loops are cut, or repeated in branches, where comparisons of indices change their answer.
//   pre: vectorized; post: same values, masks only where a vector or a window lies across an edge
//   for i in 0..8 { y[i] = x[i - 4 if i >= 4] }
//   =>  for i in 0..4 { y[i] = 0 }  for i in 4..8 { y[i] = x[i - 4] }
Function partition_loops(const Function& f);

// unroll_loops: short reductions over a constant number of places, and what is one of those then.
//   pre: vectorized; post: same values
//   for r in 0..2 reduce(s = 0) {} yield(s + x[i + r])   =>   let s1 = 0 + x[i]  let s = s1 + x[i + 1]
Function unroll_loops(const Function& f);

// jam_scans: a scan goes through several rows at once.
//   pre: vectorized; post: same values
//   for parallel i { for j reduce(s) {..} }  =>  for parallel i' { for j reduce(s, s1, s2, s3) {..} }
Function jam_scans(const Function& f, const Target& target);

// transpose_loads: vectors gathered down columns become rows loaded whole, and shuffles.
//   pre: vectorized; post: same values, in another order of iterations
//   for i { for j' { y[i*N + j' ..] = x[ramp(j'*8*M + i, M, 8)] } }
//   =>  for i' { for j' { 8 rows of x; 24 shuffles; 8 rows of y } }
Function transpose_loads(const Function& f);

// prefetch_rows: a loop that reads a row again, or rows far apart, asks for the same place of the next row.
//   pre: vectorized; post: same values
//   for i { for j {.. x[i*N + j]}  for j {.. x[i*N + j]} }
//   =>  for i { for j {.. x[i*N + j]}  for j { prefetch(x[min(i + 1, last)*N + j])  .. x[i*N + j]} }
Function prefetch_rows(const Function& f, const Target& target);

// split_chains: a reduction that waits for itself becomes several that do not wait for each other.
//   pre: vectorized; post: the values that merging in another order gives
//   for r in 0..N reduce(s) {..}
//   =>  for r' in 0..N/4 reduce(s0, s1, s2, s3) {..}  let s = ((s0, s1), (s2, s3))
Function split_chains(const Function& f, const Target& target);

// split_pairs: vectors of bf16 are computed on as their even elements and then their odd ones.
//   pre: vectorized; post: same values but for the order in which lanes are brought together
//   y[i] = cast.bf16(f(cast.f32(x[i])))
//   =>  y[i] = cast.bf16(shuffle(f(shuffle(cast.f32(x[i]), .., [0, 2, .. 1, 3, ..])), .., [0, 32, 1, 33,
//   ..]))
Function split_pairs(const Function& f, const Target& target);

// cascade_sums: a long sum becomes a sum of short ones, which keeps its digits; once where its length is
// known only when it runs, not where elements of a tensor tell it.
//   pre: vectorized; post: the values that merging in another order gives
//   for r in 0..N reduce(s) {..}
//   =>  for g in 0..N/128 reduce(s) { for r in g*128..g*128 + 128 reduce(p) {..} } yield(s + p)
Function cascade_sums(const Function& f, const Target& target);

// lower_math: Apply ops without an instruction become polynomials; ops left to Sleef stay Apply (the emitter
// calls them).
Function lower_math(const Function& f, const Target& target);

// legalize: bool and half-type casts the target lacks become exact integer sequences; floordiv, floormod and
// friends become primitive operations.
Function legalize(const Function& f, const Target& target);

// Parallel loops become functions of their own, called through ipex_parallel_for; done by the emitter's
// caller. The last step of the pipeline in text form keeps `for parallel`; codegen/llvm/emit outlines it
// while emitting.

}  // namespace ipex::loop

// The passes of the graph pipeline. Each pass is a function from Graph to Graph in a .cpp of its own name.
#pragma once

#include <span>
#include <string_view>

#include "backend/graph/ir.h"
#include "backend/passes/context.h"

namespace ipex::graph {

struct GraphPass {
  std::string_view name;
  Graph (*run)(Graph, const PassContext&);
  bool optional;  // IPEX_DISABLE_PASS may skip it
};
std::span<const GraphPass> pipeline();

// Runs the pipeline. Verifies (IPEX_VERIFY or debug builds), dumps changed graphs, and times, skips or stops
// at passes by name.
struct PassTime {
  std::string name;
  double ms;
};
Graph run_pipeline(Graph graph, const PassContext& context, std::string_view stop_after = {},
                   std::vector<PassTime>* times = nullptr);
// Throws a UserError with the known names for an unknown one.
Graph run_pass(Graph graph, std::string_view name, const PassContext& context);

// canonicalize: views in normal form (merges permutes of permutes and slices of slices, drops identities),
// common subexpression elimination, dead code elimination, x * 1 and x + 0 where exact, casts of casts where
// exact.
//   pre: verified; post: verified, no dead node, no two equal nodes; a computed output is never an input
//   itself %1 = permute(%0) dims=[1,0]; %2 = permute(%1) dims=[1,0]; return %2   =>   return %0
Graph canonicalize(Graph graph);

// recognize_idioms (idiom recognition): activations written as arithmetic become ops of the table, if nothing
// else reads their intermediate values: GELU (with erf, or with tanh in two forms), SiLU.
//   pre: verified; post: verified; canonicalize drops the dead parts
//   %1 = pointwise.sigmoid(%0); %2 = pointwise.mul(%0, %1)   =>   %2 = pointwise.silu(%0)
Graph recognize_idioms(Graph graph);

// fold_constants: evaluates nodes whose operands are all constants, if the result is small (at most 1024
// elements, or smaller than the operands).
//   %0 = constant value=2.0; %1 = constant value=3.0; %2 = pointwise.mul(%0, %1)   =>   %2 = constant
//   value=6.0
Graph fold_constants(Graph graph);

// fuse_library: fuses bias, activations, binary add and mul, and residual sums into matmul and conv as
// post-ops. Factors per output feature (batch norm, layer scale) are folded into weights that are f32
// parameters. A half-precision gradient whose only use is a cast to f32 for the caller is computed as f32.
//   %2 = matmul(%0, %1); %3 = pointwise.gelu(%2)   =>   %3 = matmul(%0, %1) post=["gelu"]
Graph fuse_library(Graph graph, const PassContext& context);

// gather_early: moves a gather of few elements before the cheap operations that compute its source, so that
// they run on the gathered elements only.
//   %2 = pointwise.sub(%x, %m: f32[64,1000] expanded); %3 = gather(%2, %i) map=[0,-1] : f32[64,1]
//   =>   %3 = pointwise.sub(gather(%x, %i), %m: f32[64,1])
Graph gather_early(Graph graph);

// plan_layouts: chooses the memory layout of every conv operand and result (channels_last if the shape
// favours it), propagates it through pointwise ops, pooling, reductions and normalisations, and inserts
// reorders where layouts differ. Operands of an lstm are row-major.
Graph plan_layouts(Graph graph);

// place_outputs: gives results of kernels, products and ATen calls the layout that the caller requires of
// outputs and updated inputs, also behind permutes and reshapes. Runs before choose_implementations, which
// depends on layouts, and again for groups.
//   return %2{1,64}   =>   %2 = matmul(%0, %1) : f32[64,64]{1,64}; return %2{1,64}
Graph place_outputs(Graph graph);

// choose_implementations: selects the implementation of each matmul, conv, conv_backward and lstm: the first
// row of the op's table (backend/implementations/) that accepts it. Types that the library does not support
// are widened between casts. Convolutions in f32 may become kernels of another method.
//   pre: layouts are planned; post: the remaining ops of these kinds have by= and why=
//   %2 = matmul(%0, %1) : f32[4,4]   =>   %2 = matmul(%0, %1) by="kernel" why="few numbers, ..." : f32[4,4]
//   %2 = conv(%x, %w) padding=[1,1] : f32[1,64,56,56]   =>
//   %2 = winograd_filter(%w) : f32[16,4,64,16]; %3 = winograd(%x, %2) padding=[1,1] : f32[1,64,56,56]
Graph choose_implementations(Graph graph, const PassContext& context);

// split_variance: computes var, std and var_mean of short rows in two passes: the mean, then the mean square
// distance from it. A reduction over several short rows (f32[32,64,28,28] along 0, 2 and 3) merges the
// results of its rows.
//   %2, %3 = reduce.var_mean(%x) axes=[1] correction=0.0 keepdim=true : f32[64,1], f32[64,1]   =>
//   %3 = reduce.mean(%x); %4 = pointwise.sub(%x, %3); %5 = reduce.sum(%4 * %4); %2 = pointwise.div(%5, 1024)
Graph split_variance(Graph graph);

// eliminate_bounds_checks (bounds-check elimination): marks index operands of a gather that interval analysis
// proves to be in range; they are not checked at run time. Casts of floats to i64 whose values fit into 32
// bits go through i32, which has a vector instruction.
//   %2 = pointwise.clamp(%i, 0, 63); %3 = gather(%x: f32[64], %2) map=[-1]   =>   the same with proved=[1]
Graph eliminate_bounds_checks(Graph graph);

// form_groups: partitions fusible nodes (pointwise, reduce, views, iota, full, gather, scatter, cat, pad,
// pool, scan, reorder) into Group nodes, one kernel each.
//   pre: canonical; post: every fusible node that computes is in a Group; views that need no copy stay
//   outside; all nodes of a group share one row space: pointwise nodes over it, reductions over one set of
//   its axes, their consumers, and sums over the columns of values that the group reads or stores
Graph form_groups(Graph graph);

// batch_groups: numbers independent pointwise groups that differ only in shape and whose results are outputs,
// and moves them next to each other: one kernel over a table of tensors.
//   %4 = group(%p0, %g0) {..}; %5 = group(%p1, %g1) {..}   =>   the same with batch=0 each
Graph batch_groups(Graph graph);

}  // namespace ipex::graph

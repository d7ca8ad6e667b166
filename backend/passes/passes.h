// The graph pipeline: each pass a function from Graph to Graph, in the order of pipeline(). One .cpp a pass,
// named like it.
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

// Runs the pipeline: verifies (IPEX_VERIFY or debug), dumps what changed, times, skips and stops by name.
struct PassTime {
  std::string name;
  double ms;
};
Graph run_pipeline(Graph graph, const PassContext& context, std::string_view stop_after = {},
                   std::vector<PassTime>* times = nullptr);
// UserError listing the names when unknown.
Graph run_pass(Graph graph, std::string_view name, const PassContext& context);

// canonicalize: views to normal form (permute of permute, slice of slice, identity views gone), CSE, DCE,
// x*1, x+0 where exact, cast of cast when exact.
//   pre: verified; post: verified, no dead node, no two equal nodes; an output that was computed is no input
//   %1 = permute(%0) dims=[1,0]; %2 = permute(%1) dims=[1,0]; return %2   =>   return %0
Graph canonicalize(Graph graph);

// recognize_idioms (idiom recognition): activations that a model writes out become ops of the table, where
// nothing else reads what they are computed by: GELU (by erf, by tanh in two spellings), SiLU.
//   pre: verified; post: verified; their parts are left for canonicalize to drop
//   %1 = pointwise.sigmoid(%0); %2 = pointwise.mul(%0, %1)   =>   %2 = pointwise.silu(%0)
Graph recognize_idioms(Graph graph);

// fold_constants: evaluates nodes whose operands are all constants and whose result is small (<= 1024
// elements or smaller than its operands).
//   %0 = constant value=2.0; %1 = constant value=3.0; %2 = pointwise.mul(%0, %1)   =>   %2 = constant
//   value=6.0
Graph fold_constants(Graph graph);

// fuse_library: bias, activations, binary add/mul and residual sums into matmul and conv as post-ops; factors
// of output features (a batch norm, a layer scale) into weights that are parameters in f32; permutes of
// matmul operands stay views (absorbed by strides); addmm forms.
// A gradient in half precision that is only returned, cast to f32, is given in f32.
//   %2 = matmul(%0, %1); %3 = pointwise.gelu(%2)   =>   %3 = matmul(%0, %1) post=["gelu"]
Graph fuse_library(Graph graph, const PassContext& context);

// gather_early: a gather of few elements from what cheap operations compute of data in memory becomes the
// operations on gathered elements.
//   %2 = pointwise.sub(%x, %m: f32[64,1000] expanded); %3 = gather(%2, %i) map=[0,-1] : f32[64,1]
//   =>   %3 = pointwise.sub(gather(%x, %i), %m: f32[64,1])
Graph gather_early(Graph graph);

// plan_layouts: chooses the memory layout of every conv operand and result (channels_last when the shape
// favours it), propagates it through pointwise, pooling, reductions and normalisations, and puts a reorder at
// the edges that need one; row-major operands for an lstm.
Graph plan_layouts(Graph graph);

// place_outputs: results of kernels, products and ATen calls lie as the caller wants outputs and updated
// inputs, also where the caller sees them through permutations and reshapes. Runs before products are chosen,
// which depends on layouts, and again for groups.
//   return %2{1,64}   =>   %2 = matmul(%0, %1) : f32[64,64]{1,64}; return %2{1,64}
Graph place_outputs(Graph graph);

// choose_implementations: who computes each matmul, conv, conv_backward and lstm, and why: the first row of
// the op's table (backend/implementations/) that accepts it. Types that the library lacks are widened between
// casts; convolutions in f32 may become kernels of another method.
//   pre: layouts are planned; post: what is left of these ops says by= and why=
//   %2 = matmul(%0, %1) : f32[4,4]   =>   %2 = matmul(%0, %1) by="kernel" why="few numbers, ..." : f32[4,4]
//   %2 = conv(%x, %w) padding=[1,1] : f32[1,64,56,56]   =>
//   %2 = winograd_filter(%w) : f32[16,4,64,16]; %3 = winograd(%x, %2) padding=[1,1] : f32[1,64,56,56]
Graph choose_implementations(Graph graph, const PassContext& context);

// split_variance: var, std and var_mean of short rows as a mean and the mean square of the distance to it; of
// several short rows (of f32[32,64,28,28] along 0, 2 and 3) as such of each row, merged.
//   %2, %3 = reduce.var_mean(%x) axes=[1] correction=0.0 keepdim=true : f32[64,1], f32[64,1]   =>
//   %3 = reduce.mean(%x); %4 = pointwise.sub(%x, %3); %5 = reduce.sum(%4 * %4); %2 = pointwise.div(%5, 1024)
Graph split_variance(Graph graph);

// eliminate_bounds_checks (bounds-check elimination): names the index operands of a gather that lie inside
// the dims that they address in every run, by intervals of values: they are not checked. Casts of floats
// known to fit 32 bits are made by way of i32, for which CPUs have an instruction.
//   %2 = pointwise.clamp(%i, 0, 63); %3 = gather(%x: f32[64], %2) map=[-1]   =>   the same with proved=[1]
Graph eliminate_bounds_checks(Graph graph);

// form_groups: partitions fusible nodes (pointwise, reduce, views, iota, full, gather, scatter, cat, pad,
// pool, scan, reorder) into Group nodes, one kernel each.
//   pre: canonical; post: every fusible node that computes is in a Group; views of buffers that no kernel
//   must copy stay outside; a group has one row space: pointwise over it, reductions over one set of its
//   axes, what follows them; and sums down the columns of what it reads or stores row by row
Graph form_groups(Graph graph);

// batch_groups: independent pointwise groups that differ in shape only, results for the caller, stand side by
// side with one number: one kernel over a table of tensors.
//   %4 = group(%p0, %g0) {..}; %5 = group(%p1, %g1) {..}   =>   the same with batch=0 each
Graph batch_groups(Graph graph);

}  // namespace ipex::graph

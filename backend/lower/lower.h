// From a group of nodes to one function of the Loop IR: a naive loop nest that computes the same values,
// which choose_schedule then improves. placed_group.h lists the stages of this.
#pragma once

#include <vector>

#include "backend/graph/ir.h"
#include "codegen/loop/ir.h"
#include "codegen/target.h"

namespace ipex::graph {

// How a buffer of the function holds its tensor. The buffers are the inputs of the body in order, then its
// outputs, in the dtypes of their types.
struct OperandLayout {
  Strides strides;
  Dim offset;  // elements
  Dim extent;  // elements of the whole buffer
};
loop::Function lower_group(const Graph& body, const std::vector<OperandLayout>& inputs,
                           const std::vector<OperandLayout>& outputs, const std::string& name);

// Any body that one kernel computes: a group, or one node such as attention (see body_of), whose products are
// computed in tiles that fit the registers of the target.
loop::Function lower(const Graph& body, const std::vector<OperandLayout>& inputs,
                     const std::vector<OperandLayout>& outputs, const std::string& name,
                     const loop::Target& target);

// `node` of `graph` as a graph of its own, with an input for each operand. lower_group takes this for a node
// outside of groups, such as a copy of a view or a matmul that the library refuses.
Graph body_of(const Graph& graph, int32_t node);

// The reference semantics of a graph: each node is lowered naively and interpreted. Constant folding, golden
// tests and fuzzing use it. Inputs and results are row-major contiguous bytes.
using HostTensor = std::vector<std::byte>;
std::vector<HostTensor> eval(const Graph& graph, const std::vector<HostTensor>& inputs,
                             const std::vector<int64_t>& symbols = {});

}  // namespace ipex::graph

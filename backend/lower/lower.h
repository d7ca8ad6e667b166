// From a Group to one Loop IR function: the naive nest whose meaning is the group's, for choose_schedule to
// improve.
//
// Pull-based: the value of a node at an index vector is an expression of its operands' values at mapped
// indices, so every view, gather, pad and concatenation is index arithmetic. Reductions become loops with
// states before what uses them.
#pragma once

#include <vector>

#include "backend/graph/ir.h"
#include "codegen/loop/ir.h"
#include "codegen/target.h"

namespace ipex::graph {

// Buffers of the function: the body's inputs in order, then its outputs, with dtypes from types and positions
// from `input_strides`/`output_strides` (elements; offsets of views too). b1 and half values are stored as
// such.
struct OperandLayout {
  Strides strides;
  Dim offset;  // elements
  Dim extent;  // elements of the whole buffer
};
loop::Function lower_group(const Graph& body, const std::vector<OperandLayout>& inputs,
                           const std::vector<OperandLayout>& outputs, const std::string& name);

// Whatever one kernel computes: a group, or an attention node (see body_of), whose products come in tiles of
// the target's registers.
loop::Function lower(const Graph& body, const std::vector<OperandLayout>& inputs,
                     const std::vector<OperandLayout>& outputs, const std::string& name,
                     const loop::Target& target);

// `node` of `graph` as a graph of its own, an input for each operand: what lower_group takes for a node
// outside groups (a copy of a view, a matmul that the library refuses).
Graph body_of(const Graph& graph, int32_t node);

// Whole-graph reference semantics by naive lowering and interpretation, node by node: constant folding,
// goldens, fuzzing. Inputs and results are row-major contiguous bytes.
using HostTensor = std::vector<std::byte>;
std::vector<HostTensor> eval(const Graph& graph, const std::vector<HostTensor>& inputs,
                             const std::vector<int64_t>& symbols = {});

}  // namespace ipex::graph

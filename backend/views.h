// A value as strides over the buffer of another: which nodes move no data.
#pragma once

#include <optional>

#include "backend/graph/ir.h"

namespace ipex::graph {

// value[i] = root's memory[offset + sum(i[d] * strides[d])], through permute, expand, slice and
// view-compatible reshape nodes (root: the first value that owns memory). nullopt never: a node that is not a
// view is its own root.
struct View {
  Value root;
  Strides strides;  // 0 for expanded dims
  Dim offset;
};
View resolve_view(const Graph& graph, Value value);

// Strides and offset of a view node's result given its operand's; nullopt when the node moves data.
struct Placement {
  Strides strides;
  Dim offset;
};
std::optional<Placement> apply_view(const Graph& graph, const Node& node, const Placement& operand);
// Strides of a permutation's or reshape's operand that give its result these; nullopt when none do, and for
// any other node.
std::optional<Strides> operand_strides(const Graph& graph, const Node& node, const Strides& result);
bool is_view(const Graph& graph, const Node& node);  // moves no data given its operand's strides

// Is the value elements of an input, rearranged at most? Then passes may find that it is the input's memory.
bool is_of_input(const Graph& graph, Value value);

}  // namespace ipex::graph

// Views: values that are strides over the memory of another value, so that their nodes move no data.
#pragma once

#include <optional>

#include "backend/graph/ir.h"

namespace ipex::graph {

// value[i] = memory of root[offset + sum(i[d] * strides[d])]. `root` is the first value below the permute,
// expand, slice and view-compatible reshape nodes that owns memory. A value that is not a view is its own
// root.
struct View {
  Value root;
  Strides strides;  // 0 for expanded dims
  Dim offset;
};
View resolve_view(const Graph& graph, Value value);

// Strides and offset of a view node's result, given those of its operand; nullopt if the node moves data.
struct Placement {
  Strides strides;
  Dim offset;
};
std::optional<Placement> apply_view(const Graph& graph, const Node& node, const Placement& operand);
// The operand's strides for which a permute or reshape has a result with the given strides; nullopt if there
// are none, and for other nodes.
std::optional<Strides> operand_strides(const Graph& graph, const Node& node, const Strides& result);
bool is_view(const Graph& graph, const Node& node);  // moves no data, given its operand's strides

// Is the value an input behind any number of view ops? Then it may turn out to be the input's memory.
bool is_of_input(const Graph& graph, Value value);

}  // namespace ipex::graph

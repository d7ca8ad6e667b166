// The names of values and nodes in the text form and in messages.
#pragma once

#include <string>

#include "backend/graph/ir.h"

namespace ipex::graph {

std::string value_name(const Graph& graph, Value v);  // %3, %3.1, %input

// The text of the node without its result names and source. Two nodes with equal expressions compute the same
// value.
std::string node_expression(const Graph& graph, int32_t index);

}  // namespace ipex::graph

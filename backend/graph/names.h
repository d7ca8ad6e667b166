// How a value is called in text and in messages.
#pragma once

#include <string>

#include "backend/graph/ir.h"

namespace ipex::graph {

std::string value_name(const Graph& graph, Value v);  // %3, %3.1, %input

}  // namespace ipex::graph

// What reports and profiles say of a step: the model's source lines in it, an estimate of its memory traffic
// and arithmetic, and a name that reads as the model does.
#pragma once

#include <cstdint>
#include <string>

#include "backend/graph/ir.h"
#include "runtime/executable.h"

namespace ipex::graph {

// Bytes of a value when the symbols have their hints.
int64_t bytes_hint(const Graph& g, Value v);

// Floating-point operations of a matrix product when the symbols have their hints.
int64_t product_flops(const Graph& g, const Node& node);

// Adds the sources of node `n` (and of its body), the bytes it reads and writes and its floating-point
// operations.
void describe(Step& step, const Graph& g, int32_t n);

// "_mul_add_gelu": the ops of a body, each once, in order; "_copy" where nothing is computed.
std::string kernel_suffix(const Graph& body);

}  // namespace ipex::graph

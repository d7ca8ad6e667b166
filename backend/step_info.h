// Descriptions of steps for reports and profiles: the model's source lines, estimates of memory traffic and
// arithmetic, and readable kernel names.
#pragma once

#include <cstdint>
#include <string>

#include "backend/graph/ir.h"
#include "runtime/executable.h"

namespace ipex::graph {

// Bytes of a value, with hints for symbols.
int64_t bytes_hint(const Graph& g, Value v);

// Floating-point operations of a matrix product, with hints for symbols.
int64_t product_flops(const Graph& g, const Node& node);

// Adds to `step` the sources of node `n` and of its body, the bytes it reads and writes, and its
// floating-point operations.
void describe(Step& step, const Graph& g, int32_t n);

// "_mul_add_gelu": the distinct ops of a body, in order; "_copy" for a body that computes nothing.
std::string kernel_suffix(const Graph& body);

}  // namespace ipex::graph

// What compile() tells the runtime about memory: sizes as programs over symbols, where values lie, and which
// kernels may write over what they read.
#pragma once

#include <vector>

#include "backend/lower/lower.h"
#include "runtime/executable.h"

namespace ipex::graph {

SizeExpr to_size_expr(const Dim& dim, const std::vector<std::string>& symbols);

// Elements from the first to the last that (shape, strides) touches, both included; 0 when there are none.
Dim span(const Shape& shape, const Strides& strides);
// The strides address a block of numel(shape) elements, each once.
bool is_dense(const Shape& shape, const Strides& strides);
bool same_strides(const Shape& shape, const Strides& a, const Strides& b);  // dims of extent 1 do not matter

OperandLayout layout_of(const Graph& graph, Value v);
// The value in the buffer of the root of its views.
TensorSpec spec_of(const Graph& graph, Value v, int buffer);

// May `out` and `in` of a lowered kernel be the same memory? Only when each element of `in` is read at the
// one place where the same element of `out` is written.
bool may_share(const loop::Function& f, const std::string& in, const std::string& out);

}  // namespace ipex::graph

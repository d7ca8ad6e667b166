// Memory information that compile() gives to the runtime: sizes as programs over symbols, layouts of values,
// and which kernels may write in place.
#pragma once

#include <vector>

#include "backend/lower/lower.h"
#include "runtime/executable.h"

namespace ipex::graph {

SizeExpr to_size_expr(const Dim& dim, const std::vector<std::string>& symbols);

// The number of elements from the first to the last that (shape, strides) addresses; 0 for no elements.
Dim span(const Shape& shape, const Strides& strides);
// Whether the strides address a block of numel(shape) elements, each once.
bool is_dense(const Shape& shape, const Strides& strides);
bool same_strides(const Shape& shape, const Strides& a, const Strides& b);  // ignores dims of extent 1

OperandLayout layout_of(const Graph& graph, Value v);
// The spec of a value in `buffer`, the buffer of the root of its views.
TensorSpec spec_of(const Graph& graph, Value v, int buffer);

// May `out` and `in` of a lowered kernel share memory? Only if each element of `in` is read just where the
// same element of `out` is written.
bool may_share(const loop::Function& f, const std::string& in, const std::string& out);

}  // namespace ipex::graph

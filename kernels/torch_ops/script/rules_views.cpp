// Ops that rearrange elements, and ops that read at indices.
#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>

#include <algorithm>
#include <numeric>

#include "kernels/torch_ops/script/rules.h"

namespace ipex::torch_ops::script {
namespace {

using Refs = std::vector<Ref>;

// view, flatten, squeeze and the like: the sizes are eager's.
Refs reshape(Call& c) { return {c.text.reshape(c.tensor(0), c.shape())}; }
Refs expand(Call& c) { return {c.text.expand(c.tensor(0), c.shape())}; }

Refs permute(Call& c) {
  const Ref& x = c.tensor(0);
  Shape dims = c.ints(1);
  for (int64_t& d : dims) d = d < 0 ? d + x.rank() : d;
  return {c.text.permute(x, dims)};
}

Refs transpose(Call& c) {
  const Ref& x = c.tensor(0);
  if (x.shape.empty()) return {x};
  Shape dims(x.shape.size());
  std::iota(dims.begin(), dims.end(), 0);
  std::swap(dims[c.dim(1, x.rank())], dims[c.dim(2, x.rank())]);
  return {c.text.permute(x, dims)};
}

Refs transpose_matrix(Call& c) {
  const Ref& x = c.tensor(0);
  return {x.rank() == 2 ? c.text.permute(x, {1, 0}) : x};
}

int64_t bound(int64_t at, int64_t size) { return std::clamp<int64_t>(at < 0 ? at + size : at, 0, size); }

// (self, dim, start, end, step)
Refs slice(Call& c) {
  const Ref& x = c.tensor(0);
  const int64_t dim = c.dim(1, x.rank());
  const int64_t start = c.is_given(2) ? bound(c.integer(2), x.shape[dim]) : 0;
  return {c.text.slice(x, dim, start, c.shape()[dim], c.integer(4))};
}

Refs narrow(Call& c) {
  const Ref& x = c.tensor(0);
  const int64_t dim = c.dim(1, x.rank());
  return {c.text.slice(x, dim, bound(c.integer(2), x.shape[dim]), c.shape()[dim])};
}

Refs select(Call& c) {
  const Ref& x = c.tensor(0);
  const int64_t dim = c.dim(1, x.rank());
  return {c.text.reshape(c.text.slice(x, dim, bound(c.integer(2), x.shape[dim]), 1), c.shape())};
}

// Consecutive parts along a dimension, with the sizes of eager's results.
Refs parts_along(Call& c, int64_t dim) {
  const Ref& x = c.tensor(0);
  Refs parts;
  for (int64_t i = 0, start = 0; i < static_cast<int64_t>(c.results()); ++i) {
    parts.push_back(c.text.slice(x, dim, start, c.shape(i)[dim]));
    start += c.shape(i)[dim];
  }
  return parts;
}

// (self, sizes or number of parts, dim)
Refs split(Call& c) { return parts_along(c, c.dim(2, c.tensor(0).rank())); }

// prim::ConstantChunk, which has its numbers as attributes of the node: eager's sizes say where it cuts.
Refs chunk(Call& c) {
  const Ref& x = c.tensor(0);
  if (c.results() == 1) return {x};
  int64_t dim = 0;
  while (c.shape(0)[dim] == x.shape[dim]) ++dim;
  return parts_along(c, dim);
}

Refs unbind(Call& c) {
  const Ref& x = c.tensor(0);
  const int64_t dim = c.dim(1, x.rank());
  Refs parts;
  for (int64_t i = 0; i < static_cast<int64_t>(c.results()); ++i)
    parts.push_back(c.text.reshape(c.text.slice(x, dim, i, 1), c.shape(i)));
  return parts;
}

Refs unpack(Call& c) { return c.tensors(0); }

// Tensors without dimensions or elements are left out, as in eager.
Refs joined(Call& c, const Refs& parts, int64_t dim) {
  Refs operands;
  for (const Ref& part : parts)
    if (numel(part.shape) != 0) operands.push_back(c.text.cast(part, c.dtype()));
  if (operands.empty()) throw Unsupported("a concatenation of no elements");
  if (operands.size() == 1) return operands;
  return {c.text.emit("cat", operands, "axis=" + std::to_string(dim), c.dtype(), c.shape())};
}
Refs cat(Call& c) { return joined(c, c.tensors(0), c.dim(1, static_cast<int64_t>(c.shape().size()))); }
Refs stack(Call& c) {
  const int64_t dim = c.dim(1, static_cast<int64_t>(c.shape().size()));
  Refs parts;
  for (const Ref& part : c.tensors(0)) {
    Shape shape = part.shape;
    shape.insert(shape.begin() + dim, 1);
    parts.push_back(c.text.reshape(part, shape));
  }
  return joined(c, parts, dim);
}

// (self, [before and after the last dim, ...][, mode], value)
Refs pad(Call& c) {
  const Ref& x = c.tensor(0);
  const bool has_mode = c.value(2).isString();
  if (has_mode && c.value(2).toStringRef() != "constant") throw Unsupported("padding other than constant");
  const size_t at = has_mode ? 3 : 2;
  const Shape given = c.ints(1);
  Shape low(x.shape.size(), 0), high = low;
  for (size_t i = 0; i < given.size() / 2; ++i) {
    low[x.shape.size() - 1 - i] = given[2 * i];
    high[x.shape.size() - 1 - i] = given[2 * i + 1];
  }
  const Ref value = c.text.scalar(c.is_given(at) ? c.value(at).toScalar() : c10::Scalar(0), x.dtype);
  return {c.text.emit("pad", {x, value}, "low=" + ints(low) + " high=" + ints(high), x.dtype, c.shape())};
}

// ---- at indices ----

Ref as_index(Call& c, const Ref& x) {
  if (x.dtype != at::kLong && x.dtype != at::kInt) throw Unsupported("an index of this type");
  return c.text.cast(x, at::kLong);
}

// (weight, indices, ...)
Refs embedding(Call& c) {
  const Ref &weight = c.tensor(0), index = as_index(c, c.tensor(1));
  Shape dims(index.shape.size());
  std::iota(dims.begin(), dims.end(), 0);
  const Ref rows = c.text.expand(index, c.shape(), dims);
  return {c.text.emit("gather", {weight, rows},
                      "map=[-1," + std::to_string(index.rank()) + "] wrap=false error=\"select\"",
                      weight.dtype, c.shape())};
}

// (weight, indices, offsets, scale_grad_by_freq, mode, sparse, per_sample_weights, include_last_offset,
// padding_idx), for constant offsets that cut the indices into bags of one length. Only the first result is
// written.
Refs embedding_bag(Call& c) {
  constexpr int64_t kSum = 0, kMean = 1;
  const int64_t mode = c.integer(4);
  const bool pads = c.size() > 8 && c.is_given(8) && c.integer(8) >= 0;
  if ((mode != kSum && mode != kMean) || c.is_given(6) || c.flag(7) || pads)
    throw Unsupported("an embedding bag with this mode, weights or padding");
  const Ref &weight = c.tensor(0), index = as_index(c, c.tensor(1));
  const at::Tensor offsets = c.value(2).toTensor();
  const int64_t bags = offsets.numel(), count = numel(index.shape), width = weight.shape[1];
  if (index.rank() != 1 || bags == 0 || count % bags != 0 || count == 0 ||
      !at::equal(offsets, at::arange(0, count, count / bags, offsets.options())))
    throw Unsupported("embedding bags of several lengths");
  const Ref rows = c.text.emit("gather", {weight, c.text.expand(index, {count, width}, Shape{0})},
                               "map=[-1,1] wrap=false error=\"bag\"", weight.dtype, {count, width});
  const Ref bagged = c.text.cast(c.text.reshape(rows, {bags, count / bags, width}), opmath(weight.dtype));
  return {c.text.cast(c.text.reduce(mode == kSum ? "sum" : "mean", bagged, {1}, false), c.dtype())};
}

// (self, dim, index)
Refs gather(Call& c) {
  const Ref& x = c.tensor(0);
  if (x.shape.empty()) throw Unsupported("gather from a tensor without dimensions");
  Shape map(x.shape.size());
  std::iota(map.begin(), map.end(), 0);
  map[c.dim(1, x.rank())] = -1;
  return {c.text.emit("gather", {x, as_index(c, c.tensor(2))},
                      "map=" + ints(map) + " wrap=false error=\"element\"", x.dtype, c.shape())};
}

Refs index_select(Call& c) {
  const Ref &x = c.tensor(0), index = as_index(c, c.tensor(2));
  if (x.shape.empty() || index.rank() != 1) throw Unsupported("index_select of this rank");
  const int64_t dim = c.dim(1, x.rank());
  Shape map(x.shape.size());
  std::iota(map.begin(), map.end(), 0);
  map[dim] = -1;
  return {c.text.emit(
      "gather", {x, c.text.expand(index, c.shape(), Shape{dim})},
      "map=" + ints(map) + " wrap=false error=\"" + (dim == 1 ? "select_column" : "select") + "\"", x.dtype,
      c.shape())};
}

// (self, indices): NumPy's advanced indexing. The indices are broadcast. Their dimensions stay in place if
// the indices are adjacent, else they come first.
Refs index(Call& c) {
  const Ref& x = c.tensor(0);
  Refs given = c.tensors(1);
  given.resize(x.shape.size());  // an index without a name is absent
  Shape shared, positions;
  for (size_t d = 0; d < given.size(); ++d) {
    if (given[d].name.empty()) continue;
    given[d] = as_index(c, given[d]);
    shared = broadcast(shared, given[d].shape);
    positions.push_back(static_cast<int64_t>(d));
  }
  if (positions.empty()) throw Unsupported("no index");
  const bool adjacent = positions.back() - positions.front() + 1 == static_cast<int64_t>(positions.size());
  const int64_t lead = adjacent ? positions.front() : 0, rank = static_cast<int64_t>(shared.size());
  Shape dims(shared.size()), map;
  std::iota(dims.begin(), dims.end(), lead);
  Refs operands{x};
  int64_t kept = 0;  // dims of x before d without an index
  for (size_t d = 0; d < given.size(); ++d) {
    if (given[d].name.empty()) {
      map.push_back(kept < lead ? kept : kept + rank);
      ++kept;
    } else {
      map.push_back(-static_cast<int64_t>(operands.size()));
      operands.push_back(c.text.expand(c.text.expand(given[d], shared), c.shape(), dims));
    }
  }
  // Eager's error messages number only the dimensions that have an index.
  Shape numbers(given.size());
  std::iota(numbers.begin(), numbers.end(), 0);
  for (size_t i = 0; i < positions.size(); ++i) numbers[positions[i]] = static_cast<int64_t>(i);
  return {c.text.emit("gather", operands, "map=" + ints(map) + " error_dims=" + ints(numbers), x.dtype,
                      c.shape())};
}

constexpr NamedRule kRules[] = {
    {"aten::view aten::reshape aten::_unsafe_view aten::flatten aten::unflatten aten::squeeze "
     "aten::unsqueeze aten::view_as aten::reshape_as",
     reshape, false},
    {"aten::expand aten::expand_as aten::broadcast_to", expand, false},
    {"aten::permute", permute, false},
    {"aten::transpose aten::swapaxes aten::swapdims", transpose, false},
    {"aten::t", transpose_matrix, false},
    {"aten::slice", slice, false},
    {"aten::narrow", narrow, false},
    {"aten::select", select, false},
    {"aten::split aten::split_with_sizes aten::chunk", split, false},
    {"prim::ConstantChunk", chunk, false},
    {"aten::unbind", unbind, false},
    {"prim::ListUnpack", unpack, false},
    {"aten::cat aten::concat", cat},
    {"aten::stack", stack},
    {"aten::constant_pad_nd aten::pad", pad},
    {"aten::embedding", embedding},
    {"aten::embedding_bag aten::_embedding_bag", embedding_bag},
    {"aten::gather", gather},
    {"aten::index_select", index_select},
    {"aten::index", index},
};

}  // namespace

std::span<const NamedRule> view_rules() { return kRules; }

}  // namespace ipex::torch_ops::script

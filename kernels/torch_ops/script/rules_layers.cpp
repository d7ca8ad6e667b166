// Products, convolutions, attention, norms and pools. The formulas are those of python/, compiler/rules.
#include <cmath>

#include "kernels/torch_ops/script/rules.h"

namespace ipex::torch_ops::script {
namespace {

using c10::ScalarType;
using Refs = std::vector<Ref>;

// ---- matrix products ----

// The types that the library multiplies. Autocast may have given the result another type than the operands.
ScalarType product_type(const Call& c) {
  if (c.dtype() != at::kFloat && c.dtype() != at::kBFloat16)
    throw Unsupported(std::string("a product of ") + c10::toString(c.dtype()));
  return c.dtype();
}

Ref product(Call& c, const Ref& a, const Ref& b, const Ref* bias = nullptr) {
  const ScalarType dtype = product_type(c);
  Shape shape = a.shape;
  shape.back() = b.shape.back();
  if (numel(a.shape) == 0 || numel(b.shape) == 0) throw Unsupported("a product of no elements");
  Refs operands{c.text.cast(a, dtype), c.text.cast(b, dtype)};
  if (bias) operands.push_back(c.text.cast(*bias, dtype));
  return c.text.emit("matmul", operands, bias ? "bias=true post=[]" : "bias=false post=[]", dtype, shape);
}

Ref swapped(Call& c, const Ref& x) {
  Shape dims;
  for (int64_t d = 0; d < x.rank(); ++d) dims.push_back(d);
  std::swap(dims[dims.size() - 1], dims[dims.size() - 2]);
  return c.text.permute(x, dims);
}

// The tensor as a matrix with the same last dimension.
Ref as_rows(Call& c, const Ref& x) {
  return x.rank() == 2
             ? x
             : c.text.reshape(x, {numel(x.shape) / std::max<int64_t>(1, x.shape.back()), x.shape.back()});
}

// (input, weight, bias)
Refs linear(Call& c) {
  const Ref &x = c.tensor(0), &w = c.tensor(1);
  if (x.shape.empty() || w.rank() != 2 || x.shape.back() == 0)
    throw Unsupported("a linear layer of this rank");
  const Ref result = product(c, as_rows(c, x), swapped(c, w), c.is_given(2) ? &c.tensor(2) : nullptr);
  return {c.text.reshape(result, c.shape())};
}

Refs matmul(Call& c) {
  const Ref &a = c.tensor(0), &b = c.tensor(1);
  if (a.rank() < 2 || b.rank() < 2) throw Unsupported("a product with a vector");
  if (a.shape.back() == 0) throw Unsupported("a product of no elements");
  if (b.rank() == 2) return {c.text.reshape(product(c, as_rows(c, a), b), c.shape())};
  // The batch dimensions as one.
  const Shape shape = c.shape(), lead(shape.begin(), shape.end() - 2);
  const auto batched = [&](const Ref& x) {
    Shape whole = lead;
    whole.insert(whole.end(), x.shape.end() - 2, x.shape.end());
    return c.text.reshape(c.text.expand(x, whole),
                          {numel(lead), x.shape[x.shape.size() - 2], x.shape.back()});
  };
  return {c.text.reshape(product(c, batched(a), batched(b)), shape)};
}

Ref scaled(Call& c, const Ref& x, const c10::Scalar& factor) {
  return factor.equal(1) ? x : c.text.pointwise("mul", {x, factor});
}

// (bias, a, b, beta, alpha)
Refs addmm(Call& c) {
  const Ref &bias = c.tensor(0), &a = c.tensor(1), &b = c.tensor(2);
  const c10::Scalar beta = c.value(3).toScalar(), alpha = c.value(4).toScalar();
  if (beta.equal(0) || alpha.equal(0)) throw Unsupported("addmm that ignores an operand");
  if (beta.equal(1) && alpha.equal(1)) return {product(c, a, b, &bias)};
  const Ref sum = c.text.pointwise("add", {scaled(c, product(c, a, b), alpha), scaled(c, bias, beta)});
  return {c.text.cast(sum, c.dtype())};
}

// ---- attention ----

// (query, key, value, mask, dropout, causal, scale, grouped)
Refs attention(Call& c) {
  if (c.real(4) != 0) throw Unsupported("attention with dropout");
  const int64_t rank = c.tensor(0).rank();
  if (rank != 3 && rank != 4) throw Unsupported("attention of this rank");
  const ScalarType dtype = c.dtype();
  if (!c10::isFloatingType(dtype) || dtype == at::kHalf) throw Unsupported("attention of this type");
  Refs operands;
  for (size_t i = 0; i < 3; ++i) {
    const Ref& x = c.tensor(i);
    if (x.rank() != rank || numel(x.shape) == 0) throw Unsupported("attention of these sizes");
    operands.push_back(
        c.text.cast(rank == 4 ? x : c.text.reshape(x, {x.shape[0], 1, x.shape[1], x.shape[2]}), dtype));
  }
  const Shape &q = operands[0].shape, &k = operands[1].shape, &v = operands[2].shape;
  const bool grouped = c.size() > 7 && c.flag(7);
  if (q[0] != k[0] || k[0] != v[0] || k[1] != v[1] || q[3] != k[3] || k[2] != v[2] ||
      (grouped ? q[1] % k[1] != 0 : q[1] != k[1]))
    throw Unsupported("attention of operands that are broadcast");
  const double scale = c.is_given(6) ? c.real(6) : 1 / std::sqrt(static_cast<double>(q[3]));
  if (c.is_given(3)) {
    Ref mask = c.tensor(3);
    if (rank == 3 && mask.rank() == 3)
      mask = c.text.reshape(mask, {mask.shape[0], 1, mask.shape[1], mask.shape[2]});
    if (mask.dtype == at::kBool)
      mask = c.text.where(mask, c.text.scalar(0.0, dtype),
                          c.text.scalar(-std::numeric_limits<double>::infinity(), dtype));
    operands.push_back(c.text.expand(mask, {q[0], q[1], q[2], k[2]}));
  }
  char number[32];
  std::snprintf(number, sizeof number, "%.17e", scale);
  const Ref result = c.text.emit("attention", operands,
                                 std::string("causal=") + (c.flag(5) ? "true" : "false") + " scale=" + number,
                                 dtype, {q[0], q[1], q[2], v[3]});
  return {c.text.reshape(result, c.shape())};
}

// ---- convolutions ----

struct Window {
  Shape stride, padding, dilation, output_padding;
  bool transposed = false;
  int64_t groups = 1;
};

Refs convolution(Call& c, const Window& window) {
  const ScalarType dtype = product_type(c);
  const Ref &x = c.tensor(0), &w = c.tensor(1);
  if (x.rank() != w.rank() || x.rank() < 3 || x.rank() > 5) throw Unsupported("a convolution of this rank");
  if (numel(x.shape) == 0 || numel(w.shape) == 0 || numel(c.shape()) == 0)
    throw Unsupported("a convolution of no elements");
  Refs operands{c.text.cast(x, dtype), c.text.cast(w, dtype)};
  if (c.is_given(2)) operands.push_back(c.text.cast(c.tensor(2), dtype));
  const auto flag = [](bool value) { return std::string(value ? "true" : "false"); };
  return {c.text.emit("conv", operands,
                      "bias=" + flag(c.is_given(2)) + " dilation=" + ints(window.dilation) + " groups=" +
                          std::to_string(window.groups) + " output_padding=" + ints(window.output_padding) +
                          " padding=" + ints(window.padding) + " stride=" + ints(window.stride) +
                          " transposed=" + flag(window.transposed) + " post=[]",
                      dtype, c.shape())};
}

size_t spatial_rank(const Call& c) { return c.tensor(1).shape.size() - 2; }

// (input, weight, bias, stride, padding, dilation, transposed, output_padding, groups, ...)
Refs any_convolution(Call& c) {
  const size_t rank = spatial_rank(c);
  return convolution(
      c, {c.ints(3, rank), c.ints(4, rank), c.ints(5, rank), c.ints(7, rank), c.flag(6), c.integer(8)});
}
// (input, weight, bias, stride, padding, dilation, groups)
Refs plain_convolution(Call& c) {
  const size_t rank = spatial_rank(c);
  if (c.value(4).isString()) throw Unsupported("a convolution whose padding has a name");
  return convolution(
      c, {c.ints(3, rank), c.ints(4, rank), c.ints(5, rank), Shape(rank, 0), false, c.integer(6)});
}

// ---- norms ----

// The values of a parameter, one for each channel, as a tensor that broadcasts with x.
Ref by_channel(Call& c, const Ref& parameter, const Ref& x) {
  Shape shape(x.shape.size() - 1, 1);
  shape[0] = x.shape[1];
  return c.text.reshape(c.text.cast(parameter, opmath(x.dtype)), shape);
}

// (input, weight, bias, mean, variance, training, momentum, eps, ...)
Refs batch_norm(Call& c) {
  const Ref& x = c.tensor(0);
  if (c.flag(5) || !c.is_given(3) || !c.is_given(4)) throw Unsupported("batch norm in training");
  if (x.rank() < 2) throw Unsupported("batch norm of this rank");
  const ScalarType wide = opmath(x.dtype);
  const Ref variance = c.text.cast(c.tensor(4), wide);
  const Ref scale = c.text.pointwise(
      "reciprocal", {c.text.pointwise("sqrt", {c.text.pointwise("add", {variance, c.real(7)})})});
  Ref y = c.text.pointwise("sub", {c.text.cast(x, wide), by_channel(c, c.tensor(3), x)});
  y = c.text.pointwise("mul", {y, by_channel(c, scale, x)});
  if (c.is_given(1)) y = c.text.pointwise("mul", {y, by_channel(c, c.tensor(1), x)});
  if (c.is_given(2)) y = c.text.pointwise("add", {y, by_channel(c, c.tensor(2), x)});
  return {c.text.cast(y, c.dtype())};
}

// The values over `axes` with mean 0 and variance 1, in the type of the arithmetic.
Ref normalized(Call& c, const Ref& x, const Shape& axes, double eps) {
  const Ref values = c.text.cast(x, opmath(x.dtype));
  const Shape kept = reduced(x.shape, axes, true);
  const ValueType types[] = {{values.dtype, kept}, {values.dtype, kept}};
  const Refs statistics = c.text.emit_many("reduce.var_mean", {&values, 1},
                                           "axes=" + ints(axes) + " keepdim=true correction=0.0", types);
  const Ref scale = c.text.pointwise("rsqrt", {c.text.pointwise("add", {statistics[0], eps})});
  return c.text.pointwise("mul", {c.text.pointwise("sub", {values, statistics[1]}), scale});
}

// (input, normalized_shape, weight, bias, eps, ...)
Refs layer_norm(Call& c) {
  const Ref& x = c.tensor(0);
  if (numel(x.shape) == 0) throw Unsupported("a norm of no elements");
  Shape axes;
  for (int64_t d = x.rank() - static_cast<int64_t>(c.ints(1).size()); d < x.rank(); ++d) axes.push_back(d);
  Ref y = normalized(c, x, axes, c.real(4));
  if (c.is_given(2)) y = c.text.pointwise("mul", {y, c.tensor(2)});
  if (c.is_given(3)) y = c.text.pointwise("add", {y, c.tensor(3)});
  return {c.text.cast(y, c.dtype())};
}

// (input, groups, weight, bias, eps, ...)
Refs group_norm(Call& c) {
  const Ref& x = c.tensor(0);
  const int64_t groups = c.integer(1);
  if (x.rank() < 2 || numel(x.shape) == 0) throw Unsupported("a norm of no elements");
  const Ref grouped = c.text.reshape(x, {x.shape[0], groups, numel(x.shape) / x.shape[0] / groups});
  Ref y = c.text.reshape(normalized(c, grouped, {2}, c.real(4)), x.shape);
  if (c.is_given(2)) y = c.text.pointwise("mul", {y, by_channel(c, c.tensor(2), x)});
  if (c.is_given(3)) y = c.text.pointwise("add", {y, by_channel(c, c.tensor(3), x)});
  return {c.text.cast(y, c.dtype())};
}

// ---- pools ----

// Pools the last dimensions, as many as the kernel has. An image without a batch dimension gets one.
Ref pool(Call& c, const char* kind, const Shape& kernel, const std::string& attributes) {
  const Ref& x = c.tensor(0);
  if (!c10::isFloatingType(x.dtype) || numel(c.shape()) == 0) throw Unsupported("a pool of this type");
  const bool single = x.shape.size() == kernel.size() + 1;
  const auto batched = [&](Shape shape) {
    if (single) shape.insert(shape.begin(), 1);
    return shape;
  };
  const Ref operand = c.text.reshape(x, batched(x.shape));
  std::vector<ValueType> types{{x.dtype, batched(c.shape())}};
  if (std::string_view(kind) == "max") types.emplace_back(at::kLong, batched(c.shape()));
  const Refs results = c.text.emit_many(
      "pool", {&operand, 1}, "kind=\"" + std::string(kind) + "\" kernel=" + ints(kernel) + attributes, types);
  return c.text.reshape(results[0], c.shape());
}

Shape stride_of(const Call& c, size_t i, const Shape& kernel) {
  const Shape stride = c.is_given(i) ? c.ints(i, kernel.size()) : Shape();
  return stride.empty() ? kernel : stride;
}

// (input, kernel, stride, padding, dilation, ceil_mode)
template <size_t kRank>
Refs max_pool(Call& c) {
  const Shape kernel = c.ints(1, kRank);
  return {pool(c, "max", kernel,
               " stride=" + ints(stride_of(c, 2, kernel)) + " padding=" + ints(c.ints(3, kRank)) +
                   " dilation=" + ints(c.ints(4, kRank)) + " ceil_mode=" + (c.flag(5) ? "true" : "false") +
                   " count_include_pad=false")};
}

// (input, kernel, stride, padding, ceil_mode, count_include_pad[, divisor])
template <size_t kRank>
Refs avg_pool(Call& c) {
  const Shape kernel = c.ints(1, kRank);
  return {pool(c, "avg", kernel,
               " stride=" + ints(stride_of(c, 2, kernel)) + " padding=" + ints(c.ints(3, kRank)) +
                   " dilation=" + ints(Shape(kRank, 1)) + " ceil_mode=" + (c.flag(4) ? "true" : "false") +
                   " count_include_pad=" + (c.flag(5) ? "true" : "false") +
                   " divisor=" + std::to_string(c.is_given(6) ? c.integer(6) : 0))};
}

// (input, output_size)
template <size_t kRank>
Refs adaptive_avg_pool(Call& c) {
  const Ref& x = c.tensor(0);
  if (numel(x.shape) == 0) throw Unsupported("an average of no elements");
  Shape kernel;
  bool equal = true;  // windows of one size
  for (size_t d = x.shape.size() - kRank; d < x.shape.size(); ++d) {
    const int64_t out = c.shape()[d];
    equal = equal && out > 0 && x.shape[d] % out == 0;
    kernel.push_back(equal ? x.shape[d] / out : 1);
  }
  if (!equal) kernel.assign(kRank, 1);
  return {pool(c, "avg", kernel,
               " stride=" + ints(kernel) + " padding=" + ints(Shape(kRank, 0)) +
                   " dilation=" + ints(Shape(kRank, 1)) + (equal ? "" : " window=\"adaptive\""))};
}

constexpr NamedRule kRules[] = {
    {"aten::linear torch_ipex::ipex_linear", linear},
    {"aten::matmul aten::mm aten::bmm", matmul},
    {"aten::addmm aten::baddbmm", addmm},
    {"aten::scaled_dot_product_attention", attention},
    {"aten::_convolution aten::convolution torch_ipex::convolution_forward", any_convolution},
    {"aten::conv1d aten::conv2d aten::conv3d", plain_convolution},
    {"aten::batch_norm", batch_norm},
    {"aten::layer_norm", layer_norm},
    {"aten::group_norm", group_norm},
    {"aten::max_pool1d", max_pool<1>},
    {"aten::max_pool2d", max_pool<2>},
    {"aten::max_pool3d", max_pool<3>},
    {"aten::avg_pool1d", avg_pool<1>},
    {"aten::avg_pool2d", avg_pool<2>},
    {"aten::avg_pool3d", avg_pool<3>},
    {"aten::adaptive_avg_pool1d", adaptive_avg_pool<1>},
    {"aten::adaptive_avg_pool2d", adaptive_avg_pool<2>},
    {"aten::adaptive_avg_pool3d", adaptive_avg_pool<3>},
};

}  // namespace

std::span<const NamedRule> layer_rules() { return kRules; }

}  // namespace ipex::torch_ops::script

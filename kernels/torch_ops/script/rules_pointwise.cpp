// Arithmetic, conversions and reductions whose operands need preparation. All other ops of these kinds are
// rows of the op tables (rules.cpp).
#include <algorithm>

#include "kernels/torch_ops/script/rules.h"

namespace ipex::torch_ops::script {
namespace {

using Refs = std::vector<Ref>;

// ATen does not subtract booleans.
void refuse_booleans(const Operand& operand) {
  const Ref* ref = std::get_if<Ref>(&operand);
  if (ref ? ref->dtype == at::kBool : std::get<c10::Scalar>(operand).isBoolean())
    throw Unsupported("arithmetic on booleans");
}

Refs sum(GraphText& text, std::string_view row, const Operand& x, const Operand& y,
         const c10::Scalar& alpha) {
  refuse_booleans(x);
  refuse_booleans(y);
  if (alpha.equal(1)) return {text.pointwise(row, {x, y})};
  return {text.pointwise(std::string(row) + "_scaled", {x, y, alpha})};
}
Refs add(Call& c) {
  return sum(c.text, "add", c.operand(0), c.operand(1), c.size() > 2 ? c.value(2).toScalar() : 1);
}
Refs sub(Call& c) {
  return sum(c.text, "sub", c.operand(0), c.operand(1), c.size() > 2 ? c.value(2).toScalar() : 1);
}
Refs rsub(Call& c) {
  return sum(c.text, "sub", c.operand(1), c.operand(0), c.size() > 2 ? c.value(2).toScalar() : 1);
}

Refs div(Call& c) {
  std::string row = "div";
  if (c.is_given(2)) row += "_" + c.value(2).toStringRef();
  return {c.text.pointwise(row, {c.operand(0), c.operand(1)})};
}

Refs gelu(Call& c) {
  const bool tanh = c.size() > 1 && c.value(1).toStringRef() == "tanh";
  return {c.text.pointwise(tanh ? "gelu_tanh" : "gelu", {c.operand(0)})};
}

Refs clamp(Call& c) {
  if (!c.is_given(1)) return {c.text.pointwise("clamp_max", {c.operand(0), c.operand(2)})};
  if (!c.is_given(2)) return {c.text.pointwise("clamp_min", {c.operand(0), c.operand(1)})};
  return {c.text.pointwise("clamp", {c.operand(0), c.operand(1), c.operand(2)})};
}

Refs where(Call& c) { return {c.text.where(c.tensor(0), c.operand(1), c.operand(2))}; }

Refs masked_fill(Call& c) {
  const Ref& x = c.tensor(0);
  const Ref filling =
      c.is_tensor(2) ? c.text.cast(c.tensor(2), x.dtype) : c.text.scalar(c.value(2).toScalar(), x.dtype);
  return {c.text.where(c.tensor(1), filling, x)};
}

// to, contiguous, clone and the like: values are the same, in the type that eager gives them.
Refs convert(Call& c) { return {c.text.cast(c.tensor(0), c.dtype())}; }

Refs dropout(Call& c) {
  if (c.flag(2)) throw Unsupported("dropout in training");
  return {c.tensor(0)};
}

// ---- softmax: see compiler/rules/softmax.py ----

struct Exponentials {
  Ref shifted, powers, total;
};
Exponentials exponentials(GraphText& text, const Ref& x, int64_t dim, c10::ScalarType result) {
  const bool half = opmath(result) != result;
  const Ref shifted = text.pointwise("sub", {x, text.reduce("fmax", x, {dim}, true)});
  const Ref powers = text.pointwise(half ? "exp_nonpositive_half" : "exp_nonpositive", {shifted});
  return {shifted, powers, text.reduce("sum", powers, {dim}, true)};
}
Ref softmax_operand(Call& c) {
  const Ref& x = c.tensor(0);
  if (x.shape.empty() || numel(x.shape) == 0) throw Unsupported("softmax of no elements or no dimensions");
  return c.text.cast(x, opmath(c.dtype()));
}
Refs softmax(Call& c) {
  const Ref x = softmax_operand(c);
  const auto [shifted, powers, total] = exponentials(c.text, x, c.dim(1, x.rank()), c.dtype());
  return {c.text.cast(c.text.pointwise("mul", {powers, c.text.pointwise("reciprocal", {total})}), c.dtype())};
}
Refs log_softmax(Call& c) {
  const Ref x = softmax_operand(c);
  const auto [shifted, powers, total] = exponentials(c.text, x, c.dim(1, x.rank()), c.dtype());
  return {c.text.cast(c.text.pointwise("sub", {shifted, c.text.pointwise("log", {total})}), c.dtype())};
}

// ---- reductions over dimensions: (self, dim, keepdim[, dtype]) or (self[, dtype]) ----

Refs reduce(Call& c, std::string_view row) {
  Ref x = c.text.cast(c.tensor(0), c.dtype());
  if (!c10::isFloatingType(x.dtype) || x.shape.empty()) throw Unsupported("a reduction of this type");
  Shape axes;
  const bool by_dim = c.size() > 1 && (c.value(1).isIntList() || c.size() > 2);
  if (by_dim && c.is_given(1))
    for (const int64_t d : c.ints(1)) axes.push_back(d < 0 ? d + x.rank() : d);
  const bool keepdim = by_dim && c.flag(2);
  if (axes.empty())
    for (int64_t d = 0; d < x.rank(); ++d) axes.push_back(d);
  std::sort(axes.begin(), axes.end());
  if (row != "sum" && numel(x.shape) == 0) throw Unsupported("a reduction of no elements");
  return {c.text.reduce(row, x, axes, keepdim)};
}
Refs sum_of(Call& c) { return reduce(c, "sum"); }
Refs mean(Call& c) { return reduce(c, "mean"); }
Refs amax(Call& c) { return reduce(c, "amax"); }
Refs amin(Call& c) { return reduce(c, "amin"); }

// (self, dim[, dtype])
Refs cumsum(Call& c) {
  const Ref x = c.text.cast(c.tensor(0), c.dtype());
  if (x.shape.empty()) throw Unsupported("a running sum without dimensions");
  return {c.text.emit("scan.cumsum", {x}, "axis=" + std::to_string(c.dim(1, x.rank())), x.dtype, x.shape)};
}

constexpr NamedRule kRules[] = {
    {"aten::add", add},
    {"aten::sub", sub},
    {"aten::rsub", rsub},
    {"aten::div", div},
    {"aten::gelu", gelu},
    {"aten::clamp", clamp},
    {"aten::where", where},
    {"aten::masked_fill", masked_fill},
    {"aten::to aten::type_as aten::_to_copy aten::_autocast_to_reduced_precision "
     "aten::_autocast_to_full_precision",
     convert},
    {"aten::contiguous aten::clone aten::alias aten::detach aten::lift_fresh", convert, false},
    {"aten::dropout aten::feature_dropout", dropout, false},
    {"aten::softmax aten::_softmax", softmax},
    {"aten::log_softmax aten::_log_softmax", log_softmax},
    {"aten::sum", sum_of},
    {"aten::mean", mean},
    {"aten::amax", amax},
    {"aten::amin", amin},
    {"aten::cumsum", cumsum},
};

}  // namespace

std::span<const NamedRule> pointwise_rules() { return kRules; }

}  // namespace ipex::torch_ops::script

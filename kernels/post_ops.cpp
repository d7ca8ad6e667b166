// The table of fused epilogues. A row has a name, the equivalent pointwise op, the number of parameters in
// text form, and a function from these parameters to the oneDNN algorithm with its two parameters.
#include "kernels/post_ops.h"

#include <array>
#include <charconv>
#include <limits>

#include "kernels/descriptors.h"
#include "kernels/engine.h"
#include "runtime/error.h"

namespace ipex::kernels {
namespace {

using dnnl::algorithm;

struct Form {
  algorithm kind;
  float alpha = 0, beta = 0;
};

struct Rule {
  PostOpRow row;
  Form (*form)(const PostOp& op);
};

template <algorithm kind>
constexpr Form plain(const PostOp&) {
  return {kind};
}
template <algorithm kind>
constexpr Form as_given(const PostOp& op) {
  return {kind, op.alpha, op.beta};
}
constexpr Form swish(const PostOp&) { return {algorithm::eltwise_swish, 1}; }
constexpr Form hardswish(const PostOp&) { return {algorithm::eltwise_hardswish, 1.0f / 6.0f, 0.5f}; }

// elu with a factor of 0: x > 0 ? x : 0 * expm1(x). oneDNN's relu is max(x, 0), which loses NaN, and
// x * clamp(x * huge, 0, 1) would turn -inf into NaN. This form costs an exponential: on AVX2, a 1x1
// convolution of 64 to 256 channels over 56x56 takes 813 us with it, and 734 us followed by a separate
// kernel.
constexpr Form relu(const PostOp&) { return {algorithm::eltwise_elu, 0}; }
// With a slope of 0 oneDNN uses max(x, 0), but eager multiplies, which gives NaN for NaN and -inf.
constexpr Form leaky_relu(const PostOp& op) {
  if (op.alpha == 0) return {algorithm::eltwise_hardswish, std::numeric_limits<float>::max()};
  return {algorithm::eltwise_relu, op.alpha};
}

// clang-format off
constexpr Rule kRules[] = {
    // name          pointwise      numbers operand  NaN   pays
    {{"relu",        "relu",        0, false, true, false}, relu},
    {{"leaky_relu",  "leaky_relu",  1, false, true, true}, leaky_relu},
    {{"elu",         "elu",         1, false, true, true}, as_given<algorithm::eltwise_elu>},
    {{"gelu",        "gelu",        0, false, true, true}, plain<algorithm::eltwise_gelu_erf>},
    {{"gelu_tanh",   "gelu_tanh",   0, false, true, true}, plain<algorithm::eltwise_gelu_tanh>},
    {{"silu",        "silu",        0, false, true, true}, swish},
    {{"sigmoid",     "sigmoid",     0, false, true, true}, plain<algorithm::eltwise_logistic>},
    {{"tanh",        "tanh",        0, false, true, true}, plain<algorithm::eltwise_tanh>},
    {{"hardswish",   "hardswish",   0, false, true, true}, hardswish},
    {{"mish",        "mish",        0, false, true, true}, plain<algorithm::eltwise_mish>},
    {{"hardtanh",    "hardtanh",    2, false, false, true}, as_given<algorithm::eltwise_clip>},
    {{"clip",        "hardtanh",    2, false, false, true}, as_given<algorithm::eltwise_clip>},
    {{"square",      "square",      0, false, true, true}, plain<algorithm::eltwise_square>},
    {{"abs",         "abs",         0, false, true, true}, plain<algorithm::eltwise_abs>},
    {{"sqrt",        "sqrt",        0, false, true, true}, plain<algorithm::eltwise_sqrt>},
    {{"add",         "add",         0, true,  true, true}, plain<algorithm::binary_add>},
    {{"sub",         "sub",         0, true,  true, true}, plain<algorithm::binary_sub>},
    {{"mul",         "mul",         0, true,  true, true}, plain<algorithm::binary_mul>},
    {{"sum",         "",            0, true,  true, true}, plain<algorithm::binary_add>},
};
// clang-format on

constexpr auto kRows = [] {
  std::array<PostOpRow, std::size(kRules)> rows;
  for (size_t i = 0; i < rows.size(); ++i) rows[i] = kRules[i].row;
  return rows;
}();

const Rule* find_rule(std::string_view name) {
  for (const Rule& rule : kRules)
    if (rule.row.name == name) return &rule;
  return nullptr;
}

const Rule& rule_of(const PostOp& op) {
  const Rule* rule = find_rule(op.name);
  if (!rule) throw UserError("unknown post-op '" + op.name + "'; see the table in kernels/post_ops.cpp");
  return *rule;
}

float parse_number(std::string_view text, std::string_view whole) {
  float value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size())
    throw UserError("post-op '" + std::string(whole) + "': '" + std::string(text) + "' is not a number");
  return value;
}

bool strides_agree(const TensorView& a, const TensorView& b) {
  for (size_t i = 0; i < a.sizes.size(); ++i)
    if (a.sizes[i] != 1 && a.strides[i] != b.strides[i]) return false;
  return true;
}

}  // namespace

std::span<const PostOpRow> post_op_rows() { return kRows; }

PostOp parse_post_op(std::string_view text) {
  std::vector<std::string_view> parts;
  for (std::string_view rest = text;;) {
    const size_t colon = rest.find(':');
    parts.push_back(rest.substr(0, colon));
    if (colon == std::string_view::npos) break;
    rest = rest.substr(colon + 1);
  }
  PostOp op;
  op.name = parts[0];
  const PostOpRow& row = rule_of(op).row;
  if (static_cast<int>(parts.size()) != row.parameters + 1)
    throw UserError("post-op '" + std::string(text) + "': " + op.name + " takes " +
                    std::to_string(row.parameters) + " number(s), for example name:1:2");
  if (row.parameters > 0) op.alpha = parse_number(parts[1], text);
  if (row.parameters > 1) op.beta = parse_number(parts[2], text);
  return op;
}

Epilogue::Epilogue(std::span<const BoundPostOp> post, const TensorView& dst, OperandForm form,
                   const std::string& what) {
  const std::vector<int> order = row_major_order(static_cast<int>(dst.sizes.size()));
  for (const BoundPostOp& bound : post) {
    const Rule& rule = rule_of(bound.op);
    const Form as = rule.form(bound.op);
    if (!rule.row.takes_operand) {
      post_ops_.append_eltwise(as.kind, as.alpha, as.beta);
      continue;
    }
    const TensorView given = with_plain_strides(without_repeats(bound.view), order);
    const bool full = given.sizes == dst.sizes;
    const bool same_strides = full && strides_agree(given, dst);
    if (bound.shares_result && !form.copy && same_strides && bound.view.dtype == dst.dtype &&
        as.kind == algorithm::binary_add) {
      post_ops_.append_sum();
      continue;
    }
    TensorView like_dst = dst;
    like_dst.dtype = bound.view.dtype;
    Operand operand{post_ops_.len(), bound.operand, {}, {}, false};
    if (same_strides) {
      operand.given = operand.used = describe(like_dst, what);
    } else if (full || (form.full && given.numel() > 1)) {
      operand.given = describe(full ? given : with_plain_strides(bound.view, order), what);
      operand.used = describe(like_dst, what);
    } else {
      operand.given = describe(given, what);
      operand.used = describe_dense(given, order, what);
    }
    operand.copy = bound.shares_result || operand.given != operand.used;
    post_ops_.append_binary(as.kind, operand.used);
    operands_.push_back(std::move(operand));
  }
}

dnnl::primitive_attr Epilogue::attributes() const {
  dnnl::primitive_attr attributes = base_attributes();
  attributes.set_post_ops(post_ops_);
  return attributes;
}

void Epilogue::bind(Plan& plan, Plan::Arguments& arguments) const {
  for (const Operand& operand : operands_) {
    int slot = plan.operand(operand.operand, operand.given);
    if (operand.copy) slot = plan.copied(slot, operand.used);
    arguments.emplace_back(DNNL_ARG_ATTR_MULTIPLE_POST_OP(operand.position) | DNNL_ARG_SRC_1, slot);
  }
}

bool any_operand(std::span<const BoundPostOp> post) {
  for (const BoundPostOp& bound : post)
    if (bound.operand >= 0) return true;
  return false;
}

std::string post_op_text(std::span<const BoundPostOp> post) {
  std::string text;
  for (const BoundPostOp& bound : post) text += " +" + bound.op.name;
  return text;
}

}  // namespace ipex::kernels

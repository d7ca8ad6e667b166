// torch_ipex::linear_fused: a linear layer, then an activation, a product and sums, in one graph.
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/relu.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/silu.h>
#include <torch/library.h>

#include <array>

#include "kernels/torch_ops/compiled_ops.h"
#include "kernels/torch_ops/operators.h"

namespace ipex::torch_ops {
namespace {

using at::Tensor;
using at::TensorList;

constexpr std::array<std::string_view, 6> kActivations = {"none",      "relu", "gelu",
                                                          "gelu_tanh", "silu", "sigmoid"};

int activation_index(c10::string_view name) {
  for (size_t i = 0; i < kActivations.size(); ++i)
    if (kActivations[i] == std::string_view(name.data(), name.size())) return static_cast<int>(i);
  TORCH_CHECK_VALUE(false, "linear_fused: unknown activation ", name,
                    "; known are none, relu, gelu, gelu_tanh, silu and sigmoid");
}

// By ATen ops, which can be differentiated again.
Tensor definition(const Tensor& input, const Tensor& weight, const OptionalTensor& bias,
                  c10::string_view activation, const OptionalTensor& factor, TensorList terms) {
  Tensor result = at::linear(input, weight, bias);
  switch (activation_index(activation)) {
    case 1:
      result = at::relu(result);
      break;
    case 2:
      result = at::gelu(result);
      break;
    case 3:
      result = at::gelu(result, "tanh");
      break;
    case 4:
      result = at::silu(result);
      break;
    case 5:
      result = at::sigmoid(result);
      break;
    default:
      break;
  }
  if (is_given(factor)) result = result * *factor;
  for (const Tensor& term : terms) result = result + term;
  return result;
}

Tensor kernel(const Tensor& input, const Tensor& weight, const OptionalTensor& bias,
              c10::string_view activation, const OptionalTensor& factor, TensorList terms) {
  const int fused = activation_index(activation);
  auto sizes = input.sizes().vec();
  if (!sizes.empty()) sizes.back() = weight.size(0);
  const auto fits = [&](const Tensor& t) {
    return t.sizes() == sizes && t.scalar_type() == weight.scalar_type();
  };
  const bool compiled =
      weight.dim() == 2 && input.dim() >= 1 && input.size(-1) == weight.size(1) &&
      at::isFloatingType(weight.scalar_type()) && input.numel() != 0 && weight.numel() != 0 &&
      (weight.scalar_type() != at::kFloat || has_products(at::kFloat, at::Float32Op::MATMUL)) &&
      input.scalar_type() == weight.scalar_type() &&
      (!is_given(bias) || (bias->scalar_type() == weight.scalar_type() && bias->dim() == 1)) &&
      (!is_given(factor) || fits(*factor)) && std::all_of(terms.begin(), terms.end(), fits);
  // Operands that broadcast, products of f32 that may be computed in bf16, and errors, are ATen's.
  if (!compiled) return definition(input, weight, bias, activation, factor, terms);
  std::vector<Tensor> others;
  if (is_given(factor)) others.push_back(as_rows(*factor));
  for (const Tensor& term : terms) others.push_back(as_rows(term));
  const Tensor x = as_rows(input);
  std::vector<OpInput> inputs{{"x", x, false, 1}, {"w", weight, true}};
  if (is_given(bias)) inputs.push_back({"b", *bias, true});
  std::vector<std::string> names;
  for (size_t i = 0; i < others.size(); ++i) names.push_back("o" + std::to_string(i));
  for (size_t i = 0; i < others.size(); ++i) inputs.push_back({names[i], others[i], false, 1});
  const std::string out = std::to_string(weight.size(0)), in = std::to_string(weight.size(1));
  const auto body = [&](std::span<const Dims> dims) {
    const std::string type = type_text(weight.scalar_type(), {dims[0][0], out});
    std::string text = "%t = permute(%w) dims=[1,0] : " + type_text(weight.scalar_type(), {in, out}) +
                       "\n%v0 = matmul(%x, %t" + (is_given(bias) ? ", %b) bias=true" : ") bias=false") +
                       " post=[] : " + type + "\n";
    int last = 0;
    const auto apply = [&](const std::string& op, const std::string& operand) {
      text += "%v" + std::to_string(last + 1) + " = pointwise." + op + "(%v" + std::to_string(last) +
              operand + ") : " + type + "\n";
      ++last;
    };
    if (fused) apply(std::string(kActivations[fused]), "");
    for (size_t i = 0; i < others.size(); ++i)
      apply(i == 0 && is_given(factor) ? "mul" : "add", ", %" + names[i]);
    return text + "return %v" + std::to_string(last) + "{" + out + ",1}";
  };
  const OpSettings settings{is_given(bias), fused, is_given(factor), static_cast<int64_t>(terms.size())};
  return run_compiled("linear_fused", inputs, settings, body)[0].view(sizes);
}

Tensor autograd(const Tensor& given, const Tensor& weight, const OptionalTensor& bias,
                c10::string_view activation, const OptionalTensor& factor, TensorList terms) {
  const Tensor input = in_dtype_of(weight, given);
  if (needs_gradient(input, weight, bias, factor) || needs_gradient(terms) ||
      !all_dense(input, weight, bias, factor) || !all_dense(terms))
    return definition(input, weight, bias, activation, factor, terms);
  at::AutoDispatchBelowADInplaceOrView below;
  return kernel(input, weight, bias, activation, factor, terms);
}

Tensor autocast(const Tensor& input, const Tensor& weight, const OptionalTensor& bias,
                c10::string_view activation, const OptionalTensor& factor, TensorList terms) {
  using Op = Tensor(const Tensor&, const Tensor&, const OptionalTensor&, c10::string_view,
                    const OptionalTensor&, TensorList);
  static const auto op = typed_operator<Op>("torch_ipex::linear_fused");
  const c10::impl::ExcludeDispatchKeyGuard below(c10::DispatchKey::AutocastCPU);
  return op.call(autocast_operand(input), autocast_operand(weight), autocast_operand(bias), activation,
                 factor, terms);
}

}  // namespace

TORCH_LIBRARY_FRAGMENT(torch_ipex, m) {
  m.def(
      "linear_fused(Tensor input, Tensor weight, Tensor? bias, str activation, Tensor? factor, Tensor[] "
      "terms) "
      "-> Tensor");
}
TORCH_LIBRARY_IMPL(torch_ipex, CPU, m) { m.impl("linear_fused", kernel); }
TORCH_LIBRARY_IMPL(torch_ipex, Meta, m) { m.impl("linear_fused", definition); }
TORCH_LIBRARY_IMPL(torch_ipex, Autograd, m) { m.impl("linear_fused", autograd); }
TORCH_LIBRARY_IMPL(torch_ipex, AutocastCPU, m) { m.impl("linear_fused", autocast); }

}  // namespace ipex::torch_ops

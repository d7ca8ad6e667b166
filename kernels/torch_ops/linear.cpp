// torch_ipex::ipex_linear: a linear layer that keeps its weight in the library's format between calls.
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/matmul.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

#include "kernels/torch_ops/compiled_ops.h"
#include "kernels/torch_ops/operators.h"

namespace ipex::torch_ops {
namespace {

using at::Tensor;
using Gradients = std::tuple<Tensor, Tensor, Tensor>;

Tensor call_linear(const Tensor& input, const Tensor& weight, const OptionalTensor& bias) {
  static const auto op =
      typed_operator<Tensor(const Tensor&, const Tensor&, const OptionalTensor&)>("torch_ipex::ipex_linear");
  return op.call(input, weight, bias);
}

Gradients call_backward(const Tensor& grad, const Tensor& input, const Tensor& weight,
                        std::array<bool, 3> mask) {
  static const auto op =
      typed_operator<Gradients(const Tensor&, const Tensor&, const Tensor&, std::array<bool, 3>)>(
          "torch_ipex::linear_backward");
  return op.call(grad, input, weight, mask);
}

void check(const Tensor& input, const Tensor& weight, const OptionalTensor& bias) {
  TORCH_CHECK(weight.dim() == 2 && input.dim() >= 1,
              "ipex_linear expects input [..., in] and weight [out, in], got ", input.sizes(), " and ",
              weight.sizes());
  TORCH_CHECK(input.size(-1) == weight.size(1), "ipex_linear: input has ", input.size(-1),
              " features, the weight expects ", weight.size(1));
  TORCH_CHECK(!is_given(bias) || (bias->dim() == 1 && bias->size(0) == weight.size(0)),
              "ipex_linear expects bias [", weight.size(0), "], got ", bias->sizes());
  TORCH_CHECK(input.scalar_type() == weight.scalar_type() &&
                  (!is_given(bias) || bias->scalar_type() == weight.scalar_type()),
              "ipex_linear expects operands of one dtype, got ", input.scalar_type(), " and ",
              weight.scalar_type());
}

Tensor linear_kernel(const Tensor& given, const Tensor& weight, const OptionalTensor& bias) {
  const Tensor input = in_dtype_of(weight, given);  // in inference mode nothing above has cast it
  check(input, weight, bias);
  if (!has_products(weight.scalar_type(), at::Float32Op::MATMUL) || input.numel() == 0 || weight.numel() == 0)
    return at::linear(input, weight, bias);
  const Tensor rows = as_rows(input);
  const std::string dtype = dtype_text(weight.scalar_type()), in = std::to_string(weight.size(1)),
                    out = std::to_string(weight.size(0));
  const auto body = [&](std::span<const Dims> dims) {
    const std::string result = dtype + "[" + dims[0][0] + "," + out + "]";
    return "%t = permute(%w) dims=[1,0] : " + dtype + "[" + in + "," + out + "]\n%y = matmul(%x, %t" +
           (is_given(bias) ? ", %b) bias=true" : ") bias=false") + " post=[] : " + result + "\nreturn %y{" +
           out + ",1}";
  };
  const OpInput x{"x", rows, false, 1}, w{"w", weight, true};
  Tensor result = is_given(bias) ? run_compiled("linear", {x, w, {"b", *bias, true}}, {1}, body)[0]
                                 : run_compiled("linear", {x, w}, {0}, body)[0];
  if (input.dim() == 2) return result;
  auto sizes = input.sizes().vec();
  sizes.back() = weight.size(0);
  return result.view(sizes);
}

// By ATen ops, which can be differentiated again.
Gradients linear_backward_definition(const Tensor& grad, const Tensor& input, const Tensor& weight,
                                     std::array<bool, 3> mask) {
  const Tensor g = grad.reshape_symint({-1, grad.sym_size(-1)}),
               x = input.reshape_symint({-1, input.sym_size(-1)});
  return {mask[0] ? grad.matmul(weight) : Tensor(), mask[1] ? g.t().mm(x) : Tensor(),
          mask[2] ? g.sum(0) : Tensor()};
}

// The gradients of input, weight and bias; those that the mask leaves out are undefined.
Gradients linear_backward_kernel(const Tensor& grad, const Tensor& input, const Tensor& weight,
                                 std::array<bool, 3> mask) {
  if (!has_products(weight.scalar_type(), at::Float32Op::MATMUL) || input.numel() == 0 || weight.numel() == 0)
    return linear_backward_definition(grad, input, weight, mask);
  const Tensor g = as_rows(grad), x = as_rows(input);
  const std::string dtype = dtype_text(weight.scalar_type()), in = std::to_string(weight.size(1)),
                    out = std::to_string(weight.size(0));
  Tensor grads[3];
  if (mask[0]) {
    const auto body = [&](std::span<const Dims> dims) {
      return "%y = matmul(%g, %w) bias=false post=[] : " + dtype + "[" + dims[0][0] + "," + in +
             "]\nreturn %y{" + in + ",1}";
    };
    grads[0] = run_compiled("linear_data", {{"g", g, false, 1}, {"w", weight, true}}, {}, body)[0].view(
        input.sizes());
  }
  if (mask[1] || mask[2]) {
    const auto body = [&](std::span<const Dims> dims) {
      std::string nodes, results;
      if (mask[1]) {
        nodes += "%t = permute(%g) dims=[1,0] : " + dtype + "[" + out + "," + dims[0][0] +
                 "]\n%gw = matmul(%t, %x) " + "bias=false post=[] : " + dtype + "[" + out + "," + in + "]\n";
        results += "%gw{" + in + ",1}";
      }
      if (mask[2]) {
        nodes += "%gb = reduce.sum(%g) axes=[0] keepdim=false : " + dtype + "[" + out + "]\n";
        results += (mask[1] ? ", %gb{1}" : "%gb{1}");
      }
      return nodes + "return " + results;
    };
    const OpSettings settings{mask[1], mask[2]};
    const OpInput g_input{"g", g, false, 1};
    if (mask[1]) {
      const auto results = run_compiled("linear_weight", {g_input, {"x", x, false, 1}}, settings, body);
      grads[1] = results[0];
      if (mask[2]) grads[2] = results[1];
    } else {
      grads[2] = run_compiled("linear_weight", {g_input}, settings, body)[0];
    }
  }
  return {grads[0], grads[1], grads[2]};
}

struct LinearFunction : torch::autograd::Function<LinearFunction> {
  using Context = torch::autograd::AutogradContext;
  using Tensors = torch::autograd::variable_list;

  static Tensor forward(Context* context, const Tensor& input, const Tensor& weight,
                        const OptionalTensor& bias) {
    at::AutoDispatchBelowADInplaceOrView below;
    context->save_for_backward({input, weight});
    context->saved_data["bias"] = is_given(bias);
    return call_linear(input, weight, bias);
  }

  static Tensors backward(Context* context, const Tensors& grads) {
    const Tensors saved = context->get_saved_variables();
    if (!grads[0].defined()) return {Tensor(), Tensor(), Tensor()};
    const std::array<bool, 3> mask = {context->needs_input_grad(0), context->needs_input_grad(1),
                                      context->saved_data["bias"].toBool() && context->needs_input_grad(2)};
    const Gradients all = at::GradMode::is_enabled()
                              ? linear_backward_definition(grads[0], saved[0], saved[1], mask)
                              : call_backward(grads[0], saved[0], saved[1], mask);
    return {std::get<0>(all), std::get<1>(all), std::get<2>(all)};
  }
};

Tensor linear_autograd(const Tensor& given, const Tensor& weight, const OptionalTensor& bias) {
  // Weights that optimize() cast take any input, as they do under autocast.
  const Tensor input = in_dtype_of(weight, given);
  if (!all_dense(input, weight, bias)) return at::linear(input, weight, bias);
  if (needs_gradient(input, weight, bias)) return LinearFunction::apply(input, weight, bias);
  at::AutoDispatchBelowADInplaceOrView below;
  return call_linear(input, weight, bias);
}

Tensor linear_autocast(const Tensor& input, const Tensor& weight, const OptionalTensor& bias) {
  const c10::impl::ExcludeDispatchKeyGuard below(c10::DispatchKey::AutocastCPU);
  return call_linear(autocast_operand(input), autocast_operand(weight), autocast_operand(bias));
}

Gradients linear_backward_autograd(const Tensor& grad, const Tensor& input, const Tensor& weight,
                                   std::array<bool, 3> mask) {
  if (!all_dense(grad, input, weight) || needs_gradient(grad, input, weight))
    return linear_backward_definition(grad, input, weight, mask);
  at::AutoDispatchBelowADInplaceOrView below;
  return call_backward(grad, input, weight, mask);
}

}  // namespace

TORCH_LIBRARY_FRAGMENT(torch_ipex, m) {
  m.def("ipex_linear(Tensor input, Tensor weight, Tensor? bias=None) -> Tensor");
  m.def(
      "linear_backward(Tensor grad, Tensor input, Tensor weight, bool[3] output_mask) -> (Tensor, Tensor, "
      "Tensor)");
}
TORCH_LIBRARY_IMPL(torch_ipex, CPU, m) {
  m.impl("ipex_linear", linear_kernel);
  m.impl("linear_backward", linear_backward_kernel);
}
TORCH_LIBRARY_IMPL(torch_ipex, Meta, m) {
  m.impl("ipex_linear", [](const Tensor& input, const Tensor& weight, const OptionalTensor& bias) {
    return at::linear(input, weight, bias);
  });
  m.impl("linear_backward", linear_backward_definition);
}
TORCH_LIBRARY_IMPL(torch_ipex, Autograd, m) {
  m.impl("ipex_linear", linear_autograd);
  m.impl("linear_backward", linear_backward_autograd);
}
TORCH_LIBRARY_IMPL(torch_ipex, AutocastCPU, m) { m.impl("ipex_linear", linear_autocast); }

}  // namespace ipex::torch_ops

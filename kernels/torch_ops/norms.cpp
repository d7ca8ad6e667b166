// torch_ipex::rmsnorm and add_layer_norm: the norms between the layers of large language models.
#include <ATen/OpMathType.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/add.h>
#include <ATen/ops/layer_norm.h>
#include <torch/library.h>

#include <bit>

#include "kernels/torch_ops/compiled_ops.h"
#include "kernels/torch_ops/operators.h"

namespace ipex::torch_ops {
namespace {

using at::Tensor;

// The normalized row is rounded to the type of the input before it is multiplied by the weight, as in Llama.
Tensor rmsnorm_definition(const Tensor& input, const Tensor& weight, double eps) {
  TORCH_CHECK(input.dim() >= 1 && at::isFloatingType(input.scalar_type()) && weight.dim() == 1 &&
                  weight.sym_size(0) == input.sym_size(-1),
              "rmsnorm expects a floating-point input [..., width] and a weight [width], got ",
              input.sym_sizes(), " and ", weight.sym_sizes());
  const Tensor x = input.to(at::toOpMathType(input.scalar_type()));
  const Tensor mean = x.square().mean(-1, true);
  return (x * (mean + eps).rsqrt()).to(input.scalar_type()) * weight;
}

Tensor rmsnorm_kernel(const Tensor& input, const Tensor& weight, double eps) {
  if (input.numel() == 0 || input.dim() < 1 || weight.dim() != 1 || weight.size(0) != input.size(-1) ||
      input.scalar_type() != weight.scalar_type() || !at::isFloatingType(input.scalar_type()))
    return rmsnorm_definition(input, weight, eps);
  const Tensor rows = input.reshape({-1, input.size(-1)});
  const c10::ScalarType type = at::toOpMathType(input.scalar_type()), own = input.scalar_type();
  const auto body = [&](std::span<const Dims> dims) {
    const std::string all = type_text(type, dims[0]), row = type_text(type, {dims[0][0], "1"}),
                      result = type_text(own, dims[0]), width = dims[0][1];
    return "%f = pointwise.cast(%x) : " + all + "\n%q = pointwise.square(%f) : " + all +
           "\n%m = reduce.mean(%q) axes=[1] keepdim=true : " + row +
           "\n%e = constant value=" + number_text(eps) + " : " + type_text(type, {}) +
           "\n%ee = expand(%e) dims=[] : " + row + "\n%s = pointwise.add(%m, %ee) : " + row +
           "\n%r = pointwise.rsqrt(%s) : " + row + "\n%rr = expand(%r) dims=[0,1] : " + all +
           "\n%n = pointwise.mul(%f, %rr) : " + all + "\n%c = pointwise.cast(%n) : " + result +
           "\n%ww = expand(%w) dims=[1] : " + result + "\n%y = pointwise.mul(%c, %ww) : " + result +
           "\nreturn %y{" + width + ",1}";
  };
  return run_compiled("rmsnorm", {{"x", rows, false, 1}, {"w", weight}}, {std::bit_cast<int64_t>(eps)},
                      body)[0]
      .view(input.sizes());
}

Tensor rmsnorm_autograd(const Tensor& input, const Tensor& weight, double eps) {
  if (!all_dense(input, weight) || needs_gradient(input, weight))
    return rmsnorm_definition(input, weight, eps);
  at::AutoDispatchBelowADInplaceOrView below;
  return rmsnorm_kernel(input, weight, eps);
}

// Two passes of ATen: the sum, and its norm.
Tensor add_layer_norm(const Tensor& a, const Tensor& b, int64_t alpha, c10::SymIntArrayRef normalized_shape,
                      const OptionalTensor& weight, const OptionalTensor& bias, double eps) {
  return at::layer_norm_symint(at::add(a, b, alpha), normalized_shape, weight, bias, eps);
}

}  // namespace

TORCH_LIBRARY_FRAGMENT(torch_ipex, m) {
  m.def("rmsnorm(Tensor input, Tensor weight, float epsilon) -> Tensor");
  m.def(
      "add_layer_norm(Tensor a, Tensor b, int alpha, SymInt[] normalized_shape, Tensor? weight, Tensor? "
      "bias, "
      "float eps) -> Tensor",
      add_layer_norm);
}
TORCH_LIBRARY_IMPL(torch_ipex, CPU, m) { m.impl("rmsnorm", rmsnorm_kernel); }
TORCH_LIBRARY_IMPL(torch_ipex, Meta, m) { m.impl("rmsnorm", rmsnorm_definition); }
TORCH_LIBRARY_IMPL(torch_ipex, Autograd, m) { m.impl("rmsnorm", rmsnorm_autograd); }

}  // namespace ipex::torch_ops

// torch_ipex::dropout: dropout in training. The masks are those of ATen, bit for bit, from the same random
// numbers, and leave the generator in the same state. A mask is kept as one byte an element.
#include <ATen/OpMathType.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/dropout.h>
#include <ATen/ops/empty_strided.h>
#include <ATen/ops/scalar_tensor.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

#include "kernels/torch_ops/compiled_ops.h"
#include "kernels/torch_ops/operators.h"

namespace ipex::torch_ops {
namespace {

using at::Tensor;

// All elements in the order of memory, of a tensor without gaps.
Tensor in_memory_order(const Tensor& tensor) { return tensor.as_strided({tensor.numel()}, {1}); }

Tensor draw_mask(int64_t count, double p) {
  static const auto bernoulli = c10::Dispatcher::singleton()
                                    .findSchemaOrThrow("ipex::bernoulli", "")
                                    .typed<Tensor(c10::SymIntArrayRef, c10::SymIntArrayRef, double)>();
  const c10::SymInt size(count), stride(1);
  return bernoulli.call(size, stride, p);
}

// values * mask / (1 - p), in memory order.
Tensor masked(const Tensor& values, const Tensor& mask, double p) {
  const c10::ScalarType own = values.scalar_type(), wide = at::toOpMathType(own);
  const auto body = [&](std::span<const Dims> dims) {
    const std::string all = type_text(wide, dims[0]);
    return "%f = pointwise.cast(%x) : " + all + "\n%k = pointwise.cast(%m) : " + all +
           "\n%s = expand(%c) dims=[] : " + all + "\n%n = pointwise.mul(%k, %s) : " + all +
           "\n%p = pointwise.mul(%f, %n) : " + all +
           "\n%y = pointwise.cast(%p) : " + type_text(own, dims[0]) + "\nreturn %y{1}";
  };
  const Tensor scale = at::scalar_tensor(1 / (1 - p), values.options().dtype(wide));  // p may be scheduled
  return run_compiled("dropout", {{"x", values, false, 1}, {"m", mask, false, 1}, {"c", scale}}, {}, body)[0];
}

bool is_compiled(const Tensor& input, double p) {
  return p > 0 && p < 1 && input.numel() != 0 && at::isFloatingType(input.scalar_type()) &&
         input.is_non_overlapping_and_dense();
}

Tensor forward(const Tensor& input, const Tensor& mask, double p) {
  return masked(in_memory_order(input), mask, p).as_strided(input.sizes(), input.strides());
}

struct DropoutFunction : torch::autograd::Function<DropoutFunction> {
  using Context = torch::autograd::AutogradContext;
  using Tensors = torch::autograd::variable_list;

  static Tensor forward(Context* context, const Tensor& input, double p) {
    at::AutoDispatchBelowADInplaceOrView below;
    const Tensor mask = draw_mask(input.numel(), 1 - p);
    context->save_for_backward({mask});
    context->saved_data["p"] = p;
    context->saved_data["sizes"] = input.sizes().vec();
    context->saved_data["strides"] = input.strides().vec();
    return torch_ops::forward(input, mask, p);
  }

  static Tensors backward(Context* context, const Tensors& grads) {
    if (!grads[0].defined()) return Tensors(2);
    const Tensor mask = context->get_saved_variables()[0];
    const double p = context->saved_data["p"].toDouble();
    const auto sizes = context->saved_data["sizes"].toIntVector(),
               strides = context->saved_data["strides"].toIntVector();
    if (at::GradMode::is_enabled() || !all_dense(grads[0]))  // can be differentiated again
      return {grads[0] * mask.as_strided(sizes, strides).to(grads[0].scalar_type()).div_(1 - p), Tensor()};
    at::AutoDispatchBelowADInplaceOrView below;
    Tensor grad = grads[0];
    if (grad.strides() != c10::IntArrayRef(strides))
      grad = at::empty_strided(sizes, strides, grad.options()).copy_(grad);
    return {torch_ops::forward(grad, mask, p), Tensor()};
  }
};

Tensor definition(const Tensor& input, double p) { return at::dropout(input, p, /*train=*/true); }

Tensor kernel(const Tensor& input, double p) {
  return is_compiled(input, p) ? forward(input, draw_mask(input.numel(), 1 - p), p) : definition(input, p);
}

Tensor autograd(const Tensor& input, double p) {
  if (!all_dense(input) || !is_compiled(input, p)) return definition(input, p);
  if (needs_gradient(input)) return DropoutFunction::apply(input, p);
  at::AutoDispatchBelowADInplaceOrView below;
  return kernel(input, p);
}

}  // namespace

TORCH_LIBRARY_FRAGMENT(torch_ipex, m) {
  m.def("dropout(Tensor input, float p) -> Tensor", {at::Tag::nondeterministic_seeded});
}
TORCH_LIBRARY_IMPL(torch_ipex, CPU, m) { m.impl("dropout", kernel); }
TORCH_LIBRARY_IMPL(torch_ipex, Meta, m) { m.impl("dropout", definition); }
// The transforms of torch.func replace ATen's dropout here, by one that knows vmap's modes of randomness.
TORCH_LIBRARY_IMPL(torch_ipex, FuncTorchDynamicLayerFrontMode, m) { m.impl("dropout", definition); }
TORCH_LIBRARY_IMPL(torch_ipex, Autograd, m) { m.impl("dropout", autograd); }

}  // namespace ipex::torch_ops

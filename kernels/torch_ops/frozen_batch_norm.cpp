// torch_ipex::frozen_batch_norm: batch norm with constant statistics, as a multiply-add by channel in f32.
// The result has the dtype and the layout of the input.
#include <ATen/OpMathType.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

#include <bit>

#include "kernels/torch_ops/compiled_ops.h"
#include "kernels/torch_ops/operators.h"

namespace ipex::torch_ops {
namespace {

using at::Tensor;

struct Statistics {
  const Tensor &weight, &bias, &mean, &var;
  double eps;
};

void check(const Tensor& input, const Statistics& statistics) {
  TORCH_CHECK(input.dim() >= 2 && at::isFloatingType(input.scalar_type()),
              "frozen_batch_norm expects a floating-point input [batch, channels, ...], got ",
              input.sym_sizes(), " of ", input.scalar_type());
  for (const Tensor* tensor : {&statistics.weight, &statistics.bias, &statistics.mean, &statistics.var})
    TORCH_CHECK(tensor->dim() == 1 && tensor->sym_size(0) == input.sym_size(1),
                "frozen_batch_norm expects statistics [", input.sym_size(1), "], got ", tensor->sym_sizes());
}

Tensor by_channel(const Tensor& values, const Tensor& input) {
  std::vector<int64_t> sizes(input.dim(), 1);
  sizes[1] = -1;
  return values.reshape(sizes);
}

// By ATen ops; the scale of each channel serves the backward pass.
Tensor scale_of(const Tensor& input, const Statistics& s) {
  const c10::ScalarType type = at::toOpMathType(input.scalar_type());
  return s.weight.to(type) * (s.var.to(type) + s.eps).rsqrt();
}

Tensor definition(const Tensor& input, const Statistics& s) {
  check(input, s);
  const c10::ScalarType type = at::toOpMathType(input.scalar_type());
  const Tensor scale = scale_of(input, s), shift = s.bias.to(type) - s.mean.to(type) * scale;
  return (input.to(type) * by_channel(scale, input) + by_channel(shift, input)).to(input.scalar_type());
}

Tensor kernel(const Tensor& input, const Tensor& weight, const Tensor& bias, const Tensor& mean,
              const Tensor& var, double eps) {
  const Statistics s{weight, bias, mean, var, eps};
  check(input, s);
  if (input.numel() == 0 || input.dim() > 5) return definition(input, s);
  const bool last = is_channels_last(input) && !input.is_contiguous();
  const c10::ScalarType type = at::toOpMathType(input.scalar_type()), own = input.scalar_type();
  const auto body = [&](std::span<const Dims> dims) {
    const std::string channels = type_text(type, {dims[0][1]}), all = type_text(type, dims[0]);
    const auto spread = [&](const std::string& to, const std::string& from) {
      return "%" + to + " = expand(%" + from + ") dims=[1] : " + all + "\n";
    };
    std::string text, x = "%x";
    for (int i = 0; i < 4; ++i) {
      const std::string name(1, "wbmv"[i]);
      text += "%f" + name + " = pointwise.cast(%" + name + ") : " + channels + "\n";
    }
    text += "%e = constant value=" + number_text(eps) + " : " + type_text(type, {}) +
            "\n%ec = expand(%e) dims=[] : " + channels + "\n%ve = pointwise.add(%fv, %ec) : " + channels +
            "\n%r = pointwise.rsqrt(%ve) : " + channels + "\n%s = pointwise.mul(%fw, %r) : " + channels +
            "\n%ms = pointwise.mul(%fm, %s) : " + channels + "\n%t = pointwise.sub(%fb, %ms) : " + channels +
            "\n" + spread("sx", "s") + spread("tx", "t");
    if (own != type) {
      text += "%fx = pointwise.cast(%x) : " + all + "\n";
      x = "%fx";
    }
    text += "%p = pointwise.mul(" + x + ", %sx) : " + all + "\n%y = pointwise.add(%p, %tx) : " + all + "\n";
    if (own != type) text += "%z = pointwise.cast(%y) : " + type_text(own, dims[0]) + "\n";
    return text + "return %" + (own != type ? "z" : "y") + strides_text(last, dims[0]);
  };
  OpSettings settings{last};
  settings.push_back(std::bit_cast<int64_t>(eps));
  return run_compiled("frozen_batch_norm",
                      {{"x", input, false, all_but_channels(input.dim())},
                       {"w", weight, true},
                       {"b", bias, true},
                       {"m", mean, true},
                       {"v", var, true}},
                      settings, body)[0];
}

using Op = Tensor(const Tensor&, const Tensor&, const Tensor&, const Tensor&, const Tensor&, double);

const c10::TypedOperatorHandle<Op>& op() {
  static const auto handle = typed_operator<Op>("torch_ipex::frozen_batch_norm");
  return handle;
}

// The statistics are constant: only the input has a gradient, which is a multiple by channel.
struct FrozenBatchNormFunction : torch::autograd::Function<FrozenBatchNormFunction> {
  using Context = torch::autograd::AutogradContext;
  using Tensors = torch::autograd::variable_list;

  static Tensor forward(Context* context, const Tensor& input, const Tensor& weight, const Tensor& bias,
                        const Tensor& mean, const Tensor& var, double eps) {
    at::AutoDispatchBelowADInplaceOrView below;
    context->save_for_backward({by_channel(scale_of(input, {weight, bias, mean, var, eps}), input)});
    context->saved_data["type"] = static_cast<int64_t>(input.scalar_type());
    return op().call(input, weight, bias, mean, var, eps);
  }

  static Tensors backward(Context* context, const Tensors& grads) {
    Tensors all(6);
    if (!grads[0].defined()) return all;
    const auto type = static_cast<c10::ScalarType>(context->saved_data["type"].toInt());
    all[0] = (grads[0] * context->get_saved_variables()[0]).to(type);
    return all;
  }
};

Tensor autograd(const Tensor& input, const Tensor& weight, const Tensor& bias, const Tensor& mean,
                const Tensor& var, double eps) {
  if (!all_dense(input, weight, bias, mean, var) || needs_gradient(weight, bias, mean, var))
    return definition(input, {weight, bias, mean, var, eps});
  if (needs_gradient(input)) return FrozenBatchNormFunction::apply(input, weight, bias, mean, var, eps);
  at::AutoDispatchBelowADInplaceOrView below;
  return op().call(input, weight, bias, mean, var, eps);
}

}  // namespace

TORCH_LIBRARY_FRAGMENT(torch_ipex, m) {
  m.def(
      "frozen_batch_norm(Tensor input, Tensor weight, Tensor bias, Tensor running_mean, Tensor running_var, "
      "float eps) -> Tensor");
}
TORCH_LIBRARY_IMPL(torch_ipex, CPU, m) { m.impl("frozen_batch_norm", kernel); }
TORCH_LIBRARY_IMPL(torch_ipex, Meta, m) {
  m.impl("frozen_batch_norm",
         [](const Tensor& input, const Tensor& weight, const Tensor& bias, const Tensor& mean,
            const Tensor& var, double eps) { return definition(input, {weight, bias, mean, var, eps}); });
}
TORCH_LIBRARY_IMPL(torch_ipex, Autograd, m) { m.impl("frozen_batch_norm", autograd); }

}  // namespace ipex::torch_ops

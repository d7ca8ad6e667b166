// torch_ipex::convolution_forward and conv_transpose: convolutions over one to three dimensions that keep
// their weight in the library's format between calls.
//
// The result is channels-last if the input or the weight is, as in PyTorch, and also for three dims.
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/convolution.h>
#include <ATen/ops/convolution_backward.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

#include "kernels/torch_ops/compiled_ops.h"
#include "kernels/torch_ops/operators.h"

namespace ipex::torch_ops {
namespace {

using at::Tensor;
using c10::IntArrayRef;
using Gradients = std::tuple<Tensor, Tensor, Tensor>;
using Ints = std::vector<int64_t>;

// All settings of a convolution; ints per spatial dim.
struct Window {
  Ints stride, padding, dilation;
  bool transposed = false;
  Ints output_padding;
  int64_t groups = 1;

  std::string attributes() const {
    return "dilation=" + ints_text(dilation) + " groups=" + std::to_string(groups) +
           " output_padding=" + ints_text(output_padding) + " padding=" + ints_text(padding) +
           " stride=" + ints_text(stride) + " transposed=" + (transposed ? "true" : "false");
  }
  OpSettings settings() const {
    OpSettings all{transposed, groups};
    for (const Ints* each : {&stride, &padding, &dilation, &output_padding})
      all.append(each->begin(), each->end());
    return all;
  }
};

// One value per spatial dim.
Ints per_dim(IntArrayRef values, int64_t rank, const char* what) {
  TORCH_CHECK(static_cast<int64_t>(values.size()) == rank || values.size() == 1, "convolution over ", rank,
              " dimensions got ", values.size(), " values of ", what);
  return values.size() == 1 ? Ints(rank, values[0]) : values.vec();
}

Window make_window(const Tensor& weight, IntArrayRef stride, IntArrayRef padding, IntArrayRef dilation,
                   bool transposed, IntArrayRef output_padding, int64_t groups) {
  const int64_t rank = weight.dim() - 2;
  TORCH_CHECK(rank >= 1 && rank <= 3, "a convolution's weight has 3 to 5 dimensions, got ", weight.sizes());
  TORCH_CHECK(groups > 0, "groups must be positive, got ", groups);
  const Window window{per_dim(stride, rank, "stride"),
                      per_dim(padding, rank, "padding"),
                      per_dim(dilation, rank, "dilation"),
                      transposed,
                      transposed ? per_dim(output_padding, rank, "output_padding") : Ints(rank, 0),
                      groups};
  for (int64_t d = 0; d < rank; ++d)
    TORCH_CHECK(window.stride[d] > 0 && window.dilation[d] > 0 && window.padding[d] >= 0,
                "a convolution needs positive stride and dilation and no negative padding, got ", stride,
                ", ", dilation, " and ", padding);
  return window;
}

// The sizes of the result, as numbers or as texts over the input's symbols.
Ints output_sizes(const Tensor& input, const Tensor& weight, const Window& window) {
  Ints sizes{input.size(0), window.transposed ? weight.size(1) * window.groups : weight.size(0)};
  for (int64_t d = 2; d < weight.dim(); ++d) {
    const int64_t extent = window.dilation[d - 2] * (weight.size(d) - 1), stride = window.stride[d - 2],
                  padding = window.padding[d - 2];
    sizes.push_back(window.transposed ? (input.size(d) - 1) * stride - 2 * padding + extent +
                                            window.output_padding[d - 2] + 1
                                      : (input.size(d) + 2 * padding - extent - 1) / stride + 1);
  }
  return sizes;
}

Dims output_dims(const Dims& input, const Tensor& weight, const Window& window) {
  const auto text = [](int64_t value) { return "(" + std::to_string(value) + ")"; };
  Dims dims{input[0], std::to_string(window.transposed ? weight.size(1) * window.groups : weight.size(0))};
  for (int64_t d = 2; d < weight.dim(); ++d) {
    const int64_t extent = window.dilation[d - 2] * (weight.size(d) - 1), padding = window.padding[d - 2];
    const std::string stride = text(window.stride[d - 2]);
    dims.push_back(
        window.transposed
            ? input[d] + "*" + stride + " + " +
                  text(window.output_padding[d - 2] + 1 + extent - 2 * padding - window.stride[d - 2])
            : "(" + input[d] + " + " + text(2 * padding - extent - 1) + ")//" + stride + " + 1");
  }
  return dims;
}

void check(const Tensor& input, const Tensor& weight, const OptionalTensor& bias, const Window& window) {
  TORCH_CHECK(input.dim() == weight.dim(), "convolution expects an input of ", weight.dim(),
              " dimensions, got ", input.sizes());
  const int64_t in = window.transposed ? weight.size(0) : weight.size(1) * window.groups;
  const int64_t out = window.transposed ? weight.size(1) * window.groups : weight.size(0);
  TORCH_CHECK(input.size(1) == in, "convolution: the input has ", input.size(1),
              " channels, the weight expects ", in);
  TORCH_CHECK(in % window.groups == 0 && out % window.groups == 0, "convolution: ", window.groups,
              " groups do not divide ", in, " and ", out, " channels");
  TORCH_CHECK(!is_given(bias) || (bias->dim() == 1 && bias->size(0) == out), "convolution expects bias [",
              out, "], got ", bias->sizes());
  TORCH_CHECK(input.scalar_type() == weight.scalar_type() &&
                  (!is_given(bias) || bias->scalar_type() == weight.scalar_type()),
              "convolution expects operands of one dtype, got ", input.scalar_type(), " and ",
              weight.scalar_type());
  const Ints sizes = output_sizes(input, weight, window);
  for (int64_t d = 2; d < weight.dim(); ++d)
    TORCH_CHECK(sizes[d] > 0, "convolution: the padded input is smaller than the window: sizes ",
                input.sizes(), ", weight ", weight.sizes(), ", result ", sizes);
}

// PyTorch's rule for the layout of results, extended to one dimension. A layout that fits both is row-major.
bool channels_last_result(const Tensor& input, const Tensor& weight) {
  const auto last = [](const Tensor& t) { return is_channels_last(t) && !t.is_contiguous(); };
  return last(input) || last(weight);
}

bool is_compiled(const Tensor& input, const Tensor& weight) {
  return has_products(weight.scalar_type(), at::Float32Op::CONV) && input.numel() != 0 && weight.numel() != 0;
}

Tensor forward(const Tensor& input, const Tensor& weight, const OptionalTensor& bias, const Window& window) {
  check(input, weight, bias, window);
  if (!is_compiled(input, weight))
    return at::convolution(input, weight, bias, window.stride, window.padding, window.dilation,
                           window.transposed, window.output_padding, window.groups);
  const bool channels_last = channels_last_result(input, weight), biased = is_given(bias);
  const auto body = [&](std::span<const Dims> dims) {
    const Dims out = output_dims(dims[0], weight, window);
    return "%y = conv(%x, %w" + std::string(biased ? ", %b) bias=true " : ") bias=false ") +
           window.attributes() + " post=[] : " + type_text(weight.scalar_type(), out) + "\nreturn %y" +
           strides_text(channels_last, out);
  };
  OpSettings settings = window.settings();
  settings.push_back(channels_last);
  const OpInput x{"x", input, false, all_but_channels(weight.dim())}, w{"w", weight, true};
  return biased ? run_compiled("convolution", {x, w, {"b", *bias, true}}, settings, body)[0]
                : run_compiled("convolution", {x, w}, settings, body)[0];
}

Gradients backward(const Tensor& grad, const Tensor& input, const Tensor& weight, const Window& window,
                   std::array<bool, 3> mask) {
  if (!is_compiled(input, weight) || grad.numel() == 0)
    return at::convolution_backward(grad, input, weight, Ints{grad.size(1)}, window.stride, window.padding,
                                    window.dilation, window.transposed, window.output_padding, window.groups,
                                    mask);
  const bool channels_last = channels_last_result(input, weight), last_weight = !weight.is_contiguous();
  const std::string dtype = dtype_text(weight.scalar_type());
  const uint32_t free = all_but_channels(weight.dim());
  // The gradient has the sizes of the result.
  const auto dims = [&] {
    std::vector<Dims> all(3);
    for (int64_t d = 0; d < input.dim(); ++d) all[1].push_back("s" + std::to_string(d));
    all[0] = output_dims(all[1], weight, window);
    all[2] = dims_of(weight);
    return all;
  };
  OpSettings settings = window.settings();
  settings.append({channels_last, last_weight});
  const auto of = [&](const char* which) {
    return "conv_backward(%g, %x, %w) which=\"" + std::string(which) + "\" " + window.attributes() + " : ";
  };
  Gradients result;
  const OpInput g{"g", grad, false, free}, x{"x", input, false, free}, w{"w", weight, true};
  if (mask[0]) {
    const auto body = [&](std::span<const Dims> in) {
      return "%y = " + of("data") + type_text(weight.scalar_type(), in[1]) + "\nreturn %y" +
             strides_text(channels_last, in[1]);
    };
    std::get<0>(result) = run_compiled("convolution_data", {g, x, w}, settings, body, dims)[0];
  }
  if (mask[1] || mask[2]) {
    const auto body = [&](std::span<const Dims> in) {
      std::string nodes, results;
      if (mask[1]) {
        nodes = "%gw = " + of("weights") + type_text(weight.scalar_type(), in[2]) + "\n";
        results = "%gw" + strides_text(last_weight, in[2]);
      }
      if (mask[2]) {
        Ints axes{0};
        for (int64_t d = 2; d < weight.dim(); ++d) axes.push_back(d);
        nodes += "%gb = reduce.sum(%g) axes=" + ints_text(axes) + " keepdim=false : " + dtype + "[" +
                 in[0][1] + "]\n";
        results += mask[1] ? ", %gb{1}" : "%gb{1}";
      }
      return nodes + "return " + results;
    };
    settings.append({mask[1], mask[2]});
    const auto results = run_compiled("convolution_weight", {g, x, {"w", weight}}, settings, body, dims);
    if (mask[1]) std::get<1>(result) = results[0];
    if (mask[2]) std::get<2>(result) = results[mask[1]];
  }
  return result;
}

// ---- the operators ----

using Op = Tensor(const Tensor&, const Tensor&, const OptionalTensor&, IntArrayRef, IntArrayRef, IntArrayRef,
                  bool, IntArrayRef, int64_t);
using BackwardOp = Gradients(const Tensor&, const Tensor&, const Tensor&, IntArrayRef, IntArrayRef,
                             IntArrayRef, bool, IntArrayRef, int64_t, std::array<bool, 3>);

const c10::TypedOperatorHandle<Op>& op() {
  static const auto handle = typed_operator<Op>("torch_ipex::convolution_forward");
  return handle;
}
const c10::TypedOperatorHandle<BackwardOp>& backward_op() {
  static const auto handle = typed_operator<BackwardOp>("torch_ipex::convolution_backward");
  return handle;
}

Tensor kernel(const Tensor& given, const Tensor& weight, const OptionalTensor& bias, IntArrayRef stride,
              IntArrayRef padding, IntArrayRef dilation, bool transposed, IntArrayRef output_padding,
              int64_t groups) {
  // In inference mode nothing above has cast the input or added the batch dimension.
  const Tensor cast = in_dtype_of(weight, given);
  if (cast.dim() + 1 == weight.dim())
    return kernel(cast.unsqueeze(0), weight, bias, stride, padding, dilation, transposed, output_padding,
                  groups)
        .squeeze(0);
  return forward(cast, weight, bias,
                 make_window(weight, stride, padding, dilation, transposed, output_padding, groups));
}

Gradients backward_kernel(const Tensor& grad, const Tensor& input, const Tensor& weight, IntArrayRef stride,
                          IntArrayRef padding, IntArrayRef dilation, bool transposed,
                          IntArrayRef output_padding, int64_t groups, std::array<bool, 3> mask) {
  return backward(grad, input, weight,
                  make_window(weight, stride, padding, dilation, transposed, output_padding, groups), mask);
}

// By ATen ops, which can be differentiated again.
Gradients backward_definition(const Tensor& grad, const Tensor& input, const Tensor& weight,
                              IntArrayRef stride, IntArrayRef padding, IntArrayRef dilation, bool transposed,
                              IntArrayRef output_padding, int64_t groups, std::array<bool, 3> mask) {
  const int64_t out = transposed ? weight.size(1) * groups : weight.size(0);
  return at::convolution_backward(grad, input, weight, Ints{out}, stride, padding, dilation, transposed,
                                  output_padding, groups, mask);
}

struct ConvolutionFunction : torch::autograd::Function<ConvolutionFunction> {
  using Context = torch::autograd::AutogradContext;
  using Tensors = torch::autograd::variable_list;

  static Tensor forward(Context* context, const Tensor& input, const Tensor& weight,
                        const OptionalTensor& bias, IntArrayRef stride, IntArrayRef padding,
                        IntArrayRef dilation, bool transposed, IntArrayRef output_padding, int64_t groups) {
    at::AutoDispatchBelowADInplaceOrView below;
    context->save_for_backward({input, weight});
    context->saved_data["stride"] = stride.vec();
    context->saved_data["padding"] = padding.vec();
    context->saved_data["dilation"] = dilation.vec();
    context->saved_data["transposed"] = transposed;
    context->saved_data["output_padding"] = output_padding.vec();
    context->saved_data["groups"] = groups;
    context->saved_data["bias"] = is_given(bias);
    return op().call(input, weight, bias, stride, padding, dilation, transposed, output_padding, groups);
  }

  static Tensors backward(Context* context, const Tensors& grads) {
    Tensors all(9);
    if (!grads[0].defined()) return all;
    const Tensors saved = context->get_saved_variables();
    auto& data = context->saved_data;
    const std::array<bool, 3> mask = {context->needs_input_grad(0), context->needs_input_grad(1),
                                      data["bias"].toBool() && context->needs_input_grad(2)};
    const auto call = [&](auto&& function) {
      return function(grads[0], saved[0], saved[1], data["stride"].toIntVector(),
                      data["padding"].toIntVector(), data["dilation"].toIntVector(),
                      data["transposed"].toBool(), data["output_padding"].toIntVector(),
                      data["groups"].toInt(), mask);
    };
    std::tie(all[0], all[1], all[2]) =
        at::GradMode::is_enabled()
            ? call(backward_definition)
            : call([](const auto&... arguments) { return backward_op().call(arguments...); });
    return all;
  }
};

Tensor autograd(const Tensor& given, const Tensor& weight, const OptionalTensor& bias, IntArrayRef stride,
                IntArrayRef padding, IntArrayRef dilation, bool transposed, IntArrayRef output_padding,
                int64_t groups) {
  // Weights that optimize() cast take any input, as they do under autocast.
  const Tensor cast = in_dtype_of(weight, given);
  const bool batched = cast.dim() >= weight.dim();
  const Tensor input = batched ? cast : cast.unsqueeze(0);
  Tensor result;
  if (!all_dense(input, weight, bias)) {
    result =
        at::convolution(input, weight, bias, stride, padding, dilation, transposed, output_padding, groups);
  } else if (needs_gradient(input, weight, bias)) {
    result = ConvolutionFunction::apply(input, weight, bias, stride, padding, dilation, transposed,
                                        output_padding, groups);
  } else {
    at::AutoDispatchBelowADInplaceOrView below;
    result = op().call(input, weight, bias, stride, padding, dilation, transposed, output_padding, groups);
  }
  return batched ? result : result.squeeze(0);
}

Gradients backward_autograd(const Tensor& grad, const Tensor& input, const Tensor& weight, IntArrayRef stride,
                            IntArrayRef padding, IntArrayRef dilation, bool transposed,
                            IntArrayRef output_padding, int64_t groups, std::array<bool, 3> mask) {
  if (!all_dense(grad, input, weight) || needs_gradient(grad, input, weight))
    return backward_definition(grad, input, weight, stride, padding, dilation, transposed, output_padding,
                               groups, mask);
  at::AutoDispatchBelowADInplaceOrView below;
  return backward_op().call(grad, input, weight, stride, padding, dilation, transposed, output_padding,
                            groups, mask);
}

Tensor autocast(const Tensor& input, const Tensor& weight, const OptionalTensor& bias, IntArrayRef stride,
                IntArrayRef padding, IntArrayRef dilation, bool transposed, IntArrayRef output_padding,
                int64_t groups) {
  const c10::impl::ExcludeDispatchKeyGuard below(c10::DispatchKey::AutocastCPU);
  return op().call(autocast_operand(input), autocast_operand(weight), autocast_operand(bias), stride, padding,
                   dilation, transposed, output_padding, groups);
}

Tensor meta(const Tensor& input, const Tensor& weight, const OptionalTensor& bias, IntArrayRef stride,
            IntArrayRef padding, IntArrayRef dilation, bool transposed, IntArrayRef output_padding,
            int64_t groups) {
  return at::convolution(input, weight, bias, stride, padding, dilation, transposed, output_padding, groups);
}

}  // namespace

TORCH_LIBRARY_FRAGMENT(torch_ipex, m) {
  m.def(
      "convolution_forward(Tensor input, Tensor weight, Tensor? bias, int[] stride, int[] padding, int[] "
      "dilation, "
      "bool transposed, int[] output_padding, int groups) -> Tensor");
  m.def(
      "convolution_backward(Tensor grad, Tensor input, Tensor weight, int[] stride, int[] padding, int[] "
      "dilation, "
      "bool transposed, int[] output_padding, int groups, bool[3] output_mask) -> (Tensor, Tensor, Tensor)");
}
TORCH_LIBRARY_IMPL(torch_ipex, CPU, m) {
  m.impl("convolution_forward", kernel);
  m.impl("convolution_backward", backward_kernel);
}
TORCH_LIBRARY_IMPL(torch_ipex, Meta, m) {
  m.impl("convolution_forward", meta);
  m.impl("convolution_backward", backward_definition);
}
TORCH_LIBRARY_IMPL(torch_ipex, Autograd, m) {
  m.impl("convolution_forward", autograd);
  m.impl("convolution_backward", backward_autograd);
}
TORCH_LIBRARY_IMPL(torch_ipex, AutocastCPU, m) { m.impl("convolution_forward", autocast); }

}  // namespace ipex::torch_ops

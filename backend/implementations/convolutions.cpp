// The implementations of convolutions, their gradients and LSTMs. Generated kernels compute convolutions in
// f32 where they are faster than the library: 3 x 3 windows by Winograd's method, and gradients of weights.
// The gradient of a convolution's data is a convolution of the result's gradient by the rotated window.
#include <algorithm>
#include <optional>

#include "backend/convolutions/winograd.h"
#include "backend/implementations/implementation.h"

namespace ipex::graph {
namespace {

// A 2-d convolution in f32 that the generated kernels support.
struct PlainConvolution {
  WinogradShape shape;  // for the forward convolution or the gradient of the data
  int64_t taps;         // elements of the window
  bool winograd_applies;
};

// nullopt for another type or rank, groups, dilation, or unknown sizes. `x`, `y`, `w`: the operands with the
// channels of the sum, the channels of the result, and the window; -1 is the result.
std::optional<PlainConvolution> plain_convolution(const Problem& p, int x, int y, int w) {
  const ConvWindow conv = conv_window(p.node);
  if (conv.groups != 1 || conv.transposed || conv.dilation != Ints{1, 1}) return std::nullopt;
  const auto type = [&](int k) -> const Type& { return k < 0 ? p.result() : p.operand(k); };
  for (const Type* each : {&type(x), &type(y), &type(w)}) {
    if (each->dtype != Dtype::kF32 || each->shape.size() != 4) return std::nullopt;
    for (size_t d = 1; d < 4; ++d)  // the batch may be unknown
      if (known(each->shape[d]) == 0) return std::nullopt;
  }
  const Shape &window = type(w).shape, &from = type(x).shape, &to = type(y).shape;
  const int64_t batch = std::max<int64_t>(hint(to[0], p.graph), 1);
  return PlainConvolution{{known(from[1]), known(to[1]), known(to[2]), known(to[3]), batch},
                          known(window[2]) * known(window[3]),
                          known(window[2]) == 3 && known(window[3]) == 3 && conv.stride == Ints{1, 1}};
}

bool is_channels_last(const Problem& p, int k) { return known(p.layout(k).strides[1]) == 1; }

bool is_winograd_faster(const Problem& p, int w) {
  const auto conv = plain_convolution(p, 0, -1, w);
  const Node& node = p.node;
  return conv && conv->winograd_applies && is_channels_last(p, 0) && !node.layouts.empty() &&
         !node.layouts[0].empty() && known(node.layouts[0][1]) == 1 &&
         winograd_best(conv->shape, p.is_hoisted(w), p.context.target);
}

bool is_winograd(const Problem& p) { return is_winograd_faster(p, 1); }
bool is_winograd_of_data(const Problem& p) {
  return p.node.get<ConvBackward>().which == GradientOf::kData &&
         std::ranges::max(conv_window(p.node).padding) <= 2 && is_winograd_faster(p, 2);
}

WeightGradientMethod method_of_weights(const Problem& p) {
  if (p.node.get<ConvBackward>().which != GradientOf::kWeights) return WeightGradientMethod::kLibrary;
  const auto conv = plain_convolution(p, 1, 0, -1);
  if (!conv || !is_channels_last(p, 0) || !is_channels_last(p, 1)) return WeightGradientMethod::kLibrary;
  return weight_gradient_method(conv->shape, conv->taps, conv->winograd_applies, p.context.target);
}

bool is_weights_by_taps(const Problem& p) { return method_of_weights(p) == WeightGradientMethod::kTaps; }
bool is_weights_by_winograd(const Problem& p) {
  return method_of_weights(p) == WeightGradientMethod::kWinograd;
}

constexpr ImplementationRow kConv[] = {
    kWidened,
    kOtherType,
    {"winograd", is_winograd, Method::kWinograd,
     "3 x 3 windows with fewer multiplications, by Winograd's method", Basis::kModel},
    kByLibrary,
    kByKernel,
};

constexpr ImplementationRow kConvBackward[] = {
    kWidened,
    kOtherType,
    {"winograd_of_data", is_winograd_of_data, Method::kWinogradOfData,
     "3 x 3 windows with fewer multiplications, by Winograd's method", Basis::kModel},
    {"weights_by_taps", is_weights_by_taps, Method::kWeightsByTaps,
     "the gradient of weights as a matrix product for each tap of the window", Basis::kModel},
    {"weights_by_winograd", is_weights_by_winograd, Method::kWeightsByWinograd,
     "the gradient of 3 x 3 weights with fewer multiplications, by Winograd's method", Basis::kModel},
    kByLibrary,
    kByKernel,
};

constexpr ImplementationRow kLstm[] = {
    kWidened,
    {"library", always, Method::kLibrary, "only the library computes an LSTM"},
};

}  // namespace

std::span<const ImplementationRow> conv_implementations() { return kConv; }
std::span<const ImplementationRow> conv_backward_implementations() { return kConvBackward; }
std::span<const ImplementationRow> lstm_implementations() { return kLstm; }

}  // namespace ipex::graph

// Convolutions in f32 that kernels of ours compute in less time than the library: windows of 3 x 3 by
// Winograd's method, and gradients of weights. The gradient of a convolution's data is the convolution of the
// result's gradient by the window turned around. The transform of weights that are parameters is computed
// once.
#include <algorithm>
#include <map>
#include <optional>

#include "backend/convolutions/winograd.h"
#include "backend/graph/parameters.h"
#include "backend/graph/rewriter.h"
#include "backend/passes/passes.h"
#include "backend/views.h"
#include "codegen/loop/simplify.h"

namespace ipex::graph {
namespace {

using loop::as_const_int;

class ConvolutionChooser : GraphRewriter {
 public:
  ConvolutionChooser(Graph graph, const loop::Target& target)
      : GraphRewriter(std::move(graph)), target_(target) {}

  Graph run() {
    std::map<int32_t, Kernel> kernels;
    for (int32_t n = 0; n < std::ssize(old_.nodes); ++n)
      if (const auto kernel = kernel_for(old_.nodes[n])) kernels[n] = *kernel;
    if (kernels.empty()) return std::move(old_);
    return rebuild([&](int32_t n) {
      const auto it = kernels.find(n);
      it == kernels.end() ? keep(n) : keep(n, by_kernel(with_mapped_operands(n), it->second));
    });
  }

 private:
  enum class Kernel : uint8_t { kWinograd, kWinogradOfData, kWeightsByTaps, kWeightsByWinograd };

  std::optional<Kernel> kernel_for(const Node& node) {
    if (node.op() != Op::kConv && node.op() != Op::kConvBackward) return std::nullopt;
    const ConvWindow conv = conv_window(node);
    if (conv.groups != 1 || conv.transposed || conv.dilation != Ints{1, 1}) return std::nullopt;
    const bool forwards = node.op() == Op::kConv;
    const bool weights = !forwards && node.get<ConvBackward>().which == GradientOf::kWeights;
    const Value w = node.operands[forwards ? 1 : 2];
    const auto known = [](const Dim& dim) { return as_const_int(dim).value_or(0); };
    for (const Type* type : {&old_.type(node.operands[0]), &old_.type(w), &node.types[0]}) {
      if (type->dtype != Dtype::kF32 || type->shape.size() != 4) return std::nullopt;
      for (size_t d = 1; d < 4; ++d)  // a batch need not be known
        if (known(type->shape[d]) == 0) return std::nullopt;
    }
    const Shape &window = old_.type(w).shape, &first = old_.type(node.operands[0]).shape;
    const bool winograd_applies = known(window[2]) == 3 && known(window[3]) == 3 &&
                                  conv.stride == Ints{1, 1} &&
                                  (forwards || weights || std::ranges::max(conv.padding) <= 2);
    const auto shape_of = [&](const Shape& x, const Shape& y) {
      return WinogradShape{known(x[1]), known(y[1]), known(y[2]), known(y[3]),
                           std::max<int64_t>(hint(y[0], old_), 1)};
    };
    if (weights) {
      const Shape& x = old_.type(node.operands[1]).shape;
      if (known(x[2]) == 0 || known(x[3]) == 0 || !lies_channels_last(0, node) ||
          !lies_channels_last(1, node))
        return std::nullopt;
      const int64_t taps = known(window[2]) * known(window[3]);
      switch (weight_gradient_method(shape_of(x, first), taps, winograd_applies, target_)) {
        case WeightGradientMethod::kLibrary:
          return std::nullopt;
        case WeightGradientMethod::kTaps:
          return Kernel::kWeightsByTaps;
        case WeightGradientMethod::kWinograd:
          return Kernel::kWeightsByWinograd;
      }
    }
    const bool lies = lies_channels_last(0, node) && !node.layouts.empty() && !node.layouts[0].empty() &&
                      as_const_int(node.layouts[0][1]) == 1;
    if (!winograd_applies || !lies ||
        !winograd_best(shape_of(first, node.types[0].shape), is_parameter_(w), target_))
      return std::nullopt;
    return forwards ? Kernel::kWinograd : Kernel::kWinogradOfData;
  }

  // As plan_layouts leaves operands; an image of few channels it leaves alone.
  bool lies_channels_last(int operand, const Node& node) const {
    return as_const_int(resolve_view(old_, node.operands[operand]).strides[1]) == 1;
  }

  // `conv` has its operands in new_.
  Node by_kernel(Node conv, Kernel kernel) {
    Node node = std::move(conv);
    auto [stride, padding, dilation, output_padding, groups, is_transposed] = conv_window(node);
    if (kernel == Kernel::kWeightsByTaps || kernel == Kernel::kWeightsByWinograd) {
      node.operands.resize(2);
      node.operation = WeightGradient{stride, padding, kernel == Kernel::kWeightsByWinograd};
      return node;
    }
    const bool of_data = kernel == Kernel::kWinogradOfData;
    const Value w = node.operands[of_data ? 2 : 1];
    if (of_data) {
      node.operands.resize(2);
      for (int64_t& p : padding) p = 2 - p;  // the window turned around
    }
    node.operation = Winograd{padding, has_bias(node), post_ops(node)};
    node.operands[1] = transformed(w, of_data, node.source);
    return node;
  }

  Value transformed(Value w, bool gradient, const std::string& source) {
    const auto [known, is_new] = transformed_.try_emplace({w, gradient});
    if (!is_new) return known->second;
    const Shape& shape = new_.type(w).shape;
    const auto channels = [&](bool first) { return *as_const_int(shape[first ? 0 : 1]); };
    const Type type{Dtype::kF32,
                    winograd_filter_shape({channels(gradient), channels(!gradient), 0, 0, 0}, target_)};
    return known->second = add({WinogradFilter{gradient}, {w}, {type}, {}, source});
  }

  const loop::Target& target_;
  ParameterAnalysis is_parameter_{old_};
  std::map<std::pair<Value, bool>, Value> transformed_;
};

}  // namespace

Graph choose_convolutions(Graph graph, const loop::Target& target) {
  return ConvolutionChooser(std::move(graph), target).run();
}

}  // namespace ipex::graph

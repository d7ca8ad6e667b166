// Convolutions of 3 x 3 windows by Winograd's method where it takes less time than the sum over windows. Both
// the transform of the weights and the convolution are kernels of ours; the transform of a parameter is
// computed once. The gradient of a convolution's data is the convolution of the result's gradient by the
// window turned around; that of its weights has a kernel of its own.
#include <algorithm>
#include <map>
#include <optional>

#include "backend/lower/winograd.h"
#include "backend/passes/passes.h"
#include "backend/views.h"
#include "codegen/loop/simplify.h"

namespace ipex::graph {
namespace {

using loop::as_const_int;
using Ints = std::vector<int64_t>;

class WinogradUser {
 public:
  WinogradUser(Graph graph, const loop::Target& target) : old_(std::move(graph)), target_(target) {}

  Graph run() {
    find_parameters();
    std::vector<bool> uses(old_.nodes.size());
    for (size_t n = 0; n < uses.size(); ++n) uses[n] = gains(old_.nodes[n]);
    if (std::none_of(uses.begin(), uses.end(), [](bool use) { return use; })) return std::move(old_);
    new_ = old_.without_nodes();
    for (int32_t n = 0; n < std::ssize(old_.nodes); ++n) {
      Node node = old_.nodes[n];
      for (Value& v : node.operands) v = mapped_.at(v);
      if (uses[n]) node = by_winograd(node, *convolution_of(old_.nodes[n]));
      const auto results = static_cast<int32_t>(node.types.size());
      const Value value = new_.add(std::move(node));
      for (int32_t r = 0; r < results; ++r) mapped_[{n, r}] = {value.node, r};
    }
    new_.end_like(old_, [&](Value v) { return mapped_.at(v); });
    return std::move(new_);
  }

 private:
  // What depends on parameters and buffers only is computed once.
  void find_parameters() {
    parameters_.resize(old_.nodes.size());
    for (size_t n = 0; n < parameters_.size(); ++n) {
      const Node& node = old_.nodes[n];
      parameters_[n] = node.op == Op::kInput ? node.attr_or<bool>("static", false) : node.op != Op::kExtern;
      for (Value v : node.operands) parameters_[n] = parameters_[n] && parameters_[v.node];
    }
  }

  // Which convolution a node stands for: from x to y, whose windows have the weights w.
  struct Convolution {
    enum class Of : uint8_t { kResult, kData, kWeights } of;
    Value w;
    Type x, y;
    Ints padding;
  };

  std::optional<Convolution> convolution_of(const Node& node) const {
    const auto type = [&](int k) { return old_.type(node.operands[k]); };
    const Type& result = node.types[0];
    if (node.op == Op::kConv)
      return Convolution{Convolution::Of::kResult, node.operands[1], type(0), result,
                         node.attr<Ints>("padding")};
    if (node.op != Op::kConvBackward) return std::nullopt;
    Convolution conv{Convolution::Of::kWeights, node.operands[2], type(1), type(0),
                     node.attr<Ints>("padding")};
    if (node.attr<std::string>("which") == "weights") return conv;
    conv = {Convolution::Of::kData, node.operands[2], type(0), result, conv.padding};
    for (int64_t& p : conv.padding) p = 2 - p;  // the window turned around
    return conv;
  }

  bool gains(const Node& node) const {
    const std::optional<Convolution> conv = convolution_of(node);
    if (!conv || conv->y.shape.size() != 4 || node.attr_or<int64_t>("groups", 1) != 1 ||
        node.attr_or<bool>("transposed", false))
      return false;
    for (const char* unit : {"stride", "dilation"})
      if (node.attr<Ints>(unit) != Ints{1, 1}) return false;
    if (std::ranges::any_of(conv->padding, [](int64_t p) { return p < 0; })) return false;
    const Shape &w = old_.type(conv->w).shape, &x = conv->x.shape, &y = conv->y.shape;
    for (Dtype dtype : {old_.type(conv->w).dtype, conv->x.dtype, conv->y.dtype})
      if (dtype != Dtype::kF32) return false;
    const auto known = [](const Dim& dim) { return as_const_int(dim).value_or(0); };
    if (known(w[2]) != 3 || known(w[3]) != 3) return false;
    for (const Dim& dim : {x[1], x[2], x[3], y[1], y[2], y[3]})
      if (known(dim) == 0) return false;
    if (!lie_channels_last(node, conv->of)) return false;
    const WinogradShape shape{known(x[1]), known(y[1]), known(y[2]), known(y[3]),
                              std::max<int64_t>(hint(y[0], old_), 1)};
    return conv->of == Convolution::Of::kWeights ? winograd_gradient_best(shape, target_)
                                                 : winograd_best(shape, parameters_[conv->w.node], target_);
  }

  // As plan_layouts leaves them; an image of few channels it leaves alone.
  bool lie_channels_last(const Node& node, Convolution::Of of) const {
    const auto lies = [](const Strides& strides) { return as_const_int(strides[1]) == 1; };
    const auto operand = [&](int k) { return lies(resolve_view(old_, node.operands[k]).strides); };
    if (of == Convolution::Of::kWeights) return operand(0) && operand(1);
    return operand(0) && !node.layouts.empty() && !node.layouts[0].empty() && lies(node.layouts[0]);
  }

  Node by_winograd(const Node& conv, const Convolution& meaning) {
    Node node;
    node.types = conv.types;
    node.layouts = conv.layouts;
    node.source = conv.source;
    node.operands = conv.operands;
    node.attrs["padding"] = meaning.padding;
    if (meaning.of == Convolution::Of::kWeights) {
      node.op = Op::kWinogradGradient;
      node.operands.resize(2);
      return node;
    }
    const bool gradient = meaning.of == Convolution::Of::kData;
    node.op = Op::kWinograd;
    node.attrs["bias"] = conv.attr_or<bool>("bias", false);
    node.attrs["post"] = conv.attr_or<std::vector<std::string>>("post", {});
    if (gradient) node.operands.resize(2);
    node.operands[1] = transformed(mapped_.at(meaning.w), gradient, conv.source);
    return node;
  }

  Value transformed(Value w, bool gradient, const std::string& source) {
    const auto [known, is_new] = transformed_.try_emplace({w, gradient});
    if (!is_new) return known->second;
    const Shape& shape = new_.type(w).shape;
    const auto channels = [&](bool first) { return *as_const_int(shape[first ? 0 : 1]); };
    Node node;
    node.op = Op::kWinogradFilter;
    node.operands = {w};
    node.types = {
        {Dtype::kF32, winograd_filter_shape({channels(gradient), channels(!gradient), 0, 0, 0}, target_)}};
    node.attrs["gradient"] = gradient;
    node.source = source;
    return known->second = new_.add(std::move(node));
  }

  Graph old_, new_;
  const loop::Target& target_;
  std::vector<bool> parameters_;  // by old node
  std::map<Value, Value> mapped_;
  std::map<std::pair<Value, bool>, Value> transformed_;
};

}  // namespace

Graph use_winograd(Graph graph, const loop::Target& target) {
  return WinogradUser(std::move(graph), target).run();
}

}  // namespace ipex::graph

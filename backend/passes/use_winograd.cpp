// Convolutions of 3 x 3 windows by Winograd's method where it takes less time than the sum over windows. Both
// the transform of the weights and the convolution are kernels of ours; the transform of a parameter is
// computed once. The gradient of a convolution's data is the convolution of the result's gradient by the
// window turned around.
#include <algorithm>
#include <map>

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
      if (uses[n]) node = by_winograd(node);
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

  static bool is_gradient(const Node& node) { return node.op == Op::kConvBackward; }

  static Value window_of(const Node& node) { return node.operands[is_gradient(node) ? 2 : 1]; }

  bool gains(const Node& node) const {
    if (node.op != Op::kConv && node.op != Op::kConvBackward) return false;
    const bool gradient = is_gradient(node);
    if (gradient && node.attr<std::string>("which") != "data") return false;
    const Type &x = old_.type(node.operands[0]), &w = old_.type(window_of(node)), &y = node.types[0];
    if (y.shape.size() != 4 || y.dtype != Dtype::kF32 || x.dtype != Dtype::kF32) return false;
    for (const char* unit : {"stride", "dilation"})
      if (node.attr<Ints>(unit) != Ints{1, 1}) return false;
    if (node.attr_or<int64_t>("groups", 1) != 1 || node.attr_or<bool>("transposed", false)) return false;
    const Ints padding = padding_of(node);
    if (std::ranges::any_of(padding, [](int64_t p) { return p < 0; })) return false;
    const auto known = [](const Shape& shape, size_t d) { return as_const_int(shape[d]).value_or(0); };
    if (known(w.shape, 2) != 3 || known(w.shape, 3) != 3) return false;
    // Channels side by side, as plan_layouts leaves them.
    const auto side_by_side = [](const Strides& strides) { return as_const_int(strides[1]) == 1; };
    if (!side_by_side(resolve_view(old_, node.operands[0]).strides) || node.layouts.empty() ||
        node.layouts[0].empty() || !side_by_side(node.layouts[0]))
      return false;
    const WinogradShape shape = shape_of(node);
    if (shape.terms == 0 || shape.columns == 0 || shape.height == 0 || shape.width == 0 ||
        !as_const_int(x.shape[2]) || !as_const_int(x.shape[3]))
      return false;
    return winograd_best(shape, parameters_[window_of(node).node], target_);
  }

  WinogradShape shape_of(const Node& node) const {
    const Shape &x = old_.type(node.operands[0]).shape, &y = node.types[0].shape;
    const auto known = [](const Dim& dim) { return as_const_int(dim).value_or(0); };
    return {known(x[1]), known(y[1]), known(y[2]), known(y[3]), std::max<int64_t>(hint(y[0], old_), 1)};
  }

  static Ints padding_of(const Node& node) {
    Ints padding = node.attr<Ints>("padding");
    if (is_gradient(node))
      for (int64_t& p : padding) p = 2 - p;
    return padding;
  }

  Node by_winograd(const Node& conv) {
    const bool gradient = is_gradient(conv);
    Node node;
    node.op = Op::kWinograd;
    node.operands = conv.operands;
    node.types = conv.types;
    node.layouts = conv.layouts;
    node.source = conv.source;
    node.attrs["padding"] = padding_of(conv);
    node.attrs["bias"] = conv.attr_or<bool>("bias", false);
    node.attrs["post"] = conv.attr_or<std::vector<std::string>>("post", {});
    if (gradient) node.operands.resize(2);
    node.operands[1] = transformed(window_of(conv), gradient, conv.source);
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

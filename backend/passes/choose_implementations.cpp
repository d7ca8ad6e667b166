// Applies the choices of backend/implementations/ to each product, convolution and LSTM: sets attributes,
// inserts casts, or replaces the node. Transforms of weights that are parameters are hoisted, so they run
// once.
#include <algorithm>
#include <map>
#include <vector>

#include "backend/convolutions/winograd.h"
#include "backend/graph/rewriter.h"
#include "backend/implementations/implementation.h"
#include "backend/passes/passes.h"
#include "backend/plan_memory.h"
#include "backend/views.h"
#include "codegen/loop/simplify.h"

namespace ipex::graph {
namespace {

// By node; without a method if there is nothing to choose or the choice was made before.
struct Chosen {
  std::optional<Method> method;
  std::string why;
};

std::vector<Chosen> choose(const Graph& graph, const PassContext& context) {
  std::vector<Chosen> chosen(graph.nodes.size());
  GraphFacts facts(graph, context);
  for (int32_t n = 0; n < std::ssize(graph.nodes); ++n) {
    const Node& node = graph.nodes[n];
    if (implementations(node.op()).empty() || choice_of(node).by) continue;
    const Problem problem(facts, n);
    const ImplementationRow& row = first_accepting(problem);
    chosen[n] = {row.method,
                 row.basis == Basis::kMeasured ? measured_text(*problem.measured()) : std::string(row.why)};
  }
  return chosen;
}

class Widener : GraphRewriter {
 public:
  Widener(Graph graph, const std::vector<Chosen>& chosen)
      : GraphRewriter(std::move(graph)), chosen_(chosen) {}

  Graph run() {
    return rebuild([&](int32_t n) {
      if (chosen_[n].method != Method::kWiden) return keep(n);
      Node node = with_mapped_operands(n);
      const std::vector<Type> types = node.types;
      const std::vector<Strides> layouts = node.layouts;
      const bool is_planned = node.op() == Op::kConv || node.op() == Op::kConvBackward;
      for (Value& v : node.operands)
        if (is_half(new_.type(v).dtype)) v = widened(v, is_planned, node.source);
      for (Type& type : node.types) type.dtype = Dtype::kF32;
      set_choice(node, {std::nullopt, chosen_[n].why});
      if (!is_planned) node.layouts.clear();  // the cast takes over the required layout
      const std::string source = node.source;
      const int32_t wide = add(std::move(node)).node;
      for (int32_t r = 0; r < std::ssize(types); ++r) {
        const Value narrow = cast({wide, r}, types[r].dtype, source);
        replace({n, r}, narrow);
        if (narrow.node != wide && r < std::ssize(layouts) && !layouts[r].empty())
          new_.nodes[narrow.node].layouts = {layouts[r]};
      }
    });
  }

 private:
  // A convolution's operand keeps its layout; a product takes it row-major.
  Value widened(Value v, bool keeps_layout, const std::string& source) {
    const auto [known, is_new] = widened_.try_emplace({v, keeps_layout});
    if (!is_new) return known->second;
    known->second = cast(v, Dtype::kF32, source);
    const Strides strides = resolve_view(new_, v).strides;
    const Shape& shape = new_.type(v).shape;
    if (keeps_layout && is_dense(shape, strides) && !same_strides(shape, strides, contiguous_strides(shape)))
      new_.nodes[known->second.node].layouts = {strides};
    return known->second;
  }

  const std::vector<Chosen>& chosen_;
  std::map<std::pair<Value, bool>, Value> widened_;
};

class Chooser : GraphRewriter {
 public:
  Chooser(Graph graph, std::vector<Chosen> chosen, const loop::Target& target)
      : GraphRewriter(std::move(graph)), chosen_(std::move(chosen)), target_(target) {}

  Graph run() {
    return rebuild([&](int32_t n) {
      Node node = with_mapped_operands(n);
      if (chosen_[n].method) node = apply(*chosen_[n].method, std::move(node), chosen_[n].why);
      keep(n, std::move(node));
    });
  }

 private:
  Node apply(Method method, Node node, std::string why) {
    if (const std::string widened = choice_of(node).why; !widened.empty()) why = widened + "; " + why;
    if (method == Method::kWinograd || method == Method::kWinogradOfData)
      node = winograd(std::move(node), method == Method::kWinogradOfData);
    if (method == Method::kWeightsByTaps || method == Method::kWeightsByWinograd)
      node = weight_gradient(std::move(node), method == Method::kWeightsByWinograd);
    const bool by_library = method == Method::kLibrary;
    set_choice(node, {by_library ? Implementation::kLibrary : Implementation::kKernel, std::move(why)});
    return node;
  }

  static Node weight_gradient(Node node, bool winograd) {
    const ConvWindow window = conv_window(node);
    node.operands.resize(2);
    node.operation = WeightGradient{window.stride, window.padding, winograd};
    return node;
  }

  Node winograd(Node node, bool of_data) {
    Ints padding = conv_window(node).padding;
    const Value w = node.operands[of_data ? 2 : 1];
    if (of_data) {
      node.operands.resize(2);
      for (int64_t& p : padding) p = 2 - p;  // for the rotated window
    }
    node.operation = Winograd{padding, has_bias(node), post_ops(node)};
    node.operands[1] = transformed(w, of_data, node.source);
    return node;
  }

  Value transformed(Value w, bool gradient, const std::string& source) {
    const auto [known, is_new] = transformed_.try_emplace({w, gradient});
    if (!is_new) return known->second;
    const Shape& shape = new_.type(w).shape;
    const auto channels = [&](bool first) { return *loop::as_const_int(shape[first ? 0 : 1]); };
    const Type type{Dtype::kF32,
                    winograd_filter_shape({channels(gradient), channels(!gradient), 0, 0, 0}, target_)};
    return known->second = add({WinogradFilter{gradient}, {w}, {type}, {}, source});
  }

  std::vector<Chosen> chosen_;
  const loop::Target& target_;
  std::map<std::pair<Value, bool>, Value> transformed_;
};

}  // namespace

Graph choose_implementations(Graph graph, const PassContext& context) {
  std::vector<Chosen> chosen = choose(graph, context);
  const auto is_widened = [](const Chosen& each) { return each.method == Method::kWiden; };
  if (std::ranges::any_of(chosen, is_widened)) {
    graph = Widener(std::move(graph), chosen).run();
    chosen = choose(graph, context);
  }
  if (std::ranges::none_of(chosen, [](const Chosen& each) { return each.method.has_value(); })) return graph;
  return Chooser(std::move(graph), std::move(chosen), context.target).run();
}

}  // namespace ipex::graph

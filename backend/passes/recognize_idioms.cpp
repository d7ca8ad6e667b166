// recognize_idioms: replaces activations that a model writes as arithmetic by one op, which has a better
// formula and which the library can fuse as a post-op.
#include <array>
#include <charconv>
#include <cmath>
#include <string_view>

#include "backend/graph/constants.h"
#include "backend/passes/passes.h"
#include "runtime/error.h"

namespace ipex::graph {
namespace {

// The formula of `fn` in ops of the pointwise table. Operands of mul and add may be in either order.
struct Idiom {
  PointwiseOp fn;
  std::string_view text;
};

constexpr std::array<Idiom, 6> kIdioms = {{
    {PointwiseOp::gelu_tanh_, "mul(mul(x,0.5),add(tanh(mul(add(x,mul(pow(x,3),0.044715)),0.7978845608)),1))"},
    {PointwiseOp::gelu_tanh_,
     "mul(mul(x,0.5),add(tanh(mul(mul(x,0.7978845608),add(mul(mul(x,0.044715),x),1))),1))"},
    {PointwiseOp::gelu_, "mul(mul(x,0.5),add(erf(div(x,1.4142135624)),1))"},
    {PointwiseOp::gelu_, "mul(mul(x,0.5),add(erf(mul(x,0.7071067812)),1))"},
    {PointwiseOp::gelu_, "mul(mul(x,add(erf(div(x,1.4142135624)),1)),0.5)"},
    {PointwiseOp::silu_, "mul(x,sigmoid(x))"},
}};
constexpr double kSameNumber = 1e-7;  // relative; models write as few as eight digits

// Matches the value of a node against the text of a formula.
class Match {
 public:
  Match(const Graph& graph, const std::vector<int>& uses, int32_t root)
      : graph_(graph), uses_(uses), root_(root) {}

  // The value of x, if the whole text matches.
  std::optional<Value> of(std::string_view text) {
    x_ = std::nullopt;
    sources_.clear();
    return fits(text, {root_, 0}) ? x_ : std::nullopt;
  }
  const std::string& sources() const { return sources_; }

 private:
  bool fits(std::string_view text, Value v) {
    if (text == "x") {
      if (x_) return *x_ == v;
      x_ = v;
      return equal(graph_.type(v), graph_.nodes[root_].types[0]);
    }
    const size_t open = text.find('(');
    if (open == std::string_view::npos) return is_number(text, v);
    const Node& node = graph_.node(v);
    const bool inside = v.node == root_ || uses_[v.node] == 1;
    const auto* pointwise = node.get_if<Pointwise>();
    if (!inside || !pointwise || ipex::text(pointwise->fn) != text.substr(0, open) ||
        !equal(node.types[0], graph_.nodes[root_].types[0]))
      return false;
    const auto [first, second] = arguments(text.substr(open + 1, text.size() - open - 2));
    const auto x = x_;
    const auto both = [&](size_t a, size_t b) {
      x_ = x;
      return fits(first, node.operands[a]) && (second.empty() || fits(second, node.operands[b]));
    };
    const bool commutes = ops::row(pointwise->fn).has(ops::kCommutes);
    if (!both(0, 1) && !(commutes && both(1, 0))) return false;
    add_sources(sources_, node.source);
    return true;
  }

  // Splits "a,b" at the comma outside of parentheses; for "a" the second part is empty.
  static std::pair<std::string_view, std::string_view> arguments(std::string_view text) {
    int depth = 0;
    for (size_t i = 0; i < text.size(); ++i) {
      depth += text[i] == '(' ? 1 : text[i] == ')' ? -1 : 0;
      if (text[i] == ',' && depth == 0) return {text.substr(0, i), text.substr(i + 1)};
    }
    return {text, {}};
  }

  bool is_number(std::string_view text, Value v) const {
    double expected = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), expected);
    IPEX_CHECK(error == std::errc() && end == text.data() + text.size(), "a formula has a malformed number");
    const auto literal = literal_value(graph_, v);
    if (!literal) return false;
    const double number = std::visit([](auto value) { return static_cast<double>(value); }, *literal);
    return std::abs(number - expected) <= kSameNumber * std::abs(expected);
  }

  const Graph& graph_;
  const std::vector<int>& uses_;
  const int32_t root_;
  std::optional<Value> x_;
  std::string sources_;
};

std::vector<int> count_uses(const Graph& graph) {
  std::vector<int> uses(graph.nodes.size());
  for (const Node& node : graph.nodes)
    for (Value v : node.operands) ++uses[v.node];
  for (const GraphOutput& output : graph.outputs) ++uses[output.value.node];
  for (const InputMutation& m : graph.mutations) ++uses[m.value.node];
  return uses;
}

}  // namespace

Graph recognize_idioms(Graph graph) {
  const std::vector<int> uses = count_uses(graph);
  for (int32_t n = 0; n < static_cast<int32_t>(graph.nodes.size()); ++n) {
    if (!graph.nodes[n].is(PointwiseOp::mul_)) continue;
    Match match(graph, uses, n);
    for (const Idiom& idiom : kIdioms)
      if (const auto x = match.of(idiom.text)) {
        Node& node = graph.nodes[n];
        node.operation = Pointwise{idiom.fn};
        node.operands = {*x};
        node.source = match.sources();
        break;
      }
  }
  return graph;
}

}  // namespace ipex::graph

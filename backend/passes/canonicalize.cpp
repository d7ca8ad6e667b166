// One forward walk that rebuilds the graph with every node in its simplest form, equal nodes shared, and dead
// ones gone.
#include <unordered_map>

#include "backend/graph/names.h"
#include "backend/passes/passes.h"
#include "codegen/loop/simplify.h"

namespace ipex::graph {
namespace {

using loop::as_const_int;

bool holds(Dtype wide, Dtype narrow) {  // every value of `narrow` is exact in `wide`
  if (wide == narrow || narrow == Dtype::kBool) return true;
  if (is_float(wide) && is_float(narrow))
    return wide == Dtype::kF64 || (wide == Dtype::kF32 && is_half(narrow));
  if (is_float(wide))
    return itemsize(narrow) <= (wide == Dtype::kF64   ? 4
                                : wide == Dtype::kF32 ? 2
                                : wide == Dtype::kF16 ? 1
                                                      : 0) ||
           (wide == Dtype::kBF16 && itemsize(narrow) == 1);
  if (is_float(narrow)) return false;
  const bool from_signed = info(narrow).is_signed, to_signed = info(wide).is_signed;
  return to_signed ? itemsize(wide) > itemsize(narrow) || (from_signed && itemsize(wide) == itemsize(narrow))
                   : false;
}

class Canonicalizer {
 public:
  explicit Canonicalizer(Graph graph) : old_(std::move(graph)) {}

  Graph run() {
    mark_live();
    new_.name = old_.name;
    new_.symbols = old_.symbols;
    new_.symbol_hints = old_.symbol_hints;
    for (int32_t i = 0; i < static_cast<int32_t>(old_.nodes.size()); ++i) {
      if (!live_[i]) continue;
      Node node = std::move(old_.nodes[i]);
      for (Value& v : node.operands) v = mapped_.at(v);
      const size_t results = node.types.size();
      const bool is_input = node.op == Op::kInput;
      const Value value = add(std::move(node));
      if (is_input) position_[i] = value.node;
      for (size_t r = 0; r < results; ++r)
        mapped_[{i, static_cast<int32_t>(r)}] = {value.node, value.result + static_cast<int32_t>(r)};
    }
    for (int32_t input : old_.inputs) new_.inputs.push_back(position_.at(input));
    for (GraphOutput& output : old_.outputs)
      new_.outputs.push_back({mapped_.at(output.value), std::move(output.strides)});
    for (const InputMutation& m : old_.mutations) new_.mutations.push_back({m.input, mapped_.at(m.value)});
    return std::move(new_);
  }

 private:
  // Inputs and calls into ATen (they may have effects) always stay.
  void mark_live() {
    live_.assign(old_.nodes.size(), false);
    for (const GraphOutput& output : old_.outputs) live_[output.value.node] = true;
    for (const InputMutation& m : old_.mutations) live_[m.value.node] = true;
    for (size_t i = old_.nodes.size(); i-- > 0;) {
      const Node& node = old_.nodes[i];
      if (node.op == Op::kInput || node.op == Op::kExtern) live_[i] = true;
      if (!live_[i]) continue;
      for (Value v : node.operands) live_[v.node] = true;
    }
  }

  Value add(Node node) {
    if (auto same = simplify_node(node)) return *same;
    if (node.op == Op::kInput || node.op == Op::kExtern) return new_.add(std::move(node));
    const std::string source = std::move(node.source);
    const Value value = new_.add(std::move(node));
    auto [it, fresh] = known_.try_emplace(node_expression(new_, value.node), value);
    if (!fresh) {
      new_.nodes.pop_back();
      return it->second;
    }
    new_.nodes[value.node].source = source;
    return value;
  }

  const Node& producer(const Node& node) const { return new_.node(node.operands[0]); }
  bool keeps_shape(const Node& node) const {
    return equal(new_.type(node.operands[0]).shape, node.types[0].shape);
  }
  static bool has_layout(const Node& node) { return !node.layouts.empty() && !node.layouts[0].empty(); }

  // An existing value equal to the node, or the node in simpler form (changed in place).
  std::optional<Value> simplify_node(Node& node) {
    switch (node.op) {
      case Op::kPermute: {
        auto dims = node.attr<std::vector<int64_t>>("dims");
        if (const Node& below = producer(node); below.op == Op::kPermute) {
          const auto& inner = below.attr<std::vector<int64_t>>("dims");
          for (int64_t& d : dims) d = inner[d];
          node.operands[0] = below.operands[0];
          node.attrs["dims"] = dims;
        }
        for (size_t i = 0; i < dims.size(); ++i)
          if (dims[i] != static_cast<int64_t>(i)) return permute_as_reshape(node, dims);
        return node.operands[0];
      }
      case Op::kReshape:
        while (producer(node).op == Op::kReshape) node.operands[0] = producer(node).operands[0];
        if (keeps_shape(node)) return node.operands[0];
        return std::nullopt;
      case Op::kExpand: {
        auto dims = node.attr<std::vector<int64_t>>("dims");
        if (const Node& below = producer(node); below.op == Op::kExpand) {
          auto inner = below.attr<std::vector<int64_t>>("dims");
          for (int64_t& d : inner) d = dims[d];
          node.operands[0] = below.operands[0];
          node.attrs["dims"] = inner;
        }
        if (keeps_shape(node)) return node.operands[0];
        return std::nullopt;
      }
      case Op::kSlice: {
        if (!keeps_shape(node)) return std::nullopt;
        for (const Dim& start : node.attr<std::vector<Dim>>("starts"))
          if (as_const_int(start) != 0) return std::nullopt;
        for (int64_t step : node.attr<std::vector<int64_t>>("steps"))
          if (step != 1) return std::nullopt;
        return node.operands[0];
      }
      case Op::kPointwise:
        if (node.name == "cast") return simplify_cast(node);
        return std::nullopt;
      case Op::kCat:
        if (node.operands.size() == 1) return node.operands[0];
        return std::nullopt;
      default:
        return std::nullopt;
    }
  }

  // A permutation that only moves dims of extent 1 is a reshape.
  std::optional<Value> permute_as_reshape(Node& node, const std::vector<int64_t>& dims) {
    int64_t last = -1;
    for (size_t i = 0; i < dims.size(); ++i) {
      if (as_const_int(node.types[0].shape[i]) == 1) continue;
      if (dims[i] < last) return std::nullopt;
      last = dims[i];
    }
    node.op = Op::kReshape;
    node.attrs.clear();
    return simplify_node(node);
  }

  std::optional<Value> simplify_cast(Node& node) {
    if (has_layout(node)) return std::nullopt;
    const Node& below = producer(node);
    if (below.op == Op::kPointwise && below.name == "cast") {
      const Value source = below.operands[0];
      // a -> wider b -> c is a -> c: the wide step loses nothing.
      if (holds(below.types[0].dtype, new_.type(source).dtype)) node.operands[0] = source;
    }
    if (new_.type(node.operands[0]).dtype == node.types[0].dtype) return node.operands[0];
    return std::nullopt;
  }

  Graph old_, new_;
  std::vector<bool> live_;
  std::map<Value, Value> mapped_;
  std::map<int32_t, int32_t> position_;
  std::unordered_map<std::string, Value> known_;
};

}  // namespace

// Rewrites may leave their old operands unused; a second walk removes them.
Graph canonicalize(Graph graph) { return Canonicalizer(Canonicalizer(std::move(graph)).run()).run(); }

}  // namespace ipex::graph

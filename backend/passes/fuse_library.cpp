// Epilogues of matmul and convolution: a pointwise op that is the only reader of a library op's result
// becomes a post-op of it, by the table of kernels/post_ops. A fused node takes the place of the pointwise
// op, so every operand is already there.
#include "backend/graph/constants.h"
#include "backend/passes/passes.h"
#include "codegen/loop/simplify.h"
#include "kernels/library.h"

namespace ipex::graph {
namespace {

using loop::as_const_int;

constexpr size_t kMaxPostOps = 4;  // more would hold the accumulators' registers too long

class LibraryFuser {
 public:
  explicit LibraryFuser(Graph graph) : old_(std::move(graph)) {}

  Graph run() {
    bool any = false;
    for (const Node& node : old_.nodes) any |= is_library(node.op);
    if (!any) return std::move(old_);
    count_uses();
    new_.name = old_.name;
    new_.symbols = old_.symbols;
    new_.symbol_hints = old_.symbol_hints;
    new_.symbol_lows = old_.symbol_lows;
    for (int32_t i = 0; i < static_cast<int32_t>(old_.nodes.size()); ++i) {
      Node node = old_.nodes[i];
      for (Value& v : node.operands) v = mapped_.at(v);
      const bool is_input = node.op == Op::kInput;
      const size_t results = node.types.size();
      std::optional<Value> fused;
      if (node.op == Op::kPointwise) fused = fuse(node);
      const Value value = fused ? *fused : new_.add(std::move(node));
      if (is_input) inputs_[i] = value.node;
      for (size_t r = 0; r < results; ++r) {
        const Value from{i, static_cast<int32_t>(r)}, to{value.node, static_cast<int32_t>(r)};
        mapped_[from] = to;
        uses_[to] = old_uses_[from];
      }
    }
    for (int32_t input : old_.inputs) new_.inputs.push_back(inputs_.at(input));
    for (const GraphOutput& output : old_.outputs)
      new_.outputs.push_back({mapped_.at(output.value), output.strides});
    for (const InputMutation& m : old_.mutations) new_.mutations.push_back({m.input, mapped_.at(m.value)});
    return canonicalize(std::move(new_));
  }

 private:
  static bool is_library(Op op) { return op == Op::kMatMul || op == Op::kConv; }

  void count_uses() {
    for (const Node& node : old_.nodes)
      for (Value v : node.operands) ++old_uses_[v];
    for (const GraphOutput& output : old_.outputs)
      old_uses_[output.value] += 2;  // never only a pointwise op's
    for (const InputMutation& m : old_.mutations) old_uses_[m.value] += 2;
  }

  bool used_once(Value v) const {
    auto it = uses_.find(v);
    return it != uses_.end() && it->second == 1;
  }

  // The library node whose only reader is the holder of `v`, through at most one reshape.
  std::optional<Value> library_below(Value v) const {
    if (!used_once(v)) return std::nullopt;
    if (is_library(new_.node(v).op)) return v;
    if (new_.node(v).op != Op::kReshape) return std::nullopt;
    const Value below = new_.node(v).operands[0];
    if (!is_library(new_.node(below).op) || !used_once(below)) return std::nullopt;
    // The last dim stays what it was: rows of a matmul regrouped, nothing else.
    const Shape &a = new_.type(v).shape, &b = new_.type(below).shape;
    const bool rows_only =
        new_.node(below).op == Op::kMatMul && !a.empty() && loop::provably_equal(a.back(), b.back());
    return rows_only ? std::optional(below) : std::nullopt;
  }

  std::optional<Value> fuse(const Node& node) {
    for (size_t side = 0; side < node.operands.size() && side < 2; ++side) {
      const auto library = library_below(node.operands[side]);
      if (!library) continue;
      if (node.types[0].dtype != new_.type(*library).dtype) continue;
      Node fused = new_.node(*library);
      if (!extend(fused, node, side)) continue;
      if (!node.source.empty()) fused.source += "; " + node.source;
      return place(std::move(fused), node.types[0]);
    }
    return std::nullopt;
  }

  // Adds the pointwise op to the library node, as bias or as a post-op.
  bool extend(Node& fused, const Node& node, size_t side) {
    auto post = fused.attr_or("post", std::vector<std::string>{});
    if (node.name == "add" && post.empty() && !fused.attr_or("bias", false)) {
      if (auto bias = bias_vector(fused, node.operands[1 - side])) {
        fused.operands.insert(fused.operands.begin() + 2, *bias);
        fused.attrs["bias"] = true;
        return true;
      }
    }
    if (post.size() >= kMaxPostOps) return false;
    for (const kernels::PostOpRow& row : kernels::post_op_rows()) {
      if (row.pointwise != node.name || !row.keeps_nan) continue;
      if (row.takes_operand) {
        const bool commutes = node.name != "sub";
        if (node.operands.size() != 2 || (side == 1 && !commutes)) return false;
        const Value other = node.operands[1 - side];
        if (new_.type(other).dtype != fused.types[0].dtype || is_broadcast(other) || is_widened(other))
          return false;
        fused.operands.push_back(reshape_to(other, fused.types[0].shape));
        post.emplace_back(row.name);
      } else {
        if (side != 0) return false;
        const auto text = with_parameters(row, node);
        if (!text) return false;
        post.push_back(*text);
      }
      fused.attrs["post"] = post;
      return true;
    }
    return false;
  }

  // "hardtanh:0:6" when the operands after the first are literals.
  std::optional<std::string> with_parameters(const kernels::PostOpRow& row, const Node& node) const {
    if (static_cast<int>(node.operands.size()) != 1 + row.parameters) return std::nullopt;
    std::string text(row.name);
    for (size_t i = 1; i < node.operands.size(); ++i) {
      const auto literal = literal_value(new_, node.operands[i]);
      if (!literal) return std::nullopt;
      text += ":" + std::visit([](auto value) { return print_number(static_cast<double>(value)); }, *literal);
    }
    return text;
  }

  bool is_broadcast(Value v) const {
    while (new_.node(v).op == Op::kReshape || new_.node(v).op == Op::kPermute) v = new_.node(v).operands[0];
    return new_.node(v).op == Op::kExpand || new_.node(v).op == Op::kConstant;
  }

  // A dropout mask as numbers, say: a kernel reads it as it is, the library would need it written out first.
  bool is_widened(Value v) const {
    if (!used_once(v)) return false;
    while (new_.node(v).op == Op::kReshape) v = new_.node(v).operands[0];
    const Node& node = new_.node(v);
    return node.op == Op::kPointwise && node.name == "cast" &&
           itemsize(new_.type(node.operands[0]).dtype) < itemsize(node.types[0].dtype);
  }

  // The vector that `v` repeats over all dims but the output features (last of a matmul, second of a
  // convolution).
  std::optional<Value> bias_vector(const Node& fused, Value v) {
    Value at = v;
    if (new_.node(at).op == Op::kReshape && fused.op == Op::kMatMul) at = new_.node(at).operands[0];
    const Node& expand = new_.node(at);
    if (expand.op != Op::kExpand || new_.type(v).dtype != fused.types[0].dtype) return std::nullopt;
    const Shape& from = new_.type(expand.operands[0]).shape;
    const auto& dims = expand.attr<std::vector<int64_t>>("dims");
    const Shape& result = fused.types[0].shape;
    const Dim& features = fused.op == Op::kMatMul ? result.back() : result[1];
    const int64_t wanted =
        fused.op == Op::kMatMul ? static_cast<int64_t>(expand.types[0].shape.size()) - 1 : 1;
    bool found = false;
    for (size_t d = 0; d < from.size(); ++d) {
      if (dims[d] == wanted && loop::provably_equal(from[d], features)) {
        found = true;
      } else if (as_const_int(from[d]) != 1) {
        return std::nullopt;
      }
    }
    if (!found) return std::nullopt;
    const Value source = expand.operands[0];
    return reshape_to(source, Shape{features});
  }

  Value reshape_to(Value v, const Shape& shape) {
    if (equal(new_.type(v).shape, shape)) return v;
    Node reshape;
    reshape.op = Op::kReshape;
    reshape.operands = {v};
    reshape.types = {{new_.type(v).dtype, shape}};
    return new_.add(std::move(reshape));
  }

  // The fused node, and the reshape back to the shape its reader had.
  Value place(Node fused, const Type& type) {
    const Value value = new_.add(std::move(fused));
    if (equal(new_.type(value).shape, type.shape)) return value;
    uses_[value] = 1;
    return reshape_to(value, type.shape);
  }

  Graph old_, new_;
  std::map<Value, Value> mapped_;
  std::map<Value, int> old_uses_, uses_;
  std::map<int32_t, int32_t> inputs_;
};

}  // namespace

Graph fuse_library(Graph graph) { return LibraryFuser(std::move(graph)).run(); }

}  // namespace ipex::graph

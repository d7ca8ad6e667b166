// An affine map of a convolution's channels, as batch norm in inference is one, moves into its weights and
// bias:
//   (conv(x, w) + b) * s + t  ==  conv(x, w * s) + (b * s + t)
// Only where w, b, s and t depend on nothing but static inputs: they are then computed once and kept. The
// fold needs at least one scale (a shift alone is a bias, which fuse_library makes of it) and arithmetic in
// f32 all along; a bf16 convolution keeps its bias in f32, so that one rounding of the weights takes the
// place of that of the convolution's result.
#include <optional>

#include "backend/graph/constants.h"
#include "backend/passes/passes.h"
#include "codegen/loop/simplify.h"

namespace ipex::graph {
namespace {

using loop::as_const_int;

class ChannelFolder {
 public:
  explicit ChannelFolder(Graph graph) : old_(std::move(graph)) {}

  Graph run() {
    find_static();
    find_readers();
    bool any = false;
    for (int32_t i = 0; i < count(); ++i) any |= plan_chain(i);
    if (!any) return std::move(old_);
    new_.name = old_.name;
    new_.symbols = old_.symbols;
    new_.symbol_hints = old_.symbol_hints;
    new_.symbol_lows = old_.symbol_lows;
    for (int32_t i = 0; i < count(); ++i) {
      Node node = old_.nodes[i];
      for (Value& v : node.operands) v = mapped_.at(v);
      const size_t results = node.types.size();
      const auto chain = chains_.find(i);
      const Value value = chain == chains_.end() ? new_.add(std::move(node)) : folded(chain->second);
      for (int32_t r = 0; r < static_cast<int32_t>(results); ++r) mapped_[{i, r}] = {value.node, r};
    }
    for (int32_t input : old_.inputs) new_.inputs.push_back(mapped_.at({input, 0}).node);
    for (GraphOutput output : old_.outputs) {
      output.value = mapped_.at(output.value);
      new_.outputs.push_back(output);
    }
    for (const InputMutation& m : old_.mutations) new_.mutations.push_back({m.input, mapped_.at(m.value)});
    return canonicalize(std::move(new_));
  }

 private:
  // One link: result = previous (op) vector, or vector + previous.
  struct Link {
    enum Kind { kAdd, kSub, kMul } kind;
    Value vector;  // of old_, one element a channel
  };
  struct Chain {
    int32_t conv = -1;
    std::vector<Link> links;
  };

  int32_t count() const { return static_cast<int32_t>(old_.nodes.size()); }

  void find_static() {
    static_.resize(old_.nodes.size());
    for (int32_t input : old_.inputs) static_[input] = old_.nodes[input].attr_or("static", false);
    for (const InputMutation& m : old_.mutations) static_[old_.inputs[m.input]] = false;
    for (int32_t i = 0; i < count(); ++i) {
      const Node& node = old_.nodes[i];
      if (node.op == Op::kInput) continue;
      static_[i] = node.op != Op::kExtern;
      for (Value v : node.operands) static_[i] = static_[i] && static_[v.node];
    }
  }

  // readers_[n]: the one node that reads n's result, once; -1 where that is not so.
  void find_readers() {
    constexpr int32_t kNone = -2;
    readers_.assign(old_.nodes.size(), kNone);
    for (int32_t i = 0; i < count(); ++i)
      for (Value v : old_.nodes[i].operands) readers_[v.node] = readers_[v.node] == kNone ? i : -1;
    for (const GraphOutput& output : old_.outputs) readers_[output.value.node] = -1;
    for (const InputMutation& m : old_.mutations) readers_[m.value.node] = -1;
    for (int32_t& reader : readers_)
      if (reader == kNone) reader = -1;
  }

  // Follows the readers of a convolution as far as they are affine; remembers the chain by its last node.
  bool plan_chain(int32_t conv) {
    const Node& node = old_.nodes[conv];
    if (node.op != Op::kConv || node.attr_or("transposed", false) || !node.attr_or("post", Strings{}).empty())
      return false;
    const Dtype dtype = node.types[0].dtype;
    if (dtype != Dtype::kF32 && dtype != Dtype::kBF16) return false;
    for (size_t i = 1; i < node.operands.size(); ++i)
      if (!static_[node.operands[i].node]) return false;

    Chain chain{conv, {}};
    int32_t end = -1;  // the last node so far whose result has the convolution's dtype
    size_t links_at_end = 0;
    for (int32_t at = conv; readers_[at] >= 0;) {
      const int32_t next = readers_[at];
      const Node& reader = old_.nodes[next];
      if (reader.op != Op::kPointwise || !equal(reader.types[0].shape, node.types[0].shape)) break;
      if (reader.name == "cast") {
        if (reader.types[0].dtype != dtype && reader.types[0].dtype != Dtype::kF32) break;
      } else if (const auto link = reader.types[0].dtype == Dtype::kF32 ? affine(reader, at) : std::nullopt) {
        chain.links.push_back(*link);
      } else {
        break;
      }
      at = next;
      if (reader.types[0].dtype == dtype) {
        end = at;
        links_at_end = chain.links.size();
        if (reader.name == "cast") break;  // rounded here: what follows is not of the same map
      }
    }
    if (end < 0) return false;
    chain.links.resize(links_at_end);
    bool scales = false;
    for (const Link& link : chain.links) scales |= link.kind == Link::kMul;
    if (!scales) return false;
    chains_[end] = std::move(chain);
    return true;
  }

  // `reader` as a link after node `before`.
  std::optional<Link> affine(const Node& reader, int32_t before) const {
    if (reader.operands.size() != 2) return std::nullopt;
    const bool second = reader.operands[1].node == before;
    const auto vector = channel_vector(reader.operands[second ? 0 : 1]);
    if (!vector) return std::nullopt;
    if (reader.name == "add") return Link{Link::kAdd, *vector};
    if (reader.name == "mul") return Link{Link::kMul, *vector};
    if (reader.name == "sub" && !second) return Link{Link::kSub, *vector};
    return std::nullopt;
  }

  // What an expand repeats along everything but the channels, dim 1; static.
  std::optional<Value> channel_vector(Value v) const {
    const Node& expand = old_.node(v);
    if (expand.op != Op::kExpand || !static_[v.node]) return std::nullopt;
    const Shape &from = old_.type(expand.operands[0]).shape, &to = expand.types[0].shape;
    const auto& dims = expand.attr<std::vector<int64_t>>("dims");
    bool found = false;
    for (size_t d = 0; d < from.size(); ++d) {
      if (dims[d] == 1 && loop::provably_equal(from[d], to[1])) {
        found = true;
      } else if (as_const_int(from[d]) != 1) {
        return std::nullopt;
      }
    }
    return found ? std::optional(expand.operands[0]) : std::nullopt;
  }

  // The convolution with all links in its weights and its bias.
  Value folded(const Chain& chain) {
    Node conv = old_.nodes[chain.conv];
    for (Value& v : conv.operands) v = mapped_.at(v);
    std::optional<Value> scale, shift;
    if (conv.attr_or("bias", false)) shift = in_f32(conv.operands[2]);
    for (const Link& link : chain.links) {
      const Value vector = flat(in_f32(mapped_.at(link.vector)));
      if (link.kind == Link::kMul) {
        scale = scale ? pointwise("mul", {*scale, vector}) : vector;
        if (shift) shift = pointwise("mul", {*shift, vector});
      } else if (shift) {
        shift = pointwise(link.kind == Link::kAdd ? "add" : "sub", {*shift, vector});
      } else {
        shift = link.kind == Link::kAdd ? vector : pointwise("neg", {vector});
      }
    }
    const Type weights = new_.type(conv.operands[1]);
    Value scaled = pointwise("mul", {in_f32(conv.operands[1]), along_first(*scale, weights.shape)});
    if (weights.dtype != Dtype::kF32) scaled = cast(scaled, weights.dtype);
    conv.operands.resize(2);
    conv.operands[1] = scaled;
    if (shift) conv.operands.push_back(*shift);
    conv.attrs["bias"] = shift.has_value();
    return new_.add(std::move(conv));
  }

  Value in_f32(Value v) { return new_.type(v).dtype == Dtype::kF32 ? v : cast(v, Dtype::kF32); }

  Value cast(Value v, Dtype dtype) {
    Node node;
    node.op = Op::kPointwise;
    node.name = "cast";
    node.operands = {v};
    node.types = {{dtype, new_.type(v).shape}};
    return new_.add(std::move(node));
  }

  Value pointwise(std::string name, std::vector<Value> operands) {
    Node node;
    node.op = Op::kPointwise;
    node.name = std::move(name);
    node.types = {new_.type(operands[0])};
    node.operands = std::move(operands);
    return new_.add(std::move(node));
  }

  // A vector of the channels, whatever dims of extent 1 it has around them.
  Value flat(Value v) {
    const Shape& shape = new_.type(v).shape;
    if (shape.size() == 1) return v;
    Dim channels = loop::index_const(1);
    for (const Dim& dim : shape)
      if (as_const_int(dim) != 1) channels = dim;
    Node node;
    node.op = Op::kReshape;
    node.operands = {v};
    node.types = {{new_.type(v).dtype, {channels}}};
    return new_.add(std::move(node));
  }

  // `vector` repeated over all dims of `shape` but the first.
  Value along_first(Value vector, const Shape& shape) {
    Node node;
    node.op = Op::kExpand;
    node.operands = {vector};
    node.attrs["dims"] = std::vector<int64_t>{0};
    node.types = {{new_.type(vector).dtype, shape}};
    return new_.add(std::move(node));
  }

  using Strings = std::vector<std::string>;
  Graph old_, new_;
  std::vector<bool> static_;
  std::vector<int32_t> readers_;
  std::map<int32_t, Chain> chains_;  // by last node
  std::map<Value, Value> mapped_;
};

}  // namespace

Graph fold_channel_affine(Graph graph) { return ChannelFolder(std::move(graph)).run(); }

}  // namespace ipex::graph

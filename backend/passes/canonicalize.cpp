// Rebuilds the graph in one forward walk: simplifies every node, merges equal nodes and drops dead ones.
#include <cmath>
#include <unordered_map>

#include "backend/graph/constants.h"
#include "backend/graph/names.h"
#include "backend/graph/rewriter.h"
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

class Canonicalizer : GraphRewriter {
 public:
  explicit Canonicalizer(Graph graph) : GraphRewriter(std::move(graph)) {}

  Graph run() {
    mark_live();
    return rebuild([&](int32_t n) {
      if (live_[n]) replace(n, simplest(take_with_mapped_operands(n), escapes_[n]));
    });
  }

 private:
  // Inputs and ATen calls, which may have side effects, are always live.
  void mark_live() {
    live_.assign(old_.nodes.size(), false);
    escapes_.assign(old_.nodes.size(), false);
    for (const GraphOutput& output : old_.outputs)
      live_[output.value.node] = escapes_[output.value.node] = true;
    for (const InputMutation& m : old_.mutations) live_[m.value.node] = true;
    for (size_t i = old_.nodes.size(); i-- > 0;) {
      const Node& node = old_.nodes[i];
      if (node.op() == Op::kInput || node.op() == Op::kExtern) live_[i] = true;
      if (!live_[i]) continue;
      for (Value v : node.operands) {
        live_[v.node] = true;
        if (is_view(node.op()) && escapes_[i]) escapes_[v.node] = true;
      }
    }
  }

  // Whether the value is an input behind views. A computed output, even x * 1, must not alias an input.
  bool gives_away_input(Value v) const {
    while (is_view(new_.node(v).op())) v = new_.node(v).operands[0];
    return new_.node(v).op() == Op::kInput;
  }

  Value simplest(Node node, bool escapes) {
    const bool computes = !is_view(node.op());
    if (auto same = simplify_node(node)) {
      if (!computes || !escapes || !gives_away_input(*same)) return *same;
      node.operation = Pointwise{PointwiseOp::clone_};
      node.operands = {*same};
    }
    if (node.op() == Op::kInput || node.op() == Op::kExtern) return add(std::move(node));
    const std::string source = std::move(node.source);
    const Value value = add(std::move(node));
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

  // Returns an existing value that equals the node, or simplifies the node in place.
  std::optional<Value> simplify_node(Node& node) {
    switch (node.op()) {
      case Op::kPermute: {
        Ints& dims = node.get<Permute>().dims;
        const Node& below = producer(node);
        if (const auto* inner = below.get_if<Permute>()) {
          for (int64_t& d : dims) d = inner->dims[d];
          node.operands[0] = below.operands[0];
        }
        for (size_t i = 0; i < dims.size(); ++i)
          if (dims[i] != static_cast<int64_t>(i)) return permute_as_reshape(node, dims);
        return node.operands[0];
      }
      case Op::kReshape:
        while (producer(node).op() == Op::kReshape) node.operands[0] = producer(node).operands[0];
        if (keeps_shape(node)) return node.operands[0];
        return std::nullopt;
      case Op::kExpand: {
        const Node& below = producer(node);
        if (const auto* inner = below.get_if<Expand>()) {
          Ints dims = inner->dims;
          for (int64_t& d : dims) d = node.get<Expand>().dims[d];
          node.operands[0] = below.operands[0];
          node.get<Expand>().dims = std::move(dims);
        }
        if (keeps_shape(node)) return node.operands[0];
        return std::nullopt;
      }
      case Op::kSlice:
        return simplify_slice(node);
      case Op::kPointwise:
        return node.is(PointwiseOp::cast_) ? simplify_cast(node) : unchanged_operand(node);
      case Op::kCat:
        if (node.operands.size() == 1) return node.operands[0];
        return std::nullopt;
      case Op::kGather:
        merge_gathers(node);
        return std::nullopt;
      default:
        return std::nullopt;
    }
  }

  // A permute that only moves dims of extent 1 is a reshape.
  std::optional<Value> permute_as_reshape(Node& node, const Ints& dims) {
    int64_t last = -1;
    for (size_t i = 0; i < dims.size(); ++i) {
      if (as_const_int(node.types[0].shape[i]) == 1) continue;
      if (dims[i] < last) return std::nullopt;
      last = dims[i];
    }
    node.operation = Reshape{};
    return simplify_node(node);
  }

  // Merges a slice of a slice: x[a + (b + i * t) * s].
  std::optional<Value> simplify_slice(Node& node) {
    auto& [starts, steps] = node.get<Slice>();
    const Node& below = producer(node);
    if (const auto* first = below.get_if<Slice>()) {
      for (size_t d = 0; d < starts.size(); ++d) {
        starts[d] = loop::simplify(first->starts[d] + starts[d] * loop::index_const(first->steps[d]));
        steps[d] *= first->steps[d];
      }
      node.operands[0] = below.operands[0];
    }
    if (!keeps_shape(node)) return std::nullopt;
    for (size_t d = 0; d < starts.size(); ++d)
      if (as_const_int(starts[d]) != 0 || steps[d] != 1) return std::nullopt;
    return node.operands[0];
  }

  // Merges a gather along some dims with a gather of its result along other dims (an image mirrored along
  // rows and columns). The positions of the first gather must not vary along the dims of the second, the
  // positions of the second must be checked against the same extents, and both must agree on wrapping and on
  // the error they raise.
  void merge_gathers(Node& node) {
    const Node first = producer(node);
    if (first.op() != Op::kGather) return;
    Gather& gather = node.get<Gather>();
    const Indexing inner = indexing_of(first), outer = indexing_of(node);
    if (inner.wrap != outer.wrap || inner.error != outer.error) return;
    const Ints& places = gather.map;  // source of each dim of the first gather's result
    std::vector<Value> operands = {first.operands[0]};
    Ints map;
    const auto take_at = [&](Value positions) {
      operands.push_back(positions);
      map.push_back(1 - std::ssize(operands));
    };
    const Shape &data = new_.type(first.operands[0]).shape, &gathered = first.types[0].shape;
    const Ints& source = inner.map;
    Ints named = inner.error_dims;
    for (size_t d = 0; d < source.size(); ++d) {
      const int64_t from = source[d];
      if (from >= 0 && places[from] >= 0) {
        map.push_back(places[from]);
      } else if (from >= 0) {
        if (!loop::provably_equal(data[d], gathered[from])) return;
        take_at(node.operands[-places[from]]);
        named[d] = outer.error_dims[from];
      } else if (const auto positions = moved_expand(first.operands[-from], places, node.types[0].shape)) {
        take_at(*positions);
      } else {
        return;
      }
    }
    node.operands = std::move(operands);
    gather.map = std::move(map);
    gather.error_dims.reset();
    if (named != indexing_of(node).error_dims) gather.error_dims = std::move(named);
  }

  // The operand of the expand `v`, expanded to `shape` with dim d at places[d]; nullopt if `v` is not an
  // expand or varies along a dim without a place.
  std::optional<Value> moved_expand(Value v, const Ints& places, const Shape& shape) {
    Node expand = new_.node(v);
    if (expand.op() != Op::kExpand) return std::nullopt;
    Ints& dims = expand.get<Expand>().dims;
    const Shape& from = new_.type(expand.operands[0]).shape;
    for (size_t k = 0; k < dims.size(); ++k) {
      dims[k] = places[dims[k]];
      const bool fits = dims[k] >= 0 && (k == 0 || dims[k - 1] < dims[k]) &&
                        (as_const_int(from[k]) == 1 || loop::provably_equal(from[k], shape[dims[k]]));
      if (!fits) return std::nullopt;
    }
    expand.types[0].shape = shape;
    return simplest(std::move(expand), false);
  }

  // The operand x of x * 1, x / 1, x - 0 and x + 0. For floats only adding -0.0 or subtracting +0.0 keeps the
  // sign of a zero.
  std::optional<Value> unchanged_operand(const Node& node) const {
    if (node.operands.size() != 2 || has_layout(node)) return std::nullopt;
    for (size_t kept = 0; kept < 2; ++kept) {
      const Value other = node.operands[1 - kept];
      if (new_.type(node.operands[kept]).dtype != node.types[0].dtype) continue;
      const bool left = kept == 0;
      const bool neutral = (node.is(PointwiseOp::mul_) && is_literal(new_, other, 1)) ||
                           (node.is(PointwiseOp::div_) && left && is_literal(new_, other, 1)) ||
                           (node.is(PointwiseOp::add_) && is_zero(other, true)) ||
                           (node.is(PointwiseOp::sub_) && left && is_zero(other, false));
      if (neutral) return node.operands[kept];
    }
    return std::nullopt;
  }

  bool is_zero(Value v, bool negative) const {
    const auto literal = literal_value(new_, v);
    if (!literal) return false;
    if (const int64_t* integer = std::get_if<int64_t>(&*literal))
      return *integer == 0 && !is_float(new_.type(v).dtype);
    const double real = std::get<double>(*literal);
    return real == 0 && std::signbit(real) == negative;
  }

  std::optional<Value> simplify_cast(Node& node) {
    if (has_layout(node)) return std::nullopt;
    const Node& below = producer(node);
    if (below.is(PointwiseOp::cast_)) {
      const Value source = below.operands[0];
      // A cast a -> b -> c with a wider b is a cast a -> c: the first step is exact.
      if (holds(below.types[0].dtype, new_.type(source).dtype)) node.operands[0] = source;
    }
    if (new_.type(node.operands[0]).dtype == node.types[0].dtype) return node.operands[0];
    return std::nullopt;
  }

  std::vector<bool> live_, escapes_;  // by old node; escapes: it or a view of it is an output
  std::unordered_map<std::string, Value> known_;
};

}  // namespace

// Rewrites may leave their old operands unused; a second walk removes them.
Graph canonicalize(Graph graph) { return Canonicalizer(Canonicalizer(std::move(graph)).run()).run(); }

}  // namespace ipex::graph

// Derives index relations: treats each producer as row-major contiguous and composes the strides of the views
// above it.
#include "backend/passes/grouping.h"
#include "backend/graph/rewriter.h"
#include "backend/views.h"
#include "codegen/loop/simplify.h"

namespace ipex::graph {
namespace {

using loop::as_const_int;
using loop::index_const;
using loop::provably_equal;

struct Trace {
  Value root;
  std::optional<Placement> placement;  // nullopt: strides cannot express it
};

std::optional<Trace> trace(const Graph& graph, Value value) {
  const Node& node = graph.node(value);
  if (!is_free(graph, node))
    return Trace{value, Placement{contiguous_strides(graph.type(value).shape), index_const(0)}};
  if (node.operands.empty() || node.operands.size() > 1) return std::nullopt;
  auto below = trace(graph, node.operands[0]);
  if (!below || node.op() == Op::kPointwise) return below;
  if (below->placement) below->placement = apply_view(graph, node, *below->placement);
  return below;
}

}  // namespace

Space make_space(Shape shape, std::vector<int64_t> axes) {
  Space space{std::move(shape), std::move(axes), true, nullptr, nullptr};
  std::sort(space.axes.begin(), space.axes.end());
  const auto rank = static_cast<int64_t>(space.shape.size()), count = static_cast<int64_t>(space.axes.size());
  Shape kept;
  for (int64_t d = 0; d < rank; ++d)
    if (!std::binary_search(space.axes.begin(), space.axes.end(), d)) kept.push_back(space.shape[d]);
  for (int64_t i = 0; i < count; ++i) space.trailing &= space.axes[i] == rank - count + i;
  space.total = numel(space.shape);
  space.rows = numel(kept);
  return space;
}

bool same_reduction(const Space& a, const Space& b) {
  if (!provably_equal(a.total, b.total) || !provably_equal(a.rows, b.rows)) return false;
  if (a.trailing && b.trailing) return true;
  return a.axes == b.axes && equal(a.shape, b.shape);
}

// Arithmetic on positions alone is as cheap as the positions themselves.
bool is_position(const Graph& graph, const Node& node, int depth = 0) {
  constexpr int kDeepest = 12;
  if (node.types[0].dtype != Dtype::kI64 || depth > kDeepest) return false;
  const auto* pointwise = node.get_if<Pointwise>();
  const bool known = pointwise ? ops::row(pointwise->fn).has(ops::kOnPositions)
                               : is_free(graph, node);  // positions themselves, literals, views
  return known && std::ranges::all_of(node.operands, [&](Value v) {
           return v.result == 0 && is_position(graph, graph.node(v), depth + 1);
         });
}

bool is_free(const Graph& graph, const Node& node) {
  switch (node.op()) {
    case Op::kConstant: {  // a constant with several elements is read from memory
      const auto& data = node.get<Constant>().data;
      return !data || static_cast<int64_t>(data->bytes.size()) <= itemsize(node.types[0].dtype);
    }
    case Op::kFull:
    case Op::kIota:
      return true;
    case Op::kPointwise:
      return (node.is(PointwiseOp::cast_) &&
              itemsize(node.types[0].dtype) >= itemsize(graph.type(node.operands[0]).dtype)) ||
             is_position(graph, node);
    default:
      return is_view(node.op());
  }
}

bool is_cheap(const Node& node) {
  const auto* pointwise = node.get_if<Pointwise>();
  return pointwise && !ops::row(pointwise->fn).has(ops::kSlow);
}

std::optional<Edge> trace_edge(const Graph& graph, Value operand) {
  const auto traced = trace(graph, operand);
  if (!traced) return std::nullopt;
  Edge edge{traced->root, Relation::kOther, graph.type(operand).shape, {}};
  if (!traced->placement || as_const_int(traced->placement->offset) != 0) return edge;

  // From the innermost dim outwards, the nonzero strides must be those of a contiguous tensor.
  Dim expected = index_const(1);
  for (size_t d = edge.consumer_shape.size(); d-- > 0;) {
    const Dim& extent = edge.consumer_shape[d];
    const Dim& stride = traced->placement->strides[d];
    if (as_const_int(extent) == 1) continue;
    if (as_const_int(stride) == 0) {
      edge.dropped.insert(edge.dropped.begin(), static_cast<int64_t>(d));
      continue;
    }
    if (!provably_equal(stride, expected)) return edge;
    expected = loop::simplify(expected * extent);
  }
  if (!provably_equal(expected, numel(graph.type(traced->root).shape))) return edge;
  edge.relation = edge.dropped.empty() ? Relation::kIdentity : Relation::kBroadcast;
  return edge;
}

Graph repeat_chains(Graph graph, const std::map<int32_t, std::set<int32_t>>& chains) {
  GraphRewriter rewriter(std::move(graph));
  return rewriter.rebuild([&](int32_t n) {
    const auto found = chains.find(n);
    if (found == chains.end()) return rewriter.keep(n);
    std::map<Value, Value> copies;
    // A copy of v if it is in the chain or free nodes compute it from the chain; otherwise v itself.
    const std::function<Value(Value)> copied = [&](Value v) -> Value {
      const auto [it, is_new] = copies.try_emplace(v, rewriter.mapped(v));
      if (!is_new) return it->second;
      Node copy = rewriter.old().node(v);
      bool differs = found->second.contains(v.node);
      if (!differs && !is_free(rewriter.old(), copy)) return it->second;
      for (Value& operand : copy.operands) {
        const Value given = copied(operand);
        differs |= given != rewriter.mapped(operand);
        operand = given;
      }
      return copies[v] = differs ? Value{rewriter.add(std::move(copy)).node, v.result} : rewriter.mapped(v);
    };
    Node node = rewriter.old().nodes[n];
    for (Value& v : node.operands) v = copied(v);
    rewriter.keep(n, std::move(node));
  });
}

}  // namespace ipex::graph

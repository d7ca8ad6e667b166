// Composes view nodes to an offset and strides, from the value down to the memory of its root.
#include "backend/views.h"

#include "codegen/loop/simplify.h"

namespace ipex::graph {
namespace {

using loop::index_const;
using loop::provably_equal;

// The strides of a reshape of memory with the layout (shape, strides), if it can be a view: contiguous dims
// of the old shape form runs, and the new dims must divide the runs.
std::optional<Strides> reshape_strides(const Shape& shape, const Strides& strides, const Shape& target) {
  if (is_static(shape) && is_static(target)) {
    for (int64_t size : static_shape(target))
      if (size == 0) return contiguous_strides(target);
  }
  // Extent and stride of each maximal group of mergeable dims, innermost first, without dims of extent 1.
  struct Run {
    Dim extent, stride;
  };
  std::vector<Run> runs;
  for (size_t i = shape.size(); i-- > 0;) {
    if (loop::as_const_int(shape[i]) == 1) continue;
    if (!runs.empty() && provably_equal(strides[i], runs.back().extent * runs.back().stride)) {
      runs.back().extent = loop::simplify(runs.back().extent * shape[i]);
    } else {
      runs.push_back({shape[i], strides[i]});
    }
  }
  Strides result(target.size());
  size_t run = 0;
  Dim filled = index_const(1);  // product of the target dims in the current run
  for (size_t i = target.size(); i-- > 0;) {
    if (loop::as_const_int(target[i]) == 1) {
      result[i] = index_const(1);
      continue;
    }
    if (run == runs.size()) return std::nullopt;
    result[i] = loop::simplify(filled * runs[run].stride);
    filled = loop::simplify(filled * target[i]);
    if (provably_equal(filled, runs[run].extent)) {
      ++run;
      filled = index_const(1);
      continue;
    }
    // The run is not complete yet: further dims must be able to complete it exactly.
    const auto have = loop::as_const_int(filled), want = loop::as_const_int(runs[run].extent);
    if (have && want && (*have > *want || *want % *have != 0)) return std::nullopt;
  }
  if (run != runs.size()) return std::nullopt;
  return result;
}

}  // namespace

std::optional<Placement> apply_view(const Graph& graph, const Node& node, const Placement& operand) {
  const auto& [strides, offset] = operand;
  switch (node.op()) {
    case Op::kPermute: {
      Strides result;
      for (int64_t d : node.get<Permute>().dims) result.push_back(strides[d]);
      return Placement{result, offset};
    }
    case Op::kExpand: {
      const Ints& dims = node.get<Expand>().dims;
      const Shape& from = graph.type(node.operands[0]).shape;
      Strides result(node.types[0].shape.size(), index_const(0));
      for (size_t d = 0; d < dims.size(); ++d)
        if (equal(Shape{from[d]}, Shape{node.types[0].shape[dims[d]]})) result[dims[d]] = strides[d];
      return Placement{result, offset};
    }
    case Op::kSlice: {
      const auto& [starts, steps] = node.get<Slice>();
      Strides result;
      Dim start = offset;
      for (size_t d = 0; d < strides.size(); ++d) {
        if (steps[d] < 0) return std::nullopt;  // neither ATen nor oneDNN supports negative strides
        result.push_back(loop::simplify(strides[d] * index_const(steps[d])));
        start = start + starts[d] * strides[d];
      }
      return Placement{result, loop::simplify(start)};
    }
    case Op::kReshape: {
      auto result = reshape_strides(graph.type(node.operands[0]).shape, strides, node.types[0].shape);
      if (!result) return std::nullopt;
      return Placement{*result, offset};
    }
    default:
      return std::nullopt;
  }
}

View resolve_view(const Graph& graph, Value value) {
  const Node& node = graph.node(value);
  if (is_view(node.op())) {
    const View base = resolve_view(graph, node.operands[0]);
    if (auto placed = apply_view(graph, node, {base.strides, base.offset}))
      return {base.root, placed->strides, placed->offset};
  }
  return {value, graph.layout(value), index_const(0)};
}

std::optional<Strides> operand_strides(const Graph& graph, const Node& node, const Strides& result) {
  if (node.op() == Op::kReshape)
    return reshape_strides(node.types[0].shape, result, graph.type(node.operands[0]).shape);
  if (node.op() != Op::kPermute) return std::nullopt;
  const Ints& dims = node.get<Permute>().dims;
  Strides operand(dims.size());
  for (size_t d = 0; d < dims.size(); ++d) operand[dims[d]] = result[d];
  return operand;
}

bool is_view(const Graph& graph, const Node& node) {
  if (!is_view(node.op())) return false;
  const View base = resolve_view(graph, node.operands[0]);
  return apply_view(graph, node, {base.strides, base.offset}).has_value();
}

bool is_of_input(const Graph& graph, Value value) {
  while (is_view(graph.node(value).op())) value = graph.node(value).operands[0];
  return graph.node(value).op() == Op::kInput;
}

}  // namespace ipex::graph

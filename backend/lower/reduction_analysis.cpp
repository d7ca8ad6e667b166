// See reduction_analysis.h.
#include "backend/lower/reduction_analysis.h"

#include <algorithm>

namespace ipex::graph {

namespace {

// The given axes of v, the largest stride first. The strides are those of one input that v depends on: the
// one that steps along most of these axes. The other inputs follow it or are broadcast.
std::vector<Axis> memory_order(const PlacedGroup& group, Value v, std::vector<Axis> axes) {
  std::map<Axis, int64_t> strides;
  size_t most = 0;
  std::set<int32_t> seen;
  std::vector<int32_t> stack{v.node};
  while (!stack.empty()) {
    const int32_t n = stack.back();
    stack.pop_back();
    if (!seen.insert(n).second) continue;
    for (Value operand : group.body.nodes[n].operands) stack.push_back(operand.node);
    if (group.body.nodes[n].op() != Op::kInput) continue;
    std::map<Axis, int64_t> here = axis_strides(group, {n, 0}, group.inputs.at({n, 0}).layout.strides);
    std::erase_if(here, [&](const auto& entry) { return std::ranges::count(axes, entry.first) == 0; });
    if (here.size() > most) {
      most = here.size();
      strides = std::move(here);
    }
  }
  auto stride = [&](Axis axis) { return strides.count(axis) ? strides.at(axis) : INT64_MAX; };
  std::stable_sort(axes.begin(), axes.end(), [&](Axis a, Axis b) { return stride(a) > stride(b); });
  return axes;
}

ReduceInfo info_of(const PlacedGroup& group, const Node& node) {
  ReduceInfo reduce;
  const std::vector<int> reduced = reduced_dims(node);
  const Value operand = node.operands[0];
  for (size_t d = 0; d < group.body.type(operand).shape.size(); ++d) {
    const bool is_reduced = std::count(reduced.begin(), reduced.end(), static_cast<int>(d)) != 0;
    std::vector<Axis>& part = is_reduced ? reduce.columns : reduce.rows;
    for (Axis axis : group.axes.of(operand, static_cast<int>(d))) part.push_back(axis);
  }
  std::sort(reduce.rows.begin(), reduce.rows.end());
  std::sort(reduce.columns.begin(), reduce.columns.end());
  reduce.column_loops = memory_order(group, operand, reduce.columns);
  reduce.has_distinct_axes = Axes::distinct(group.axes.of(operand));
  return reduce;
}

}  // namespace

std::map<Axis, int64_t> axis_strides(const PlacedGroup& group, Value v, const Strides& strides) {
  std::map<Axis, int64_t> by_axis;
  for (size_t d = 0; d < strides.size(); ++d) {
    const std::vector<Axis> parts = group.axes.of(v, static_cast<int>(d));
    int64_t stride = group.hint(strides[d]);
    for (size_t k = parts.size(); k-- > 0; stride *= group.hint(group.axes.extent(parts[k])))
      if (stride != 0) by_axis[parts[k]] = stride;
  }
  return by_axis;
}

std::vector<int> reduced_dims(const Node& reduce) {
  const Ints& axes = reduce.get<Reduce>().axes;
  std::vector<int> dims(axes.begin(), axes.end());
  std::sort(dims.begin(), dims.end());
  return dims;
}

ReductionAnalysis analyse_reductions(const PlacedGroup& group) {
  ReductionAnalysis analysis;
  auto& [reductions, needs] = analysis;
  needs.resize(group.body.nodes.size());
  for (size_t n = 0; n < group.body.nodes.size(); ++n) {
    const Node& node = group.body.nodes[n];
    for (Value operand : node.operands)
      needs[n].insert(needs[operand.node].begin(), needs[operand.node].end());
    if (node.op() != Op::kReduce) continue;
    ReduceInfo reduce = info_of(group, node);
    for (int32_t before : needs[n]) reduce.level = std::max(reduce.level, reductions.at(before).level + 1);
    reductions[static_cast<int32_t>(n)] = std::move(reduce);
    needs[n].insert(static_cast<int32_t>(n));
  }
  return analysis;
}

}  // namespace ipex::graph

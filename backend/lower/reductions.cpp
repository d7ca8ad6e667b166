// Reduce nodes of a group. Those over the same rows and columns that do not need each other share one loop
// with several states, and an expensive value that two loops over a row both want is kept in a row of scratch
// by the first.
#include <algorithm>
#include <utility>

#include "backend/lower/lowering.h"

namespace ipex::graph {

using loop::Expr;
using loop::index_const;

namespace {

constexpr int64_t kScratchBytes = 64 << 10;  // a row of scratch stays in the first two cache levels

std::vector<int> reduced_dims(const Node& node) {
  const Ints& axes = node.get<Reduce>().axes;
  std::vector<int> dims(axes.begin(), axes.end());
  std::sort(dims.begin(), dims.end());
  return dims;
}

}  // namespace

bool is_expensive(PointwiseOp fn) {
  const ops::PointwiseRow& row = ops::row(fn);
  if (!row.floats) return false;
  Exprs args;
  for (int i = 0; i < row.arity; ++i)
    args.push_back(
        loop::make_var("x", fn == PointwiseOp::where_ && i == 0 ? loop::kBool1 : loop::Type{Dtype::kF32}));
  std::function<bool(const Expr&)> calls = [&](const Expr& e) {
    if (e->is(loop::ExprKind::kApply) && loop::is_function(e->op)) return true;
    return std::any_of(e->args.begin(), e->args.end(), calls);
  };
  return calls(row.body(args));
}

void Lowering::analyse_reductions() {
  needs_.resize(body_.nodes.size());
  for (size_t n = 0; n < body_.nodes.size(); ++n) {
    const Node& node = body_.nodes[n];
    for (Value operand : node.operands)
      needs_[n].insert(needs_[operand.node].begin(), needs_[operand.node].end());
    if (node.op() != Op::kReduce) continue;
    ReduceInfo reduce;
    const std::vector<int> reduced = reduced_dims(node);
    const Value operand = node.operands[0];
    for (size_t d = 0; d < body_.type(operand).shape.size(); ++d) {
      const bool is_reduced = std::count(reduced.begin(), reduced.end(), static_cast<int>(d)) != 0;
      std::vector<Axis>& group = is_reduced ? reduce.columns : reduce.rows;
      for (Axis axis : axes_.of(operand, static_cast<int>(d))) group.push_back(axis);
    }
    reduce.structured = Axes::distinct(axes_.of(operand));
    for (int32_t before : needs_[n]) reduce.level = std::max(reduce.level, reductions_.at(before).level + 1);
    std::sort(reduce.rows.begin(), reduce.rows.end());
    std::sort(reduce.columns.begin(), reduce.columns.end());
    reductions_[static_cast<int32_t>(n)] = std::move(reduce);
    needs_[n].insert(static_cast<int32_t>(n));
  }
  for (const GraphOutput& output : body_.outputs)
    if (is_half(body_.type(output.value).dtype) && is_left_to_others(output.value))
      rounded_.insert(output.value);
}

bool Lowering::is_left_to_others(Value v) const {
  std::vector<bool> reads(body_.nodes.size());  // v, other than through a reduction
  reads[v.node] = true;
  bool reduced = false;
  for (size_t n = v.node + 1; n < body_.nodes.size(); ++n) {
    const Node& node = body_.nodes[n];
    const auto any = [&](auto test) { return std::ranges::any_of(node.operands, test); };
    if (!any([&](Value operand) { return reads[operand.node]; })) continue;
    if (any([&](Value operand) { return !std::ranges::includes(needs_[v.node], needs_[operand.node]); }))
      return false;
    if (node.op() == Op::kReduce)
      reduced = true;
    else
      reads[n] = true;
  }
  return reduced;
}

// Regions of a set of rows, in the order they run: each level of reductions, then the stores. A value is kept
// when two regions reach it; what only a kept value needs is then needed in the first region alone.
void Lowering::plan_scratch() {
  std::map<std::vector<Axis>, std::vector<int32_t>> by_rows;
  for (const auto& [node, reduce] : reductions_)
    if (reduce.structured) by_rows[reduce.rows].push_back(node);
  for (const auto& [rows, nodes] : by_rows) {
    std::vector<std::set<int>> regions(body_.nodes.size());
    std::set<Axis> columns;
    for (int32_t node : nodes) {
      regions[body_.nodes[node].operands[0].node].insert(reductions_[node].level);
      columns.insert(reductions_[node].columns.begin(), reductions_[node].columns.end());
    }
    const int stores = static_cast<int>(body_.nodes.size());
    for (const Job& job : jobs_)
      if (std::any_of(nodes.begin(), nodes.end(),
                      [&](int32_t n) { return needs_[job.value.node].count(n); }) &&
          !reductions_.count(job.value.node))
        regions[job.value.node].insert(stores);
    for (int32_t n = stores - 1; n >= 0; --n) {
      const Node& node = body_.nodes[n];
      const bool is_view = node.op() == Op::kPermute || node.op() == Op::kExpand ||
                           node.op() == Op::kReshape || node.op() == Op::kReorder;
      if (regions[n].empty() || (node.op() != Op::kPointwise && !is_view)) continue;
      std::set<int> reached = regions[n];
      if (node.op() == Op::kPointwise && reached.size() > 1 && is_expensive(node.get<Pointwise>().fn)) {
        int64_t elements = 1;
        bool spans_columns = false;
        for (Axis axis : axes_.of({n, 0})) {
          if (!columns.count(axis)) continue;
          spans_columns = true;
          elements *= hint(axes_.extent(axis));
        }
        if (spans_columns && elements * itemsize(compute_dtype({n, 0})) <= kScratchBytes) {
          keep_.insert({n, 0});
          reached = {*reached.begin()};
        }
      }
      for (Value operand : node.operands) regions[operand.node].insert(reached.begin(), reached.end());
    }
  }
}

std::optional<Expr> Lowering::from_scratch(Value v) const {
  for (const auto& level : scratch_)
    for (const auto& [kept, scratch] : level) {
      if (kept != v) continue;
      const bool same_row = std::all_of(scratch.row.begin(), scratch.row.end(), [&](const auto& coordinate) {
        auto here = coords_.find(coordinate.first);
        return here != coords_.end() && loop::equal(here->second, coordinate.second);
      });
      if (!same_row) continue;
      Expr position = index_const(0);
      for (Axis axis : scratch.columns) position = position * axes_.extent(axis) + coords_.at(axis);
      return loop::make_load(scratch.buffer, compute_dtype(v), position);
    }
  return std::nullopt;
}

void Lowering::to_scratch(Value v, const Index& index, const Expr& x) {
  Scratch scratch;
  Expr elements = index_const(1), position = index_const(0);
  for (Axis axis : axes_.of(v)) {
    if (!region_.count(axis)) {
      scratch.row[axis] = coords_.at(axis);
      continue;
    }
    scratch.columns.push_back(axis);
    elements = elements * axes_.extent(axis);
    position = position * axes_.extent(axis) + coords_.at(axis);
  }
  if (scratch.columns.empty()) return;
  for (const auto& [depth, pending] : pending_scratch_)
    if (pending.first == v) return;
  scratch.buffer = emitter_.unique("row" + std::to_string(v.node));
  emitter_.emit(loop::Alloc{scratch.buffer, compute_dtype(v), elements}, region_depth_);
  emitter_.emit(loop::Store{scratch.buffer, position, x, nullptr},
                std::max(emitter_.depth_of(index, nullptr), emitter_.depth_of(x)));
  pending_scratch_.push_back({region_depth_, {v, std::move(scratch)}});
}

std::vector<Axis> Lowering::memory_order(Value v, std::vector<Axis> axes) const {
  // The input that walks most of these axes decides; the others follow or are broadcast.
  std::map<Axis, int64_t> strides;
  size_t most = 0;
  std::set<int32_t> seen;
  std::vector<int32_t> stack{v.node};
  while (!stack.empty()) {
    const int32_t n = stack.back();
    stack.pop_back();
    if (!seen.insert(n).second) continue;
    for (Value operand : body_.nodes[n].operands) stack.push_back(operand.node);
    if (body_.nodes[n].op() != Op::kInput) continue;
    const OperandLayout& layout = input_layouts_[input_position_.at(n)];
    std::map<Axis, int64_t> here;
    for (size_t d = 0; d < layout.strides.size(); ++d) {
      std::vector<Axis> parts = axes_.of({n, 0}, static_cast<int>(d));
      int64_t stride = hint(layout.strides[d]);
      for (size_t k = parts.size(); k-- > 0; stride *= hint(axes_.extent(parts[k])))
        if (stride != 0 && std::count(axes.begin(), axes.end(), parts[k])) here[parts[k]] = stride;
    }
    if (here.size() > most) {
      most = here.size();
      strides = std::move(here);
    }
  }
  auto stride = [&](Axis axis) { return strides.count(axis) ? strides.at(axis) : INT64_MAX; };
  std::stable_sort(axes.begin(), axes.end(), [&](Axis a, Axis b) { return stride(a) > stride(b); });
  return axes;
}

void Lowering::reduce_ready(const std::vector<int32_t>& nodes) {
  std::vector<int32_t> order = nodes;
  std::stable_sort(order.begin(), order.end(),
                   [&](int32_t a, int32_t b) { return reductions_.at(a).level < reductions_.at(b).level; });
  for (int32_t node : order)
    if (reductions_.at(node).structured)
      if (std::optional<Index> index = canonical({node, 0})) value({node, 0}, *index);
}

Expr Lowering::reduce(Value v, const Index& index, const Expr& mask) {
  const ReduceInfo& info = reductions_.at(v.node);
  std::vector<int32_t> together{v.node};
  if (info.structured && !mask && at_canonical({v.node, 0}, index)) {
    // What the row's earlier reductions keep in scratch, this one's loop may read: they run before it begins.
    for (int32_t before : needs_[v.node])
      if (const ReduceInfo& its = reductions_.at(before);
          before != v.node && its.structured && its.rows == info.rows)
        if (std::optional<Index> at = canonical({before, 0})) value({before, 0}, *at);
    for (const auto& [other, its] : reductions_)
      if (other != v.node && its.structured && its.level == info.level && its.rows == info.rows &&
          its.columns == info.columns)
        together.push_back(other);
  }
  reduce_together(together, index, mask);
  return value(v, index, mask);  // remembered now
}

Index Lowering::reduced_operand_index(const Node& node, const Index& index, const Index& reduced) const {
  const std::vector<int> dims = reduced_dims(node);
  const bool keep = node.get<Reduce>().keepdim;
  Index out;
  size_t kept = 0, next = 0;
  for (size_t d = 0; d < body_.type(node.operands[0]).shape.size(); ++d) {
    if (next < dims.size() && dims[next] == static_cast<int>(d)) {
      out.push_back(reduced[next++]);
      kept += keep;
    } else {
      out.push_back(index[kept++]);
    }
  }
  return out;
}

void Lowering::reduce_together(const std::vector<int32_t>& nodes, const Index& index, const Expr& mask) {
  struct Part {
    const Node* node;
    const ops::ReductionRow* row;
    int32_t id;
    Index index;  // of the result
    std::vector<int> dims;
    Shape extents;                 // of dims
    Dtype position = Dtype::kI64;  // dtype of positions in extents
    size_t first, count = 0;       // of its states
  };
  const ReduceInfo& info = reductions_.at(nodes[0]);
  Emitter::ReductionSpec spec;
  std::vector<Part> parts;
  for (int32_t id : nodes) {
    const Node& node = body_.nodes[id];
    const ops::ReductionRow* row = &ops::row(node.get<Reduce>().fn);
    Part part{.node = &node,
              .row = row,
              .id = id,
              .index = id == nodes[0] ? index : *canonical({id, 0}),
              .dims = reduced_dims(node),
              .first = spec.states.size()};
    for (int d : part.dims) part.extents.push_back(body_.type(node.operands[0]).shape[d]);
    const Dtype dtype = compute_dtype(node.operands[0]);
    part.position = position_dtype(part.extents, dtype);
    for (loop::State& state : row->states(dtype, part.position)) {
      state.name = "s" + std::to_string(id) + (state.name == "s0" ? "" : "_" + state.name.substr(1));
      spec.states.push_back(std::move(state));
      ++part.count;
    }
    parts.push_back(std::move(part));
  }
  std::vector<Axis> columns;
  if (info.structured) {
    columns = memory_order(parts[0].node->operands[0], info.columns);
    for (Axis axis : columns) spec.extents.push_back(axes_.extent(axis));
  } else {
    spec.extents = parts[0].extents;
  }
  const int depth = emitter_.depth_of(index, mask);

  const Coords outer_coords = coords_;
  std::set<Axis> outer_region = std::exchange(region_, {});
  const int outer_depth = std::exchange(region_depth_, depth);
  if (info.structured && !mask) region_.insert(info.columns.begin(), info.columns.end());
  spec.step = [&](const Exprs& vars, const Exprs& states) {
    for (size_t k = 0; k < columns.size(); ++k) coords_[columns[k]] = vars[k];
    Exprs next;
    for (const Part& part : parts) {
      const Value operand = part.node->operands[0];
      Index reduced;
      for (size_t k = 0; k < part.dims.size(); ++k)
        reduced.push_back(info.structured ? along(operand, part.dims[k]) : vars[k]);
      Expr x = value(operand, reduced_operand_index(*part.node, part.index, reduced), mask);
      std::span<const Expr> own(states.data() + part.first, part.count);
      const Expr at = loop::make_cast(part.position, flatten(reduced, part.extents));
      for (Expr& e : part.row->update(own, x, at)) next.push_back(std::move(e));
    }
    return next;
  };
  spec.merge = [&](const Exprs& states, const Exprs& others) {
    Exprs merged;
    for (const Part& part : parts)
      for (Expr& e : part.row->merge({states.data() + part.first, part.count},
                                     {others.data() + part.first, part.count}))
        merged.push_back(std::move(e));
    return merged;
  };
  const Exprs states = emitter_.reduce(spec, depth);
  coords_ = outer_coords;
  region_ = std::move(outer_region);
  region_depth_ = outer_depth;
  for (size_t k = 0; k < pending_scratch_.size();) {
    if (pending_scratch_[k].first == depth) {
      if (scratch_.size() <= static_cast<size_t>(depth)) scratch_.resize(depth + 1);
      scratch_[depth].push_back(std::move(pending_scratch_[k].second));
      pending_scratch_.erase(pending_scratch_.begin() + static_cast<int64_t>(k));
    } else {
      ++k;
    }
  }

  for (const Part& part : parts) {
    Expr count = index_const(1);
    for (int d : part.dims) count = count * body_.type(part.node->operands[0]).shape[d];
    Exprs results = part.row->finish({states.data() + part.first, part.count}, count,
                                     part.node->get<Reduce>().correction.value_or(1));
    for (size_t r = 0; r < results.size(); ++r) {
      const Value v{part.id, static_cast<int32_t>(r)};
      Expr result = loop::make_cast(compute_dtype(v), results[r]);
      result = emitter_.let("t" + std::to_string(part.id) + (r ? "_" + std::to_string(r) : ""), result);
      remember(v, part.index, part.id == nodes[0] ? mask : nullptr, result);
    }
  }
}

}  // namespace ipex::graph

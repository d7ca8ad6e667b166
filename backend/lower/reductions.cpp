// See reductions.h.
#include "backend/lower/reductions.h"

#include <algorithm>
#include <span>
#include <utility>

#include "backend/lower/values.h"

namespace ipex::graph {

using loop::Expr;
using loop::index_const;

// ---- rows of scratch memory ----

void ScratchRows::in_loop(std::set<Axis> columns, int depth, const std::function<void()>& write) {
  std::set<Axis> outer_columns = std::exchange(columns_, std::move(columns));
  const int outer_depth = std::exchange(depth_, depth);
  write();
  columns_ = std::move(outer_columns);
  depth_ = outer_depth;
  for (size_t k = 0; k < unfinished_.size();) {
    if (unfinished_[k].first == depth) {
      if (rows_.size() <= static_cast<size_t>(depth)) rows_.resize(depth + 1);
      rows_[depth].push_back(std::move(unfinished_[k].second));
      unfinished_.erase(unfinished_.begin() + static_cast<int64_t>(k));
    } else {
      ++k;
    }
  }
}

void ScratchRows::store(Value v, const Index& index, const Expr& x) {
  Row row{v, {}, {}, {}};
  Expr elements = index_const(1);
  for (Axis axis : coordinates_.group.axes.of(v)) {
    if (!columns_.count(axis)) {
      row.outer[axis] = coordinates_.variables.at(axis);
      continue;
    }
    row.columns.push_back(axis);
    elements = elements * coordinates_.group.axes.extent(axis);
  }
  if (row.columns.empty()) return;
  for (const auto& [depth, stored] : unfinished_)
    if (stored.value == v) return;
  row.buffer = emitter_.unique("row" + std::to_string(v.node));
  emitter_.emit(loop::Alloc{row.buffer, coordinates_.group.compute_dtype(v), elements}, depth_);
  emitter_.emit(loop::Store{row.buffer, coordinates_.position(row.columns), x, nullptr},
                std::max(emitter_.depth_of(index, nullptr), emitter_.depth_of(x)));
  unfinished_.emplace_back(depth_, std::move(row));
}

std::optional<Expr> ScratchRows::load(Value v) const {
  for (const auto& level : rows_)
    for (const Row& row : level) {
      if (row.value != v) continue;
      const bool is_here = std::all_of(row.outer.begin(), row.outer.end(), [&](const auto& coordinate) {
        const auto here = coordinates_.variables.find(coordinate.first);
        return here != coordinates_.variables.end() && loop::equal(here->second, coordinate.second);
      });
      if (!is_here) continue;
      return loop::make_load(row.buffer, coordinates_.group.compute_dtype(v),
                             coordinates_.position(row.columns));
    }
  return std::nullopt;
}

void ScratchRows::close(size_t depth) {
  if (rows_.size() > depth) rows_.resize(depth);
}

// ---- reductions ----

std::vector<loop::State> states_of(const ops::ReductionRow& row, Dtype type, Dtype position, int32_t node) {
  std::vector<loop::State> states = row.states(type, position);
  for (loop::State& state : states)
    state.name = "s" + std::to_string(node) + (state.name == "s0" ? "" : "_" + state.name.substr(1));
  return states;
}

// One reduction of a loop.
struct Reductions::Part {
  Part(const PlacedGroup& group, int32_t id, Index index)
      : id(id),
        node(group.body.nodes[id]),
        row(ops::row(node.get<Reduce>().fn)),
        operand(node.operands[0]),
        index(std::move(index)),
        dims(reduced_dims(node)) {
    for (int d : dims) extents.push_back(group.body.type(operand).shape[d]);
    const Dtype type = group.compute_dtype(operand);
    position = position_dtype(extents, type);
    states = states_of(row, type, position, id);
  }

  // The index into the operand, whose reduced dims are at `reduced`.
  Index operand_index(const Index& reduced, size_t rank) const {
    const bool keep = node.get<Reduce>().keepdim;
    Index out;
    size_t kept = 0, next = 0;
    for (size_t d = 0; d < rank; ++d) {
      if (next < dims.size() && dims[next] == static_cast<int>(d)) {
        out.push_back(reduced[next++]);
        kept += keep;
      } else {
        out.push_back(index[kept++]);
      }
    }
    return out;
  }

  int32_t id;
  const Node& node;
  const ops::ReductionRow& row;
  Value operand;
  Index index;            // of the result
  std::vector<int> dims;  // that are reduced
  Shape extents{};        // of these dims
  Dtype position{};       // the type of positions in extents
  std::vector<loop::State> states{};
};

Expr Reductions::element(Value v, const Index& index, const Expr& mask) {
  const ReduceInfo& info = analysis_.reductions.at(v.node);
  std::vector<Part> parts{Part(coordinates_.group, v.node, index)};
  if (info.has_distinct_axes && !mask && coordinates_.is_index_of({v.node, 0}, index)) {
    // Earlier reductions of the row go first: this loop may load the rows that their loops store.
    for (int32_t before : analysis_.needs[v.node])
      if (const ReduceInfo& its = analysis_.reductions.at(before);
          before != v.node && its.has_distinct_axes && its.rows == info.rows)
        if (std::optional<Index> at = coordinates_.index_of({before, 0})) values_.element({before, 0}, *at);
    for (const auto& [other, its] : analysis_.reductions)
      if (other != v.node && its.has_distinct_axes && its.level == info.level && its.rows == info.rows &&
          its.columns == info.columns)
        parts.emplace_back(coordinates_.group, other, *coordinates_.index_of({other, 0}));
  }
  write_loop(parts, mask);
  return values_.element(v, index, mask);  // it is remembered now
}

void Reductions::write_loop(const std::vector<Part>& parts, const Expr& mask) {
  const PlacedGroup& group = coordinates_.group;
  Emitter& emitter = values_.emitter();
  const ReduceInfo& info = analysis_.reductions.at(parts[0].id);
  const bool by_axis = info.has_distinct_axes;
  std::vector<size_t> first;  // by part: the number of its first state
  Emitter::ReductionSpec spec;
  for (const Part& part : parts) {
    first.push_back(spec.states.size());
    spec.states.insert(spec.states.end(), part.states.begin(), part.states.end());
  }
  if (by_axis)
    for (Axis axis : info.column_loops) spec.extents.push_back(group.axes.extent(axis));
  else
    spec.extents = parts[0].extents;
  const auto of_part = [&](const Exprs& states, size_t p) {
    return std::span<const Expr>(states).subspan(first[p], parts[p].states.size());
  };
  spec.step = [&](const Exprs& vars, const Exprs& states) {
    if (by_axis)
      for (size_t k = 0; k < vars.size(); ++k) coordinates_.variables[info.column_loops[k]] = vars[k];
    Exprs next;
    for (size_t p = 0; p < parts.size(); ++p) {
      const Part& part = parts[p];
      Index reduced;
      for (size_t k = 0; k < part.dims.size(); ++k)
        reduced.push_back(by_axis ? coordinates_.along(part.operand, part.dims[k]) : vars[k]);
      const size_t rank = group.body.type(part.operand).shape.size();
      const Expr x = values_.element(part.operand, part.operand_index(reduced, rank), mask);
      const Expr at = loop::make_cast(part.position, flatten(reduced, part.extents));
      for (Expr& e : part.row.update(of_part(states, p), x, at)) next.push_back(std::move(e));
    }
    return next;
  };
  spec.merge = [&](const Exprs& states, const Exprs& others) {
    Exprs merged;
    for (size_t p = 0; p < parts.size(); ++p)
      for (Expr& e : parts[p].row.merge(of_part(states, p), of_part(others, p)))
        merged.push_back(std::move(e));
    return merged;
  };
  const int depth = emitter.depth_of(parts[0].index, mask);
  const std::map<Axis, Expr> outer = coordinates_.variables;
  std::set<Axis> columns;  // of rows that the loop may keep
  if (by_axis && !mask) columns.insert(info.columns.begin(), info.columns.end());
  Exprs states;
  rows_.in_loop(std::move(columns), depth, [&] { states = emitter.reduce(spec, depth); });
  coordinates_.variables = outer;

  for (size_t p = 0; p < parts.size(); ++p) {
    const Part& part = parts[p];
    Expr count = index_const(1);
    for (const Dim& extent : part.extents) count = count * extent;
    const Exprs results =
        part.row.finish(of_part(states, p), count, part.node.get<Reduce>().correction.value_or(1));
    for (size_t r = 0; r < results.size(); ++r) {
      const Value v{part.id, static_cast<int32_t>(r)};
      const Expr result = emitter.let(label(v), loop::make_cast(group.compute_dtype(v), results[r]));
      values_.remember(v, part.index, p == 0 ? mask : nullptr, result);
    }
  }
}

}  // namespace ipex::graph

// The loop variable of each axis whose loop is being written, and what that says about indices of values.
#pragma once

#include <algorithm>
#include <map>
#include <optional>
#include <vector>

#include "backend/lower/placed_group.h"

namespace ipex::graph {

struct Coordinates {
  const PlacedGroup& group;
  std::map<Axis, loop::Expr> variables{};

  // The index of v at the current variables; none if an axis of v has no loop here or stands for two dims of
  // v.
  std::optional<Index> index_of(Value v) const {
    const std::vector<Axis> axes = group.axes.of(v);
    const auto has_loop = [&](Axis axis) { return variables.count(axis) != 0; };
    if (!Axes::distinct(axes) || !std::ranges::all_of(axes, has_loop)) return std::nullopt;
    Index index;
    for (size_t d = 0; d < group.body.type(v).shape.size(); ++d)
      index.push_back(along(v, static_cast<int>(d)));
    return index;
  }
  bool is_index_of(Value v, const Index& index) const {
    const std::optional<Index> here = index_of(v);
    return here && same(*here, index);
  }

  loop::Expr along(Value v, int dim) const { return position(group.axes.of(v, dim)); }
  // Row-major, in a tensor with these axes as dims.
  loop::Expr position(const std::vector<Axis>& axes) const {
    loop::Expr at = loop::index_const(0);
    for (Axis axis : axes) at = at * group.axes.extent(axis) + variables.at(axis);
    return at;
  }
};

}  // namespace ipex::graph

// Which dims of the values of a group have the same loop. If an elementwise op, a reduction, a permute or an
// expand says that two dims are the same, they share an axis. A reshape splits axes into common factors: a
// reshape from [B,S,768] to [B,S,12,64] gives the axes B, S, 12 and 64.
//
// Only the choice of loops depends on this. The index arithmetic of views is exact with any axes.
#pragma once

#include <vector>

#include "backend/lower/index.h"

namespace ipex::graph {

using Axis = int;  // a leaf, that is, an axis that is not split further

class Axes {
 public:
  explicit Axes(const Graph& body);

  // The leaves of one dim, and of all dims of a value, major first. A dim of extent 1 has none.
  std::vector<Axis> of(Value v, int dim) const;
  std::vector<Axis> of(Value v) const;
  const Dim& extent(Axis axis) const { return entries_[axis].extent; }
  // Is no axis there twice? One loop for each axis then reaches each element of the value once.
  static bool distinct(std::vector<Axis> axes);

 private:
  struct Entry {
    Dim extent;
    int same_as = -1;          // union-find
    std::vector<int> factors;  // split, major first
  };
  int fresh(const Dim& extent);
  int find(int axis) const;
  std::vector<int> leaves(int axis) const;
  bool contains(int axis, int part) const;
  void unify(int a, int b);
  // Splits and unifies axes, as a and b are dims of the same elements in row-major order.
  void refine(const std::vector<int>& a, const std::vector<int>& b);
  void unify_all(const std::vector<int>& a, const std::vector<int>& b);
  std::vector<int> fresh_all(const Shape& shape);
  void visit(const Graph& body, const Node& node, std::vector<int>& result);
  std::vector<int>& dims(Value v) { return dims_[v.node][v.result]; }

  std::vector<Entry> entries_;
  std::vector<std::vector<std::vector<int>>> dims_;  // node, result, dim
};

}  // namespace ipex::graph

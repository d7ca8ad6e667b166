// Which dims of a group's values are the same loop. Dims that an elementwise op, a reduction, a permute or an
// expand identifies share an axis; a reshape splits axes into common factors, so [B,S,768] against
// [B,S,12,64] iterates over B, S, 12 and 64.
//
// Only the choice of loops depends on this; the index arithmetic of views is exact whatever the axes are.
#pragma once

#include <vector>

#include "backend/lower/index.h"

namespace ipex::graph {

using Axis = int;  // a leaf: an axis that is not split further

class Axes {
 public:
  explicit Axes(const Graph& body);

  // Leaves of one dim, and of all dims of a value, major first; dims of extent 1 have none.
  std::vector<Axis> of(Value v, int dim) const;
  std::vector<Axis> of(Value v) const;
  const Dim& extent(Axis axis) const { return entries_[axis].extent; }
  static bool distinct(std::vector<Axis> axes);  // no axis twice: one loop each covers the value exactly once

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
  void refine(const std::vector<int>& a, const std::vector<int>& b);  // the same elements, row-major
  void unify_all(const std::vector<int>& a, const std::vector<int>& b);
  std::vector<int> fresh_all(const Shape& shape);
  void visit(const Graph& body, const Node& node, std::vector<int>& result);
  std::vector<int>& dims(Value v) { return dims_[v.node][v.result]; }

  std::vector<Entry> entries_;
  std::vector<std::vector<std::vector<int>>> dims_;  // node, result, dim
};

}  // namespace ipex::graph

// Index arithmetic of views: positions as expressions of loop variables whose ranges are known, so that a
// reshape costs a division only where its factors really do not line up with the loops.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "backend/graph/ir.h"
#include "codegen/loop/simplify.h"

namespace ipex::graph {

using Index = std::vector<loop::Expr>;  // one i64 a dim

// Runs of dims of `a` and of `b` with provably equal products, as short as possible: [4,6,5] and [24,5] give
// {0..2, 0..1} and {2..3, 1..2}. Dims of extent 1 belong to no run.
struct FactorRun {
  std::vector<int> a, b;  // positions
};
std::vector<FactorRun> match_factors(const Shape& a, const Shape& b);

loop::Expr flatten(const Index& index, const Shape& shape);  // row-major position
// What holds every position in `shape` and is no wider than it must be: a vector of elements then has its
// positions in as many registers.
Dtype position_dtype(const Shape& shape, Dtype element);
// {e // n, e % n}, exactly and without dividing when the terms of e separate.
std::pair<loop::Expr, loop::Expr> div_mod(const loop::Expr& e, const Dim& n, const loop::Ranges& ranges);
// The index into `to` of the element at `index` of `from`, both row-major views of the same elements.
Index reshape_index(const Index& index, const Shape& from, const Shape& to, const loop::Ranges& ranges);

// Whether both conditions hold; one that is null always does.
loop::Expr both(const loop::Expr& a, const loop::Expr& b);

bool is_one(const Dim& dim);
bool same_extent(const Dim& a, const Dim& b);
// An attribute that holds dims, whether written with symbols or as plain integers.

}  // namespace ipex::graph

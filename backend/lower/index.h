// Index arithmetic of views. Positions are expressions of loop variables with known ranges, so a reshape
// costs a division only if its factors do not line up with the loops.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "backend/graph/ir.h"
#include "codegen/loop/simplify.h"

namespace ipex::graph {

using Index = std::vector<loop::Expr>;  // an i64 for each dim

// Runs of dims of `a` and of `b` whose products are provably equal, as short as possible. For [4,6,5] and
// [24,5] they are {0..2, 0..1} and {2..3, 1..2}. Dims of extent 1 belong to no run.
struct FactorRun {
  std::vector<int> a, b;  // positions
};
std::vector<FactorRun> match_factors(const Shape& a, const Shape& b);

loop::Expr flatten(const Index& index, const Shape& shape);  // row-major position
// The type for positions in `shape`: i32 if that holds all of them and elements are no wider, so that the
// positions of a vector of elements need no more registers than the elements. Else i64.
Dtype position_dtype(const Shape& shape, Dtype element);
// {e // n, e % n}. If each term of e is a multiple of n or belongs to the remainder, there is no division.
std::pair<loop::Expr, loop::Expr> div_mod(const loop::Expr& e, const Dim& n, const loop::Ranges& ranges);
// The index into `to` of the element at `index` of `from`. Both are row-major views of the same elements.
Index reshape_index(const Index& index, const Shape& from, const Shape& to, const loop::Ranges& ranges);

// Do both conditions hold? A null condition always does.
loop::Expr both(const loop::Expr& a, const loop::Expr& b);

bool same(const loop::Expr& a, const loop::Expr& b);  // equal, or both null
bool same(const Index& a, const Index& b);
bool is_one(const Dim& dim);
bool same_extent(const Dim& a, const Dim& b);

}  // namespace ipex::graph

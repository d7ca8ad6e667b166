// See index.h.
#include "backend/lower/index.h"

#include <algorithm>
#include <limits>

#include "codegen/loop/rewrite.h"
#include "codegen/loop/simplify.h"

namespace ipex::graph {

using loop::as_const_int;
using loop::Expr;
using loop::index_const;

Expr both(const Expr& a, const Expr& b) {
  if (!a || !b) return a ? a : b;
  return loop::make_apply(loop::ScalarOp::bitand_, {a, b});
}

bool same(const Expr& a, const Expr& b) { return a == b || (a && b && loop::equal(a, b)); }

bool same(const Index& a, const Index& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](const Expr& x, const Expr& y) { return same(x, y); });
}

bool is_one(const Dim& dim) { return as_const_int(dim) == 1; }

bool same_extent(const Dim& a, const Dim& b) {
  auto x = as_const_int(a), y = as_const_int(b);
  if (x && y) return *x == *y;
  return loop::equal(a, b) || loop::provably_equal(a, b);
}

namespace {

std::vector<int> without_ones(const Shape& shape) {
  std::vector<int> dims;
  for (size_t d = 0; d < shape.size(); ++d)
    if (!is_one(shape[d])) dims.push_back(static_cast<int>(d));
  return dims;
}

// c / n, if n divides c for all values of the variables.
Expr exact_quotient(const Expr& c, const Dim& n, const loop::Ranges& ranges) {
  auto x = as_const_int(c), y = as_const_int(n);
  if (x && y) return *y != 0 && *x % *y == 0 ? index_const(*x / *y) : nullptr;
  if (as_const_int(loop::simplify(loop::floormod(c, n), ranges)) != 0) return nullptr;
  return loop::simplify(loop::floordiv(c, n), ranges);
}

}  // namespace

std::vector<FactorRun> match_factors(const Shape& a, const Shape& b) {
  const std::vector<int> da = without_ones(a), db = without_ones(b);
  std::vector<FactorRun> runs;
  size_t i = 0, j = 0;
  // The shortest pair of non-empty prefixes with equal products. If no such pair can be proved equal (s by 8
  // and s//8), the dims before the longest pair of suffixes that can: the products of all dims are equal
  // anyway.
  auto next_run = [&]() -> std::pair<size_t, size_t> {
    const size_t na = da.size() - i, nb = db.size() - j;
    std::vector<Dim> pa{index_const(1)}, pb{index_const(1)}, sa{index_const(1)}, sb{index_const(1)};
    for (size_t k = 0; k < na; ++k) pa.push_back(pa.back() * a[da[i + k]]);
    for (size_t k = 0; k < nb; ++k) pb.push_back(pb.back() * b[db[j + k]]);
    for (size_t total = 2; total <= na + nb; ++total)
      for (size_t x = 1; x < total && x <= na; ++x)
        if (total - x <= nb && same_extent(pa[x], pb[total - x])) return {x, total - x};
    for (size_t k = 1; k < na; ++k) sa.push_back(a[da[da.size() - k]] * sa.back());
    for (size_t k = 1; k < nb; ++k) sb.push_back(b[db[db.size() - k]] * sb.back());
    for (size_t total = na + nb; total-- > 2;)
      for (size_t x = 1; x < total && x < na; ++x)
        if (total - x < nb && same_extent(sa[x], sb[total - x])) return {na - x, nb - (total - x)};
    return {na, nb};
  };
  while (i < da.size() || j < db.size()) {
    auto [x, y] = next_run();
    runs.push_back({{da.begin() + i, da.begin() + i + x}, {db.begin() + j, db.begin() + j + y}});
    i += x;
    j += y;
  }
  return runs;
}

Expr flatten(const Index& index, const Shape& shape) {
  Expr flat = index_const(0);
  for (size_t d = 0; d < shape.size(); ++d) flat = flat * shape[d] + index[d];
  return flat;
}

Dtype position_dtype(const Shape& shape, Dtype element) {
  if (itemsize(element) > itemsize(Dtype::kI32)) return Dtype::kI64;
  const auto positions = as_const_int(numel(shape));
  return positions && *positions <= std::numeric_limits<int32_t>::max() ? Dtype::kI32 : Dtype::kI64;
}

std::pair<Expr, Expr> div_mod(const Expr& e, const Dim& n, const loop::Ranges& ranges) {
  if (is_one(n)) return {e, index_const(0)};
  std::set<std::string> vars;
  for (const std::string& v : loop::free_vars(e))
    if (auto it = ranges.find(v); it != ranges.end() && it->second.high) vars.insert(v);  // of a loop
  if (std::optional<loop::Affine> form = loop::affine(e, vars)) {
    Expr quotient = index_const(0), remainder = index_const(0), most = index_const(0);
    bool separates = true;
    for (const auto& [var, coefficient] : form->coefficients) {
      Expr v = loop::make_var(var);
      if (Expr q = exact_quotient(coefficient, n, ranges)) {
        quotient = quotient + q * v;
      } else {
        auto c = as_const_int(coefficient);
        separates = separates && c && *c > 0;
        remainder = remainder + coefficient * v;
        most = most + coefficient * (ranges.at(var).high - index_const(1));
      }
    }
    if (auto rest = as_const_int(form->rest)) {
      auto size = as_const_int(n);
      if (size && *size > 0) {
        const int64_t low = ((*rest % *size) + *size) % *size;
        quotient = quotient + index_const((*rest - low) / *size);
        remainder = remainder + index_const(low);
        most = most + index_const(low);
      } else {
        separates = separates && *rest == 0;
      }
    } else if (Expr q = exact_quotient(form->rest, n, ranges)) {
      quotient = quotient + q;
    } else {
      separates = false;
    }
    if (separates && loop::provably_less(loop::simplify(most), loop::simplify(n), ranges))
      return {quotient, remainder};
  }
  return {loop::simplify(loop::floordiv(e, n), ranges), loop::simplify(loop::floormod(e, n), ranges)};
}

Index reshape_index(const Index& index, const Shape& from, const Shape& to, const loop::Ranges& ranges) {
  Index out(to.size(), index_const(0));
  for (const FactorRun& run : match_factors(from, to)) {
    Index part;
    Shape shape;
    for (int d : run.a) {
      part.push_back(index[d]);
      shape.push_back(from[d]);
    }
    Expr flat = flatten(part, shape);
    for (size_t k = run.b.size(); k-- > 1;) {
      auto [high, low] = div_mod(flat, to[run.b[k]], ranges);
      out[run.b[k]] = low;
      flat = high;
    }
    if (!run.b.empty()) out[run.b[0]] = flat;
  }
  return out;
}

}  // namespace ipex::graph

// Polynomial arithmetic, and the conversion of a polynomial to its canonical expression.
#include "codegen/loop/polynomial.h"

#include <algorithm>
#include <bit>
#include <limits>
#include <numeric>

namespace ipex::loop {
namespace {

// A product of two sums stays a product if it would expand to more terms than this. Expanding is useful only
// for cancellation.
constexpr size_t kMaxExpandedTerms = 64;

int compare_all(const std::vector<Expr>& a, const std::vector<Expr>& b) {
  for (size_t i = 0; i < a.size() && i < b.size(); ++i)
    if (int order = compare(a[i], b[i])) return order;
  return static_cast<int>(a.size()) - static_cast<int>(b.size());
}

template <class T>
int three_way(const T& a, const T& b) {
  return a < b ? -1 : b < a ? 1 : 0;
}

int64_t wrapping_add(int64_t a, int64_t b, bool& exact) {
  int64_t sum;
  exact &= !__builtin_add_overflow(a, b, &sum);
  return sum;
}
int64_t wrapping_mul(int64_t a, int64_t b, bool& exact) {
  int64_t product;
  exact &= !__builtin_mul_overflow(a, b, &product);
  return product;
}

Term product(const Term& a, const Term& b, bool& exact) {
  Term result;
  result.atoms.reserve(a.atoms.size() + b.atoms.size());
  std::merge(a.atoms.begin(), a.atoms.end(), b.atoms.begin(), b.atoms.end(), std::back_inserter(result.atoms),
             [](const Expr& x, const Expr& y) { return compare(x, y) < 0; });
  result.coefficient = wrapping_mul(a.coefficient, b.coefficient, exact);
  return result;
}

}  // namespace

int compare(const Expr& a, const Expr& b) {
  if (a == b) return 0;
  // Operations come before variables, so that products are written i//4*s.
  if (int order = three_way(!a->is(ExprKind::kApply), !b->is(ExprKind::kApply))) return order;
  if (int order = three_way(a->kind, b->kind)) return order;
  if (int order = a->name.compare(b->name)) return order;
  if (int order = three_way(a->op, b->op)) return order;
  if (int order = three_way(a->int_value, b->int_value)) return order;
  if (int order = three_way(std::bit_cast<uint64_t>(a->float_value), std::bit_cast<uint64_t>(b->float_value)))
    return order;
  if (int order = three_way(a->type.dtype, b->type.dtype)) return order;
  if (int order = three_way(a->type.lanes, b->type.lanes)) return order;
  return compare_all(a->args, b->args);
}

int64_t node_count(const Expr& e) {
  int64_t count = 1;
  for (const Expr& arg : e->args) count += node_count(arg);
  return count;
}

Polynomial Polynomial::atom(Expr e) {
  Polynomial p;
  p.terms.push_back({{std::move(e)}, 1});
  return p;
}

Polynomial Polynomial::of(const Term& term) {
  if (term.atoms.empty()) return term.coefficient;
  Polynomial p;
  p.terms.push_back(term);
  return p;
}

std::optional<Term> Polynomial::as_term() const {
  if (terms.empty() && constant != 0) return Term{{}, constant};
  if (terms.size() == 1 && constant == 0) return terms[0];
  return std::nullopt;
}

Polynomial add(const Polynomial& a, const Polynomial& b, int64_t factor) {
  Polynomial sum;
  sum.exact = a.exact && b.exact;
  sum.terms.reserve(a.terms.size() + b.terms.size());
  sum.constant = wrapping_add(a.constant, wrapping_mul(b.constant, factor, sum.exact), sum.exact);
  auto push = [&](const Term& term, int64_t coefficient) {
    if (coefficient != 0) sum.terms.push_back({term.atoms, coefficient});
  };
  size_t i = 0, j = 0;
  while (i < a.terms.size() || j < b.terms.size()) {
    int order = i == a.terms.size()   ? 1
                : j == b.terms.size() ? -1
                                      : compare_all(a.terms[i].atoms, b.terms[j].atoms);
    int64_t left = order <= 0 ? a.terms[i].coefficient : 0;
    int64_t right = order >= 0 ? wrapping_mul(b.terms[j].coefficient, factor, sum.exact) : 0;
    push(order <= 0 ? a.terms[i] : b.terms[j], wrapping_add(left, right, sum.exact));
    i += order <= 0;
    j += order >= 0;
  }
  return sum;
}

Polynomial multiply(const Polynomial& a, const Polynomial& b) {
  if (a.is_constant()) return add(0, b, a.constant);
  if (b.is_constant()) return add(0, a, b.constant);
  if (a.terms.size() * b.terms.size() > kMaxExpandedTerms)
    return Polynomial::atom(make_apply(ScalarOp::mul_, {to_expr(a), to_expr(b)}));
  Polynomial sum = add(add(0, b, a.constant), a, b.constant);
  sum.constant = wrapping_mul(a.constant, b.constant, sum.exact);
  sum.exact &= a.exact && b.exact;
  std::vector<Term> products;
  for (const Term& x : a.terms)
    for (const Term& y : b.terms) products.push_back(product(x, y, sum.exact));
  std::sort(products.begin(), products.end(),
            [](const Term& x, const Term& y) { return compare_all(x.atoms, y.atoms) < 0; });
  Polynomial expanded;
  for (Term& t : products) {
    if (!expanded.terms.empty() && compare_all(expanded.terms.back().atoms, t.atoms) == 0) {
      int64_t& coefficient = expanded.terms.back().coefficient;
      coefficient = wrapping_add(coefficient, t.coefficient, expanded.exact);
    } else {
      expanded.terms.push_back(std::move(t));
    }
  }
  std::erase_if(expanded.terms, [](const Term& t) { return t.coefficient == 0; });
  return add(sum, expanded);
}

std::optional<Term> divide(const Term& a, const Term& b) {
  if (b.coefficient == -1 ? a.coefficient == std::numeric_limits<int64_t>::min()
                          : a.coefficient % b.coefficient != 0)
    return std::nullopt;
  Term quotient{{}, a.coefficient / b.coefficient};
  size_t j = 0;
  for (const Expr& atom : a.atoms) {
    if (j < b.atoms.size() && compare(atom, b.atoms[j]) == 0)
      ++j;
    else
      quotient.atoms.push_back(atom);
  }
  return j == b.atoms.size() ? std::optional(std::move(quotient)) : std::nullopt;
}

Term common_factor(const Term& a, const Term& b) {
  Term factor{{}, std::gcd(a.coefficient, b.coefficient)};
  std::set_intersection(a.atoms.begin(), a.atoms.end(), b.atoms.begin(), b.atoms.end(),
                        std::back_inserter(factor.atoms),
                        [](const Expr& x, const Expr& y) { return compare(x, y) < 0; });
  return factor;
}

Polynomial to_polynomial(const Expr& e) {
  if (e->is(ExprKind::kConst)) return e->int_value;
  if (e->is(ExprKind::kApply)) switch (e->op) {
      case ScalarOp::add_:
        return add(to_polynomial(e->args[0]), to_polynomial(e->args[1]));
      case ScalarOp::sub_:
        return add(to_polynomial(e->args[0]), to_polynomial(e->args[1]), -1);
      case ScalarOp::neg_:
        return negate(to_polynomial(e->args[0]));
      case ScalarOp::mul_:
        return multiply(to_polynomial(e->args[0]), to_polynomial(e->args[1]));
      default:
        break;
    }
  return Polynomial::atom(e);
}

// ---- writing ----

namespace {

// One addend of a sum. Its sign is kept separately if possible: `positive` is subtracted if `negative` is
// set.
struct Addend {
  Expr magnitude;  // without the sign
  Expr value;      // with it
  bool negative = false;
  size_t degree = 0;  // the remaining fields order addends: more factors first, then larger strides
  int64_t stride = 1;
  Expr first;
};

bool is_negative(int64_t c) { return c < 0 && c != std::numeric_limits<int64_t>::min(); }

Expr write_product(const std::vector<Expr>& atoms, int64_t coefficient) {
  if (atoms.empty()) return index_const(coefficient);
  Expr e = atoms[0];
  for (size_t i = 1; i < atoms.size(); ++i) e = make_apply(ScalarOp::mul_, {e, atoms[i]});
  if (coefficient == 1) return e;
  if (coefficient == -1) return make_apply(ScalarOp::neg_, {e});
  return make_apply(ScalarOp::mul_, {e, index_const(coefficient)});
}

Addend simple(const Term& t) {
  bool negative = is_negative(t.coefficient);
  int64_t stride = negative ? -t.coefficient : t.coefficient;
  Expr magnitude = write_product(t.atoms, stride);
  Expr value = negative ? write_product(t.atoms, t.coefficient) : magnitude;
  return {magnitude, value, negative, t.atoms.size(), stride, t.atoms[0]};
}

Expr write_sum(std::vector<Term> terms, int64_t constant);

// (sum of `inner` + constant) * factor, as one addend.
Addend factored(std::vector<Term> inner, int64_t constant, const Expr& factor, size_t degree,
                int64_t stride) {
  bool negative =
      constant <= 0 && constant != std::numeric_limits<int64_t>::min() &&
      std::all_of(inner.begin(), inner.end(), [](const Term& t) { return is_negative(t.coefficient); });
  Addend a;
  a.negative = negative;
  a.degree = degree;
  a.stride = stride;
  a.first = inner[0].atoms.empty() ? factor : inner[0].atoms[0];
  a.value = make_apply(ScalarOp::mul_, {write_sum(inner, constant), factor});
  a.magnitude = a.value;
  if (negative) {
    for (Term& t : inner) t.coefficient = -t.coefficient;
    a.magnitude = make_apply(ScalarOp::mul_, {write_sum(std::move(inner), -constant), factor});
  }
  return a;
}

// The atom that most terms share; null if no atom is in two terms.
Expr shared_atom(const std::vector<Term>& terms) {
  Expr best;
  size_t best_count = 1;
  for (size_t i = 0; i + 1 < terms.size(); ++i)
    for (const Expr& atom : terms[i].atoms) {
      size_t count = 1;
      for (size_t j = i + 1; j < terms.size(); ++j)
        count += std::any_of(terms[j].atoms.begin(), terms[j].atoms.end(),
                             [&](const Expr& other) { return compare(atom, other) == 0; });
      if (count > best_count) {
        best = atom;
        best_count = count;
      }
    }
  return best;
}

// Removes the terms that contain `atom` from `terms`. Their sum is atom * (inner + constant).
Addend take_shared(const Expr& atom, std::vector<Term>& terms) {
  std::vector<Term> inner, rest;
  int64_t constant = 0, stride = 0;
  size_t degree = 0;
  for (Term& t : terms) {
    auto quotient = divide(t, {{atom}, 1});
    if (!quotient) {
      rest.push_back(std::move(t));
      continue;
    }
    degree = std::max(degree, t.atoms.size());
    stride = std::max(stride, is_negative(t.coefficient) ? -t.coefficient : t.coefficient);
    if (quotient->atoms.empty())
      constant = quotient->coefficient;
    else
      inner.push_back(std::move(*quotient));
  }
  terms = std::move(rest);
  return factored(std::move(inner), constant, atom, degree, stride);
}

Expr write_sum(std::vector<Term> terms, int64_t constant) {
  std::vector<Addend> addends;
  while (Expr atom = shared_atom(terms)) addends.push_back(take_shared(atom, terms));
  // Combines terms with the same stride: (i + j)*4.
  for (size_t i = 0; i < terms.size(); ++i) {
    int64_t stride = terms[i].coefficient;
    if (stride == 0) continue;  // already combined
    if (is_negative(stride)) stride = -stride;
    std::vector<Term> inner;
    size_t degree = 0;
    for (size_t j = i; j < terms.size() && stride > 1; ++j)
      if (terms[j].coefficient == stride || terms[j].coefficient == -stride) {
        inner.push_back({terms[j].atoms, terms[j].coefficient / stride});
        degree = std::max(degree, terms[j].atoms.size());
      }
    if (inner.size() < 2) {
      addends.push_back(simple(terms[i]));
      continue;
    }
    for (size_t j = i; j < terms.size(); ++j)
      if (terms[j].coefficient == stride || terms[j].coefficient == -stride) terms[j].coefficient = 0;
    addends.push_back(factored(std::move(inner), 0, index_const(stride), degree, stride));
  }
  if (addends.empty()) return index_const(constant);

  std::sort(addends.begin(), addends.end(), [](const Addend& a, const Addend& b) {
    if (a.negative != b.negative) return b.negative;
    if (a.degree != b.degree) return a.degree > b.degree;
    if (a.stride != b.stride) return a.stride > b.stride;
    int order = compare(a.first, b.first);
    return order ? order < 0 : compare(a.value, b.value) < 0;
  });
  bool leading_constant = addends[0].negative && constant > 0;
  Expr sum = leading_constant ? index_const(constant) : addends[0].value;
  for (size_t i = leading_constant ? 0 : 1; i < addends.size(); ++i)
    sum = make_apply(addends[i].negative ? ScalarOp::sub_ : ScalarOp::add_, {sum, addends[i].magnitude});
  if (constant == 0 || leading_constant) return sum;
  if (is_negative(constant)) return make_apply(ScalarOp::sub_, {sum, index_const(-constant)});
  return make_apply(ScalarOp::add_, {sum, index_const(constant)});
}

}  // namespace

Expr to_expr(const Polynomial& p) {
  if (p.terms.size() == 1 && p.constant == 0) return write_product(p.terms[0].atoms, p.terms[0].coefficient);
  return write_sum(p.terms, p.constant);
}

}  // namespace ipex::loop

// Integer sums and products as polynomials over opaque atoms. This is the normal form in which the simplifier
// works.
//
//   r*s0*4 + (i//4) + 7   =   {[r, s0]: 4, [i//4]: 1} + 7
//
// Atoms are scalar i64 expressions that are not sums, products or constants. Coefficients wrap like i64. If
// one does, `exact` becomes false: the polynomial still equals the expression, but says nothing about order
// or division.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "codegen/loop/ir.h"

namespace ipex::loop {

// A total order on expressions, by structure.
int compare(const Expr& a, const Expr& b);
// The number of nodes of the tree; shared nodes count as often as they are printed.
int64_t node_count(const Expr& e);

struct Term {
  std::vector<Expr> atoms;  // ascending; with repetition for powers
  int64_t coefficient = 1;  // not 0
};

struct Polynomial {
  std::vector<Term> terms;  // ascending by atoms, each product once
  int64_t constant = 0;
  bool exact = true;

  Polynomial(int64_t value = 0) : constant(value) {}  // NOLINT: integers are polynomials
  static Polynomial atom(Expr e);
  static Polynomial of(const Term& term);

  bool is_constant() const { return terms.empty(); }
  bool is_zero() const { return terms.empty() && constant == 0; }
  // The polynomial as one product; none if it is a sum or zero.
  std::optional<Term> as_term() const;
};

Polynomial add(const Polynomial& a, const Polynomial& b, int64_t factor = 1);  // a + b*factor
Polynomial multiply(const Polynomial& a, const Polynomial& b);
inline Polynomial negate(const Polynomial& a) { return add(0, a, -1); }

// a / b if the atoms and the coefficient of b divide those of a.
std::optional<Term> divide(const Term& a, const Term& b);
// The largest product that divides both. Its coefficient is positive.
Term common_factor(const Term& a, const Term& b);

// Expands sums and products; everything else is an atom.
Polynomial to_polynomial(const Expr& e);
// The canonical expression: common factors outside (r*4 + q)*s0 + c, larger strides first, subtracted terms
// after added terms, the constant last.
Expr to_expr(const Polynomial& p);

}  // namespace ipex::loop

// Integer sums and products as polynomials over opaque atoms: the normal form in which the simplifier
// computes.
//
//   r*s0*4 + (i//4) + 7   =   {[r, s0]: 4, [i//4]: 1} + 7
//
// Atoms are scalar i64 expressions that are no sum, product or constant. Coefficients wrap as i64 does;
// `exact` is lost when one did, after which the polynomial still equals the expression but says nothing about
// order or division.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "codegen/loop/ir.h"

namespace ipex::loop {

// A total order on expressions, by structure.
int compare(const Expr& a, const Expr& b);
// Nodes of the tree, shared ones counted as often as they print.
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
  // The polynomial as one product; none for a sum, or for zero.
  std::optional<Term> as_term() const;
};

Polynomial add(const Polynomial& a, const Polynomial& b, int64_t factor = 1);  // a + b*factor
Polynomial multiply(const Polynomial& a, const Polynomial& b);
inline Polynomial negate(const Polynomial& a) { return add(0, a, -1); }

// a / b when b's atoms and coefficient divide a's.
std::optional<Term> divide(const Term& a, const Term& b);
// The largest product that divides both; its coefficient is positive.
Term common_factor(const Term& a, const Term& b);

// Sums and products are taken apart, all else is an atom.
Polynomial to_polynomial(const Expr& e);
// The canonical expression: common factors outside (r*4 + q)*s0 + c, larger strides first, what is subtracted
// after what is added, the constant last.
Expr to_expr(const Polynomial& p);

}  // namespace ipex::loop

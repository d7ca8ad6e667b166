// Division rules. All of them rest on one fact: if n = q*d + r, then n//d = q + r//d and n%d = r%d, and if r
// is known to be in [0, d), these are q and r. The difficulty is to choose q.
#include "codegen/loop/division.h"

#include <algorithm>

namespace ipex::loop {
namespace {

constexpr int kLongDivisionSteps = 16;

int64_t floor_quotient(int64_t a, int64_t b) { return a / b - (a % b != 0 && (a < 0) != (b < 0)); }

struct Split {
  Polynomial quotient, rest;
};

// Splits n into quotient*d + rest, dividing term by term. If d is a constant, the constant of the rest is in
// [0, d).
Split split_by_term(const Polynomial& n, const Term& d) {
  Split s;
  for (const Term& t : n.terms) {
    auto q = divide(t, d);
    if (!q)
      s.rest.terms.push_back(t);
    else
      s.quotient = add(s.quotient, Polynomial::of(*q));
  }
  if (d.atoms.empty()) s.quotient.constant += floor_quotient(n.constant, d.coefficient);
  s.rest.constant =
      d.atoms.empty() ? n.constant - floor_quotient(n.constant, d.coefficient) * d.coefficient : n.constant;
  return s;
}

// Long division by a sum, using its term of highest degree: (i*s + i + j) = i*(s + 1) + j.
Split split_by_sum(const Polynomial& n, const Polynomial& d) {
  const Term& lead = *std::max_element(d.terms.begin(), d.terms.end(), [](const Term& a, const Term& b) {
    return a.atoms.size() < b.atoms.size();
  });
  Split s{0, n};
  for (int step = 0; step < kLongDivisionSteps; ++step) {
    std::optional<Term> q;
    for (const Term& t : s.rest.terms)
      if ((q = divide(t, lead))) break;
    if (!q) break;
    Polynomial part = Polynomial::of(*q);
    s.quotient = add(s.quotient, part);
    s.rest = add(s.rest, multiply(part, d), -1);
  }
  return s;
}

class Division {
 public:
  Division(const Polynomial& n, const Polynomial& d, const Bounds& bounds) : n_(n), d_(d), bounds_(bounds) {}

  Polynomial quotient() {
    if (auto value = constant_quotient()) return *value;
    if (!divisible()) return atom(ScalarOp::floordiv_, n_);
    auto term = d_.as_term();
    Split s = term ? split_by_term(n_, *term) : split_by_sum(n_, d_);
    if (auto block = block_of(s.rest)) return add(s.quotient, *block);
    if (!term) return atom(ScalarOp::floordiv_, n_);
    if (d_.is_constant()) {
      // Moving a multiple of d out of the constant gains nothing: (i + 7)//4 stays as it is.
      s.rest.constant = n_.constant;
      s.quotient.constant -= floor_quotient(n_.constant, d_.constant);
    }
    if (auto reduced = by_common_factor(s.rest, *term))
      return add(s.quotient, loop::floor_quotient(reduced->high, reduced->divisor, bounds_));
    if (auto nested = nested_quotient(s.rest)) return add(s.quotient, *nested);
    return add(s.quotient, atom(ScalarOp::floordiv_, s.rest));
  }

  Polynomial remainder() {
    if (auto value = constant_quotient()) {
      if (d_.constant >= -1 && d_.constant <= 1) return 0;
      return n_.constant - value->constant * d_.constant;
    }
    if (!divisible()) return atom(ScalarOp::floormod_, n_);
    auto term = d_.as_term();
    Split s = term ? split_by_term(n_, *term) : split_by_sum(n_, d_);
    if (auto block = block_of(s.rest)) return add(s.rest, multiply(d_, *block), -1);
    if (!term) return atom(ScalarOp::floormod_, n_);
    if (d_.is_constant())
      for (Term& t : s.rest.terms) t.coefficient %= d_.constant;  // none becomes 0, because d divides none
    if (auto simpler = without_inner_remainder(s.rest, *term)) return floor_remainder(*simpler, d_, bounds_);
    if (auto reduced = by_common_factor(s.rest, *term))
      return add(multiply(Polynomial::of(reduced->factor),
                          floor_remainder(reduced->high, reduced->divisor, bounds_)),
                 reduced->low);
    return atom(ScalarOp::floormod_, s.rest);
  }

 private:
  // Divisors 0, 1 and -1, and division of a constant by a constant. The remainder by 0, 1 or -1 is 0.
  std::optional<Polynomial> constant_quotient() const {
    if (!d_.is_constant()) return std::nullopt;
    if (d_.constant == 0) return Polynomial(0);
    if (d_.constant == 1) return n_;
    if (d_.constant == -1) return negate(n_);
    if (n_.is_constant()) return Polynomial(floor_quotient(n_.constant, d_.constant));
    return std::nullopt;
  }

  bool divisible() const { return bounds_.is_exact(n_) && bounds_.is_exact(d_) && bounds_.is_positive(d_); }

  Polynomial atom(ScalarOp op, const Polynomial& n) const {
    return Polynomial::atom(make_apply(op, {to_expr(n), to_expr(d_)}));
  }

  // The k for which r is always in [k*d, (k + 1)*d).
  std::optional<int64_t> block_of(const Polynomial& r) const {
    if (d_.is_constant()) {
      Interval i = bounds_.interval(r);
      if (i.bounded() && floor_quotient(i.low, d_.constant) == floor_quotient(i.high, d_.constant))
        return floor_quotient(i.low, d_.constant);
    }
    if (bounds_.is_within(r, d_)) return 0;
    if (!d_.is_constant() && bounds_.is_within(add(r, d_), d_)) return -1;
    return std::nullopt;
  }

  // r = factor*high + low with 0 <= low < factor, and d = factor*divisor.
  struct Reduced {
    Term factor;
    Polynomial high, low, divisor;
  };
  std::optional<Reduced> by_common_factor(const Polynomial& r, const Term& d) const {
    std::vector<Term> factors;
    for (const Term& t : r.terms) {
      Term f = common_factor(t, d);
      if (!f.atoms.empty() || f.coefficient > 1) factors.push_back(std::move(f));
    }
    // The largest factor first: it leaves the smallest rest.
    std::sort(factors.begin(), factors.end(), [](const Term& a, const Term& b) {
      return a.atoms.size() != b.atoms.size() ? a.atoms.size() > b.atoms.size()
                                              : a.coefficient > b.coefficient;
    });
    for (const Term& f : factors) {
      Polynomial factor = Polynomial::of(f);
      if (!bounds_.is_positive(factor)) continue;
      Split s = split_by_term(r, f);
      if (bounds_.is_within(s.rest, factor))
        return Reduced{f, s.quotient, s.rest, Polynomial::of(*divide(d, f))};
    }
    return std::nullopt;
  }

  // (x//a + c)//d = (x + c*a)//(a*d), and (x % (d*m))//d = x//d % m.
  std::optional<Polynomial> nested_quotient(const Polynomial& r) const {
    if (r.terms.size() != 1 || r.terms[0].coefficient != 1 || r.terms[0].atoms.size() != 1)
      return std::nullopt;
    const Expr& inner = r.terms[0].atoms[0];
    if (!inner->is(ExprKind::kApply) || inner->args.size() != 2) return std::nullopt;
    Polynomial x = to_polynomial(inner->args[0]), a = to_polynomial(inner->args[1]);
    if (!bounds_.is_positive(a) || !bounds_.is_exact(x)) return std::nullopt;
    if (inner->op == ScalarOp::floordiv_ && (r.constant == 0 || a.is_constant())) {
      Polynomial shifted = add(x, a, r.constant), divisor = multiply(a, d_);
      if (shifted.exact && divisor.exact) return loop::floor_quotient(shifted, divisor, bounds_);
    }
    if (inner->op == ScalarOp::floormod_ && r.constant == 0) {
      auto whole = a.as_term(), part = d_.as_term();
      auto m = whole && part ? divide(*whole, *part) : std::nullopt;
      if (m) return floor_remainder(loop::floor_quotient(x, d_, bounds_), Polynomial::of(*m), bounds_);
    }
    return std::nullopt;
  }

  // c*(x % m) = c*x modulo d, if d divides c*m.
  std::optional<Polynomial> without_inner_remainder(const Polynomial& r, const Term& d) const {
    for (const Term& t : r.terms) {
      if (t.atoms.size() != 1 || !t.atoms[0]->is(ExprKind::kApply) || t.atoms[0]->op != ScalarOp::floormod_)
        continue;
      auto m = to_polynomial(t.atoms[0]->args[1]).as_term();
      Polynomial x = to_polynomial(t.atoms[0]->args[0]);
      if (!m || !bounds_.is_exact(x) || !bounds_.is_positive(Polynomial::of(*m))) continue;
      if (__builtin_mul_overflow(m->coefficient, t.coefficient, &m->coefficient) || !divide(*m, d)) continue;
      Polynomial simpler = add(add(r, Polynomial::of(t), -1), x, t.coefficient);
      if (bounds_.is_exact(simpler)) return simpler;
    }
    return std::nullopt;
  }

  const Polynomial& n_;
  const Polynomial& d_;
  const Bounds& bounds_;
};

bool is_op(const Expr& e, ScalarOp op) { return e->is(ExprKind::kApply) && e->op == op; }

}  // namespace

Polynomial floor_quotient(const Polynomial& n, const Polynomial& d, const Bounds& bounds) {
  return Division(n, d, bounds).quotient();
}

Polynomial floor_remainder(const Polynomial& n, const Polynomial& d, const Bounds& bounds) {
  return Division(n, d, bounds).remainder();
}

Polynomial recombine(Polynomial p, const Bounds& bounds) {
  for (size_t i = 0; i < p.terms.size(); ++i)
    for (const Expr& mod : p.terms[i].atoms) {
      if (!is_op(mod, ScalarOp::floormod_) || bounds.interval(mod->args[1]).low < 1) continue;
      auto m = to_polynomial(mod->args[1]).as_term();
      if (!m) continue;
      // combines others*(x % m) with others*m*(x // m)
      Polynomial others = Polynomial::of(*divide(p.terms[i], {{mod}, 1}));
      Expr div = make_apply(ScalarOp::floordiv_, {mod->args[0], mod->args[1]});
      Polynomial partner = multiply(multiply(others, Polynomial::of(*m)), Polynomial::atom(div));
      if (!partner.exact || partner.terms.size() != 1) continue;
      bool found = std::any_of(p.terms.begin(), p.terms.end(), [&](const Term& t) {
        auto q = divide(t, partner.terms[0]);
        return q && q->atoms.empty() && q->coefficient == 1;
      });
      if (!found) continue;
      Polynomial sum = add(add(p, partner, -1), Polynomial::of(p.terms[i]), -1);
      return recombine(add(sum, multiply(others, to_polynomial(mod->args[0]))), bounds);
    }
  return p;
}

}  // namespace ipex::loop

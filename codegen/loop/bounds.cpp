// Interval arithmetic, and a prover of inequalities.
//
// To prove p >= 0, the prover splits p into a*x + b, where x is an atom with a known bound. If a >= 0, it is
// enough to prove p at the lowest x; if a <= 0, at the highest. Either substitution leaves one atom less. It
// works for loop bounds that depend on outer variables:
//
//   j < s, i < n  |-  n*s - 1 - (i*s + j) >= n*s - i*s - s >= n*s - (n - 1)*s - s = 0
#include "codegen/loop/bounds.h"

#include <algorithm>

namespace ipex::loop {
namespace {

constexpr int kMaxDepth = 5;          // depth to which atoms are eliminated
constexpr int kMaxEliminations = 40;  // eliminations that one proof may try

using Wide = __int128;

int64_t clamp(Wide value) {
  if (value <= Interval::kLow) return Interval::kLow;
  if (value >= Interval::kHigh) return Interval::kHigh;
  return static_cast<int64_t>(value);
}

Interval exactly(int64_t value) { return {value, value}; }

Interval operator+(Interval a, Interval b) {
  Interval sum;
  if (a.low != Interval::kLow && b.low != Interval::kLow) sum.low = clamp(Wide(a.low) + b.low);
  if (a.high != Interval::kHigh && b.high != Interval::kHigh) sum.high = clamp(Wide(a.high) + b.high);
  return sum;
}

// A missing bound is an infinity here; clamp turns every overflow into one.
int64_t end_product(int64_t a, int64_t b) {
  if (a == 0 || b == 0) return 0;
  auto infinite = [](int64_t x) { return x == Interval::kLow || x == Interval::kHigh; };
  if (infinite(a) || infinite(b)) return (a < 0) == (b < 0) ? Interval::kHigh : Interval::kLow;
  return clamp(Wide(a) * b);
}

Interval operator*(Interval a, Interval b) {
  auto [low, high] = std::minmax({end_product(a.low, b.low), end_product(a.low, b.high),
                                  end_product(a.high, b.low), end_product(a.high, b.high)});
  return {low, high};
}

Interval hull(Interval a, Interval b) { return {std::min(a.low, b.low), std::max(a.high, b.high)}; }
Interval smaller(Interval a, Interval b) { return {std::min(a.low, b.low), std::min(a.high, b.high)}; }
Interval larger(Interval a, Interval b) { return {std::max(a.low, b.low), std::max(a.high, b.high)}; }

int64_t floor_quotient(int64_t a, int64_t b) { return a / b - (a % b != 0 && (a < 0) != (b < 0)); }

Interval quotient(Interval a, Interval b) {
  if (b.low < 1) return {};
  // The operation is monotonic in each operand; an infinite operand gives the limit.
  auto end = [](int64_t x, int64_t y) -> int64_t {
    if (x == Interval::kLow || x == Interval::kHigh) return x;
    if (y == Interval::kHigh) return x < 0 ? -1 : 0;
    return floor_quotient(x, y);
  };
  return {std::min(end(a.low, b.low), end(a.low, b.high)), std::max(end(a.high, b.low), end(a.high, b.high))};
}

Interval modulus(Interval a, Interval b) {
  if (b.low < 1) return {};
  if (a.low >= 0 && a.high < b.low) return a;
  int64_t below = b.high == Interval::kHigh ? b.high : b.high - 1;
  return {0, a.low >= 0 ? std::min(a.high, below) : below};
}

Interval of_dtype(Dtype dtype) {
  switch (dtype) {
    case Dtype::kBool:
      return {0, 1};
    case Dtype::kU8:
      return {0, 255};
    case Dtype::kI8:
      return {-128, 127};
    case Dtype::kI16:
      return {-32768, 32767};
    case Dtype::kI32:
      return {std::numeric_limits<int32_t>::min(), std::numeric_limits<int32_t>::max()};
    default:
      return {};
  }
}

bool mentions(const Term& t, const Expr& atom) {
  return std::any_of(t.atoms.begin(), t.atoms.end(), [&](const Expr& e) { return compare(e, atom) == 0; });
}

}  // namespace

void Bounds::set_range(const std::string& name, const Expr& low, const Expr& high) {
  Entry& entry = entries_[name];
  entry = {};
  if (low) {
    entry.interval.low = interval(low).low;
    if (!as_const_int(low)) entry.low = to_polynomial(low);
  }
  if (high) {
    int64_t end = interval(high).high;
    if (end != Interval::kHigh && end != Interval::kLow) entry.interval.high = end - 1;
    if (!as_const_int(high)) entry.last = add(to_polynomial(high), -1);
  }
}

void Bounds::set_interval(const std::string& name, Interval interval) {
  entries_[name] = {interval, {}, {}, false};
}

void Bounds::set_data(const std::string& name) { entries_[name] = {{}, {}, {}, true}; }

const Bounds::Entry* Bounds::find(const std::string& name) const {
  auto it = entries_.find(name);
  return it == entries_.end() ? nullptr : &it->second;
}

Interval Bounds::interval(const Expr& e) const {
  const Interval type = of_dtype(e->type.dtype);
  switch (e->kind) {
    case ExprKind::kConst:
      return is_float(e->type.dtype) ? Interval{} : exactly(e->int_value);
    case ExprKind::kVar: {
      const Entry* entry = find(e->name);
      return entry && e->type.dtype == Dtype::kI64 ? entry->interval : type;
    }
    case ExprKind::kBroadcast:
      return interval(e->args[0]);
    case ExprKind::kRamp:
      if (e->type.dtype != Dtype::kI64) return type;
      return interval(e->args[0]) + interval(e->args[1]) * Interval{0, e->type.lanes - 1};
    case ExprKind::kCast: {
      // Either every value of the source type fits the target type, or only the target type is known.
      if (is_float(e->type.dtype) || is_float(e->args[0]->type.dtype) || e->type.dtype == Dtype::kBool)
        return type;
      Interval source = interval(e->args[0]);
      return source.low >= type.low && source.high <= type.high ? source : type;
    }
    case ExprKind::kApply:
      break;
    default:
      return type;
  }
  if (e->op == ScalarOp::select_ && !is_float(e->type.dtype))
    return hull(interval(e->args[1]), interval(e->args[2]));
  if (e->type.dtype != Dtype::kI64) return type;
  auto of = [&](size_t i) { return interval(e->args[i]); };
  // Tensor data may wrap; an index is assumed not to.
  auto unless_wrapped = [&](Interval i) { return i.bounded() || is_index(e) ? i : Interval{}; };
  switch (e->op) {
    case ScalarOp::add_:
      return unless_wrapped(of(0) + of(1));
    case ScalarOp::sub_:
      return unless_wrapped(of(0) + of(1) * exactly(-1));
    case ScalarOp::neg_:
      return unless_wrapped(of(0) * exactly(-1));
    case ScalarOp::mul_:
      return unless_wrapped(of(0) * of(1));
    case ScalarOp::floordiv_:
      return quotient(of(0), of(1));
    case ScalarOp::floormod_:
      return modulus(of(0), of(1));
    case ScalarOp::min_:
      return smaller(of(0), of(1));
    case ScalarOp::max_:
      return larger(of(0), of(1));
    case ScalarOp::bitand_: {
      Interval a = of(0), b = of(1);
      if (a.low >= 0 && b.low >= 0) return {0, std::min(a.high, b.high)};
      return type;
    }
    default:
      return type;
  }
}

Interval Bounds::interval(const Polynomial& p) const {
  Interval sum = exactly(p.constant);
  for (const Term& t : p.terms) {
    Interval product = exactly(t.coefficient);
    for (const Expr& atom : t.atoms) product = product * interval(atom);
    sum = sum + product;
  }
  return sum;
}

bool Bounds::is_index(const Expr& atom) const {
  switch (atom->kind) {
    case ExprKind::kConst:
      return true;
    case ExprKind::kVar: {
      const Entry* entry = find(atom->name);
      return atom->type.dtype == Dtype::kI64 && !(entry && entry->data);
    }
    case ExprKind::kLoad:
    case ExprKind::kReduceLanes:
    case ExprKind::kShuffle:
      return false;
    case ExprKind::kCast:
      return false;
    default:
      return std::all_of(atom->args.begin(), atom->args.end(), [this](const Expr& e) { return is_index(e); });
  }
}

bool Bounds::is_exact(const Polynomial& p) const {
  if (!p.exact) return false;
  for (const Term& t : p.terms)
    for (const Expr& atom : t.atoms)
      if (!is_index(atom)) return interval(p).bounded();
  return true;
}

bool Bounds::is_nonnegative(const Polynomial& p) const {
  if (!p.exact) return false;
  int budget = kMaxEliminations;
  return prove(p, kMaxDepth, budget);
}

bool Bounds::prove(const Polynomial& p, int depth, int& budget) const {
  if (!p.exact) return false;
  if (interval(p).low >= 0) return true;
  if (depth == 0 || p.is_constant()) return false;
  for (const Term& t : p.terms)
    for (const Expr& atom : t.atoms) {
      if (budget <= 0) return false;
      if (prove_without(atom, p, depth, budget)) return true;
    }
  return false;
}

bool Bounds::prove_without(const Expr& atom, const Polynomial& p, int depth, int& budget) const {
  if (atom->is(ExprKind::kVar) && !find(atom->name)) return false;
  Polynomial factor, rest = p.constant;
  for (const Term& t : p.terms) {
    if (!mentions(t, atom)) {
      rest.terms.push_back(t);
      continue;
    }
    Term quotient = *divide(t, {{atom}, 1});
    if (mentions(quotient, atom)) return false;  // a power
    factor = add(factor, Polynomial::of(quotient));
  }
  bool constant = factor.is_constant();
  bool rising = constant ? factor.constant > 0 : prove(factor, depth - 1, --budget);
  bool falling = !rising && (constant || prove(negate(factor), depth - 1, --budget));
  if (!rising && !falling) return false;
  for (const Polynomial& bound : product_bounds(atom, factor, rising)) {
    if (--budget <= 0) return false;
    if (prove(add(bound, rest), depth - 1, budget)) return true;
  }
  return false;
}

// Lower bounds of factor*atom, if the factor is known to be >= 0 (rising) or <= 0.
std::vector<Polynomial> Bounds::product_bounds(const Expr& atom, const Polynomial& factor,
                                               bool rising) const {
  std::vector<Polynomial> out;
  auto at = [&](const Polynomial& bound) { out.push_back(multiply(factor, bound)); };
  if (atom->is(ExprKind::kVar)) {
    const Entry* entry = find(atom->name);
    const auto& symbolic = rising ? entry->low : entry->last;
    if (symbolic) at(*symbolic);
    // With a constant factor, the interval of p already accounts for the numeric bound.
    int64_t numeric = rising ? entry->interval.low : entry->interval.high;
    if (!factor.is_constant() && numeric != Interval::kHigh && numeric != Interval::kLow) at(numeric);
    return out;
  }
  if (!atom->is(ExprKind::kApply)) return out;
  const auto& args = atom->args;
  switch (atom->op) {
    case ScalarOp::min_:
    case ScalarOp::max_:
      if ((atom->op == ScalarOp::max_) == rising)
        for (const Expr& arg : args) at(to_polynomial(arg));
      break;
    case ScalarOp::floormod_:
      if (interval(args[1]).low >= 1) at(rising ? Polynomial(0) : add(to_polynomial(args[1]), -1));
      break;
    case ScalarOp::floordiv_: {
      // x - d < (x//d)*d <= x, if the factor is a multiple of d.
      auto whole = factor.as_term(), divisor = to_polynomial(args[1]).as_term();
      if (!whole || !divisor || interval(args[1]).low < 1) break;
      auto multiple = divide(*whole, *divisor);
      if (!multiple) break;
      Polynomial x = to_polynomial(args[0]);
      if (!is_exact(x)) break;
      if (rising) x = add(add(x, Polynomial::of(*divisor), -1), 1);
      // The multiple has the same sign as the factor, because the divisor is positive.
      out.push_back(multiply(Polynomial::of(*multiple), x));
      break;
    }
    default:
      break;
  }
  return out;
}

}  // namespace ipex::loop

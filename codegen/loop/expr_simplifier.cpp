// Rules for expressions. Index arithmetic goes through polynomials; everything else is local rewriting that
// keeps floats bit-identical.
#include "codegen/loop/expr_simplifier.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "codegen/loop/division.h"
#include "codegen/loop/rewrite.h"

namespace ipex::loop {
namespace {

// The lane number of an n-lane vector as a variable: ramp(b, s) is b + s*lane. It is not a valid name, so it
// is different from all names.
Expr lane(int n) { return make_var("<lane of " + std::to_string(n) + ">"); }

bool is_apply(const Expr& e, ScalarOp op) { return e->is(ExprKind::kApply) && e->op == op; }

bool is_index_op(const Expr& e) {
  if (!e->is(ExprKind::kApply) || e->type.dtype != Dtype::kI64) return false;
  switch (e->op) {
    case ScalarOp::add_:
    case ScalarOp::sub_:
    case ScalarOp::mul_:
    case ScalarOp::neg_:
    case ScalarOp::floordiv_:
    case ScalarOp::floormod_:
      return true;
    default:
      return false;
  }
}

// Index operations on ramps and broadcasts are functions of the lane number.
bool is_lane_function(const Expr& e) {
  if (!e->type.is_vector() || e->type.dtype != Dtype::kI64) return false;
  if (e->is(ExprKind::kRamp) || e->is(ExprKind::kBroadcast)) return true;
  return is_index_op(e) && std::all_of(e->args.begin(), e->args.end(), is_lane_function);
}

// The value of a constant, broadcast or not.
std::optional<Scalar> constant(const Expr& e) {
  const ExprNode* n = e.get();
  if (n->is(ExprKind::kBroadcast)) n = n->args[0].get();
  if (!n->is(ExprKind::kConst)) return std::nullopt;
  return Scalar{n->type.dtype, n->int_value, n->float_value};
}

Expr make_scalar(Type type, Scalar x) {
  return is_float(type.dtype) ? make_const(type, x.f) : make_int(type, x.i);
}

bool is_int_value(const Expr& e, int64_t value) {
  auto c = constant(e);
  return c && !is_float(c->dtype) && c->i == value;
}

bool is_float_value(const Expr& e, double value) {
  auto c = constant(e);
  return c && is_float(c->dtype) && c->f == value && std::signbit(c->f) == std::signbit(value);
}

// Ops whose result is defined to the bit by IEEE 754 or C. The others depend on the library that computes
// them.
bool folds_exactly(ScalarOp op) { return op != ScalarOp::rsqrt_ && !is_function(op); }

// Whether every value of `from` is a value of `to`.
bool holds(Dtype to, Dtype from) {
  if (from == to || from == Dtype::kBool) return true;
  if (to == Dtype::kBool) return false;
  if (is_float(from)) return is_float(to) && !is_half(to) && itemsize(to) > itemsize(from);
  if (!is_float(to)) return itemsize(to) > itemsize(from) && info(to).is_signed;
  constexpr std::array<int, 10> digits = {0, 0, 0, 0, 0, 0, 11, 8, 24, 53};
  int bits = static_cast<int>(itemsize(from)) * 8 - (info(from).is_signed ? 1 : 0);
  return digits[static_cast<size_t>(to)] >= bits;
}

ScalarOp swapped(ScalarOp op) {
  switch (op) {
    case ScalarOp::lt_:
      return ScalarOp::gt_;
    case ScalarOp::le_:
      return ScalarOp::ge_;
    case ScalarOp::gt_:
      return ScalarOp::lt_;
    case ScalarOp::ge_:
      return ScalarOp::le_;
    default:
      return op;
  }
}

std::optional<ScalarOp> negated(ScalarOp op) {
  switch (op) {
    case ScalarOp::eq_:
      return ScalarOp::ne_;
    case ScalarOp::ne_:
      return ScalarOp::eq_;
    case ScalarOp::lt_:
      return ScalarOp::ge_;
    case ScalarOp::le_:
      return ScalarOp::gt_;
    case ScalarOp::gt_:
      return ScalarOp::le_;
    case ScalarOp::ge_:
      return ScalarOp::lt_;
    default:
      return std::nullopt;
  }
}

}  // namespace

void ExprSimplifier::bind(const std::string& name, Expr value) {
  bound_[name] = std::move(value);
  shared_.clear();  // earlier results may have used the old value of the name
}

void ExprSimplifier::unbind(const std::string& name) {
  bound_.erase(name);
  shared_.clear();
}

Expr ExprSimplifier::simplify(const Expr& e) {
  if (!e || e->is(ExprKind::kConst)) return e;
  if (e->is(ExprKind::kVar)) {
    auto it = bound_.find(e->name);
    return it == bound_.end() ? e : it->second;
  }
  bool shared = e.use_count() > 1;
  if (shared)
    if (auto it = shared_.find(e); it != shared_.end()) return it->second;
  bool arithmetic = is_index_op(e) && (!e->type.is_vector() || is_lane_function(e));
  Expr result = arithmetic ? index(e) : structural(e);
  // Names may have stood for expressions that are affine in the lane number.
  if (!arithmetic && result->type.is_vector() && is_index_op(result) && is_lane_function(result))
    result = index(result);
  if (equal(result, e)) result = e;
  if (shared) shared_.emplace(e, result);
  return result;
}

// ---- index arithmetic ----

Expr ExprSimplifier::index(const Expr& e) {
  const int lanes = e->type.lanes;
  if (lanes > 1) bounds.set_interval(lane(lanes)->name, {0, lanes - 1});
  Polynomial p = recombine(polynomial(e), bounds);
  std::optional<Expr> written = lanes > 1 ? from_lanes(p, lanes) : to_expr(p);
  if (written && node_count(*written) <= node_count(e)) return *written;
  // If the canonical form is larger, or not an affine function of the lane, the expression keeps its shape
  // and only its operands are simplified.
  Expr kept = structural(e);
  return written && node_count(*written) <= node_count(kept) ? *written : kept;
}

Polynomial ExprSimplifier::polynomial(const Expr& e) {
  if (e->is(ExprKind::kConst)) return e->int_value;
  if (e->is(ExprKind::kBroadcast)) return polynomial(e->args[0]);
  if (e->is(ExprKind::kRamp))
    return add(polynomial(e->args[0]),
               multiply(polynomial(e->args[1]), Polynomial::atom(lane(e->type.lanes))));
  if (!is_index_op(e)) return to_polynomial(simplify(e));
  Polynomial a = polynomial(e->args[0]);
  if (e->op == ScalarOp::neg_) return negate(a);
  Polynomial b = polynomial(e->args[1]);
  switch (e->op) {
    case ScalarOp::add_:
      return add(a, b);
    case ScalarOp::sub_:
      return add(a, b, -1);
    case ScalarOp::mul_:
      return multiply(a, b);
    case ScalarOp::floordiv_:
      return floor_quotient(a, b, bounds);
    default:
      return floor_remainder(a, b, bounds);
  }
}

// base + stride*lane as a ramp; none if the lane number is inside an atom or squared.
std::optional<Expr> ExprSimplifier::from_lanes(const Polynomial& p, int lanes) const {
  const Expr number = lane(lanes);
  Polynomial base = p.constant, stride;
  for (const Term& t : p.terms) {
    auto per_lane = divide(t, {{number}, 1});
    const Term& rest = per_lane ? *per_lane : t;
    for (const Expr& atom : rest.atoms)
      if (uses(atom, number->name)) return std::nullopt;
    Polynomial& part = per_lane ? stride : base;
    part = add(part, Polynomial::of(rest));
  }
  if (stride.is_zero()) return make_broadcast(to_expr(base), lanes);
  return make_ramp(to_expr(base), to_expr(stride), lanes);
}

// ---- everything else ----

Expr ExprSimplifier::structural(const Expr& e) {
  std::vector<Expr> args;
  args.reserve(e->args.size());
  bool changed = false;
  for (const Expr& arg : e->args) {
    args.push_back(simplify(arg));
    changed |= args.back() != arg;
  }
  Expr x = changed ? with_args(e, std::move(args)) : e;
  switch (x->kind) {
    case ExprKind::kLoad:
      return load(x);
    case ExprKind::kCast:
      return cast(x);
    case ExprKind::kRamp:
      return ramp(x);
    case ExprKind::kReduceLanes:
      return reduce_lanes(x);
    case ExprKind::kApply:
      return apply(x);
    default:
      return x;
  }
}

Expr ExprSimplifier::load(const Expr& e) const {
  if (e->args.size() < 2) return e;
  auto mask = as_const_int(e->args[1]);
  if (!mask) return e;
  return *mask ? make_load(e->name, e->type.dtype, e->args[0]) : make_int(e->type, 0);
}

Expr ExprSimplifier::cast(const Expr& e) const {
  const Expr& x = e->args[0];
  Dtype to = e->type.dtype, mid = x->type.dtype;
  if (auto c = constant(x)) return make_scalar(e->type, cast_scalar(*c, to));
  if (x->is(ExprKind::kBroadcast)) return make_broadcast(make_cast(to, x->args[0]), e->type.lanes);
  if (!x->is(ExprKind::kCast)) return e;
  // A cast through a type that holds every value of the source type does not change the value.
  const Expr& source = x->args[0];
  Dtype from = source->type.dtype;
  if (!holds(mid, from)) return to == from && keeps_ramp(x) ? source : e;
  if (to == from) return source;
  return is_half(from) ? e : cast(make_cast(to, source));
}

// Indices along the lanes whose interval the narrower type holds.
bool ExprSimplifier::keeps_ramp(const Expr& cast) const {
  if (!cast->args[0]->is(ExprKind::kRamp)) return false;
  const Interval lanes = bounds.interval(cast->args[0]), kept = bounds.interval(cast);
  return lanes.low == kept.low && lanes.high == kept.high;
}

Expr ExprSimplifier::ramp(const Expr& e) const {
  return as_const_int(e->args[1]) == 0 ? make_broadcast(e->args[0], e->type.lanes) : e;
}

Expr ExprSimplifier::reduce_lanes(const Expr& e) const {
  const Expr& x = e->args[0];
  bool idempotent = e->op == ScalarOp::min_ || e->op == ScalarOp::max_ || e->op == ScalarOp::bitand_ ||
                    e->op == ScalarOp::bitor_;
  return idempotent && x->is(ExprKind::kBroadcast) ? x->args[0] : e;
}

Expr ExprSimplifier::apply(const Expr& e) {
  if (auto folded = fold(e)) return *folded;
  if (e->type.is_vector() && std::all_of(e->args.begin(), e->args.end(),
                                         [](const Expr& x) { return x->is(ExprKind::kBroadcast); })) {
    std::vector<Expr> scalars;
    for (const Expr& x : e->args) scalars.push_back(x->args[0]);
    Expr scalar = make_apply_as(e->op, std::move(scalars), e->type.with_lanes(1));
    return make_broadcast(is_index_op(scalar) ? scalar : apply(scalar), e->type.lanes);
  }
  Dtype operand = e->args.back()->type.dtype;
  switch (e->op) {
    case ScalarOp::eq_:
    case ScalarOp::ne_:
    case ScalarOp::lt_:
    case ScalarOp::le_:
    case ScalarOp::gt_:
    case ScalarOp::ge_:
      return comparison(e);
    case ScalarOp::min_:
    case ScalarOp::max_:
      return min_max(e);
    case ScalarOp::select_:
      return select(e);
    case ScalarOp::abs_:
      return is_float(operand) ? float_arithmetic(e) : absolute(e);
    case ScalarOp::bitand_:
    case ScalarOp::bitor_:
    case ScalarOp::bitxor_:
    case ScalarOp::bitnot_:
      return bits(e);
    default:
      return is_float(operand) ? float_arithmetic(e) : int_arithmetic(e);
  }
}

std::optional<Expr> ExprSimplifier::fold(const Expr& e) const {
  std::array<Scalar, kMaxOperands> args;
  for (size_t i = 0; i < e->args.size(); ++i) {
    auto c = constant(e->args[i]);
    if (!c) return std::nullopt;
    args[i] = *c;
  }
  if (!folds_exactly(e->op)) return std::nullopt;
  return make_scalar(e->type, eval_scalar(e->op, {args.data(), e->args.size()}, e->type.dtype));
}

// Rules that hold in every wrapping integer type.
Expr ExprSimplifier::int_arithmetic(const Expr& e) const {
  const Expr &a = e->args[0], &b = e->args.back();
  switch (e->op) {
    case ScalarOp::add_:
      if (is_int_value(a, 0)) return b;
      if (is_int_value(b, 0)) return a;
      break;
    case ScalarOp::sub_:
      if (is_int_value(b, 0)) return a;
      if (equal(a, b)) return make_int(e->type, 0);
      break;
    case ScalarOp::mul_:
      if (is_int_value(a, 0) || is_int_value(b, 0)) return make_int(e->type, 0);
      if (is_int_value(a, 1)) return b;
      if (is_int_value(b, 1)) return a;
      break;
    case ScalarOp::div_:
    case ScalarOp::floordiv_:
      if (is_int_value(b, 1)) return a;
      break;
    case ScalarOp::rem_:
    case ScalarOp::floormod_:
      if (is_int_value(b, 1)) return make_int(e->type, 0);
      break;
    case ScalarOp::shl_:
    case ScalarOp::shr_:
      if (is_int_value(b, 0)) return a;
      break;
    case ScalarOp::neg_:
      if (is_apply(a, ScalarOp::neg_)) return a->args[0];
      break;
    case ScalarOp::bitcast_float_:
      if (is_apply(a, ScalarOp::bitcast_int_) && a->args[0]->type == e->type) return a->args[0];
      break;
    default:
      break;
  }
  return e;
}

Expr ExprSimplifier::float_arithmetic(const Expr& e) const {
  const Expr &a = e->args[0], &b = e->args.back();
  switch (e->op) {
    case ScalarOp::add_:  // x + 0 is not x when x is -0
      if (is_float_value(a, -0.0)) return b;
      if (is_float_value(b, -0.0)) return a;
      break;
    case ScalarOp::sub_:
      if (is_float_value(b, 0.0)) return a;
      break;
    case ScalarOp::mul_:
      if (is_float_value(a, 1)) return b;
      if (is_float_value(b, 1)) return a;
      break;
    case ScalarOp::div_:
      if (is_float_value(b, 1)) return a;
      break;
    case ScalarOp::neg_:
      if (is_apply(a, ScalarOp::neg_)) return a->args[0];
      break;
    case ScalarOp::abs_:
      if (is_apply(a, ScalarOp::abs_)) return a;
      if (is_apply(a, ScalarOp::neg_)) return make_apply(ScalarOp::abs_, {a->args[0]});
      break;
    case ScalarOp::bitcast_int_:
      if (is_apply(a, ScalarOp::bitcast_float_) && a->args[0]->type == e->type) return a->args[0];
      break;
    default:
      break;
  }
  return e;
}

Expr ExprSimplifier::bits(const Expr& e) {
  const Expr &a = e->args[0], &b = e->args.back();
  const int64_t ones = e->type.dtype == Dtype::kBool ? 1 : make_int(e->type.with_lanes(1), -1)->int_value;
  auto neutral = [&](int64_t value) {
    return is_int_value(a, value) ? b : is_int_value(b, value) ? a : Expr();
  };
  switch (e->op) {
    case ScalarOp::bitand_:
      if (Expr x = neutral(ones)) return x;
      if (is_int_value(a, 0) || is_int_value(b, 0)) return make_int(e->type, 0);
      return equal(a, b) ? a : e;
    case ScalarOp::bitor_:
      if (Expr x = neutral(0)) return x;
      if (is_int_value(a, ones) || is_int_value(b, ones)) return make_int(e->type, ones);
      return equal(a, b) ? a : e;
    case ScalarOp::bitxor_:
      if (Expr x = neutral(0)) return x;
      return equal(a, b) ? make_int(e->type, 0) : e;
    default:
      break;
  }
  if (is_apply(a, ScalarOp::bitnot_)) return a->args[0];
  // Negates a comparison. Of floats only (in)equality has an opposite, because of NaN.
  if (e->type.dtype != Dtype::kBool || !a->is(ExprKind::kApply)) return e;
  auto opposite = negated(a->op);
  bool ordered = a->op != ScalarOp::eq_ && a->op != ScalarOp::ne_;
  if (!opposite || (ordered && is_float(a->args[0]->type.dtype))) return e;
  return make_apply(*opposite, a->args);
}

// Both sides as polynomials (in the lane number, for vectors), if they compare as integers in the same way as
// their values do.
std::optional<std::pair<Polynomial, Polynomial>> ExprSimplifier::comparable(const Expr& a, const Expr& b) {
  if (a->type.dtype != Dtype::kI64) return std::nullopt;
  if (a->type.is_vector()) {
    if (!is_lane_function(a) || !is_lane_function(b)) return std::nullopt;
    bounds.set_interval(lane(a->type.lanes)->name, {0, a->type.lanes - 1});
  }
  auto sides = a->type.is_vector() ? std::pair(polynomial(a), polynomial(b))
                                   : std::pair(to_polynomial(a), to_polynomial(b));
  if (!bounds.is_exact(sides.first) || !bounds.is_exact(sides.second)) return std::nullopt;
  return sides;
}

std::optional<bool> ExprSimplifier::compare_ints(ScalarOp op, const Expr& a, const Expr& b) {
  if (op == ScalarOp::gt_ || op == ScalarOp::ge_) return compare_ints(swapped(op), b, a);
  if (equal(a, b)) return op == ScalarOp::eq_ || op == ScalarOp::le_;
  std::optional<std::pair<Polynomial, Polynomial>> sides = comparable(a, b);
  auto less = [&](const Expr& x, const Expr& y) {
    if (sides)
      return x == a ? bounds.is_less(sides->first, sides->second)
                    : bounds.is_less(sides->second, sides->first);
    Interval i = bounds.interval(x), j = bounds.interval(y);
    return i.high != Interval::kHigh && j.low != Interval::kLow && i.high < j.low;
  };
  auto less_equal = [&](const Expr& x, const Expr& y) {
    if (sides)
      return bounds.is_nonnegative(x == a ? add(sides->second, sides->first, -1)
                                          : add(sides->first, sides->second, -1));
    Interval i = bounds.interval(x), j = bounds.interval(y);
    return i.high != Interval::kHigh && j.low != Interval::kLow && i.high <= j.low;
  };
  switch (op) {
    case ScalarOp::lt_:
      if (less(a, b)) return true;
      if (less_equal(b, a)) return false;
      break;
    case ScalarOp::le_:
      if (less_equal(a, b)) return true;
      if (less(b, a)) return false;
      break;
    default:
      if (sides && add(sides->first, sides->second, -1).is_zero()) return op == ScalarOp::eq_;
      if (less(a, b) || less(b, a)) return op == ScalarOp::ne_;
  }
  return std::nullopt;
}

Expr ExprSimplifier::comparison(const Expr& e) {
  const Expr &a = e->args[0], &b = e->args[1];
  if (is_float(a->type.dtype)) return e;
  if (auto known = compare_ints(e->op, a, b)) return make_int(e->type, *known);
  // The constant goes to the right.
  if (constant(a)) return make_apply(swapped(e->op), {b, a});
  return e;
}

Expr ExprSimplifier::min_max(const Expr& e) {
  const Expr &a = e->args[0], &b = e->args[1];
  if (equal(a, b)) return a;
  if (is_float(a->type.dtype)) return e;
  const bool is_min = e->op == ScalarOp::min_;
  if (auto known = compare_ints(ScalarOp::le_, a, b)) return *known == is_min ? a : b;
  if (auto known = compare_ints(ScalarOp::le_, b, a)) return *known == is_min ? b : a;
  // Canonical order with the constant last; the constants of a chain are combined.
  if (constant(a) || (!constant(b) && compare(b, a) < 0)) return min_max(make_apply(e->op, {b, a}));
  if (constant(b) && is_apply(a, e->op) && constant(a->args[1])) {
    const Scalar both[2] = {*constant(a->args[1]), *constant(b)};
    Expr limit = make_scalar(e->type, eval_scalar(e->op, both, e->type.dtype));
    return min_max(make_apply(e->op, {a->args[0], limit}));
  }
  return e;
}

Expr ExprSimplifier::absolute(const Expr& e) {
  const Expr &x = e->args[0], zero = make_int(x->type, 0);
  const auto is_negative = compare_ints(ScalarOp::lt_, x, zero);
  if (!is_negative) return int_arithmetic(e);
  return *is_negative ? simplify(make_apply(ScalarOp::neg_, {x})) : x;
}

Expr ExprSimplifier::select(const Expr& e) const {
  const Expr &condition = e->args[0], &a = e->args[1], &b = e->args[2];
  if (auto c = as_const_int(condition)) return *c ? a : b;
  if (equal(a, b)) return a;
  if (is_apply(condition, ScalarOp::bitnot_))
    return make_apply(ScalarOp::select_, {condition->args[0], b, a});
  if (e->type.dtype == Dtype::kBool && is_int_value(a, 1) && is_int_value(b, 0)) return condition;
  return e;
}

}  // namespace ipex::loop

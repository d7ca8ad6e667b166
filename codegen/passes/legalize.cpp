// legalize: replaces operations that have no instruction. These are Python's floor division and remainder, on
// integers and on floats, and comparisons of indices along the lanes, which do not need 64 bits. Casts need
// no change here, because the emitter has an exact instruction or sequence for every pair of dtypes.
#include <limits>
#include <set>

#include "codegen/analyses/loop_nest.h"
#include "codegen/loop/simplify.h"
#include "codegen/passes/lower_expressions.h"
#include "codegen/passes/passes.h"

namespace ipex::loop {
namespace {

using Op = ScalarOp;

Expr apply(Op op, Expr a, Expr b) { return make_apply(op, {std::move(a), std::move(b)}); }
Expr select(Expr condition, Expr a, Expr b) {
  return make_apply(Op::select_, {std::move(condition), std::move(a), std::move(b)});
}
Expr is_negative(const Expr& x) { return apply(Op::lt_, x, make_int(x->type, 0)); }

int log2_exact(int64_t value) {
  if (value <= 0 || (value & (value - 1))) return -1;
  return __builtin_ctzll(static_cast<unsigned long long>(value));
}

// Whether an index is proved non-negative and its divisor positive. Floor division is then truncation.
bool truncates(const Expr& dividend, const Expr& divisor, const Ranges& ranges) {
  return dividend->type == kIndex && !as_const_int(divisor) &&
         provably_less(index_const(-1), dividend, ranges) && provably_less(index_const(0), divisor, ranges);
}

// Division of signed integers. By 2^k: a shift or a mask. By another positive constant c: floor(a / c) = s ^
// ((a ^ s) / c), where s is the sign of a in all of its bits. This holds because a and ~a are symmetric about
// the point between 0 and -1, and it needs no correction step.
Expr integer_floordiv(const Expr& dividend, const Expr& divisor, Binder& binder) {
  const Type type = dividend->type;
  const auto constant = as_const_int(divisor);
  if (constant && log2_exact(*constant) >= 0)
    return apply(Op::shr_, dividend, make_int(type, log2_exact(*constant)));
  const Expr a = binder.bind("a", dividend);
  if (constant && *constant > 0) {
    const Expr sign = binder.bind("sign", apply(Op::shr_, a, make_int(type, itemsize(type.dtype) * 8 - 1)));
    return apply(Op::bitxor_, apply(Op::div_, apply(Op::bitxor_, a, sign), divisor), sign);
  }
  const Expr b = binder.bind("b", divisor);
  const Expr quotient = binder.bind("quotient", apply(Op::div_, a, b));
  const Expr rest = binder.bind("rest", apply(Op::rem_, a, b));
  const Expr inexact = apply(Op::ne_, rest, make_int(type, 0));
  const Expr signs_differ = is_negative(apply(Op::bitxor_, rest, b));
  return select(apply(Op::bitand_, inexact, signs_differ), apply(Op::sub_, quotient, make_int(type, 1)),
                quotient);
}

Expr integer_floormod(const Expr& dividend, const Expr& divisor, Binder& binder) {
  const Type type = dividend->type;
  const auto constant = as_const_int(divisor);
  if (constant && log2_exact(*constant) >= 0)
    return apply(Op::bitand_, dividend, make_int(type, *constant - 1));
  const Expr a = binder.bind("a", dividend);
  if (constant && *constant > 0)
    return apply(Op::sub_, a, apply(Op::mul_, integer_floordiv(a, divisor, binder), divisor));
  const Expr b = binder.bind("b", divisor);
  const Expr rest = binder.bind("rest", apply(Op::rem_, a, b));
  const Expr inexact = apply(Op::ne_, rest, make_int(type, 0));
  const Expr signs_differ = is_negative(apply(Op::bitxor_, rest, b));
  return select(apply(Op::bitand_, inexact, signs_differ), apply(Op::add_, rest, b), rest);
}

// fmod(a, b), and whether its sign differs from that of b.
struct FloatRest {
  Expr a, b, rest, wrong_side;
};
FloatRest float_rest(const Expr& dividend, const Expr& divisor, Binder& binder) {
  const Expr zero = make_const(dividend->type, 0);
  const Expr a = binder.bind("a", dividend);
  const Expr b = binder.bind("b", divisor);
  const Expr rest = binder.bind("rest", apply(Op::rem_, a, b));
  const Expr signs_differ = apply(Op::ne_, apply(Op::lt_, b, zero), apply(Op::lt_, rest, zero));
  return {a, b, rest, apply(Op::bitand_, apply(Op::ne_, rest, zero), signs_differ)};
}

// The quotient as ATen computes it: first an exact multiple, then the nearest integer below it. A zero has
// the sign of a / b. Sleef's remainder is NaN if the division overflows; the quotient is then infinite.
Expr float_floordiv(const Expr& dividend, const Expr& divisor, Binder& binder) {
  const Type type = dividend->type;
  const Expr zero = make_const(type, 0), one = make_const(type, 1);
  const FloatRest r = float_rest(dividend, divisor, binder);
  const Expr ratio = binder.bind("ratio", apply(Op::div_, r.a, r.b));
  const Expr overflows = apply(Op::bitand_, make_apply(Op::isinf_, {ratio}),
                               make_apply(Op::bitnot_, {make_apply(Op::isinf_, {r.a})}));
  const Expr whole = select(overflows, r.a, apply(Op::sub_, r.a, r.rest));
  const Expr exact = apply(Op::div_, whole, r.b);
  const Expr quotient = binder.bind("quotient", apply(Op::sub_, exact, select(r.wrong_side, one, zero)));
  const Expr low = binder.bind("low", make_apply(Op::floor_, {quotient}));
  const Expr above_half = apply(Op::gt_, apply(Op::sub_, quotient, low), make_const(type, 0.5));
  const Expr nearest = select(above_half, apply(Op::add_, low, one), low);
  const Expr signed_zero = apply(Op::copysign_, zero, ratio);
  const Expr result = select(apply(Op::ne_, quotient, zero), nearest, signed_zero);
  return select(apply(Op::eq_, r.b, zero), ratio, result);
}

Expr float_floormod(const Expr& dividend, const Expr& divisor, Binder& binder) {
  const FloatRest r = float_rest(dividend, divisor, binder);
  return select(r.wrong_side, apply(Op::add_, r.rest, r.b), r.rest);
}

// ---- comparisons along the lanes ----

bool is_comparison(Op op) {
  return op == Op::lt_ || op == Op::le_ || op == Op::gt_ || op == Op::ge_ || op == Op::eq_ || op == Op::ne_;
}

// Names whose values depend on tensor data. They may be any i64, so arithmetic on them may wrap.
std::set<std::string> data_names(const Function& f) {
  std::set<std::string> names;
  visit(
      f.body,
      [&](const Stmt& stmt) {
        if (const auto* loop = std::get_if<For>(&stmt); loop && loop->reduction)
          for (const State& s : loop->reduction->states) names.insert(s.name);
        const auto* let = std::get_if<Let>(&stmt);
        if (!let) return;
        const std::set<std::string> free = free_vars(let->value);
        if (loads(let->value) || std::any_of(free.begin(), free.end(),
                                             [&](const std::string& name) { return names.count(name) > 0; }))
          names.insert(let->name);
      },
      nullptr);
  return names;
}

// first + lane*step.
struct Lanes {
  Expr first;
  int64_t step = 0;
};
std::optional<Lanes> lanes_of(const Expr& e) {
  if (e->is(ExprKind::kBroadcast)) return Lanes{e->args[0], 0};
  const auto step = e->is(ExprKind::kRamp) ? as_const_int(e->args[1]) : std::nullopt;
  return step ? std::optional(Lanes{e->args[0], *step}) : std::nullopt;
}

// Narrows a comparison of vectors of i64. a + lane*step < b is equivalent to lane*step < b - a in i32, if b -
// a is clamped to just outside the range of the lanes.
std::optional<Expr> narrow_comparison(const Expr& e, const Ranges& ranges,
                                      const std::set<std::string>& data) {
  constexpr int64_t kMaxOffset = std::numeric_limits<int32_t>::max() / 2;
  const auto a = lanes_of(e->args[0]), b = lanes_of(e->args[1]);
  if (!a || !b || a->step == b->step) return std::nullopt;
  const int64_t step = a->step - b->step, last = step * (e->type.lanes - 1);
  if (std::abs(step) > kMaxOffset / e->type.lanes) return std::nullopt;
  // The side that is clamped may have any value; the other side must be an index.
  const auto is_index = [&](const Expr& x) {
    const std::set<std::string> free = free_vars(x);
    return !loads(x) && std::none_of(free.begin(), free.end(),
                                     [&](const std::string& name) { return data.count(name) > 0; });
  };
  if (!is_index(a->first)) return std::nullopt;
  const Expr least = a->first + index_const(std::min<int64_t>(last, 0) - 1);
  const Expr most = a->first + index_const(std::max<int64_t>(last, 0) + 1);
  const Expr limited = apply(Op::min_, apply(Op::max_, b->first, least), most);
  const Expr distance = simplify(limited - a->first, ranges);
  const Expr lanes = make_ramp(make_int({Dtype::kI32}, 0), make_int({Dtype::kI32}, step), e->type.lanes);
  return apply(e->op, lanes, make_broadcast(make_cast(Dtype::kI32, distance), e->type.lanes));
}

}  // namespace

Function legalize(const Function& f, const Target&) {
  const Ranges ranges = variable_ranges(f);
  std::optional<std::set<std::string>> data;  // computed only if needed: few kernels do
  return lower_expressions(f, [&](const Expr& e, Binder& binder) -> Expr {
    if (!e->is(ExprKind::kApply)) return e;
    if (is_comparison(e->op) && e->type.is_vector() && e->args[0]->type.dtype == Dtype::kI64) {
      if (!data) data = data_names(f);
      return narrow_comparison(e, ranges, *data).value_or(e);
    }
    if (e->op != Op::floordiv_ && e->op != Op::floormod_) return e;
    const bool quotient = e->op == Op::floordiv_;
    const Expr &a = e->args[0], &b = e->args[1];
    if (is_float(e->type.dtype))
      return quotient ? float_floordiv(a, b, binder) : float_floormod(a, b, binder);
    if (!info(e->type.dtype).is_signed || truncates(a, b, ranges))
      return apply(quotient ? Op::div_ : Op::rem_, a, b);
    return quotient ? integer_floordiv(a, b, binder) : integer_floormod(a, b, binder);
  });
}

}  // namespace ipex::loop

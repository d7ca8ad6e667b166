// lower_math: math functions as arithmetic. It handles the functions that math_table.def lists as polynomials
// in f32. Inlined polynomials need no call and no spill of all vector registers around it, and they are
// scheduled together with the code around them.
//
// Every coefficient is a minimax fit (Remez) to the function that is named beside it, rounded to f32. Each
// function stays within 1 ulp over all of f32, with these exceptions: expm1 within 1.25 ulp, near 2^24; the
// four functions of GELU within an absolute error, which sums of 1 and erf have anyway; exp_nonpositive
// within the accuracy that is requested. NaN, infinities, signed zeros, and denormal arguments and results
// are preserved. tests/cpp/llvm_accuracy_test.cpp measures the errors.
#include <array>
#include <cmath>
#include <initializer_list>
#include <limits>
#include <numbers>

#include "codegen/llvm/math_table.h"
#include "codegen/passes/gelu_tables.h"
#include "codegen/passes/lower_expressions.h"
#include "codegen/passes/passes.h"

namespace ipex::loop {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
// GELU with tanh: x (1 + tanh(scale (x + cubic x^3))) / 2.
constexpr double kTanhScale = std::numbers::sqrt2 * std::numbers::inv_sqrtpi, kTanhCubic = 0.044715;
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

// Formulas on values of one type, scalar or vector.
class Formula {
 public:
  Formula(Type type, const Target& target, Binder& binder)
      : type_(type),
        has_scale_(whole_registers(type, target) && target.scale_by_power),
        table_lanes_(whole_registers(type, target) ? target.table_lanes : 0),
        binder_(binder) {}

  Expr exp(Expr x);
  Expr exp_nonpositive(Expr x, int bits);
  Expr expm1(Expr x);
  Expr log(Expr x);
  Expr tanh(Expr x);
  Expr erf(Expr x);
  Expr normal_cdf(const Expr& x);
  Expr gelu_slope(const Expr& x);
  Expr tanh_cdf(const Expr& x);
  std::pair<Expr, Expr> tanh_share(const Expr& x);
  Expr gelu_tanh_slope(const Expr& x);

 private:
  using Op = ScalarOp;
  static bool whole_registers(Type type, const Target& target) {
    return type.dtype == Dtype::kF32 && type.lanes % target.lanes(Dtype::kF32) == 0;
  }
  Expr f(double value) const { return make_const(type_, value); }
  Expr i(int64_t value) const { return make_int(type_.with_dtype(Dtype::kI32), value); }
  bool is_f32() const { return type_.dtype == Dtype::kF32; }
  Expr let(const char* name, Expr e) { return binder_.bind(name, std::move(e)); }

  static Expr add(Expr a, Expr b) { return make_apply(Op::add_, {std::move(a), std::move(b)}); }
  static Expr sub(Expr a, Expr b) { return make_apply(Op::sub_, {std::move(a), std::move(b)}); }
  static Expr mul(Expr a, Expr b) { return make_apply(Op::mul_, {std::move(a), std::move(b)}); }
  static Expr div(Expr a, Expr b) { return make_apply(Op::div_, {std::move(a), std::move(b)}); }
  static Expr lt(Expr a, Expr b) { return make_apply(Op::lt_, {std::move(a), std::move(b)}); }
  static Expr eq(Expr a, Expr b) { return make_apply(Op::eq_, {std::move(a), std::move(b)}); }
  static Expr abs(Expr a) { return make_apply(Op::abs_, {std::move(a)}); }
  static Expr shl(Expr a, Expr b) { return make_apply(Op::shl_, {std::move(a), std::move(b)}); }
  static Expr shr(Expr a, Expr b) { return make_apply(Op::shr_, {std::move(a), std::move(b)}); }
  static Expr fma(Expr a, Expr b, Expr c) {
    return make_apply(Op::fma_, {std::move(a), std::move(b), std::move(c)});
  }
  static Expr select(Expr condition, Expr a, Expr b) {
    return make_apply(Op::select_, {std::move(condition), std::move(a), std::move(b)});
  }
  static Expr copysign(Expr a, Expr b) { return make_apply(Op::copysign_, {std::move(a), std::move(b)}); }
  Expr bits(Expr a) const {
    return make_apply_as(Op::bitcast_int_, {std::move(a)}, type_.with_dtype(Dtype::kI32));
  }
  Expr value(Expr a) const { return make_apply_as(Op::bitcast_float_, {std::move(a)}, type_); }

  // Clamps that let NaN pass (min and max would take two more instructions).
  Expr at_most(Expr a, double limit) { return select(lt(f(limit), a), f(limit), a); }
  Expr at_least(Expr a, double limit) { return select(lt(a, f(limit)), f(limit), a); }

  // Horner's scheme, highest power first.
  Expr polynomial(Expr x, std::initializer_list<double> coefficients) {
    Expr sum;
    for (double c : coefficients) sum = sum ? fma(sum, x, f(c)) : f(c);
    return sum;
  }
  Expr exp2_normal(Expr a, Expr b, double c);
  template <size_t count, size_t degree>
  Expr piecewise(const Expr& x, const PiecewisePolynomial<count, degree>& table, const Expr& half);
  Expr half_of_finite(const Expr& x) const { return fma(x, f(0), f(0.5)); }

  Type type_;
  bool has_scale_;   // one instruction multiplies by a power of two
  int table_lanes_;  // entries of a table that one permutation looks up; 0: none does
  Binder& binder_;
};

// Adding it to t with |t| < 2^22 leaves round(t) in the low bits of the sum.
constexpr double kRound = 12582912.0;  // 1.5 * 2^23

// e^x = 2^n e^r with |r| <= ln(2)/2 and -150 <= n <= 128. The last operation produces overflow and denormal
// results, which are therefore rounded once. If that operation is a multiplication, 2^n is the product of two
// factors, both of which are normal numbers. Their exponents are the two halves of the sum that rounds x /
// ln(2), which includes twice the bias.
Expr Formula::exp(Expr x) {
  x = let("x", at_least(let("x", at_most(x, 89.0)), -104.0));
  // (e^r - 1 - r) / r^2 on [-ln(2)/2, ln(2)/2], relative error of e^r 2^-28.2
  const auto power_of_rest = [&](const Expr& n) {
    const Expr r = let("r", fma(n, f(-1.42860677e-06), fma(n, f(-0.693145752), x)));
    const Expr q = polynomial(r, {0.00138389051, 0.00836919248, 0.0416681021, 0.166665167, 0.49999994});
    return fma(fma(q, r, f(1)), r, f(1));
  };
  if (has_scale_) {
    const Expr n = let("n", sub(fma(x, f(1.44269504), f(kRound)), f(kRound)));
    return make_apply(Op::scale_, {power_of_rest(n), n});
  }
  constexpr double kShift = kRound + 2 * 127;
  const Expr k = let("k", fma(x, f(1.44269504), f(kShift)));
  const Expr n = let("n", sub(k, f(kShift)));
  const Expr half = let("half", make_apply(Op::shr_, {bits(k), i(1)}));
  const Expr other = make_apply(Op::sub_, {bits(k), half});
  return mul(mul(power_of_rest(n), value(shl(half, i(23)))), value(shl(other, i(23))));
}

// The same for -150 <= n <= 62. One factor is enough, 2^(n + 64), together with 2^-64, which rounds denormals
// once. One constant is enough for ln(2), because its product with n is exact. The error of the constant
// itself is 2.4 ulp at -104, and half an ulp at -20.
Expr Formula::exp_nonpositive(Expr x, int bits_wanted) {
  if (!is_f32()) return make_apply(Op::exp_, {std::move(x)});
  x = let("x", at_least(x, -104.0));
  const auto power_of_rest = [&](const Expr& n) {
    const Expr r = let("r", fma(n, f(-std::numbers::ln2), x));
    // (e^r - 1 - r) / r^2 as above, or with an error of 2^-17.5
    const Expr q = bits_wanted > 17
                       ? polynomial(r, {0.00138389051, 0.00836919248, 0.0416681021, 0.166665167, 0.49999994})
                       : polynomial(r, {0.0412773676, 0.167536005, 0.50005126});
    return fma(fma(q, r, f(1)), r, f(1));
  };
  if (has_scale_) {
    const Expr n = let("n", sub(fma(x, f(1.44269504), f(kRound)), f(kRound)));
    return make_apply(Op::scale_, {power_of_rest(n), n});
  }
  constexpr double kShift = kRound + 127 + 64;
  const Expr k = let("k", fma(x, f(1.44269504), f(kShift)));
  return mul(mul(power_of_rest(sub(k, f(kShift))), value(shl(bits(k), i(23)))), f(0x1p-64));
}

// 2^n (e^r - 1) + (2^n - 1). A term that is multiplied by a large 2^n must not be rounded before, so 2^n r is
// added on its own, which is exact. 2^n is the product of two factors as in exp, and 1 is expressed as a
// multiple of the second one. A result near 0 keeps its digits, and one near infinity is multiplied last.
Expr Formula::expm1(Expr x) {
  x = let("x", x);
  const Expr inside = let("inside", at_least(let("inside", at_most(x, 89.0)), -25.0));
  constexpr double kShift = kRound + 2 * 127;
  const Expr k = let("k", fma(inside, f(1.44269504), f(kShift)));
  const Expr n = let("n", sub(k, f(kShift)));
  const Expr high = let("high", fma(n, f(-0.693145752), inside));
  const Expr low = let("low", mul(n, f(-1.42860677e-06)));
  const Expr r = let("r", add(high, low));
  // (e^r - 1 - r) / r^2 on [-ln(2)/2, ln(2)/2], relative error of e^r - 1 2^-31.1
  const Expr q =
      polynomial(r, {0.000197643545, 0.00139323657, 0.00833354332, 0.0416664928, 0.166666657, 0.5});
  const Expr rest = fma(mul(r, r), q, low);
  const Expr half = let("half", make_apply(Op::shr_, {bits(k), i(1)}));
  const Expr other = let("other", make_apply(Op::sub_, {bits(k), half}));
  const Expr factor = let("factor", value(shl(half, i(23))));
  const Expr last = value(shl(other, i(23)));
  const Expr one = value(shl(make_apply(Op::sub_, {i(2 * 127), other}), i(23)));
  const Expr alone = let("alone", select(lt(x, f(0)), f(0), high));
  const Expr sum = fma(factor, add(sub(high, alone), rest), fma(factor, alone, sub(factor, one)));
  return copysign(mul(sum, last), x);
}

// 2^(a * b + c), for results well inside the normal range; the caller discards the result for NaN. The
// fraction is computed from the exact product, so that a large exponent does not reduce accuracy.
Expr Formula::exp2_normal(Expr a, Expr b, double c) {
  a = let("a", a);
  b = let("b", b);
  const Expr k = let("k", add(fma(a, b, f(c)), f(kRound)));
  const Expr n = sub(f(kRound), k);
  const Expr r = let("r", add(fma(a, b, n), f(c)));
  // (2^r - 1) / r on [-1/2, 1/2], relative error of 2^r 2^-26.3
  const Expr q =
      polynomial(r, {0.000133324909, 0.00133879273, 0.00962544512, 0.0555036627, 0.240225941, 0.693147182});
  return value(add(bits(fma(q, r, f(1))), shl(bits(k), i(23))));
}

// log(x) = e ln(2) + log(m), with m in [2/3, 4/3). The rounding error of the sum of e ln(2) and m - 1 is
// added back.
Expr Formula::log(Expr x) {
  x = let("x", x);
  const Expr tiny = let("tiny", lt(x, f(0x1p-126)));
  const Expr normal = let("normal", select(tiny, mul(x, f(0x1p23)), x));
  const Expr offset = let("offset", sub(bits(normal), i(0x3f2aaaab)));  // 2/3
  const Expr exponent = let("exponent", shr(offset, i(23)));
  const Expr m = value(sub(bits(normal), shl(exponent, i(23))));
  const Expr e = let("e", add(make_cast(Dtype::kF32, exponent), select(tiny, f(-23), f(0))));
  const Expr r = let("r", sub(m, f(1)));
  // (log(1 + r) - r + r^2 / 2) / r^3 on [-1/3, 1/3], relative error of log(1 + r) 2^-27.4
  const Expr q = polynomial(r, {-0.128916845, 0.139844358, -0.121842608, 0.140058696, -0.16680488,
                                0.200104058, -0.249997973, 0.333332151});
  const Expr square = let("square", mul(r, r));
  const Expr rest = fma(square, f(-0.5), mul(mul(square, r), q));
  const Expr high = let("high", mul(e, f(0.693145752)));  // exact: ln(2) to 16 bits
  const Expr sum = let("sum", add(high, r));
  const Expr lost = add(sub(high, sum), r);
  const Expr finite = add(sum, fma(e, f(1.42860677e-06), add(rest, lost)));
  const Expr positive = select(lt(x, f(kInf)), finite, x);
  return select(lt(f(0), x), positive, select(eq(x, f(0)), f(-kInf), f(kNan)));
}

// tanh|x| = 1 - 2 / (e^(2|x|) + 1). An odd polynomial is used where this would cancel.
Expr Formula::tanh(Expr x) {
  x = let("x", x);
  const Expr size = let("size", at_most(abs(x), 10.0));
  const Expr square = let("square", mul(size, size));
  // (tanh(x) / x - 1) / x^2 in x^2 on [0, 0.875], relative error of tanh 2^-27.6
  const Expr q = polynomial(square, {-0.000482417905, 0.00265100994, -0.00833194144, 0.0216960423,
                                     -0.0539371707, 0.133330658, -0.333333254});
  const Expr small = fma(mul(square, q), size, size);
  // 2 / ln(2) is larger than its f32 by 3.9e-8. This matters for |x| around 1 only.
  const Expr power = exp2_normal(size, f(2.88539008), 4e-8);
  const Expr large = sub(f(1), div(f(2), add(power, f(1))));
  return copysign(select(lt(f(0.875), size), large, small), x);
}

// erf|x| = 1 - 2^q(|x|). An odd polynomial is used where this would cancel.
Expr Formula::erf(Expr x) {
  x = let("x", x);
  const Expr size = let("size", at_most(abs(x), 4.0));
  const Expr square = let("square", mul(size, size));
  // erf(x) / x - 1 in x^2 on [0, 1], relative error of erf 2^-29.4
  const Expr p = polynomial(square, {7.80690389e-05, -0.00079978531, 0.0051871622, -0.0268533472, 0.112835787,
                                     -0.37612626, 0.128379166});
  const Expr small = fma(p, size, size);
  // log2(erfc(x)) on [1, 4], relative error of erf 2^-34.4
  const Expr q = polynomial(size, {-3.13054334e-05, 0.000636911951, -0.00606689043, 0.0363706425,
                                   -0.156419754, -0.913538337, -1.62963986});
  const Expr large = sub(f(1), exp2_normal(q, size, 0.000271899451));
  return copysign(select(lt(f(1), size), large, small), x);
}

// Evaluates a function with f(-x) = 1 - f(x) from its table.
template <size_t count, size_t degree>
Expr Formula::piecewise(const Expr& x, const PiecewisePolynomial<count, degree>& table, const Expr& half) {
  constexpr size_t kTableLanes = 16;
  const Expr size = let("size", at_most(abs(x), (count - 1) * table.width));
  const Expr piece = let("piece", fma(size, f(1 / table.width), f(kRound)));
  const Expr t = let("t", fma(sub(piece, f(kRound)), f(-table.width), size));
  Expr sum;
  for (const std::array<double, count>& power : table.coefficients) {
    std::vector<Expr> values{piece};
    for (size_t i = 0; i < kTableLanes; ++i) values.push_back(f(power[i % count]));
    const Expr coefficient = make_apply(Op::lookup_, std::move(values));
    sum = sum ? fma(sum, t, coefficient) : coefficient;
  }
  return add(half, copysign(sum, x));
}

// Uses a table where a register holds one coefficient for all pieces, and the definition elsewhere.
Expr Formula::normal_cdf(const Expr& argument) {
  const Expr x = let("x", argument);
  if (table_lanes_ == 16) return piecewise(x, kNormalCdf16, f(0.5));
  if (table_lanes_ == 8) return piecewise(x, kNormalCdf8, f(0.5));
  const Expr scaled = mul(x, f(std::numbers::sqrt2 / 2));
  return mul(f(0.5), add(f(1), is_f32() ? erf(scaled) : make_apply(Op::erf_, {scaled})));
}

// The derivatives of GELU are NaN at infinities, because eager multiplies an infinity by a density of 0.
Expr Formula::gelu_slope(const Expr& argument) {
  const Expr x = let("x", argument);
  if (table_lanes_ == 16) return piecewise(x, kGeluSlope16, half_of_finite(x));
  if (table_lanes_ == 8) return piecewise(x, kGeluSlope8, half_of_finite(x));
  // Beyond 40 the density is 0, in f64 too.
  const Expr near = let("near", at_least(let("x", at_most(x, 40)), -40));
  const Expr exponent = mul(mul(near, near), f(-0.5));
  const Expr density =
      mul(exp_nonpositive(exponent, 24), f(std::numbers::inv_sqrtpi * std::numbers::sqrt2 / 2));
  return fma(x, density, normal_cdf(near));
}

// With e = exp(-2 |inner|), the share is 1 / (1 + e), or e / (1 + e) if x is negative. Returns it and the
// product of the two values. Neither loses digits, as 1 + tanh would.
std::pair<Expr, Expr> Formula::tanh_share(const Expr& x) {
  const Expr size = let("size", at_most(abs(x), 40));
  const Expr inner = mul(f(-2 * kTanhScale), fma(mul(mul(size, size), size), f(kTanhCubic), size));
  const Expr e = let("e", exp_nonpositive(inner, 24));
  const Expr large = let("large", div(f(1), add(f(1), e)));
  const Expr small = let("small", mul(e, large));
  return {select(lt(x, f(0)), small, large), mul(small, large)};
}

Expr Formula::tanh_cdf(const Expr& argument) {
  const Expr x = let("x", argument);
  if (table_lanes_ == 16) return piecewise(x, kTanhCdf16, f(0.5));
  if (table_lanes_ == 8) return piecewise(x, kTanhCdf8, f(0.5));
  return tanh_share(x).first;
}

Expr Formula::gelu_tanh_slope(const Expr& argument) {
  const Expr x = let("x", argument);
  if (table_lanes_ == 16) return piecewise(x, kGeluTanhSlope16, half_of_finite(x));
  if (table_lanes_ == 8) return piecewise(x, kGeluTanhSlope8, half_of_finite(x));
  const Expr near = let("near", at_least(let("x", at_most(x, 40)), -40));
  const auto [share, product] = tanh_share(near);
  const Expr inner_slope = mul(f(2 * kTanhScale), fma(mul(near, near), f(3 * kTanhCubic), f(1)));
  return fma(x, mul(inner_slope, product), share);
}

bool is_polynomial(const Expr& e) {
  if (!e->is(ExprKind::kApply) || e->type.dtype != Dtype::kF32) return false;
  const MathFunction* function = math_function(e->op);
  return function && function->f32 == MathSource::kPolynomial;
}

// Functions that no library has; their formulas work in every type.
bool has_no_library_function(const Expr& e) {
  return e->is(ExprKind::kApply) && (e->op == ScalarOp::exp_nonpositive_ || e->op == ScalarOp::normal_cdf_ ||
                                     e->op == ScalarOp::gelu_slope_ || e->op == ScalarOp::tanh_cdf_ ||
                                     e->op == ScalarOp::gelu_tanh_slope_);
}

int bits_of(Expr e) {
  while (e->is(ExprKind::kBroadcast)) e = e->args[0];
  IPEX_CHECK(e->is(ExprKind::kConst), "exp_nonpositive: its number of bits must be a constant");
  return static_cast<int>(e->float_value);
}

}  // namespace

Function lower_math(const Function& f, const Target& target) {
  return lower_expressions(f, [&](const Expr& e, Binder& binder) -> Expr {
    if (!is_polynomial(e) && !has_no_library_function(e)) return e;
    Formula formula(e->type, target, binder);
    const Expr& x = e->args[0];
    switch (e->op) {
      case ScalarOp::exp_nonpositive_:
        return binder.bind("exp", formula.exp_nonpositive(x, bits_of(e->args[1])));
      case ScalarOp::normal_cdf_:
        return binder.bind("normal_cdf", formula.normal_cdf(x));
      case ScalarOp::gelu_slope_:
        return binder.bind("gelu_slope", formula.gelu_slope(x));
      case ScalarOp::tanh_cdf_:
        return binder.bind("tanh_cdf", formula.tanh_cdf(x));
      case ScalarOp::gelu_tanh_slope_:
        return binder.bind("gelu_tanh_slope", formula.gelu_tanh_slope(x));
      case ScalarOp::exp_:
        return binder.bind("exp", formula.exp(x));
      case ScalarOp::expm1_:
        return binder.bind("expm1", formula.expm1(x));
      case ScalarOp::log_:
        return binder.bind("log", formula.log(x));
      case ScalarOp::tanh_:
        return binder.bind("tanh", formula.tanh(x));
      case ScalarOp::erf_:
        return binder.bind("erf", formula.erf(x));
      default:
        throw InternalError("lower_math: math_table.def calls " + std::string(info(e->op).name) +
                            " a polynomial, but there is none");
    }
  });
}

}  // namespace ipex::loop

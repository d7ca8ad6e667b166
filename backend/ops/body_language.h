// Functions and operators for op bodies: exp(x), max(x, y), x / y, c(x, 0.5) build Loop IR. They are objects
// rather than functions, so that an unqualified call in a body never finds std:: or the C library.
#pragma once

#include <initializer_list>
#include <limits>
#include <numbers>
#include <optional>

#include "codegen/loop/ir.h"
#include "runtime/error.h"

namespace ipex::ops::body {

using loop::Expr;
using loop::ExprKind;
using loop::make_apply;
using loop::make_apply_as;
using loop::make_cast;
using loop::make_const;
using loop::make_int;
using loop::ScalarOp;

template <ScalarOp op>
struct ScalarFunction {
  template <class... Args>
  Expr operator()(const Args&... args) const {
    return make_apply(op, {args...});
  }
};

inline constexpr ScalarFunction<ScalarOp::fma_> fma;
inline constexpr ScalarFunction<ScalarOp::rem_> rem;
inline constexpr ScalarFunction<ScalarOp::floordiv_> floordiv;
inline constexpr ScalarFunction<ScalarOp::floormod_> floormod;
inline constexpr ScalarFunction<ScalarOp::min_> min;
inline constexpr ScalarFunction<ScalarOp::max_> max;
inline constexpr ScalarFunction<ScalarOp::neg_> neg;
inline constexpr ScalarFunction<ScalarOp::abs_> abs;
inline constexpr ScalarFunction<ScalarOp::shl_> shl;
inline constexpr ScalarFunction<ScalarOp::shr_> shr;
inline constexpr ScalarFunction<ScalarOp::eq_> eq;
inline constexpr ScalarFunction<ScalarOp::ne_> ne;
inline constexpr ScalarFunction<ScalarOp::lt_> lt;
inline constexpr ScalarFunction<ScalarOp::le_> le;
inline constexpr ScalarFunction<ScalarOp::gt_> gt;
inline constexpr ScalarFunction<ScalarOp::ge_> ge;
inline constexpr ScalarFunction<ScalarOp::select_> select;
inline constexpr ScalarFunction<ScalarOp::isnan_> isnan;
inline constexpr ScalarFunction<ScalarOp::isinf_> isinf;
inline constexpr ScalarFunction<ScalarOp::copysign_> copysign;
inline constexpr ScalarFunction<ScalarOp::floor_> floor;
inline constexpr ScalarFunction<ScalarOp::ceil_> ceil;
inline constexpr ScalarFunction<ScalarOp::trunc_> trunc;
inline constexpr ScalarFunction<ScalarOp::round_> round;
inline constexpr ScalarFunction<ScalarOp::sqrt_> sqrt;
inline constexpr ScalarFunction<ScalarOp::rsqrt_> rsqrt;
inline constexpr ScalarFunction<ScalarOp::exp_> exp;
inline constexpr ScalarFunction<ScalarOp::exp2_> exp2;
inline constexpr ScalarFunction<ScalarOp::exp_nonpositive_> exp_nonpositive;
inline constexpr ScalarFunction<ScalarOp::expm1_> expm1;
inline constexpr ScalarFunction<ScalarOp::log_> log;
inline constexpr ScalarFunction<ScalarOp::log2_> log2;
inline constexpr ScalarFunction<ScalarOp::log10_> log10;
inline constexpr ScalarFunction<ScalarOp::log1p_> log1p;
inline constexpr ScalarFunction<ScalarOp::pow_> pow;
inline constexpr ScalarFunction<ScalarOp::sin_> sin;
inline constexpr ScalarFunction<ScalarOp::cos_> cos;
inline constexpr ScalarFunction<ScalarOp::tan_> tan;
inline constexpr ScalarFunction<ScalarOp::asin_> asin;
inline constexpr ScalarFunction<ScalarOp::acos_> acos;
inline constexpr ScalarFunction<ScalarOp::atan_> atan;
inline constexpr ScalarFunction<ScalarOp::atan2_> atan2;
inline constexpr ScalarFunction<ScalarOp::sinh_> sinh;
inline constexpr ScalarFunction<ScalarOp::cosh_> cosh;
inline constexpr ScalarFunction<ScalarOp::tanh_> tanh;
inline constexpr ScalarFunction<ScalarOp::asinh_> asinh;
inline constexpr ScalarFunction<ScalarOp::acosh_> acosh;
inline constexpr ScalarFunction<ScalarOp::atanh_> atanh;
inline constexpr ScalarFunction<ScalarOp::lgamma_> lgamma;
inline constexpr ScalarFunction<ScalarOp::erf_> erf;
inline constexpr ScalarFunction<ScalarOp::erfc_> erfc;
inline constexpr ScalarFunction<ScalarOp::normal_cdf_> normal_cdf;
inline constexpr ScalarFunction<ScalarOp::gelu_slope_> gelu_slope;
inline constexpr ScalarFunction<ScalarOp::tanh_cdf_> tanh_cdf;
inline constexpr ScalarFunction<ScalarOp::gelu_tanh_slope_> gelu_tanh_slope;

// Loop IR defines + - *.
inline Expr operator/(const Expr& a, const Expr& b) { return make_apply(ScalarOp::div_, {a, b}); }
inline Expr operator&(const Expr& a, const Expr& b) { return make_apply(ScalarOp::bitand_, {a, b}); }
inline Expr operator|(const Expr& a, const Expr& b) { return make_apply(ScalarOp::bitor_, {a, b}); }
inline Expr operator^(const Expr& a, const Expr& b) { return make_apply(ScalarOp::bitxor_, {a, b}); }
inline Expr operator~(const Expr& a) { return make_apply(ScalarOp::bitnot_, {a}); }

inline constexpr double kInf = std::numeric_limits<double>::infinity();
inline constexpr double kPi = std::numbers::pi;
inline constexpr double kSqrtHalf = std::numbers::sqrt2 / 2;
inline constexpr double kTwoOverSqrtPi = 2 * std::numbers::inv_sqrtpi;

inline bool is_float(const Expr& x) { return ipex::is_float(x->type.dtype); }
inline bool is_bool(const Expr& x) { return x->type.dtype == Dtype::kBool; }
inline Expr c(const Expr& x, double value) { return make_const(x->type.with_lanes(1), value); }
inline Expr no(const Expr&) { return make_int(loop::kBool1, 0); }
inline Expr truth(const Expr& x) { return is_bool(x) ? x : ne(x, c(x, 0)); }

inline std::optional<double> constant_of(const Expr& x) {
  if (x->is(ExprKind::kBroadcast)) return constant_of(x->args[0]);
  if (!x->is(ExprKind::kConst)) return std::nullopt;
  return is_float(x) ? x->float_value : static_cast<double>(x->int_value);
}

// The value of an operand that must be known when the body is built.
inline int whole_constant(const Expr& x) {
  const std::optional<double> value = constant_of(x);
  if (!value) throw Unsupported("an operand is computed, but must be a constant of the graph");
  return static_cast<int>(*value);
}

// ---- polynomials: one list of coefficients for f32, one for f64 ----

using Coefficients = std::initializer_list<double>;

inline bool is_double(const Expr& x) { return x->type.dtype == Dtype::kF64; }

// Horner, highest power first.
inline Expr horner(const Expr& t, Coefficients coefficients) {
  Expr sum;
  for (double each : coefficients) sum = sum ? fma(sum, t, c(t, each)) : c(t, each);
  return sum;
}
inline Expr polynomial(const Expr& t, Coefficients single, Coefficients full) {
  return horner(t, is_double(t) ? full : single);
}

// Maps x in [low, high] to t in [-1, 1].
inline Expr mapped(const Expr& x, double low, double high) {
  return fma(x, c(x, 2 / (high - low)), c(x, -(high + low) / (high - low)));
}

}  // namespace ipex::ops::body

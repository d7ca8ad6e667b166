// The scalar operations of scalar_ops.def in C++. Floats are computed in their own precision (f32 with the
// float functions), and integers wrap at their width.
#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <numbers>

#include "codegen/loop/eval.h"
#include "codegen/loop/half.h"

namespace ipex::loop {
namespace {

int64_t wrap(Dtype dtype, uint64_t bits) {
  switch (dtype) {
    case Dtype::kBool:
      return bits != 0;
    case Dtype::kU8:
      return static_cast<uint8_t>(bits);
    case Dtype::kI8:
      return static_cast<int8_t>(bits);
    case Dtype::kI16:
      return static_cast<int16_t>(bits);
    case Dtype::kI32:
      return static_cast<int32_t>(bits);
    default:
      return static_cast<int64_t>(bits);
  }
}

// Truncating quotient and remainder of 64-bit values. They are defined for all operands: neither zero nor the
// one overflow traps.
uint64_t quotient(int64_t a, int64_t b) {
  if (b == 0) return 0;
  if (b == -1) return 0 - static_cast<uint64_t>(a);
  return static_cast<uint64_t>(a / b);
}
int64_t remainder(int64_t a, int64_t b) { return b == 0 || b == -1 ? 0 : a % b; }

uint64_t int_op(ScalarOp op, Dtype dtype, int64_t a, int64_t b) {
  const auto ua = static_cast<uint64_t>(a), ub = static_cast<uint64_t>(b);
  const int bits = static_cast<int>(itemsize(dtype)) * 8;
  switch (op) {
    case ScalarOp::add_:
      return ua + ub;
    case ScalarOp::sub_:
      return ua - ub;
    case ScalarOp::mul_:
      return ua * ub;
    case ScalarOp::div_:
      return quotient(a, b);
    case ScalarOp::rem_:
      return static_cast<uint64_t>(remainder(a, b));
    case ScalarOp::floordiv_: {
      int64_t r = remainder(a, b);
      return quotient(a, b) - (r != 0 && (r < 0) != (b < 0));
    }
    case ScalarOp::floormod_: {
      int64_t r = remainder(a, b);
      return static_cast<uint64_t>(r != 0 && (r < 0) != (b < 0) ? r + b : r);
    }
    case ScalarOp::min_:
      return static_cast<uint64_t>(std::min(a, b));
    case ScalarOp::max_:
      return static_cast<uint64_t>(std::max(a, b));
    case ScalarOp::neg_:
      return 0 - ua;
    case ScalarOp::abs_:
      return a < 0 ? 0 - ua : ua;
    case ScalarOp::bitand_:
      return ua & ub;
    case ScalarOp::bitor_:
      return ua | ub;
    case ScalarOp::bitxor_:
      return ua ^ ub;
    case ScalarOp::bitnot_:
      return dtype == Dtype::kBool ? ua ^ 1 : ~ua;
    case ScalarOp::shl_:
      return b < 0 || b >= bits ? 0 : ua << b;
    case ScalarOp::shr_:
      return static_cast<uint64_t>(a >> (b < 0 || b >= bits ? 63 : b));
    default:
      break;
  }
  throw InternalError("eval_scalar: '" + std::string(info(op).name) + "' is not defined on " +
                      std::string(name(dtype)));
}

template <class T>
T floor_mod(T a, T b) {
  T r = std::fmod(a, b);
  return r != 0 && (b < 0) != (r < 0) ? r + b : r;
}

// Not floor(a / b). The quotient is that of a - fmod(a, b), as in torch.floor_divide, so that it agrees with
// the remainder if a / b rounds up to an integer.
template <class T>
T floor_div(T a, T b) {
  if (b == 0) return a / b;
  T r = std::fmod(a, b);
  T q = (a - r) / b;
  if (r != 0 && (b < 0) != (r < 0)) q -= 1;
  if (q == 0) return std::copysign(T(0), a / b);
  T floor = std::floor(q);
  return q - floor > T(0.5) ? floor + 1 : floor;
}

// The density of the normal distribution.
template <class T>
T normal_cdf(T a) {
  return std::erfc(-a * std::numbers::sqrt2_v<T> / 2) / 2;
}
template <class T>
T normal_pdf(T a) {
  return std::exp(-a * a / 2) * std::numbers::inv_sqrtpi_v<T> * std::numbers::sqrt2_v<T> / 2;
}

// The factor that GELU with tanh multiplies its argument by, and the derivative of the product.
template <class T>
T tanh_inner(T a) {
  return T(std::numbers::sqrt2 * std::numbers::inv_sqrtpi) * (a + T(0.044715) * a * a * a);
}
template <class T>
T tanh_cdf(T a) {
  return 1 / (1 + std::exp(-2 * tanh_inner(a)));
}
template <class T>
T gelu_tanh_slope(T a) {
  if (std::isfinite(a) && std::abs(a) > 40)
    return tanh_cdf(a);  // beyond 40, the inner slope may be infinite and would be multiplied by 0
  const T e = std::exp(-2 * std::abs(tanh_inner(a)));
  const T inner_slope = T(std::numbers::sqrt2 * std::numbers::inv_sqrtpi) * (1 + T(3 * 0.044715) * a * a);
  return tanh_cdf(a) + a * 2 * inner_slope * e / ((1 + e) * (1 + e));
}

template <class T>
T float_op(ScalarOp op, T a, T b, T c) {
  switch (op) {
    case ScalarOp::add_:
      return a + b;
    case ScalarOp::sub_:
      return a - b;
    case ScalarOp::mul_:
      return a * b;
    case ScalarOp::div_:
      return a / b;
    case ScalarOp::rem_:
      return std::fmod(a, b);
    case ScalarOp::floordiv_:
      return floor_div(a, b);
    case ScalarOp::floormod_:
      return floor_mod(a, b);
    case ScalarOp::min_:
      return a < b || std::isnan(a) ? a : b;
    case ScalarOp::max_:
      return a > b || std::isnan(a) ? a : b;
    case ScalarOp::neg_:
      return -a;
    case ScalarOp::abs_:
      return std::abs(a);
    case ScalarOp::fma_:
      return std::fma(a, b, c);
    case ScalarOp::scale_:
      return std::ldexp(a, static_cast<int>(b));
    case ScalarOp::copysign_:
      return std::copysign(a, b);
    case ScalarOp::floor_:
      return std::floor(a);
    case ScalarOp::ceil_:
      return std::ceil(a);
    case ScalarOp::trunc_:
      return std::trunc(a);
    case ScalarOp::round_:
      return std::nearbyint(a);
    case ScalarOp::sqrt_:
      return std::sqrt(a);
    case ScalarOp::rsqrt_:
      return T(1) / std::sqrt(a);
    case ScalarOp::exp_:
      return std::exp(a);
    case ScalarOp::exp2_:
      return std::exp2(a);
    case ScalarOp::expm1_:
      return std::expm1(a);
    case ScalarOp::log_:
      return std::log(a);
    case ScalarOp::log2_:
      return std::log2(a);
    case ScalarOp::log10_:
      return std::log10(a);
    case ScalarOp::log1p_:
      return std::log1p(a);
    case ScalarOp::pow_:
      return std::pow(a, b);
    case ScalarOp::sin_:
      return std::sin(a);
    case ScalarOp::cos_:
      return std::cos(a);
    case ScalarOp::tan_:
      return std::tan(a);
    case ScalarOp::asin_:
      return std::asin(a);
    case ScalarOp::acos_:
      return std::acos(a);
    case ScalarOp::atan_:
      return std::atan(a);
    case ScalarOp::atan2_:
      return std::atan2(a, b);
    case ScalarOp::sinh_:
      return std::sinh(a);
    case ScalarOp::cosh_:
      return std::cosh(a);
    case ScalarOp::tanh_:
      return std::tanh(a);
    case ScalarOp::asinh_:
      return std::asinh(a);
    case ScalarOp::acosh_:
      return std::acosh(a);
    case ScalarOp::atanh_:
      return std::atanh(a);
    case ScalarOp::erf_:
      return std::erf(a);
    case ScalarOp::erfc_:
      return std::erfc(a);
    case ScalarOp::exp_nonpositive_:
      return std::exp(a);
    case ScalarOp::normal_cdf_:
      return normal_cdf(a);
    case ScalarOp::gelu_slope_:
      return normal_cdf(a) + a * normal_pdf(a);
    case ScalarOp::tanh_cdf_:
      return tanh_cdf(a);
    case ScalarOp::gelu_tanh_slope_:
      return gelu_tanh_slope(a);
    case ScalarOp::lgamma_:
      return std::lgamma(a);
    default:
      break;
  }
  throw InternalError("eval_scalar: '" + std::string(info(op).name) + "' is not defined on floats");
}

template <class T>
bool compare(ScalarOp op, T a, T b) {
  switch (op) {
    case ScalarOp::eq_:
      return a == b;
    case ScalarOp::ne_:
      return a != b;
    case ScalarOp::lt_:
      return a < b;
    case ScalarOp::le_:
      return a <= b;
    case ScalarOp::gt_:
      return a > b;
    case ScalarOp::ge_:
      return a >= b;
    default:
      break;
  }
  throw InternalError("eval_scalar: '" + std::string(info(op).name) + "' is not a comparison");
}

int64_t bits_of(Scalar x) {
  auto narrow = static_cast<float>(x.f);
  switch (x.dtype) {
    case Dtype::kF16:
      return static_cast<int16_t>(f32_to_f16(narrow));
    case Dtype::kBF16:
      return static_cast<int16_t>(f32_to_bf16(narrow));
    case Dtype::kF32:
      return std::bit_cast<int32_t>(narrow);
    default:
      return std::bit_cast<int64_t>(x.f);
  }
}

double from_bits(int64_t bits, Dtype dtype) {
  switch (dtype) {
    case Dtype::kF16:
      return f16_to_f32(static_cast<uint16_t>(bits));
    case Dtype::kBF16:
      return bf16_to_f32(static_cast<uint16_t>(bits));
    case Dtype::kF32:
      return std::bit_cast<float>(static_cast<int32_t>(bits));
    default:
      return std::bit_cast<double>(bits);
  }
}

// Truncates. NaN and values out of range give the smallest integer, as the conversion instructions do. Types
// narrower than 32 bits wrap from there.
int64_t float_to_int(double value, Dtype dtype) {
  const bool fits_wide = value >= -0x1p63 && value < 0x1p63;
  const int64_t wide_value = fits_wide ? static_cast<int64_t>(value) : std::numeric_limits<int64_t>::min();
  if (dtype == Dtype::kI64) return wide_value;
  if (dtype == Dtype::kU8) return wrap(dtype, static_cast<uint64_t>(wide_value));
  double whole = std::trunc(value);
  bool fits = whole >= -0x1p31 && whole < 0x1p31;
  int32_t wide = fits ? static_cast<int32_t>(whole) : std::numeric_limits<int32_t>::min();
  return wrap(dtype, static_cast<uint64_t>(static_cast<int64_t>(wide)));
}

// A pair of bf16 is the two halves of the bits of an f32, the first element in the lower half.
float lower(float pair) { return std::bit_cast<float>(std::bit_cast<uint32_t>(pair) << 16); }
float upper(float pair) { return std::bit_cast<float>(std::bit_cast<uint32_t>(pair) & 0xffff0000u); }
float pair_bf16(float a, float b) {
  return std::bit_cast<float>(uint32_t{f32_to_bf16(b)} << 16 | f32_to_bf16(a));
}
float dot_bf16(float a, float b, float c) {
  const float first = std::fma(upper(a), upper(b), c);
  return std::fma(lower(a), lower(b), first);
}

}  // namespace

Scalar eval_scalar(ScalarOp op, std::span<const Scalar> args, Dtype result) {
  const ScalarOpInfo& row = info(op);
  IPEX_CHECK(args.size() == row.arity, "eval_scalar: '" + std::string(row.name) + "' with " +
                                           std::to_string(args.size()) + " operands");
  const Scalar& a = args[0];
  const Scalar& b = args.size() > 1 ? args[1] : a;
  const Scalar& c = args.size() > 2 ? args[2] : a;
  Scalar out{result};
  if (op == ScalarOp::select_) {
    out = a.i ? b : c;
  } else if (op == ScalarOp::bitcast_int_) {
    out.i = bits_of(a);
  } else if (op == ScalarOp::bitcast_float_) {
    out.f = from_bits(a.i, result);
  } else if (op == ScalarOp::isnan_) {
    out.i = std::isnan(a.f);
  } else if (op == ScalarOp::isinf_) {
    out.i = std::isinf(a.f);
  } else if (op == ScalarOp::pair_bf16_) {
    out.f = pair_bf16(static_cast<float>(a.f), static_cast<float>(b.f));
  } else if (op == ScalarOp::lookup_) {
    out.f = args[1 + static_cast<size_t>(bits_of(a) & 15)].f;
  } else if (op == ScalarOp::dot_bf16_) {
    out.f = dot_bf16(static_cast<float>(a.f), static_cast<float>(b.f), static_cast<float>(c.f));
  } else if (row.result == ResultRule::kBoolean) {
    out.i = is_float(a.dtype) ? compare(op, a.f, b.f) : compare(op, a.i, b.i);
  } else if (a.dtype == Dtype::kF32) {
    out.f = float_op(op, static_cast<float>(a.f), static_cast<float>(b.f), static_cast<float>(c.f));
  } else if (a.dtype == Dtype::kF64) {
    out.f = float_op(op, a.f, b.f, c.f);
  } else {
    out.i = wrap(result, int_op(op, a.dtype, a.i, b.i));
  }
  return out;
}

Scalar cast_scalar(Scalar x, Dtype dtype) {
  Scalar out{dtype};
  if (!is_float(dtype)) {
    if (!is_float(x.dtype))
      out.i = wrap(dtype, static_cast<uint64_t>(x.i));
    else
      out.i = dtype == Dtype::kBool ? x.f != 0 : float_to_int(x.f, dtype);
    return out;
  }
  if (dtype == Dtype::kF64) {
    out.f = is_float(x.dtype) ? x.f : static_cast<double>(x.i);
    return out;
  }
  // Half types are rounded from f32, whatever the source type is: an i64 or f64 is rounded twice, as in ATen.
  float single = is_float(x.dtype) ? static_cast<float>(x.f) : static_cast<float>(x.i);
  if (dtype == Dtype::kF32) out.f = single;
  if (dtype == Dtype::kF16) out.f = f16_to_f32(f32_to_f16(single));
  if (dtype == Dtype::kBF16) out.f = bf16_to_f32(f32_to_bf16(single));
  return out;
}

}  // namespace ipex::loop

// The rows of pointwise.def, reduction.def and scan.def. Their bodies use the functions of body_language.h.
#include "backend/ops/tables.h"

#include <cmath>
#include <limits>
#include <numbers>
#include <string>

#include "backend/ops/body_language.h"
#include "backend/ops/special_functions.h"
#include "codegen/loop/ir.h"

namespace ipex::ops {
namespace {

using namespace body;
using loop::as_const_int;
using loop::State;
using loop::Type;

// ---- bodies too long for a table row ----

Expr sign_of(const Expr& x) {
  if (is_bool(x)) return x;
  return select(gt(x, c(x, 0)), c(x, 1), select(lt(x, c(x, 0)), c(x, -1), c(x, 0)));
}

Expr sign_bit(const Expr& x) {
  if (is_bool(x)) return no(x);
  if (!is_float(x)) return lt(x, c(x, 0));
  Dtype bits = x->type.dtype == Dtype::kF64 ? Dtype::kI64 : Dtype::kI32;
  Expr b = make_apply_as(ScalarOp::bitcast_int_, {x}, x->type.with_dtype(bits));
  return lt(b, c(b, 0));
}

Expr ignore_nan(const Expr& x, const Expr& y, const Expr& both) {
  return is_float(x) ? select(isnan(x), y, select(isnan(y), x, both)) : both;
}

// Sleef's inverse hyperbolic functions square their argument. Where the square overflows, log(2 |x|) is exact
// to the last bit.
Expr from_logarithm(const Expr& x, const Expr& otherwise) {
  const double large = x->type.dtype == Dtype::kF64 ? 0x1p500 : 0x1p60;
  return select(gt(abs(x), c(x, large)), log(abs(x)) + c(x, std::numbers::ln2), otherwise);
}
Expr whole_asinh(const Expr& x) { return copysign(from_logarithm(x, abs(asinh(x))), x); }
Expr whole_acosh(const Expr& x) { return select(lt(x, c(x, 1)), acosh(x), from_logarithm(x, acosh(x))); }

// Sleef's sinh and cosh overflow where e^|x| does, although the results are half of it. For such x they are
// e^step times the functions of |x| - step, an exact difference as step has few digits. step is slightly more
// than ln(2): e^step is 2 plus a small positive rest, so infinities stay infinite.
Expr beyond_exponential(const auto& function, const Expr& x) {
  const bool full = is_double(x);
  const double step = full ? 0x1.62e43p-1 : 0x1.62e5p-1;
  Expr far = gt(abs(x), c(x, full ? 700 : 88)), y = function(select(far, x - copysign(c(x, step), x), x));
  Expr scaled = fma(y, c(x, std::expm1(step - std::numbers::ln2)), y);
  return select(far, scaled + scaled, y);
}

// Sleef's log1p gives 0 for denormal numbers.
Expr whole_log1p(const Expr& x) {
  return select(lt(abs(x), c(x, is_double(x) ? 0x1p-60 : 0x1p-30)), x, log1p(x));
}

// Squares of f32 are exact in f64. For f64 the smaller operand is divided by the larger one.
Expr hypotenuse(const Expr& x, const Expr& y) {
  Expr infinite = isinf(x) | isinf(y);
  if (x->type.dtype == Dtype::kF32) {
    Expr a = make_cast(Dtype::kF64, x), b = make_cast(Dtype::kF64, y);
    return select(infinite, c(x, kInf), make_cast(Dtype::kF32, sqrt(a * a + b * b)));
  }
  Expr big = max(abs(x), abs(y)), small = min(abs(x), abs(y));
  Expr ratio = select(eq(big, c(x, 0)), c(x, 0), small / big);
  return select(infinite, c(x, kInf), big * sqrt(c(x, 1) + ratio * ratio));
}

// Square and multiply, over every bit of the exponent's type unless the exponent is constant.
Expr integer_power(const Expr& x, const Expr& y) {
  auto times = [](const Expr& a, const Expr& b) { return a ? a * b : b; };
  std::optional<int64_t> exponent = as_const_int(y);
  if (exponent && *exponent >= 0) {
    Expr result, square = x;
    for (int64_t n = *exponent; n > 0; n >>= 1) {
      if (n & 1) result = times(result, square);
      if (n > 1) square = square * square;
    }
    return result ? result : c(x, 1);
  }
  const bool is_signed = info(y->type.dtype).is_signed;
  const int bits = static_cast<int>(itemsize(y->type.dtype)) * 8 - is_signed;
  Expr one = c(x, 1), zero = c(x, 0);
  Expr result = one, square = x;
  for (int bit = 0; bit < bits; ++bit) {
    Expr set = ne(shr(y, c(y, bit)) & c(y, 1), c(y, 0));
    result = result * select(set, square, one);
    square = square * square;
  }
  if (!is_signed) return result;
  // 1 / x**-y in integers: 0 unless x is 1 or -1.
  Expr odd = ne(y & c(y, 1), c(y, 0));
  Expr reciprocal = select(eq(x, one), one, select(eq(x, c(x, -1)), select(odd, c(x, -1), one), zero));
  return select(lt(y, c(y, 0)), reciprocal, result);
}

// Stein's algorithm with the largest number of steps that the type needs: each step halves a * b. All numbers
// stay multiples of `low`, the lowest bit of either operand, and that bit alone tells which of them are even
// multiples of it. b stays an odd multiple.
Expr greatest_divisor(const Expr& x, const Expr& y) {
  const bool is_signed = info(x->type.dtype).is_signed;
  const int bits = static_cast<int>(itemsize(x->type.dtype)) * 8 - is_signed;
  Expr zero = c(x, 0), one = c(x, 1), size_x = abs(x), size_y = abs(y);
  // The absolute value that the type cannot hold. Its half has the same common divisors, except with 0 and
  // itself.
  const Expr half = make_int(x->type.with_lanes(1), int64_t{1} << (bits - 1));
  auto positive = [&](const Expr& size) { return is_signed ? select(lt(size, zero), half, size) : size; };
  Expr p = positive(size_x), q = positive(size_y), either = p | q, low = either & neg(either);
  Expr swapped = eq(q & low, zero);
  Expr a = select(swapped, q, p), b = select(swapped, p, q);
  for (int step = 0; step < 2 * bits; ++step) {
    Expr even = eq(a & low, zero), smaller = min(a, b), apart = max(a, b) - smaller;
    b = select(even, b, smaller);
    a = shr(select(even, a, apart), one);
  }
  return select(eq(y, zero) | eq(size_x, size_y), size_x, select(eq(x, zero), size_y, b));
}

Expr least_multiple(const Expr& x, const Expr& y) {
  Expr divisor = greatest_divisor(x, y), zero = c(x, 0);
  // C computes narrow integers in int, so eager takes their absolute value before the product wraps.
  const bool narrow = itemsize(x->type.dtype) < 4;
  return select(eq(divisor, zero), zero, narrow ? abs(x) / divisor * abs(y) : abs(x / divisor * y));
}

// ATen treats these constant exponents specially, with other results than pow: sqrt(-inf) is NaN, pow(-inf,
// 0.5) is inf.
Expr power(const Expr& x, const Expr& y) {
  if (!is_float(x)) return integer_power(x, y);
  std::optional<double> exponent = constant_of(y);
  if (!exponent) return pow(x, y);
  if (*exponent == 0) return c(x, 1);
  if (*exponent == 0.5) return sqrt(x);
  if (*exponent == 1) return x;
  if (*exponent == 2) return x * x;
  if (*exponent == 3) return x * x * x;
  if (*exponent == -0.5) return rsqrt(x);
  if (*exponent == -1) return c(x, 1) / x;
  if (*exponent == -2) return c(x, 1) / (x * x);
  return pow(x, y);
}

Expr round_to_decimals(const Expr& x, const Expr& decimals) {
  std::optional<double> digits = constant_of(decimals);
  Expr scale = digits ? c(x, std::pow(10.0, std::fabs(*digits))) : pow(c(x, 10), abs(decimals));
  Expr coarse = round(x / scale) * scale, fine = round(x * scale) / scale;
  if (digits) return *digits < 0 ? coarse : fine;
  return select(lt(decimals, c(x, 0)), coarse, fine);
}

Expr sigmoid(const Expr& x) { return c(x, 1) / (c(x, 1) + exp(neg(x))); }
Expr clamp6(const Expr& x) { return min(max(x, c(x, 0)), c(x, 6)); }

Expr silu_gradient(const Expr& g, const Expr& x) {
  Expr s = sigmoid(x);
  return g * s * (c(x, 1) + x * (c(x, 1) - s));
}

Expr softplus_gradient(const Expr& g, const Expr& x, const Expr& beta, const Expr& threshold) {
  Expr z = exp(x * beta);
  return select(gt(x * beta, threshold), g, g * z / (z + c(x, 1)));
}

Expr mish_gradient(const Expr& g, const Expr& x) {
  Expr t = tanh(log1p(exp(x)));
  return g * (t + x * sigmoid(x) * fma(neg(t), t, c(x, 1)));
}

Expr log_sigmoid_gradient(const Expr& g, const Expr& x, const Expr& z) {
  Expr negative = lt(x, c(x, 0)), share = z / (c(x, 1) + z);
  return g * select(negative, c(x, 1) - share, share);
}

// ---- reductions ----

using Exprs = std::vector<Expr>;
using States = std::span<const Expr>;

State state(int position, Type type, Expr identity) {
  return {"s" + std::to_string(position), type, identity, identity};
}
Expr lowest(Dtype t) {
  if (ipex::is_float(t)) return make_const({t}, -kInf);
  if (t == Dtype::kBool || !info(t).is_signed) return make_int({t}, 0);
  return make_int({t}, -(int64_t{1} << (itemsize(t) * 8 - 2)) * 2);
}
Expr highest(Dtype t) {
  if (ipex::is_float(t)) return make_const({t}, kInf);
  if (t == Dtype::kBool) return make_int({t}, 1);
  const int bits = static_cast<int>(itemsize(t)) * 8 - info(t).is_signed;
  return make_int({t}, static_cast<int64_t>((uint64_t{1} << bits) - 1));
}

struct Sum {
  static std::vector<State> states(Dtype t, Dtype) { return {state(0, {t}, make_const({t}, 0))}; }
  static Exprs update(States s, Expr x, Expr) { return {s[0] + x}; }
  static Exprs merge(States s, States o) { return {s[0] + o[0]}; }
  static Exprs finish(States s, Expr, double) { return {s[0]}; }
};

struct Mean : Sum {
  static Exprs finish(States s, Expr count, double) { return {s[0] / make_cast(s[0]->type.dtype, count)}; }
};

struct Product {
  static std::vector<State> states(Dtype t, Dtype) { return {state(0, {t}, make_const({t}, 1))}; }
  static Exprs update(States s, Expr x, Expr) { return {s[0] * x}; }
  static Exprs merge(States s, States o) { return {s[0] * o[0]}; }
  static Exprs finish(States s, Expr, double) { return {s[0]}; }
};

struct LogSumExp {
  static std::vector<State> states(Dtype t, Dtype) { return {state(0, {t}, make_const({t}, -kInf))}; }
  static Exprs update(States s, Expr x, Expr) { return {logaddexp(s[0], x)}; }
  static Exprs merge(States s, States o) { return {logaddexp(s[0], o[0])}; }
  static Exprs finish(States s, Expr, double) { return {s[0]}; }
};

struct Largest {
  static std::vector<State> states(Dtype t, Dtype) { return {state(0, {t}, lowest(t))}; }
  static Exprs update(States s, Expr x, Expr) { return {max(s[0], x)}; }
  static Exprs merge(States s, States o) { return {max(s[0], o[0])}; }
  static Exprs finish(States s, Expr, double) { return {s[0]}; }
};

// NaN compares false, so a state is never NaN. The compare and the select are one instruction.
struct LargestNumber : Largest {
  static Exprs update(States s, Expr x, Expr) { return {select(gt(x, s[0]), x, s[0])}; }
};

struct Smallest {
  static std::vector<State> states(Dtype t, Dtype) { return {state(0, {t}, highest(t))}; }
  static Exprs update(States s, Expr x, Expr) { return {min(s[0], x)}; }
  static Exprs merge(States s, States o) { return {min(s[0], o[0])}; }
  static Exprs finish(States s, Expr, double) { return {s[0]}; }
};

struct Any {
  static std::vector<State> states(Dtype, Dtype) {
    return {state(0, loop::kBool1, make_int(loop::kBool1, 0))};
  }
  static Exprs update(States s, Expr x, Expr) { return {s[0] | truth(x)}; }
  static Exprs merge(States s, States o) { return {s[0] | o[0]}; }
  static Exprs finish(States s, Expr, double) { return {s[0]}; }
};

struct All {
  static std::vector<State> states(Dtype, Dtype) {
    return {state(0, loop::kBool1, make_int(loop::kBool1, 1))};
  }
  static Exprs update(States s, Expr x, Expr) { return {s[0] & truth(x)}; }
  static Exprs merge(States s, States o) { return {s[0] & o[0]}; }
  static Exprs finish(States s, Expr, double) { return {s[0]}; }
};

// The states are a value and its index. The order is total (NaN first, then the better value, then the lower
// index), so the result does not depend on how a loop is split. The index of the identity loses every tie.
template <bool kWantLargest, bool kLastNaN = false>
struct Extremum {
  static std::vector<State> states(Dtype t, Dtype index) {
    return {state(0, {t}, kWantLargest ? lowest(t) : highest(t)), state(1, {index}, highest(index))};
  }
  static Exprs update(States s, Expr x, Expr index) {
    Expr earlier = lt(index, s[1]);
    Expr wins = (kWantLargest ? gt(x, s[0]) : lt(x, s[0])) | (eq(x, s[0]) & earlier);
    if (is_float(x)) wins = wins | (isnan(x) & (~isnan(s[0]) | (kLastNaN ? ~earlier : earlier)));
    return {select(wins, x, s[0]), select(wins, index, s[1])};
  }
  static Exprs merge(States s, States o) { return update(s, o[0], o[1]); }
  static Exprs finish(States s, Expr, double) { return {s[0], s[1]}; }
};
using LargestWithIndex = Extremum<true>;
using SmallestWithIndex = Extremum<false>;
using LargestOfWindow = Extremum<true, true>;  // ATen's pooling lets every NaN replace the result

// For scans: the last of equal values wins, and only another NaN replaces a NaN.
template <bool kWantLargest>
struct ExtremumSoFar {
  static std::vector<State> states(Dtype t, Dtype index) {
    return {state(0, {t}, kWantLargest ? lowest(t) : highest(t)), state(1, {index}, make_int({index}, 0))};
  }
  static Exprs update(States s, Expr x, Expr index) {
    Expr wins = kWantLargest ? ge(x, s[0]) : le(x, s[0]);
    if (is_float(x)) wins = wins | isnan(x);
    return {select(wins, x, s[0]), select(wins, index, s[1])};
  }
  static Exprs merge(States s, States o) { return update(s, o[0], o[1]); }
  static Exprs finish(States s, Expr, double) { return {s[0], s[1]}; }
};
using LargestSoFar = ExtremumSoFar<true>;
using SmallestSoFar = ExtremumSoFar<false>;

struct IndexOfLargest : LargestWithIndex {
  static Exprs finish(States s, Expr, double) { return {s[1]}; }
};
struct IndexOfSmallest : SmallestWithIndex {
  static Exprs finish(States s, Expr, double) { return {s[1]}; }
};

// Welford's update and Chan's merge, computed on halves of the numbers, whose differences never overflow. The
// states are mean, m2 (the sum of squared deviations) and count.
struct Variance {
  static std::vector<State> states(Dtype t, Dtype) {
    Expr zero = make_const({t}, 0);
    return {state(0, {t}, zero), state(1, {t}, zero), state(2, {t}, zero)};
  }
  static Exprs update(States s, Expr x, Expr) {
    // All columns share one count, so its reciprocal is a scalar division, off the critical path of the next
    // mean.
    Expr count = s[2] + c(x, 1), half = x * c(x, 0.5), delta = half - s[0];
    Expr mean = s[0] + delta * (c(x, 1) / count);
    return {mean, s[1] + delta * (half - mean), count};
  }
  static Exprs merge(States s, States o) {
    Expr zero = c(s[0], 0), count = s[2] + o[2], delta = o[0] - s[0];
    Expr share = o[2] / max(count, c(s[0], 1));
    // Merging with an empty state adds nothing, even if the squared distance of the means is infinite.
    Expr between = select(eq(min(s[2], o[2]), zero), zero, delta * delta * s[2] * share);
    return {s[0] + delta * share, s[1] + o[1] + between, count};
  }
  static Expr variance(States s, const Expr& count, double correction) {
    Expr n = make_cast(s[0]->type.dtype, count);
    return s[1] / (max(n - c(n, correction), c(n, 0)) * c(n, 0.25));
  }
  static Exprs finish(States s, Expr count, double correction) { return {variance(s, count, correction)}; }
};

struct Deviation : Variance {
  static Exprs finish(States s, Expr count, double correction) {
    return {sqrt(variance(s, count, correction))};
  }
};

struct VarianceAndMean : Variance {
  // The mean of no elements is NaN, as 0 / 0 is.
  static Exprs finish(States s, Expr count, double correction) {
    Expr n = make_cast(s[0]->type.dtype, count);
    Expr mean = select(eq(n, c(n, 0)), c(n, std::numeric_limits<double>::quiet_NaN()), s[0] + s[0]);
    return {variance(s, count, correction), mean};
  }
};

// ---- the tables ----

constexpr unsigned B = 1, I = 2, F = 4;

constexpr PointwiseRow kPointwise[] = {
#define POINTWISE(name, aten, arity, promotion, domains, body, summary, ...)                     \
  {#name,                                                                                        \
   aten,                                                                                         \
   arity,                                                                                        \
   Promotion::promotion,                                                                         \
   ((domains) & I) != 0,                                                                         \
   ((domains) & F) != 0,                                                                         \
   ((domains) & B) != 0,                                                                         \
   [](std::span<const Expr> args) -> Expr {                                                      \
     auto operand = [&](size_t i) { return i < args.size() ? args[i] : Expr(); };                \
     [[maybe_unused]] const Expr x = operand(0), y = operand(1), z = operand(2), w = operand(3), \
                                 v = operand(4);                                                 \
     return body;                                                                                \
   },                                                                                            \
   summary __VA_OPT__(, ) __VA_ARGS__},
#include "backend/ops/pointwise.def"
#undef POINTWISE
};

#define REDUCTION_ROW(name, aten, promotion, domains, results, behaviour, summary) \
  {#name,                                                                          \
   aten,                                                                           \
   Promotion::promotion,                                                           \
   ((domains) & I) != 0,                                                           \
   ((domains) & F) != 0,                                                           \
   ((domains) & B) != 0,                                                           \
   results,                                                                        \
   behaviour::states,                                                              \
   behaviour::update,                                                              \
   behaviour::merge,                                                               \
   behaviour::finish,                                                              \
   summary},

constexpr ReductionRow kReductions[] = {
#define REDUCTION REDUCTION_ROW
#include "backend/ops/reduction.def"
#undef REDUCTION
};

constexpr ReductionRow kScans[] = {
#define SCAN REDUCTION_ROW
#include "backend/ops/scan.def"
#undef SCAN
};
#undef REDUCTION_ROW

std::string_view text(Promotion p) {
  switch (p) {
    case Promotion::kDefault:
      return "promoted";
    case Promotion::kIntToFloat:
      return "promoted, integers to f32";
    case Promotion::kAlwaysBool:
      return "b1";
    case Promotion::kNoOpmath:
      return "promoted, exact";
  }
  throw InternalError("promotion without a name");
}

std::string domains(bool booleans, bool integers, bool floats) {
  std::string out;
  for (auto [has, name] :
       {std::pair(booleans, "bool"), std::pair(integers, "int"), std::pair(floats, "float")})
    if (has) out += (out.empty() ? "" : ", ") + std::string(name);
  return out;
}

// A table cell may not contain a bare bar.
std::string cell(std::string_view text) {
  std::string out;
  for (char ch : text) out += ch == '|' ? std::string("\\|") : std::string(1, ch);
  return out;
}

std::string table_row(std::initializer_list<std::string_view> cells) {
  std::string out = "|";
  for (std::string_view each : cells) out += " " + cell(each) + " |";
  return out + "\n";
}

}  // namespace

std::span<const PointwiseRow> pointwise_rows() { return kPointwise; }
const PointwiseRow& row(PointwiseOp fn) { return kPointwise[static_cast<size_t>(fn)]; }
std::span<const ReductionRow> reduction_rows() { return kReductions; }
const ReductionRow& row(ReductionOp fn) { return kReductions[static_cast<size_t>(fn)]; }
std::span<const ReductionRow> scan_rows() { return kScans; }
const ReductionRow& row(ScanOp fn) { return kScans[static_cast<size_t>(fn)]; }

std::string op_reference() {
  std::string out = "# Op reference\n\nGenerated from backend/ops/*.def.\n\n## Pointwise\n\n";
  out += table_row({"row", "ATen", "operands", "types", "result", "meaning"}) +
         "| --- | --- | --- | --- | --- | --- |\n";
  for (const PointwiseRow& row : kPointwise)
    out += table_row({row.name, row.aten, std::to_string(row.arity),
                      domains(row.booleans, row.integers, row.floats), text(row.promotion), row.summary});
  auto add_reductions = [&](std::string_view title, std::span<const ReductionRow> rows) {
    out += "\n## " + std::string(title) + "\n\n" +
           table_row({"row", "ATen", "results", "types", "result", "meaning"}) +
           "| --- | --- | --- | --- | --- | --- |\n";
    for (const ReductionRow& row : rows)
      out += table_row({row.name, row.aten, std::to_string(row.results),
                        domains(row.booleans, row.integers, row.floats), text(row.promotion), row.summary});
  };
  add_reductions("Reductions", kReductions);
  add_reductions("Scans", kScans);
  return out;
}

}  // namespace ipex::ops

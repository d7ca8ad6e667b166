// Every row of pointwise.def on edge values, through lowering and the interpreter, against what std:: and
// eager PyTorch give.
#include <limits>
#include <map>
#include <set>

#include "backend/ops/tables.h"
#include "tests/cpp/graph_fixture.h"

namespace ipex::test {
namespace {

using std::numbers::sqrt2;
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInf = std::numeric_limits<float>::infinity();

const std::vector<float> kEdges = {kNan, kInf,  -kInf,  0.0f,   -0.0f,   0.5f,  -0.5f,
                                   1.0f, -1.0f, 1.5f,   2.5f,   -2.5f,   3.0f,  -3.0f,
                                   6.0f, 7.25f, 1e-30f, 100.0f, -100.0f, 0.25f, -7.0f};

// One pointwise op over operands of one shape and dtype; where's condition is operand 0.
HostTensor apply(const std::string& row, const std::string& dtype, const std::vector<HostTensor>& operands,
                 size_t n, std::string result = "") {
  if (result.empty()) result = dtype;
  const std::string shape = "[" + std::to_string(n) + "]";
  std::string inputs, names;
  for (size_t k = 0; k < operands.size(); ++k) {
    const std::string name = "%x" + std::to_string(k);
    const std::string type = row == "where" && k == 0 ? "b1" : dtype;
    inputs += (k ? ", " : "") + name + ": " + type + shape;
    names += (k ? ", " : "") + name;
  }
  const std::string text = "graph main(" + inputs + ") {\n  %0 = pointwise." + row + "(" + names +
                           ") : " + result + shape + "\n  return %0\n}\n";
  return run_fused(graph::parse(text), operands).outputs[0];
}

using Reference = std::function<double(const std::vector<double>&)>;

double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }
double clamp(double x, double lo, double hi) {
  if (std::isnan(x) || std::isnan(lo) || std::isnan(hi)) return kNan;
  return std::min(std::max(x, lo), hi);
}
double propagate(double a, double b, double value) { return std::isnan(a) || std::isnan(b) ? kNan : value; }
double python_mod(double a, double b) {
  double r = std::fmod(a, b);
  return r != 0 && (b < 0) != (r < 0) ? r + b : r;
}
double round_even(double x) { return std::nearbyint(x); }
double gelu_cdf(double x) { return 0.5 * (1 + std::erf(x / sqrt2)); }
double gelu_inner(double x) { return std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x); }

double log_of_sum(double a, double b, double base) {
  if (std::isinf(a) && a == b) return a;
  return propagate(a, b, std::max(a, b)) + std::log1p(std::pow(base, -std::fabs(a - b))) / std::log(base);
}

const std::map<std::string, Reference>& references() {
  using V = const std::vector<double>&;
  static const std::map<std::string, Reference> map = {
      {"add", [](V a) { return a[0] + a[1]; }},
      {"add_scaled", [](V a) { return a[0] + a[2] * a[1]; }},
      {"sub", [](V a) { return a[0] - a[1]; }},
      {"sub_scaled", [](V a) { return a[0] - a[2] * a[1]; }},
      {"rsub", [](V a) { return a[1] - a[0]; }},
      {"fma", [](V a) { return a[0] * a[1] + a[2]; }},
      {"mul", [](V a) { return a[0] * a[1]; }},
      {"div", [](V a) { return a[0] / a[1]; }},
      {"div_trunc", [](V a) { return std::trunc(static_cast<float>(a[0] / a[1])); }},
      {"div_floor",
       [](V a) {  // torch.floor_divide: from the remainder, so that it and remainder agree
         if (a[1] == 0) return a[0] / a[1];
         double mod = std::fmod(a[0], a[1]), div = (a[0] - mod) / a[1];
         if (mod != 0 && (a[1] < 0) != (mod < 0)) div -= 1;
         if (div == 0) return std::copysign(0.0, a[0] / a[1]);
         double floored = std::floor(div);
         return div - floored > 0.5 ? floored + 1 : floored;
       }},
      {"fmod", [](V a) { return std::fmod(a[0], a[1]); }},
      {"remainder", [](V a) { return python_mod(a[0], a[1]); }},
      {"neg", [](V a) { return -a[0]; }},
      {"abs", [](V a) { return std::fabs(a[0]); }},
      {"sign", [](V a) { return static_cast<double>((a[0] > 0) - (a[0] < 0)); }},
      {"reciprocal", [](V a) { return 1 / a[0]; }},
      {"square", [](V a) { return a[0] * a[0]; }},
      {"pow", [](V a) { return std::pow(a[0], a[1]); }},
      {"addcmul", [](V a) { return a[0] + a[3] * a[1] * a[2]; }},
      {"addcdiv", [](V a) { return a[0] + a[3] * a[1] / a[2]; }},
      {"lerp",
       [](V a) {
         return std::fabs(a[2]) < 0.5 ? a[0] + a[2] * (a[1] - a[0]) : a[1] - (a[1] - a[0]) * (1 - a[2]);
       }},
      {"maximum", [](V a) { return propagate(a[0], a[1], std::max(a[0], a[1])); }},
      {"minimum", [](V a) { return propagate(a[0], a[1], std::min(a[0], a[1])); }},
      {"fmax", [](V a) { return std::fmax(a[0], a[1]); }},
      {"fmin", [](V a) { return std::fmin(a[0], a[1]); }},
      {"clamp", [](V a) { return clamp(a[0], a[1], a[2]); }},
      {"clamp_min", [](V a) { return propagate(a[0], a[1], std::max(a[0], a[1])); }},
      {"clamp_max", [](V a) { return propagate(a[0], a[1], std::min(a[0], a[1])); }},
      {"copysign", [](V a) { return std::copysign(a[0], a[1]); }},
      {"hypot", [](V a) { return std::hypot(a[0], a[1]); }},
      {"xlogy", [](V a) { return std::isnan(a[1]) ? kNan
                                 : a[0] == 0      ? 0
                                                  : a[0] * std::log(a[1]); }},
      {"xlog1py", [](V a) { return std::isnan(a[1]) ? kNan
                                   : a[0] == 0      ? 0
                                                    : a[0] * std::log1p(a[1]); }},
      {"logaddexp", [](V a) { return log_of_sum(a[0], a[1], M_E); }},
      {"logaddexp2", [](V a) { return log_of_sum(a[0], a[1], 2); }},
      {"heaviside", [](V a) { return a[0] == 0 ? a[1] : static_cast<double>(a[0] > 0); }},
      {"nextafter", [](V a) { return std::nextafter(float(a[0]), float(a[1])); }},
      {"nextafter_bf16", nullptr},
      {"nextafter_f16", nullptr},
      {"frexp_mantissa",
       [](V a) {
         int exponent = 0;
         return std::frexp(a[0], &exponent);
       }},
      {"frexp_exponent",
       [](V a) {
         int exponent = 0;
         std::frexp(a[0], &exponent);
         return double(exponent);
       }},
      {"rad2deg", [](V a) { return a[0] * (180 / M_PI); }},
      {"deg2rad", [](V a) { return a[0] * (M_PI / 180); }},
      {"angle", [](V a) { return std::isnan(a[0]) ? kNan
                                 : a[0] < 0       ? M_PI
                                                  : 0; }},
      {"gcd", nullptr},
      {"lcm", nullptr},
      {"floor", [](V a) { return std::floor(a[0]); }},
      {"ceil", [](V a) { return std::ceil(a[0]); }},
      {"trunc", [](V a) { return std::trunc(a[0]); }},
      {"frac", [](V a) { return a[0] - std::trunc(a[0]); }},
      {"round", [](V a) { return round_even(a[0]); }},
      {"round_decimals", nullptr},
      {"sqrt", [](V a) { return std::sqrt(a[0]); }},
      {"rsqrt", [](V a) { return 1 / std::sqrt(a[0]); }},
      {"exp_nonpositive", [](V a) { return std::exp(a[0]); }},
      {"exp_nonpositive_half", [](V a) { return std::exp(a[0]); }},
      {"exp", [](V a) { return std::exp(a[0]); }},
      {"exp2", [](V a) { return std::exp2(a[0]); }},
      {"expm1", [](V a) { return std::expm1(a[0]); }},
      {"log", [](V a) { return std::log(a[0]); }},
      {"log2", [](V a) { return std::log2(a[0]); }},
      {"log10", [](V a) { return std::log10(a[0]); }},
      {"log1p", [](V a) { return std::log1p(a[0]); }},
      {"sin", [](V a) { return std::sin(a[0]); }},
      {"cos", [](V a) { return std::cos(a[0]); }},
      {"tan", [](V a) { return std::tan(a[0]); }},
      {"asin", [](V a) { return std::asin(a[0]); }},
      {"acos", [](V a) { return std::acos(a[0]); }},
      {"atan", [](V a) { return std::atan(a[0]); }},
      {"atan2", [](V a) { return std::atan2(a[0], a[1]); }},
      {"sinh", [](V a) { return std::sinh(a[0]); }},
      {"cosh", [](V a) { return std::cosh(a[0]); }},
      {"tanh", [](V a) { return std::tanh(a[0]); }},
      {"asinh", [](V a) { return std::asinh(a[0]); }},
      {"acosh", [](V a) { return std::acosh(a[0]); }},
      {"atanh", [](V a) { return std::atanh(a[0]); }},
      {"erf", [](V a) { return std::erf(a[0]); }},
      {"erfc", [](V a) { return std::erfc(a[0]); }},
      {"lgamma", [](V a) { return std::lgamma(a[0]); }},
      {"digamma", nullptr},
      {"polygamma", nullptr},
      {"zeta", nullptr},
      {"erfinv", nullptr},
      {"erfcx", nullptr},
      {"ndtri", nullptr},
      {"log_ndtr", nullptr},
      {"entr", [](V a) { return a[0] == 0  ? 0
                                : a[0] < 0 ? -kInf
                                           : -a[0] * std::log(a[0]); }},
      {"sinc", [](V a) { return a[0] == 0 ? 1 : std::sin(M_PI * a[0]) / (M_PI * a[0]); }},
      {"i0", nullptr},
      {"i0e", nullptr},
      {"i1", nullptr},
      {"i1e", nullptr},
      {"bessel_j0", [](V a) { return std::isinf(a[0]) ? kNan : ::j0(a[0]); }},
      {"bessel_j1", [](V a) { return std::isinf(a[0]) ? kNan : ::j1(a[0]); }},
      {"bessel_y0", [](V a) { return std::isinf(a[0]) ? kNan : ::y0(a[0]); }},
      {"bessel_y1", [](V a) { return std::isinf(a[0]) ? kNan : ::y1(a[0]); }},
      {"airy_ai", nullptr},
      {"bessel_k0", nullptr},
      {"bessel_k1", nullptr},
      {"scaled_k0", nullptr},
      {"scaled_k1", nullptr},
      {"spherical_j0", nullptr},
      {"relu", [](V a) { return propagate(a[0], 0, std::max(a[0], 0.0)); }},
      {"relu6", [](V a) { return clamp(a[0], 0, 6); }},
      {"hardtanh", [](V a) { return clamp(a[0], a[1], a[2]); }},
      {"sigmoid", [](V a) { return sigmoid(a[0]); }},
      {"log_sigmoid",
       [](V a) { return propagate(a[0], 0, std::min(a[0], 0.0)) - std::log1p(std::exp(-std::fabs(a[0]))); }},
      {"silu", [](V a) { return a[0] / (1 + std::exp(-a[0])); }},
      {"gelu", [](V a) { return a[0] * gelu_cdf(a[0]); }},
      {"gelu_tanh", [](V a) { return 0.5 * a[0] * (1 + std::tanh(gelu_inner(a[0]))); }},
      {"elu", [](V a) { return a[0] < 0 ? std::expm1(a[0] * a[3]) * (a[1] * a[2]) : a[0] * a[2]; }},
      {"leaky_relu", [](V a) { return a[0] > 0 ? a[0] : a[0] * a[1]; }},
      {"hardsigmoid", [](V a) { return clamp(a[0] + 3, 0, 6) / 6; }},
      {"hardswish", [](V a) { return a[0] * clamp(a[0] + 3, 0, 6) / 6; }},
      {"mish", [](V a) { return a[0] * std::tanh(std::log1p(std::exp(a[0]))); }},
      {"softplus", [](V a) { return a[0] * a[1] > a[2] ? a[0] : std::log1p(std::exp(a[0] * a[1])) / a[1]; }},
      {"logit", [](V a) { return std::log(a[0] / (1 - a[0])); }},
      {"threshold", [](V a) { return a[0] <= a[1] ? a[2] : a[0]; }},
      {"prelu", [](V a) { return a[0] > 0 ? a[0] : a[0] * a[1]; }},
      {"sigmoid_backward", [](V a) { return a[0] * (1 - a[1]) * a[1]; }},
      {"tanh_backward", [](V a) { return a[0] * (1 - a[1] * a[1]); }},
      {"silu_backward", [](V a) { return a[0] * sigmoid(a[1]) * (1 + a[1] * (1 - sigmoid(a[1]))); }},
      {"gelu_backward",
       [](V a) {
         const double density = std::exp(-0.5 * a[1] * a[1]) / std::sqrt(2 * M_PI);
         return a[0] * (gelu_cdf(a[1]) + a[1] * density);
       }},
      {"gelu_tanh_backward",
       [](V a) {
         const double x = a[1], t = std::tanh(gelu_inner(x));
         return a[0] *
                (0.5 * (1 + t) + 0.5 * x * (1 - t * t) * std::sqrt(2 / M_PI) * (1 + 3 * 0.044715 * x * x));
       }},
      {"threshold_backward", [](V a) { return a[1] <= a[2] ? 0 : a[0]; }},
      {"hardtanh_backward", [](V a) { return a[1] > a[2] && a[1] < a[3] ? a[0] : 0; }},
      {"hardsigmoid_backward", [](V a) { return a[1] > -3 && a[1] < 3 ? a[0] / 6 : 0; }},
      {"hardswish_backward", [](V a) { return a[1] <= -3  ? 0
                                              : a[1] >= 3 ? a[0]
                                                          : a[0] * (a[1] / 3 + 0.5); }},
      {"leaky_relu_backward", [](V a) { return a[1] > 0 ? a[0] : a[0] * a[2]; }},
      {"shrink_backward", [](V a) { return std::fabs(a[1]) > a[2] ? a[0] : 0; }},
      {"elu_backward",
       [](V a) { return a[4] > 0 ? a[0] * a[2] : a[0] * a[3] * a[1] * a[2] * std::exp(a[4] * a[3]); }},
      {"elu_backward_result",
       [](V a) { return a[4] > 0 ? a[0] * a[2] : a[0] * a[3] * (a[4] + a[1] * a[2]); }},
      {"softplus_backward",
       [](V a) {
         const double z = std::exp(a[1] * a[2]);
         return a[1] * a[2] > a[3] ? a[0] : a[0] * z / (z + 1);
       }},
      {"mish_backward",
       [](V a) {
         const double t = std::tanh(std::log1p(std::exp(a[1])));
         return a[0] * (t + a[1] * sigmoid(a[1]) * (1 - t * t));
       }},
      {"log_sigmoid_backward",
       [](V a) { return a[0] * ((a[1] < 0 ? 1 : 0) - (a[1] < 0 ? 1 : -1) * (a[2] / (1 + a[2]))); }},
      {"eq", [](V a) { return double(a[0] == a[1]); }},
      {"ne", [](V a) { return double(a[0] != a[1]); }},
      {"lt", [](V a) { return double(a[0] < a[1]); }},
      {"le", [](V a) { return double(a[0] <= a[1]); }},
      {"gt", [](V a) { return double(a[0] > a[1]); }},
      {"ge", [](V a) { return double(a[0] >= a[1]); }},
      {"logical_and", [](V a) { return double(a[0] != 0 && a[1] != 0); }},
      {"logical_or", [](V a) { return double(a[0] != 0 || a[1] != 0); }},
      {"logical_xor", [](V a) { return double((a[0] != 0) != (a[1] != 0)); }},
      {"logical_not", [](V a) { return double(a[0] == 0); }},
      {"isnan", [](V a) { return double(std::isnan(a[0])); }},
      {"isinf", [](V a) { return double(std::isinf(a[0])); }},
      {"isfinite", [](V a) { return double(std::isfinite(a[0])); }},
      {"isposinf", [](V a) { return double(a[0] == kInf); }},
      {"isneginf", [](V a) { return double(a[0] == -kInf); }},
      {"signbit", [](V a) { return double(std::signbit(a[0])); }},
      {"bitwise_and", nullptr},
      {"bitwise_or", nullptr},
      {"bitwise_xor", nullptr},
      {"bitwise_not", nullptr},
      {"bitwise_left_shift", nullptr},
      {"bitwise_right_shift", nullptr},
      {"where", nullptr},
      {"nan_to_num",
       [](V a) { return std::isnan(a[0]) ? a[1]
                        : a[0] == kInf   ? a[2]
                        : a[0] == -kInf  ? a[3]
                                         : a[0]; }},
      {"cast", [](V a) { return a[0]; }},
      {"reinterpret", nullptr},
      {"clone", [](V a) { return a[0]; }},
      {"fill", [](V a) { return a[1]; }},
  };
  return map;
}

TEST(Tables, EveryRowIsTested) {
  std::set<std::string> rows, tested;
  for (const auto& row : ops::pointwise_rows()) rows.insert(std::string(row.name));
  for (const auto& [name, reference] : references()) tested.insert(name);
  EXPECT_EQ(rows, tested);
  EXPECT_EQ(rows.size(), ops::pointwise_rows().size()) << "a name twice";
}

TEST(Tables, FloatRowsOnEdgeValues) {
  for (const auto& row : ops::pointwise_rows()) {
    const Reference& reference = references().at(std::string(row.name));
    if (!reference) continue;
    // Operand 0 takes every edge value, the others walk through the smaller ones at other paces: a product of
    // large ones overflows in f32 and not in the reference.
    const size_t n = kEdges.size() * 5;
    Floats small = kEdges;
    std::erase_if(small, [](float v) { return std::fabs(v) == 100; });
    std::vector<HostTensor> operands;
    std::vector<Floats> given;
    for (int k = 0; k < row.arity; ++k) {
      Floats v(n);
      for (size_t i = 0; i < n; ++i)
        v[i] = k == 0 ? kEdges[i % kEdges.size()]
                      : small[(i * (2 * k + 3) + i / kEdges.size() * k) % small.size()];
      given.push_back(v);
      operands.push_back(tensor(v));
    }
    const bool boolean = row.promotion == ops::Promotion::kAlwaysBool;
    const HostTensor result = apply(std::string(row.name), "f32", operands, n, boolean ? "b1" : "f32");
    for (size_t i = 0; i < n; ++i) {
      std::vector<double> args;
      std::string shown = std::string(row.name) + "(";
      for (const Floats& v : given) {
        args.push_back(v[i]);
        shown += std::to_string(v[i]) + " ";
      }
      const double expected = static_cast<float>(reference(args));
      const double actual = boolean ? static_cast<double>(result[i]) : values<float>(result)[i];
      if (std::isnan(expected)) {
        EXPECT_TRUE(std::isnan(actual)) << shown << ") = " << actual;
      } else if (std::isinf(expected)) {
        EXPECT_EQ(actual, expected) << shown << ")";
      } else {
        // Intermediates round to f32 in the body and not in the reference.
        EXPECT_NEAR(actual, expected, 4e-6 * std::max(1.0, std::fabs(expected))) << shown << ")";
      }
    }
  }
}

TEST(Tables, SignedZeros) {
  const auto one = [](const std::string& row, float x) {
    return values<float>(apply(row, "f32", {tensor<float>({x})}, 1))[0];
  };
  for (const char* row : {"neg", "round", "trunc", "floor", "ceil", "sin", "tanh", "sqrt", "clone"})
    EXPECT_EQ(std::signbit(one(row, -0.0f)), std::string(row) != "neg") << row;
  EXPECT_FALSE(std::signbit(one("abs", -0.0f)));
  EXPECT_TRUE(std::signbit(one("round", -0.25f)));
}

TEST(Tables, IntegerArithmeticWraps) {
  constexpr int64_t kMax = std::numeric_limits<int64_t>::max(), kMin = std::numeric_limits<int64_t>::min();
  const auto i64 = [](const std::string& row, std::vector<int64_t> a, std::vector<int64_t> b) {
    return values<int64_t>(apply(row, "i64", {tensor(a), tensor(b)}, a.size()));
  };
  using I = std::vector<int64_t>;
  EXPECT_EQ(i64("add", {kMax, 1}, {1, 2}), (I{kMin, 3}));
  EXPECT_EQ(i64("mul", {kMin, 3}, {-1, -4}), (I{kMin, -12}));
  EXPECT_EQ(i64("remainder", {-7, 7, 7, kMin, 5}, {3, -3, 3, -1, 0}), (I{2, -2, 1, 0, 0}));
  EXPECT_EQ(i64("fmod", {-7, 7, kMin}, {3, -3, -1}), (I{-1, 1, 0}));
  EXPECT_EQ(i64("div_floor", {-7, 7, 8, 5}, {2, -2, 2, 0}), (I{-4, -4, 4, 0}));
  EXPECT_EQ(i64("div_trunc", {-7, 7, 5}, {2, -2, 0}), (I{-3, -3, 0}));
  EXPECT_EQ(i64("pow", {2, 3, -1, -1, 1, 0, 2, -3, 0, 2, 7}, {63, 41, -3, -2, -5, -1, -1, 3, 0, 64, 1}),
            (I{kMin, -420491770248316829, -1, 1, 1, 0, 0, -27, 1, 0, 7}));
  EXPECT_EQ(i64("gcd", {12, -12, 0, 7, 0, kMin, kMin, kMin, kMax}, {18, 8, -5, 0, 0, 6, 0, kMin, kMax - 1}),
            (I{6, 4, 5, 7, 0, 2, kMin, kMin, 1}));
  EXPECT_EQ(i64("lcm", {4, -21, 0, 1 << 20}, {6, 6, 5, 3}), (I{12, 42, 0, 3 << 20}));
  EXPECT_EQ(i64("bitwise_left_shift", {1, -1, 5}, {64, -1, 1}), (I{0, 0, 10}));
  EXPECT_EQ(i64("bitwise_right_shift", {-8, -1, 5}, {64, -1, 1}), (I{-1, -1, 2}));
  EXPECT_EQ(i64("bitwise_xor", {6, -1}, {3, 1}), (I{5, -2}));
  EXPECT_EQ(i64("bitwise_and", {6, -1}, {3, 1}), (I{2, 1}));
  EXPECT_EQ(i64("bitwise_or", {6, -1}, {3, 1}), (I{7, -1}));
  EXPECT_EQ(i64("maximum", {kMin, 4}, {kMax, -4}), (I{kMax, 4}));
  using U = std::vector<uint8_t>;
  EXPECT_EQ(values<uint8_t>(apply("sub", "u8", {tensor<uint8_t>({1, 200}), tensor<uint8_t>({2, 100})}, 2)),
            (U{255, 100}));
  EXPECT_EQ(values<uint8_t>(apply("pow", "u8", {tensor<uint8_t>({3, 2}), tensor<uint8_t>({5, 8})}, 2)),
            (U{243, 0}));
  EXPECT_EQ(values<uint8_t>(apply("bitwise_not", "u8", {tensor<uint8_t>({0, 5})}, 2)), (U{255, 250}));
  EXPECT_EQ(values<int8_t>(apply("abs", "i8", {tensor<int8_t>({-128, -5})}, 2)),
            (std::vector<int8_t>{-128, 5}));
  for (const char* row : {"floor", "ceil", "trunc", "round"})
    EXPECT_EQ(values<int32_t>(apply(row, "i32", {tensor<int32_t>({-3, 9})}, 2)),
              (std::vector<int32_t>{-3, 9}))
        << row;
  EXPECT_EQ(apply("isnan", "i32", {tensor<int32_t>({-3, 9})}, 2, "b1"), bools({0, 0}));
  EXPECT_EQ(apply("isfinite", "i32", {tensor<int32_t>({-3, 9})}, 2, "b1"), bools({1, 1}));
  EXPECT_EQ(apply("signbit", "i32", {tensor<int32_t>({-3, 9})}, 2, "b1"), bools({1, 0}));
}

TEST(Tables, BooleanArithmetic) {
  const HostTensor x = bools({0, 0, 1, 1}), y = bools({0, 1, 0, 1});
  const auto b1 = [&](const std::string& row) { return apply(row, "b1", {x, y}, 4); };
  EXPECT_EQ(b1("add"), bools({0, 1, 1, 1}));
  EXPECT_EQ(b1("mul"), bools({0, 0, 0, 1}));
  EXPECT_EQ(b1("bitwise_xor"), bools({0, 1, 1, 0}));
  EXPECT_EQ(b1("maximum"), bools({0, 1, 1, 1}));
  EXPECT_EQ(b1("lt"), bools({0, 1, 0, 0}));
  EXPECT_EQ(b1("logical_xor"), bools({0, 1, 1, 0}));
  EXPECT_EQ(apply("bitwise_not", "b1", {x}, 4), bools({1, 1, 0, 0}));
  EXPECT_EQ(apply("sign", "b1", {x}, 4), x);
}

TEST(Tables, WhereSelectsWithoutComputing) {
  const HostTensor r = apply(
      "where", "f32", {bools({1, 0, 1}), tensor<float>({1, kNan, kInf}), tensor<float>({kNan, 2, 0})}, 3);
  EXPECT_EQ(values<float>(r), (Floats{1, 2, kInf}));
}

TEST(Tables, ConstantExponentsFollowAten) {
  const auto pow = [](const std::string& e, float x) {
    const std::string text =
        "graph main(%x: f32[1]) {\n  %0 = constant() value=" + e +
        " : f32[]\n  %1 = expand(%0) dims=[] : f32[1]\n  %2 = pointwise.pow(%x, %1) : f32[1]\n  return "
        "%2\n}\n";
    return values<float>(run_fused(graph::parse(text), {tensor<float>({x})}).outputs[0])[0];
  };
  EXPECT_EQ(pow("2.0", -3), 9);
  EXPECT_EQ(pow("3.0", -3), -27);
  EXPECT_TRUE(std::isnan(pow("0.5", -kInf)));  // sqrt, as in ATen; pow would give inf
  EXPECT_EQ(pow("-1.0", 4), 0.25f);
  EXPECT_EQ(pow("-2.0", 4), 0.0625f);
  EXPECT_EQ(pow("0.0", kNan), 1);
  EXPECT_EQ(pow("-0.5", 4), 0.5f);
}

TEST(Tables, RoundDecimals) {
  const auto round = [](const std::string& decimals, Floats x) {
    const std::string n = std::to_string(x.size());
    const std::string text = "graph main(%x: f32[" + n + "]) {\n  %0 = constant() value=" + decimals +
                             " : f32[]\n  %1 = expand(%0) dims=[] : f32[" + n +
                             "]\n  %2 = pointwise.round_decimals(%x, %1) : f32[" + n + "]\n  return %2\n}\n";
    return values<float>(run_fused(graph::parse(text), {tensor(x)}).outputs[0]);
  };
  expect_near(round("2.0", {1.235f, kNan, kInf, 1e38f}), Floats{1.24f, kNan, kInf, kInf});
  expect_near(round("-2.0", {1235, kNan, kInf, 1250}), Floats{1200, kNan, kInf, 1200});
}

TEST(Tables, HalfResultsRoundOnce) {
  // 1 + 2^-8 is not a bf16; silu of it in f32 is rounded at the end only.
  const Floats x = {1.0f, -2.5f, 3.0f, 0.1f};
  const std::vector<float> r = bf16_values(apply("silu", "bf16", {bf16(x)}, 4));
  for (size_t i = 0; i < x.size(); ++i) {
    const float in = loop::bf16_to_f32(loop::f32_to_bf16(x[i]));
    EXPECT_EQ(r[i], loop::bf16_to_f32(loop::f32_to_bf16(in / (1 + std::exp(-in)))));
  }
}

TEST(Tables, CastsConvertAsAten) {
  const auto cast = [](const std::string& from, const std::string& to, const HostTensor& x, size_t n) {
    return apply("cast", from, {x}, n, to);
  };
  EXPECT_EQ(values<int32_t>(cast("f32", "i32", tensor<float>({-2.7f, 3.9f}), 2)),
            (std::vector<int32_t>{-2, 3}));
  EXPECT_EQ(cast("f32", "b1", tensor<float>({0, -0.0f, 0.1f, kNan}), 4), bools({0, 0, 1, 1}));
  EXPECT_EQ(values<float>(cast("b1", "f32", bools({1, 0}), 2)), (Floats{1, 0}));
  EXPECT_EQ(bf16_values(cast("f64", "bf16", tensor<double>({1.0 + 1.0 / 256, 1.0 + 3.0 / 256}), 2)),
            (Floats{1.0f, 1.015625f}));
  EXPECT_EQ(values<uint8_t>(cast("i64", "u8", tensor<int64_t>({-1, 257}), 2)),
            (std::vector<uint8_t>{255, 1}));
}

TEST(Tables, ReinterpretationsKeepBits) {
  const auto reinterpret = [](const std::string& from, const std::string& to, const HostTensor& x) {
    return apply("reinterpret", from, {x}, 4, to);
  };
  const std::vector<int32_t> words = {0x3f800000, -0x3f800000, 0x7f800000, 0x00000001};
  const std::vector<int16_t> halves = {0x3f80, -0x3f80, 0x7c00, 0x0001};
  EXPECT_EQ(reinterpret("f32", "i32", reinterpret("i32", "f32", tensor(words))), tensor(words));
  EXPECT_EQ(values<float>(reinterpret("i32", "f32", tensor(words)))[0], 1);
  for (const std::string half : {"bf16", "f16"})
    EXPECT_EQ(reinterpret(half, "i16", reinterpret("i16", half, tensor(halves))), tensor(halves)) << half;
  EXPECT_EQ(values<int8_t>(reinterpret("u8", "i8", tensor<uint8_t>({0, 127, 128, 255}))),
            (std::vector<int8_t>{0, 127, -128, -1}));
  EXPECT_EQ(values<int64_t>(reinterpret("f64", "i64", tensor<double>({1, -0.0, kInf, 0})))[1],
            std::numeric_limits<int64_t>::min());
}

TEST(Tables, ReferenceListsEveryRow) {
  const std::string text = ops::op_reference();
  for (const auto& row : ops::pointwise_rows())
    EXPECT_NE(text.find("| " + std::string(row.name) + " |"), std::string::npos);
  for (const auto& row : ops::reduction_rows())
    EXPECT_NE(text.find("| " + std::string(row.name) + " |"), std::string::npos);
}

}  // namespace
}  // namespace ipex::test

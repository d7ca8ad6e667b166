// The error of every math function over its whole f32 range, in units of the last place against libm in
// double, and its values where formulas break: NaN, infinities, zeros, denormals, thresholds. Prints the
// table that math_table.def promises.
#include <gtest/gtest.h>

#include <array>
#include <bit>
#include <cmath>
#include <limits>
#include <span>

#include "codegen/llvm/math_table.h"
#include "codegen/loop/eval.h"
#include "tests/cpp/llvm_kernels.h"

namespace ipex::loop::testing {
namespace {

// The interpreter's own libm call, in double.
double reference(ScalarOp op, double a, double b) {
  const std::array args = {Scalar{Dtype::kF64, 0, a}, Scalar{Dtype::kF64, 0, b}};
  return eval_scalar(op, std::span(args).first(info(op).arity), Dtype::kF64).f;
}

// |actual - exact| over the spacing of floats around exact.
double ulps(double exact, float actual) {
  if (std::isnan(exact)) return std::isnan(actual) ? 0 : INFINITY;
  const auto rounded = static_cast<float>(exact);
  if (std::isinf(rounded) || std::isinf(actual)) {
    // Next to the overflow threshold either neighbour is within an ulp.
    if (rounded == actual) return 0;
    return std::abs(exact) >= 0x1.fffffcp127 && std::abs(actual) >= 0x1.fffffcp127f ? 1 : INFINITY;
  }
  if (exact == 0) return actual == 0 && std::signbit(exact) == std::signbit(actual) ? 0 : INFINITY;
  int exponent = 0;
  std::frexp(exact, &exponent);
  const double unit = std::ldexp(1.0, std::max(exponent - 24, -149));
  return std::abs(actual - exact) / unit;
}

class Accuracy : public ::testing::TestWithParam<MathFunction> {};

// Every exponent and sign, with a step in the bits that is prime, so that mantissas vary.
constexpr uint32_t kStep = 1021;
constexpr int64_t kBlock = 1 << 16;

TEST_P(Accuracy, OverTheWholeRangeOfF32) {
  const MathFunction& function = GetParam();
  const bool binary = info(function.op).arity == 2;
  std::vector<Isa> isas = supported_isas();
  if (isas.size() > 2) isas.pop_back();  // avx512_bf16 has avx512's arithmetic
  for (Isa isa : isas) {
    const Target target = target_for(isa);
    const int lanes = target.lanes(Dtype::kF32);
    const std::vector<Dtype> inputs(binary ? 2 : 1, Dtype::kF32);
    const Function f = elementwise("math", inputs, Dtype::kF32, kBlock, lanes,
                                   [&](const std::vector<Expr>& x) { return make_apply(function.op, x); });
    const auto library = jit_compile({lowered(f, target)}, target);
    Array a(Dtype::kF32, kBlock), b(Dtype::kF32, kBlock), out(Dtype::kF32, kBlock);
    double worst = 0;
    float worst_a = 0, worst_b = 0, worst_got = 0;
    for (uint64_t begin = 0; begin <= 0xffffffffu; begin += uint64_t{kBlock} * kStep) {
      for (int64_t i = 0; i < kBlock; ++i) {
        const auto bits = static_cast<uint32_t>(std::min<uint64_t>(begin + i * kStep, 0xffffffffu));
        const float x = std::bit_cast<float>(bits);
        // Second operands of every size, most of them near 1.
        const float y = std::bit_cast<float>((bits * 2654435761u & 0x83ffffffu) + 0x3e000000u);
        a.set_float(i, x);
        b.set_float(i, y);
      }
      std::vector<Array*> arrays = {&a, &out};
      if (binary) arrays = {&a, &b, &out};
      run(*library, "math", arrays);
      for (int64_t i = 0; i < kBlock; ++i) {
        const auto x = static_cast<float>(a.get_float(i)), y = static_cast<float>(b.get_float(i));
        const auto got = static_cast<float>(out.get_float(i));
        if (std::abs(x) > function.domain && std::isfinite(x)) continue;
        const double error = ulps(reference(function.op, x, y), got);
        if (error > worst) {
          worst = error;
          worst_a = x;
          worst_b = y;
          worst_got = got;
        }
      }
    }
    std::printf("%-8s %-8s %-10s %.4f ulp at %a\n", std::string(info(function.op).name).c_str(),
                std::string(ipex::name(isa)).c_str(),
                function.f32 == MathSource::kSleef ? "Sleef" : "polynomial", worst, worst_a);
    EXPECT_LE(worst, function.ulp * 1.001)  // the last digits of the bound are not meant <<
                                            // info(function.op).name << "(" << worst_a << ", " << worst_b
        << ") gives " << worst_got << " instead of " << reference(function.op, worst_a, worst_b);
  }
}

INSTANTIATE_TEST_SUITE_P(Functions, Accuracy, ::testing::ValuesIn(kMathFunctions),
                         [](const auto& info) { return std::string(loop::info(info.param.op).name); });

// Exact answers, signs of zero included.
TEST(Accuracy, SpecialValues) {
  const double inf = INFINITY, nan = NAN, denormal = 0x1p-149;
  struct Case {
    ScalarOp op;
    double x, expected;
  };
  const std::vector<Case> cases = {
      {ScalarOp::exp_, 0, 1},
      {ScalarOp::exp_, -0.0, 1},
      {ScalarOp::exp_, inf, inf},
      {ScalarOp::exp_, -inf, 0},
      {ScalarOp::exp_, nan, nan},
      {ScalarOp::exp_, 88.73, inf},
      {ScalarOp::exp_, 1e30, inf},
      {ScalarOp::exp_, -1e30, 0},
      {ScalarOp::exp_, -104, 0},
      {ScalarOp::exp_, denormal, 1},
      {ScalarOp::exp_, -103.2, denormal},
      {ScalarOp::expm1_, 0, 0},
      {ScalarOp::expm1_, -0.0, -0.0},
      {ScalarOp::expm1_, inf, inf},
      {ScalarOp::expm1_, -inf, -1},
      {ScalarOp::expm1_, nan, nan},
      {ScalarOp::expm1_, 88.73, inf},
      {ScalarOp::expm1_, 1e30, inf},
      {ScalarOp::expm1_, -1e30, -1},
      {ScalarOp::expm1_, denormal, denormal},
      {ScalarOp::expm1_, -denormal, -denormal},
      {ScalarOp::log_, 1, 0},
      {ScalarOp::log_, 0, -inf},
      {ScalarOp::log_, -0.0, -inf},
      {ScalarOp::log_, inf, inf},
      {ScalarOp::log_, -1, nan},
      {ScalarOp::log_, -inf, nan},
      {ScalarOp::log_, nan, nan},
      {ScalarOp::log_, denormal, std::log(denormal)},
      {ScalarOp::tanh_, 0, 0},
      {ScalarOp::tanh_, -0.0, -0.0},
      {ScalarOp::tanh_, inf, 1},
      {ScalarOp::tanh_, -inf, -1},
      {ScalarOp::tanh_, nan, nan},
      {ScalarOp::tanh_, 1e30, 1},
      {ScalarOp::tanh_, denormal, denormal},
      {ScalarOp::tanh_, -denormal, -denormal},
      {ScalarOp::erf_, 0, 0},
      {ScalarOp::erf_, -0.0, -0.0},
      {ScalarOp::erf_, inf, 1},
      {ScalarOp::erf_, -inf, -1},
      {ScalarOp::erf_, nan, nan},
      {ScalarOp::erf_, 5, 1},
      {ScalarOp::erf_, denormal, denormal},
  };
  for (Isa isa : supported_isas()) {
    const Target target = target_for(isa);
    for (int lanes : {1, 16}) {
      for (const Case& c : cases) {
        const Function f = elementwise("math", {Dtype::kF32}, Dtype::kF32, 16, lanes,
                                       [&](const std::vector<Expr>& x) { return make_apply(c.op, x); });
        Array x(Dtype::kF32, 16), y(Dtype::kF32, 16), expected(Dtype::kF32, 16);
        for (int i = 0; i < 16; ++i) {
          x.set_float(i, c.x);
          expected.set_float(i, c.expected);
        }
        run(*jit_compile({lowered(f, target)}, target), "math", {&x, &y});
        EXPECT_EQ(difference(expected, y), "") << info(c.op).name << "(" << c.x << ") on " << ipex::name(isa);
      }
    }
  }
}

// One compiled function of one operand over many numbers.
class Curve {
 public:
  static constexpr int64_t kCount = 1 << 16;

  Curve(Dtype dtype, Isa isa, int lanes, const std::function<Expr(const std::vector<Expr>&)>& body)
      : x(dtype, kCount), y(dtype, kCount) {
    const Target target = target_for(isa);
    library_ =
        jit_compile({lowered(elementwise("math", {dtype}, dtype, kCount, lanes, body), target)}, target);
  }
  void compute() { run(*library_, "math", {&x, &y}); }
  double at(double value) {
    for (int64_t i = 0; i < kCount; ++i) x.set_float(i, value);
    compute();
    return y.get_float(kCount / 2);
  }

  Array x, y;

 private:
  std::shared_ptr<FunctionLibrary> library_;
};

// What a GELU is made of, by pieces of a register's constants or by erf and exp: absolute errors.
TEST(Accuracy, NormalDistribution) {
  constexpr int64_t kCount = Curve::kCount;
  const auto check = [](ScalarOp op, Dtype dtype, double allowed, Isa isa, int lanes) {
    Curve curve(dtype, isa, lanes, [&](const std::vector<Expr>& v) { return make_apply(op, v); });
    Array &x = curve.x, &y = curve.y;
    for (int64_t i = 0; i < kCount; ++i) x.set_float(i, (static_cast<double>(i) / kCount - 0.5) * 20);
    curve.compute();
    double worst = 0;
    for (int64_t i = 0; i < kCount; ++i)
      worst = std::max(worst, std::abs(y.get_float(i) - reference(op, x.get_float(i), 0)));
    EXPECT_LE(worst, allowed) << info(op).name << " of " << ipex::name(dtype) << " x" << lanes << " on "
                              << ipex::name(isa);
    // Exact at both ends, so that x * normal_cdf(x) does not grow where it is 0; NaN stays.
    EXPECT_EQ(curve.at(0), 0.5);
    EXPECT_EQ(curve.at(1e30), 1);
    EXPECT_EQ(curve.at(-1e30), 0);
    EXPECT_TRUE(std::isnan(curve.at(NAN)));
    // The slopes multiply what is infinite there by 0.
    const bool is_slope = op == ScalarOp::gelu_slope_ || op == ScalarOp::gelu_tanh_slope_;
    for (const double a : {INFINITY, -INFINITY})
      EXPECT_TRUE(is_slope ? std::isnan(curve.at(a)) : curve.at(a) == (a > 0)) << a;
  };
  for (Isa isa : supported_isas())
    for (int lanes : {1, 8, 16, 32}) {
      check(ScalarOp::normal_cdf_, Dtype::kF32, 0x1p-23, isa, lanes);
      check(ScalarOp::gelu_slope_, Dtype::kF32, 0x1p-22, isa, lanes);
      check(ScalarOp::tanh_cdf_, Dtype::kF32, 0x1p-23, isa, lanes);
      check(ScalarOp::gelu_tanh_slope_, Dtype::kF32, 0x1p-22, isa, lanes);
      check(ScalarOp::tanh_cdf_, Dtype::kF64, 0x1p-51, isa, lanes);
      check(ScalarOp::gelu_tanh_slope_, Dtype::kF64, 0x1p-50, isa, lanes);
      check(ScalarOp::normal_cdf_, Dtype::kF64, 0x1p-52, isa, lanes);
      check(ScalarOp::gelu_slope_, Dtype::kF64, 0x1p-51, isa, lanes);
    }
}

// The exponential of softmax: relative errors, which grow with the argument's size in f32, denormal results
// to half of the least one; NaN of any payload.
TEST(Accuracy, ExponentialsOfNonpositives) {
  constexpr int64_t kCount = Curve::kCount;
  const auto check = [](Dtype dtype, int bits, Isa isa, int lanes) {
    Curve curve(dtype, isa, lanes, [&](const std::vector<Expr>& v) {
      return make_apply(ScalarOp::exp_nonpositive_, {v[0], make_const(v[0]->type, bits)});
    });
    Array &x = curve.x, &y = curve.y;
    for (int64_t i = 0; i < kCount; ++i) x.set_float(i, 40 - 150 * static_cast<double>(i) / kCount);
    curve.compute();
    const double least = dtype == Dtype::kF32 ? 0x1p-149 : 0x1p-1074;
    double worst = 0;
    for (int64_t i = 0; i < kCount; ++i) {
      const double a = x.get_float(i), exact = std::exp(a);
      const double allowed = dtype == Dtype::kF64 ? 0x1p-51
                             : bits == 17         ? 0x1p-17
                                                  : 0x1p-23 * (1 + std::abs(a) / 40);
      worst = std::max(worst, std::abs(y.get_float(i) - exact) / (allowed * exact + least));
    }
    EXPECT_LE(worst, 1) << ipex::name(dtype) << ", " << bits << " bits, x" << lanes << " on "
                        << ipex::name(isa);
    EXPECT_EQ(curve.at(0), 1);
    EXPECT_EQ(curve.at(-0.0), 1);
    EXPECT_EQ(curve.at(-1e30), 0);
    EXPECT_EQ(curve.at(-INFINITY), 0);
    for (int64_t i = 0; i < kCount && dtype == Dtype::kF32; ++i)
      x.set_int(i, static_cast<int64_t>(0x7f800001u + static_cast<uint32_t>(i) * 127));
    if (dtype == Dtype::kF64) curve.at(NAN);
    curve.compute();
    for (int64_t i = 0; i < kCount; ++i) ASSERT_TRUE(std::isnan(y.get_float(i))) << i;
  };
  for (Isa isa : supported_isas())
    for (int lanes : {1, 8, 16, 32})
      for (int bits : {17, 24}) {
        check(Dtype::kF32, bits, isa, lanes);
        check(Dtype::kF64, bits, isa, lanes);
      }
}

// Any NaN in gives a NaN, whatever its payload.
TEST(Accuracy, NanPayloads) {
  Array x(Dtype::kF32, 64);
  for (int64_t i = 0; i < 64; ++i)
    x.set_int(
        i, static_cast<int64_t>(0x7f800001u + static_cast<uint32_t>(i) * 131071 + (i % 2 ? 0x80000000u : 0)));
  for (const MathFunction& function : kMathFunctions) {
    if (info(function.op).arity != 1) continue;
    for (Isa isa : supported_isas()) {
      const Target target = target_for(isa);
      const Function f = elementwise("math", {Dtype::kF32}, Dtype::kF32, 64, 16,
                                     [&](const std::vector<Expr>& v) { return make_apply(function.op, v); });
      Array y(Dtype::kF32, 64);
      run(*jit_compile({lowered(f, target)}, target), "math", {&x, &y});
      for (int64_t i = 0; i < 64; ++i)
        EXPECT_TRUE(std::isnan(y.get_float(i))) << info(function.op).name << " " << i;
    }
  }
}

}  // namespace
}  // namespace ipex::loop::testing

// The reference interpreter against std::, by op, by conversion and by statement.
#include "codegen/loop/eval.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <functional>
#include <limits>

#include "codegen/loop/half.h"
#include "codegen/loop/text.h"

namespace ipex::loop {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
const double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr int64_t kMin = std::numeric_limits<int64_t>::min(), kMax = std::numeric_limits<int64_t>::max();

template <class T>
bool same(T a, T b) {
  return (std::isnan(a) && std::isnan(b)) || (a == b && std::signbit(a) == std::signbit(b));
}

double float_op(std::string_view op, Dtype dtype, std::vector<double> values) {
  std::vector<Scalar> args;
  for (double v : values) args.push_back(cast_scalar({Dtype::kF64, 0, v}, dtype));
  return eval_scalar(*parse_scalar_op(op), args, dtype).f;
}

template <class T>
void expect_unary(std::string_view op, T (*expected)(T)) {
  constexpr Dtype dtype = sizeof(T) == 4 ? Dtype::kF32 : Dtype::kF64;
  for (double v : {0.0, -0.0, 0.25, -0.25, 0.5, 1.0, -1.0, 1.5, 2.5, -2.5, 3.14159, 7.75, -100.25, 1e-30,
                   1e30, kInf, -kInf, kNan})
    EXPECT_TRUE(same<T>(float_op(op, dtype, {v}), expected(static_cast<T>(v)))) << op << "(" << v << ")";
}

template <class T>
void expect_all_unary() {
  expect_unary<T>("neg", [](T x) -> T { return -x; });
  expect_unary<T>("abs", [](T x) -> T { return std::fabs(x); });
  expect_unary<T>("floor", [](T x) -> T { return std::floor(x); });
  expect_unary<T>("ceil", [](T x) -> T { return std::ceil(x); });
  expect_unary<T>("trunc", [](T x) -> T { return std::trunc(x); });
  expect_unary<T>("round", [](T x) -> T { return std::rint(x); });
  expect_unary<T>("sqrt", [](T x) -> T { return std::sqrt(x); });
  expect_unary<T>("rsqrt", [](T x) -> T { return 1 / std::sqrt(x); });
  expect_unary<T>("exp", [](T x) -> T { return std::exp(x); });
  expect_unary<T>("exp2", [](T x) -> T { return std::exp2(x); });
  expect_unary<T>("expm1", [](T x) -> T { return std::expm1(x); });
  expect_unary<T>("log", [](T x) -> T { return std::log(x); });
  expect_unary<T>("log2", [](T x) -> T { return std::log2(x); });
  expect_unary<T>("log10", [](T x) -> T { return std::log10(x); });
  expect_unary<T>("log1p", [](T x) -> T { return std::log1p(x); });
  expect_unary<T>("sin", [](T x) -> T { return std::sin(x); });
  expect_unary<T>("cos", [](T x) -> T { return std::cos(x); });
  expect_unary<T>("tan", [](T x) -> T { return std::tan(x); });
  expect_unary<T>("asin", [](T x) -> T { return std::asin(x); });
  expect_unary<T>("acos", [](T x) -> T { return std::acos(x); });
  expect_unary<T>("atan", [](T x) -> T { return std::atan(x); });
  expect_unary<T>("sinh", [](T x) -> T { return std::sinh(x); });
  expect_unary<T>("cosh", [](T x) -> T { return std::cosh(x); });
  expect_unary<T>("tanh", [](T x) -> T { return std::tanh(x); });
  expect_unary<T>("asinh", [](T x) -> T { return std::asinh(x); });
  expect_unary<T>("acosh", [](T x) -> T { return std::acosh(x); });
  expect_unary<T>("atanh", [](T x) -> T { return std::atanh(x); });
  expect_unary<T>("erf", [](T x) -> T { return std::erf(x); });
  expect_unary<T>("erfc", [](T x) -> T { return std::erfc(x); });
}

TEST(LoopEval, FloatUnaryOps) {
  expect_all_unary<float>();
  expect_all_unary<double>();
}

TEST(LoopEval, FloatBinaryOps) {
  const std::vector<double> values = {0.0,  -0.0, 0.5,  -0.5,  1.0,  -1.0,  3.0,
                                      -3.5, 7.25, 1e20, -1e20, kInf, -kInf, kNan};
  struct Case {
    std::string_view op;
    float (*expected)(float, float);
  };
  const Case cases[] = {
      {"add", [](float a, float b) { return a + b; }},
      {"sub", [](float a, float b) { return a - b; }},
      {"mul", [](float a, float b) { return a * b; }},
      {"div", [](float a, float b) { return a / b; }},
      {"rem", [](float a, float b) { return std::fmod(a, b); }},
      {"pow", [](float a, float b) { return std::pow(a, b); }},
      {"atan2", [](float a, float b) { return std::atan2(a, b); }},
      {"copysign", [](float a, float b) { return std::copysign(a, b); }},
  };
  for (const Case& c : cases)
    for (double a : values)
      for (double b : values)
        EXPECT_TRUE(same<float>(float_op(c.op, Dtype::kF32, {a, b}),
                                c.expected(static_cast<float>(a), static_cast<float>(b))))
            << c.op << "(" << a << ", " << b << ")";
}

TEST(LoopEval, FloatsAreComputedInTheirOwnPrecision) {
  EXPECT_EQ(float_op("add", Dtype::kF32, {16777216, 1}), 16777216);
  EXPECT_EQ(float_op("add", Dtype::kF64, {16777216, 1}), 16777217);
  // Rounded once: a product of 1 + 2^-12 with itself needs more than 24 bits.
  double x = 1 + 0x1p-12;
  EXPECT_EQ(float_op("fma", Dtype::kF32, {x, x, -1 - 0x1p-11}), 0x1p-24);
  EXPECT_EQ(float_op("add", Dtype::kF32, {float_op("mul", Dtype::kF32, {x, x}), -1 - 0x1p-11}), 0);
}

TEST(LoopEval, MinAndMaxPropagateNan) {
  EXPECT_TRUE(std::isnan(float_op("min", Dtype::kF32, {kNan, 1})));
  EXPECT_TRUE(std::isnan(float_op("min", Dtype::kF32, {1, kNan})));
  EXPECT_TRUE(std::isnan(float_op("max", Dtype::kF64, {kNan, -kInf})));
  EXPECT_TRUE(std::isnan(float_op("max", Dtype::kF64, {kInf, kNan})));
  EXPECT_EQ(float_op("min", Dtype::kF32, {-kInf, 3}), -kInf);
  EXPECT_EQ(float_op("max", Dtype::kF32, {-2, 3}), 3);
}

TEST(LoopEval, FloatFloorDivision) {
  struct Case {
    double a, b, div, mod;
  };
  for (auto [a, b, div, mod] : std::vector<Case>{{7, 2, 3, 1},
                                                 {-7, 2, -4, 1},
                                                 {7, -2, -4, -1},
                                                 {-7, -2, 3, -1},
                                                 {6, 2, 3, 0},
                                                 {0.5, 1, 0, 0.5},
                                                 {-0.5, 1, -1, 0.5},
                                                 {1, 0, kInf, kNan},
                                                 {0, 0, kNan, kNan},
                                                 {1, -0.0, -kInf, kNan},
                                                 {5, kInf, 0, 5},
                                                 {-5, kInf, -1, kInf}}) {
    EXPECT_TRUE(same(float_op("floordiv", Dtype::kF64, {a, b}), div)) << a << " // " << b;
    EXPECT_TRUE(same(float_op("floormod", Dtype::kF64, {a, b}), mod)) << a << " % " << b;
  }
  // 1 / 0.1 rounds up to 10, the exact quotient is below it.
  EXPECT_EQ(float_op("floordiv", Dtype::kF64, {1, 0.1}), 9);
}

int64_t int_op(std::string_view op, Dtype dtype, std::vector<int64_t> values) {
  std::vector<Scalar> args;
  for (int64_t v : values) args.push_back({dtype, v});
  ScalarOp parsed = *parse_scalar_op(op);
  return eval_scalar(parsed, args, info(parsed).result == ResultRule::kBoolean ? Dtype::kBool : dtype).i;
}

TEST(LoopEval, IntegersWrapAndNeverTrap) {
  EXPECT_EQ(int_op("add", Dtype::kI64, {kMax, 1}), kMin);
  EXPECT_EQ(int_op("add", Dtype::kI8, {127, 1}), -128);
  EXPECT_EQ(int_op("add", Dtype::kU8, {255, 1}), 0);
  EXPECT_EQ(int_op("sub", Dtype::kU8, {0, 1}), 255);
  EXPECT_EQ(int_op("mul", Dtype::kI32, {1 << 30, 4}), 0);
  EXPECT_EQ(int_op("mul", Dtype::kI64, {kMax, 2}), -2);
  EXPECT_EQ(int_op("neg", Dtype::kI64, {kMin}), kMin);
  EXPECT_EQ(int_op("neg", Dtype::kU8, {1}), 255);
  EXPECT_EQ(int_op("abs", Dtype::kI32, {std::numeric_limits<int32_t>::min()}),
            std::numeric_limits<int32_t>::min());
  for (const char* op : {"div", "rem", "floordiv", "floormod"})
    EXPECT_EQ(int_op(op, Dtype::kI64, {7, 0}), 0) << op;
  EXPECT_EQ(int_op("div", Dtype::kI64, {kMin, -1}), kMin);
  EXPECT_EQ(int_op("floordiv", Dtype::kI32, {std::numeric_limits<int32_t>::min(), -1}),
            std::numeric_limits<int32_t>::min());
  EXPECT_EQ(int_op("rem", Dtype::kI64, {kMin, -1}), 0);
}

TEST(LoopEval, IntegerDivisionSigns) {
  for (int64_t a = -9; a <= 9; ++a)
    for (int64_t b : {-4, -3, -1, 1, 3, 4}) {
      EXPECT_EQ(int_op("div", Dtype::kI32, {a, b}), a / b);
      EXPECT_EQ(int_op("rem", Dtype::kI32, {a, b}), a % b);
      auto floor = static_cast<int64_t>(std::floor(static_cast<double>(a) / static_cast<double>(b)));
      EXPECT_EQ(int_op("floordiv", Dtype::kI16, {a, b}), floor) << a << " // " << b;
      EXPECT_EQ(int_op("floormod", Dtype::kI64, {a, b}), a - floor * b) << a << " % " << b;
    }
}

TEST(LoopEval, Bits) {
  EXPECT_EQ(int_op("bitnot", Dtype::kU8, {0x0f}), 0xf0);
  EXPECT_EQ(int_op("bitnot", Dtype::kBool, {1}), 0);
  EXPECT_EQ(int_op("bitnot", Dtype::kI64, {0}), -1);
  EXPECT_EQ(int_op("bitxor", Dtype::kI8, {-1, 0x55}), static_cast<int8_t>(0xaa));
  EXPECT_EQ(int_op("bitand", Dtype::kBool, {1, 0}), 0);
  EXPECT_EQ(int_op("bitor", Dtype::kBool, {1, 0}), 1);
  EXPECT_EQ(int_op("shl", Dtype::kI32, {1, 31}), std::numeric_limits<int32_t>::min());
  EXPECT_EQ(int_op("shl", Dtype::kI32, {1, 32}), 0);
  EXPECT_EQ(int_op("shl", Dtype::kI64, {1, -1}), 0);
  EXPECT_EQ(int_op("shr", Dtype::kI32, {-8, 1}), -4);
  EXPECT_EQ(int_op("shr", Dtype::kI32, {-8, 99}), -1);
  EXPECT_EQ(int_op("shr", Dtype::kI32, {8, -1}), 0);
  EXPECT_EQ(int_op("shr", Dtype::kU8, {0x80, 7}), 1);
}

TEST(LoopEval, Comparisons) {
  auto f = [](std::string_view op, double a, double b) {
    const Scalar args[] = {{Dtype::kF32, 0, a}, {Dtype::kF32, 0, b}};
    return eval_scalar(*parse_scalar_op(op), args, Dtype::kBool).i != 0;
  };
  for (double a : {-1.0, 0.0, -0.0, 2.0, kInf, kNan})
    for (double b : {-1.0, 0.0, 2.0, -kInf, kNan}) {
      EXPECT_EQ(f("eq", a, b), a == b);
      EXPECT_EQ(f("ne", a, b), a != b);
      EXPECT_EQ(f("lt", a, b), a < b);
      EXPECT_EQ(f("le", a, b), a <= b);
      EXPECT_EQ(f("gt", a, b), a > b);
      EXPECT_EQ(f("ge", a, b), a >= b);
    }
  EXPECT_EQ(int_op("lt", Dtype::kI64, {kMin, kMax}), 1);
  EXPECT_EQ(int_op("ge", Dtype::kBool, {0, 1}), 0);
  const Scalar nan[] = {{Dtype::kF32, 0, kNan}}, inf[] = {{Dtype::kF64, 0, -kInf}};
  EXPECT_EQ(eval_scalar(ScalarOp::isnan_, nan, Dtype::kBool).i, 1);
  EXPECT_EQ(eval_scalar(ScalarOp::isinf_, nan, Dtype::kBool).i, 0);
  EXPECT_EQ(eval_scalar(ScalarOp::isinf_, inf, Dtype::kBool).i, 1);
  const Scalar choice[] = {{Dtype::kBool, 0}, {Dtype::kI32, 1}, {Dtype::kI32, 2}};
  EXPECT_EQ(eval_scalar(ScalarOp::select_, choice, Dtype::kI32).i, 2);
}

TEST(LoopEval, EveryOpIsDefinedOnItsDomain) {
  for (int i = 0; i < scalar_op_count(); ++i) {
    auto op = static_cast<ScalarOp>(i);
    for (const DtypeInfo& row : kDtypes) {
      Dtype dtype = *parse_dtype(row.name);
      std::vector<Expr> vars(info(op).arity, make_var("x", {dtype, 1}));
      if (op == ScalarOp::select_) vars[0] = make_var("c", kBool1);
      Type result;
      try {
        result = make_apply(op, vars)->type;
      } catch (const InternalError&) {
        continue;  // outside the domain
      }
      std::vector<Scalar> args(info(op).arity, Scalar{dtype, 1, 1.0});
      EXPECT_EQ(eval_scalar(op, args, result.dtype).dtype, result.dtype) << info(op).name << " " << row.name;
    }
  }
}

Scalar cast(double x, Dtype from, Dtype to) { return cast_scalar({from, 0, x}, to); }

TEST(LoopEval, Casts) {
  EXPECT_EQ(cast(2.9, Dtype::kF32, Dtype::kI32).i, 2);
  EXPECT_EQ(cast(-2.9, Dtype::kF64, Dtype::kI64).i, -2);
  EXPECT_EQ(cast(kNan, Dtype::kF32, Dtype::kI64).i, kMin);
  EXPECT_EQ(cast(1e30, Dtype::kF32, Dtype::kI32).i, std::numeric_limits<int32_t>::min());
  EXPECT_EQ(cast(300, Dtype::kF32, Dtype::kU8).i, 44);
  EXPECT_EQ(cast(-1, Dtype::kF32, Dtype::kU8).i, 255);
  EXPECT_EQ(cast(0.25, Dtype::kF32, Dtype::kBool).i, 1);
  EXPECT_EQ(cast(kNan, Dtype::kF32, Dtype::kBool).i, 1);
  EXPECT_EQ(cast(-0.0, Dtype::kF32, Dtype::kBool).i, 0);
  EXPECT_EQ(cast_scalar({Dtype::kI64, 256}, Dtype::kBool).i, 1);
  EXPECT_EQ(cast_scalar({Dtype::kI64, 384}, Dtype::kI8).i, -128);
  EXPECT_EQ(cast_scalar({Dtype::kI64, kMax}, Dtype::kF32).f, 0x1p63);
  EXPECT_EQ(cast_scalar({Dtype::kBool, 1}, Dtype::kF16).f, 1);
  EXPECT_EQ(cast(0.1, Dtype::kF64, Dtype::kF32).f, 0.1f);
  EXPECT_EQ(cast(1e300, Dtype::kF64, Dtype::kF32).f, kInf);
  // Through fp32 first: just above the tie in double, on the tie (and so down to even) in float.
  EXPECT_EQ(cast(1 + 0x1p-8 + 0x1p-40, Dtype::kF64, Dtype::kBF16).f, 1);
}

TEST(LoopEval, Bitcasts) {
  auto bits = [](double x, Dtype from, Dtype to) {
    const Scalar args[] = {{from, 0, x}};
    return eval_scalar(ScalarOp::bitcast_int_, args, to).i;
  };
  EXPECT_EQ(bits(1, Dtype::kF32, Dtype::kI32), 0x3f800000);
  EXPECT_EQ(bits(-0.0, Dtype::kF64, Dtype::kI64), kMin);
  EXPECT_EQ(bits(-2, Dtype::kBF16, Dtype::kI16), static_cast<int16_t>(0xc000));
  const Scalar one[] = {{Dtype::kI16, 0x3c00}};
  EXPECT_EQ(eval_scalar(ScalarOp::bitcast_float_, one, Dtype::kF16).f, 1);
}

TEST(LoopEval, HalfConversionsAreExact) {
  for (int bits = 0; bits < 0x10000; ++bits) {
    auto h = static_cast<uint16_t>(bits);
    float b = bf16_to_f32(h), f = f16_to_f32(h);
    if (!std::isnan(b)) {
      ASSERT_EQ(f32_to_bf16(b), h);
    }
    if (std::isnan(f)) {
      ASSERT_TRUE(std::isnan(f16_to_f32(f32_to_f16(f))));
    } else {
      ASSERT_EQ(f32_to_f16(f), h);
    }
  }
  EXPECT_TRUE(std::isnan(bf16_to_f32(f32_to_bf16(std::bit_cast<float>(0x7f800001)))));
}

TEST(LoopEval, HalfConversionsRoundToNearestEven) {
  // Between neighbours h and h + 1 (both signs alike): below the middle down, above it up, on it to the even
  // one.
  for (int bits = 0; bits < 0x7bff; ++bits) {
    auto h = static_cast<uint16_t>(bits);
    float low = f16_to_f32(h), high = f16_to_f32(static_cast<uint16_t>(h + 1)),
          middle = low + (high - low) / 2;
    uint16_t even = bits % 2 ? static_cast<uint16_t>(h + 1) : h;
    ASSERT_EQ(f32_to_f16(middle), even) << bits;
    ASSERT_EQ(f32_to_f16(std::nextafter(middle, low)), h) << bits;
    ASSERT_EQ(f32_to_f16(std::nextafter(middle, high)), h + 1) << bits;
    ASSERT_EQ(f32_to_f16(-middle), even | 0x8000) << bits;
  }
  for (int bits = 0; bits < 0x7f7f; ++bits) {
    auto h = static_cast<uint16_t>(bits);
    float middle = std::bit_cast<float>((static_cast<uint32_t>(h) << 16) | 0x8000);
    ASSERT_EQ(f32_to_bf16(middle), bits % 2 ? h + 1 : h) << bits;
    ASSERT_EQ(f32_to_bf16(std::nextafter(middle, 0.0f)), h) << bits;
    ASSERT_EQ(f32_to_bf16(std::nextafter(middle, INFINITY)), h + 1) << bits;
  }
  EXPECT_EQ(f32_to_f16(65519.996f), 0x7bff);
  EXPECT_EQ(f32_to_f16(65520.0f), 0x7c00);
  EXPECT_EQ(f32_to_f16(-INFINITY), 0xfc00);
  EXPECT_EQ(f32_to_f16(0x1p-25f), 0);
  EXPECT_EQ(f32_to_f16(0x1.000002p-25f), 1);
  EXPECT_EQ(f32_to_bf16(std::numeric_limits<float>::max()), 0x7f80);
}

// ---- programs ----

template <class... Buffers>
void run(std::string_view text, std::vector<int64_t> symbols, Buffers&... buffers) {
  Function f = parse_function(text);
  verify(f);
  void* pointers[] = {buffers.data()..., nullptr};
  eval(f, {pointers, sizeof...(buffers)}, symbols);
}

TEST(LoopEval, RowSumsOfEveryLoopKind) {
  for (const char* kind : {"", "parallel(grain=2) ", "vector(lanes=4, unroll=2) "}) {
    std::vector<float> x(15), y(3);
    for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i);
    run("func f(in x: f32[3*n], out y: f32[3]) symbols(n) { for i in 0..3 { for " + std::string(kind) +
            "j in 0..n reduce(s: f32 = 0f) { } yield(s + x[i*n + j]) merge(s + s.other) y[i] = s } }",
        {5}, x, y);
    EXPECT_EQ(y, (std::vector<float>{10, 35, 60}));
  }
}

TEST(LoopEval, YieldsReadTheOldStates) {
  std::vector<int64_t> y(2);
  run("func f(out y: i64[2]) { for i in 0..10 reduce(a: i64 = 0, b: i64 = 1) { } yield(b, a + b) merge(a, b) "
      "y[0] = a y[1] = b }",
      {}, y);
  EXPECT_EQ(y, (std::vector<int64_t>{55, 89}));
}

TEST(LoopEval, EmptyLoopLeavesTheInitialState) {
  std::vector<double> y(1, 7);
  run("func f(inout y: f64[1]) { for i in 3..3 reduce(s: f64 = y[0] identity(0d)) { } yield(s + 1d) merge(s "
      "+ s.other) "
      "y[0] = s + 0.5d for k in 5..2 { y[0] = 0d } }",
      {}, y);
  EXPECT_EQ(y[0], 7.5);
}

TEST(LoopEval, ArgmaxIsATupleReduction) {
  std::vector<float> x = {1, 9, -3, 9, 2};
  std::vector<int64_t> at(1);
  run("func f(in x: f32[5], out at: i64[1]) { for i in 0..5 reduce(m: f32 = -inff, k: i64 = 0) { let on: b1 "
      "= x[i] > m }"
      " yield(select(on, x[i], m), select(on, i, k)) merge(max(m, m.other), select(m.other > m, k.other, k)) "
      "at[0] = k }",
      {}, x, at);
  EXPECT_EQ(at[0], 1);
}

TEST(LoopEval, MaskedLanesTouchNoMemory) {
  std::vector<float> x = {1, 2, 3, 4, 5}, y(5, -1), sum(1);
  run("func f(in x: f32[5], out y: f32[5], out sum: f32[1]) { for i in 0..2 { let k = ramp(i*4, 1, 4) let on "
      "= k < 5 "
      "y[k] = x[k if on]*2f if on } let l = ramp(3, 1, 4) sum[0] = reduce_lanes.add(x[l if l < 5]) }",
      {}, x, y, sum);
  EXPECT_EQ(y, (std::vector<float>{2, 4, 6, 8, 10}));
  EXPECT_EQ(sum[0], 9);
}

TEST(LoopEval, VectorStatesAndLaneReductions) {
  std::vector<int32_t> x = {3, 1, 4, 1, 5, 9, 2, 6}, y(4);
  run("func f(in x: i32[8], out y: i32[4]) { for i in 0..2 reduce(v: i32x4 = broadcast(0i32, 4)) { } "
      "yield(v + x[ramp(i*4, 1, 4)]) merge(v + v.other) "
      "y[0] = reduce_lanes.add(v) y[1] = reduce_lanes.max(v) y[2] = reduce_lanes.mul(v) y[3] = "
      "reduce_lanes.bitxor(v) }",
      {}, x, y);
  EXPECT_EQ(y, (std::vector<int32_t>{31, 10, 8 * 10 * 6 * 7, 8 ^ 10 ^ 6 ^ 7}));
}

TEST(LoopEval, StoreReadsBeforeItWrites) {
  std::vector<int64_t> x = {1, 2, 3, 4};
  run("func f(inout x: i64[4]) { x[ramp(1, 1, 3)] = x[ramp(0, 1, 3)] }", {}, x);
  EXPECT_EQ(x, (std::vector<int64_t>{1, 1, 2, 3}));
}

TEST(LoopEval, StoresRoundToTheBuffersType) {
  std::vector<float> x = {1 + 0x1p-8f, 1 + 0x1.8p-7f, 70000, NAN};
  std::vector<uint16_t> b(4), h(4);
  std::vector<uint8_t> p(4, 9);
  run("func f(in x: f32[4], out b: bf16[4], out h: f16[4], out p: b1[4]) { for i in 0..4 { b[i] = "
      "cast.bf16(x[i]) "
      "h[i] = cast.f16(x[i]) p[i] = x[i] > 1.01f } }",
      {}, x, b, h, p);
  EXPECT_EQ(b, (std::vector<uint16_t>{0x3f80, 0x3f82, 0x4789, 0x7fc0}));
  EXPECT_EQ(h, (std::vector<uint16_t>{0x3c04, 0x3c0c, 0x7c00, 0x7e00}));
  EXPECT_EQ(p, (std::vector<uint8_t>{0, 1, 1, 0}));
}

TEST(LoopEval, ScratchAndConditions) {
  std::vector<int64_t> y(6);
  run("func f(out y: i64[n]) symbols(n) { alloc t: i64[n + 1] for i in 0..n { t[i] = i*i } for j in 0..n { "
      "if j % 2 == 0 "
      "{ y[j] = t[j] } else { y[j] = -t[j] } } }",
      {6}, y);
  EXPECT_EQ(y, (std::vector<int64_t>{0, -1, 4, -9, 16, -25}));
}

TEST(LoopEval, FaultsAreReported) {
  std::vector<float> x(4);
  EXPECT_THROW(run("func f(inout x: f32[4]) { x[4] = 0f }", {}, x), InternalError);
  EXPECT_THROW(run("func f(inout x: f32[4]) { x[0] = x[-1] }", {}, x), InternalError);
  EXPECT_THROW(run("func f(inout x: f32[4]) { alloc t: f32[2] t[2] = 1f }", {}, x), InternalError);
  EXPECT_THROW(run("func f(inout x: f32[4]) { call other(1) }", {}, x), InternalError);
  EXPECT_THROW(run("func f(inout x: f32[4]) symbols(n) { }", {}, x), InternalError);
  EXPECT_NO_THROW(run("func f(inout x: f32[4]) { call prefetch(x[3]) }", {}, x));
  EXPECT_THROW(run("func f(inout x: f32[4]) { call prefetch(x[4]) }", {}, x), InternalError);
  try {
    run("func f(inout x: f32[4]) { call ipex_report_index(7, 4, 0) }", {}, x);
    FAIL() << "no IndexError";
  } catch (const IndexError& error) {
    EXPECT_STREQ(error.what(), "index 7 is out of bounds for dimension 0 with size 4");
  }
}

TEST(LoopEval, EvalInt) {
  EXPECT_EQ(eval_int(parse_expr("(i*4 + j)//3 - s % 5"), {{"i", 3}, {"j", 2}, {"s", 7}}), 2);
  EXPECT_EQ(eval_int(parse_expr("select(i < 2, 10, 20) + cast.i64(i == 3)"), {{"i", 3}}), 21);
  EXPECT_THROW(eval_int(parse_expr("i + k"), {{"i", 3}}), InternalError);
  EXPECT_THROW(eval_int(parse_expr("ramp(i, 1, 4)"), {{"i", 3}}), InternalError);
  EXPECT_THROW(eval_int(parse_expr("1f"), {}), InternalError);
}

}  // namespace
}  // namespace ipex::loop

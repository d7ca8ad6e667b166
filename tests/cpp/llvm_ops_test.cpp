// Every scalar op on every dtype of its domain, as scalars and as vectors, on every ISA of this CPU, against
// the interpreter.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <random>

#include "codegen/llvm/math_table.h"
#include "tests/cpp/llvm_kernels.h"

namespace ipex::loop::testing {
namespace {

bool in_domain(ScalarOp op, Dtype dtype) {
  if (is_half(dtype)) return false;
  switch (info(op).domain) {
    case Domain::kAny:
      return true;
    case Domain::kNumber:
      return dtype != Dtype::kBool;
    case Domain::kFloatOnly:
      return is_float(dtype);
    case Domain::kIntOnly:
      return is_int(dtype);
    case Domain::kBits:
      return !is_float(dtype);
  }
  return false;
}

bool is_bitcast(ScalarOp op) { return op == ScalarOp::bitcast_int_ || op == ScalarOp::bitcast_float_; }
bool is_defined(ScalarOp op, Dtype dtype) {
  // Below, and in llvm_accuracy_test.cpp.
  if (op == ScalarOp::pair_bf16_ || op == ScalarOp::dot_bf16_ || op == ScalarOp::scale_ ||
      op == ScalarOp::lookup_)
    return false;
  if (op == ScalarOp::normal_cdf_ || op == ScalarOp::gelu_slope_ || op == ScalarOp::tanh_cdf_ ||
      op == ScalarOp::gelu_tanh_slope_ || op == ScalarOp::exp_nonpositive_)
    return false;
  if (op == ScalarOp::bitcast_float_) return dtype == Dtype::kI32 || dtype == Dtype::kI64;
  return in_domain(op, dtype);
}

Dtype result_dtype(ScalarOp op, Dtype dtype) {
  if (op == ScalarOp::bitcast_int_) return dtype == Dtype::kF64 ? Dtype::kI64 : Dtype::kI32;
  if (op == ScalarOp::bitcast_float_) return dtype == Dtype::kI64 ? Dtype::kF64 : Dtype::kF32;
  return info(op).result == ResultRule::kBoolean ? Dtype::kBool : dtype;
}

// Operand k of every op: all pairs of edge values, then random ones.
constexpr int64_t kCount = 3072;
Array operand(Dtype dtype, int k) {
  Array a(dtype, kCount);
  std::mt19937_64 random(k * 101 + static_cast<int>(dtype));
  if (is_float(dtype)) {
    const auto edges = float_edges(dtype);
    const int64_t n = static_cast<int64_t>(edges.size());
    std::normal_distribution<double> normal(0, 4);
    for (int64_t i = 0; i < kCount; ++i) {
      const int64_t pick = k == 0 ? i % n : k == 1 ? i / n % n : (i * 7) % n;
      a.set_float(i, i < n * n ? edges[pick] : normal(random));
    }
  } else {
    const auto edges = int_edges(dtype);
    const int64_t n = static_cast<int64_t>(edges.size());
    for (int64_t i = 0; i < kCount; ++i) {
      const int64_t pick = k == 0 ? i % n : k == 1 ? i / n % n : (i * 5) % n;
      a.set_int(i, i < n * n               ? edges[pick]
                   : dtype == Dtype::kBool ? random() & 1
                                           : static_cast<int64_t>(random()));
    }
  }
  return a;
}

// Sleef's bound, and what the interpreter's own libm may add.
double allowed_ulps(ScalarOp op, Dtype dtype) {
  const MathFunction* math = math_function(op);
  if (!math || !is_float(dtype)) return 0;
  return math->ulp == 0 ? 0 : math->ulp + 1;
}

// Arguments for which Sleef, and eager through it, claims nothing: quotients that overflow in fmod and in
// what is made of it, and functions that overflow inside before their result does.
bool is_outside_domain(ScalarOp op, Dtype dtype, double a, double b) {
  if (!is_float(dtype) || !std::isfinite(a)) return false;
  const bool is_double = dtype == Dtype::kF64;
  if (op == ScalarOp::rem_ || op == ScalarOp::floordiv_ || op == ScalarOp::floormod_)
    return b != 0 && std::abs(a / b) > (is_double ? 1e300 : 3.4e38);
  const MathFunction* math = math_function(op);
  if (!math || std::isinf(math->domain)) return false;
  const bool exponential = math->domain < 100;
  return std::abs(a) > (is_double ? (exponential ? 709 : 1e150) : math->domain);
}

class ScalarOps : public ::testing::TestWithParam<Dtype> {};

TEST_P(ScalarOps, AgreeWithTheInterpreter) {
  const Dtype dtype = GetParam();
  std::vector<Array> operands;
  for (int k = 0; k < 3; ++k) operands.push_back(operand(dtype, k));
  Array conditions = operand(Dtype::kBool, 2);

  for (Isa isa : supported_isas()) {
    const Target target = target_for(isa);
    // One lane, one register, and a width that is neither: split and padded.
    for (int lanes : {1, target.lanes(dtype), 3, 2 * target.lanes(dtype)}) {
      std::vector<Function> sources, kernels;
      std::vector<ScalarOp> ops;
      for (int o = 0; o < scalar_op_count(); ++o) {
        const auto op = static_cast<ScalarOp>(o);
        if (!is_defined(op, dtype)) continue;
        std::vector<Dtype> inputs(info(op).arity, dtype);
        if (op == ScalarOp::select_) inputs = {Dtype::kBool, dtype, dtype};
        const Dtype result = result_dtype(op, dtype);
        sources.push_back(elementwise("op_" + std::string(info(op).name), inputs, result, kCount, lanes,
                                      [&](const std::vector<Expr>& x) {
                                        return is_bitcast(op) ? make_apply_as(op, x, {result, lanes})
                                                              : make_apply(op, x);
                                      }));
        kernels.push_back(lowered(sources.back(), target));
        ops.push_back(op);
      }
      const auto library = jit_compile(kernels, target);
      for (size_t i = 0; i < ops.size(); ++i) {
        const bool selects = ops[i] == ScalarOp::select_;
        std::vector<Array*> arrays;
        if (selects) arrays.push_back(&conditions);
        for (int k = 0; k < info(ops[i]).arity - selects; ++k) arrays.push_back(&operands[k]);
        Array expected(result_dtype(ops[i], dtype), kCount), actual = expected;
        arrays.push_back(&expected);
        interpret(sources[i], arrays);
        arrays.back() = &actual;
        run(*library, sources[i].name, arrays);
        if (is_float(expected.dtype) && !selects)
          for (int64_t k = 0; k < kCount; ++k)
            if (is_outside_domain(ops[i], dtype, operands[0].get_float(k), operands[1].get_float(k)))
              actual.set_float(k, expected.get_float(k));
        EXPECT_EQ(difference(expected, actual, allowed_ulps(ops[i], dtype)), "")
            << sources[i].name << " of " << name(dtype) << "x" << lanes << " on " << name(isa);
      }
    }
  }
}

// Pairs of bf16: made exactly as casts make each half, multiplied with at most two roundings. Denormals,
// which some CPUs take for 0, are left out.
TEST(PairsOfBf16, AgreeWithTheInterpreter) {
  constexpr int64_t kNumbers = 3072;
  std::mt19937 random(5);
  std::normal_distribution<double> normal(0, 3);
  std::vector<Array> numbers(5, Array(Dtype::kF32, kNumbers));
  // The interpreter keeps a pair as a number: an infinity in the upper half would be a NaN to it.
  for (size_t k = 0; k < numbers.size(); ++k)
    for (int64_t i = 0; i < kNumbers; ++i)
      numbers[k].set_float(i, i % 97 == 0                  ? 0.0
                              : i % 101 == 0 && k % 2 == 0 ? -std::numeric_limits<double>::infinity()
                                                           : normal(random));
  for (int64_t i = 0; i < kNumbers; i += 211) numbers[i % 3 * 2].set_float(i, std::nan(""));
  const auto pair = [](const Expr& a, const Expr& b) { return make_apply(ScalarOp::pair_bf16_, {a, b}); };
  const auto dot = [&](const std::vector<Expr>& x) {
    return make_apply(ScalarOp::dot_bf16_, {pair(x[0], x[1]), pair(x[2], x[3]), x[4]});
  };
  const auto bits = [&](const std::vector<Expr>& x) {
    return make_apply_as(ScalarOp::bitcast_int_, {pair(x[0], x[1])}, {Dtype::kI32, x[0]->type.lanes});
  };
  for (Isa isa : supported_isas()) {
    const Target target = target_for(isa);
    for (int lanes : {1, 4, 8, 16, 3, 32}) {
      const std::vector<Dtype> five(5, Dtype::kF32), two(2, Dtype::kF32);
      const Function dots = elementwise("dots", five, Dtype::kF32, kNumbers, lanes, dot),
                     pairs = elementwise("pairs", two, Dtype::kI32, kNumbers, lanes, bits);
      const auto library = jit_compile({lowered(dots, target), lowered(pairs, target)}, target);
      Array expected(Dtype::kF32, kNumbers), actual = expected, words(Dtype::kI32, kNumbers), made = words;
      std::vector<Array*> arrays = {&numbers[0], &numbers[1], &words};
      interpret(pairs, arrays);
      arrays.back() = &made;
      run(*library, "pairs", arrays);
      for (int64_t i = 0; i < kNumbers; ++i) {
        if (std::isnan(numbers[0].get_float(i)) || std::isnan(numbers[1].get_float(i))) continue;
        ASSERT_EQ(made.get_int(i), words.get_int(i)) << i << " x" << lanes << " on " << name(isa);
      }
      arrays = {&numbers[0], &numbers[1], &numbers[2], &numbers[3], &numbers[4], &expected};
      interpret(dots, arrays);
      arrays.back() = &actual;
      run(*library, "dots", arrays);
      for (int64_t i = 0; i < kNumbers; ++i) {
        const double e = expected.get_float(i), a = actual.get_float(i);
        double scale = std::abs(numbers[4].get_float(i));
        for (int k = 0; k < 2; ++k) scale += std::abs(numbers[k].get_float(i) * numbers[2 + k].get_float(i));
        ASSERT_TRUE(std::isnan(e) ? std::isnan(a) : e == a || std::abs(e - a) <= scale * 0x1p-22)
            << i << " x" << lanes << " on " << name(isa) << ": " << a << ", expected " << e;
      }
    }
  }
}

// Into the denormals and beyond the largest number: one rounding, in whole registers and in lanes.
TEST(Scale, IsExact) {
  constexpr int64_t kPowers = 305, kNumbers = 64;
  Array a(Dtype::kF32, kPowers * kNumbers), b = a;
  std::mt19937 random(3);
  std::uniform_real_distribution<float> mantissa(0.25f, 4);
  for (int64_t i = 0; i < kPowers * kNumbers; ++i) {
    a.set_float(i, mantissa(random) * (i % 3 ? 1 : -1));
    b.set_float(i, static_cast<double>(i / kNumbers - kPowers / 2));
  }
  for (int lanes : {1, 8, 16, 64})
    expect_same(elementwise("scale", {Dtype::kF32, Dtype::kF32}, Dtype::kF32, kPowers * kNumbers, lanes,
                            [](const std::vector<Expr>& x) { return make_apply(ScalarOp::scale_, x); }),
                {a, b, Array(Dtype::kF32, kPowers * kNumbers)});
}

// Of constants (one permutation of a register, on AVX2 of eight that repeat) and of values that are computed.
TEST(Lookup, TakesTheLowestBits) {
  constexpr int64_t kCount = 256;
  Array index(Dtype::kF32, kCount), base(Dtype::kF32, kCount);
  for (int64_t i = 0; i < kCount; ++i) {
    index.set_int(i, (i * 7919) ^ 0x3f80'0000);
    base.set_float(i, static_cast<double>(i));
  }
  for (const bool repeats : {true, false})
    for (const bool constant : {true, false})
      for (int lanes : {1, 4, 8, 16, 32}) {
        const auto looked_up = [&](const std::vector<Expr>& x) {
          std::vector<Expr> args{x[0]};
          for (int i = 0; i < 16; ++i) {
            const int place = repeats ? i % 8 : i;
            const Expr value = make_const(x[0]->type, place * place + 0.5);
            args.push_back(constant ? value : make_apply(ScalarOp::add_, {x[1], value}));
          }
          return make_apply(ScalarOp::lookup_, args);
        };
        expect_same(elementwise("lookup", {Dtype::kF32, Dtype::kF32}, Dtype::kF32, kCount, lanes, looked_up),
                    {index, base, Array(Dtype::kF32, kCount)});
      }
}

// Remainders of numbers at, just under and just over multiples, small and large, one and many lanes of each.
TEST(FloatRemainder, IsExact) {
  const auto check = [](Dtype dtype, auto zero) {
    using T = decltype(zero);
    constexpr int64_t kNumbers = 4096;
    std::mt19937_64 random(11);
    Array a(dtype, kNumbers), b(dtype, kNumbers), actual(dtype, kNumbers);
    for (int64_t i = 0; i < kNumbers; ++i) {
      const int low = i < kNumbers / 2 ? 0 : -150,
                high = i < kNumbers / 2 ? 30 : 90;  // quotients' powers of two
      const auto divisor = static_cast<T>(std::ldexp(1.0 + static_cast<double>(random()) * 0x1p-64,
                                                     low + static_cast<int>(random() % (high - low))));
      const auto times = static_cast<T>(random() >> (40 + random() % 24));
      T dividend = times * divisor;
      if (i % 3 == 1) dividend = std::nextafter(dividend, T(0));
      if (i % 3 == 2) dividend = std::nextafter(dividend, std::numeric_limits<T>::infinity());
      a.set_float(i, i % 2 ? -dividend : dividend);
      b.set_float(i, i % 5 ? divisor : -divisor);
    }
    for (Isa isa : supported_isas()) {
      const Target target = target_for(isa);
      for (int lanes : {1, target.lanes(dtype)}) {
        const Function f =
            elementwise("rem", {dtype, dtype}, dtype, kNumbers, lanes,
                        [](const std::vector<Expr>& x) { return make_apply(ScalarOp::rem_, x); });
        const auto library = jit_compile({lowered(f, target)}, target);
        run(*library, "rem", {&a, &b, &actual});
        for (int64_t i = 0; i < kNumbers; ++i) {
          const T expected = std::fmod(static_cast<T>(a.get_float(i)), static_cast<T>(b.get_float(i)));
          ASSERT_EQ(actual.get_float(i), expected)
              << a.get_float(i) << " by " << b.get_float(i) << " x" << lanes;
          ASSERT_EQ(std::signbit(actual.get_float(i)), std::signbit(expected));
        }
      }
    }
  };
  check(Dtype::kF32, 0.0f);
  check(Dtype::kF64, 0.0);
}

INSTANTIATE_TEST_SUITE_P(Dtypes, ScalarOps,
                         ::testing::Values(Dtype::kBool, Dtype::kU8, Dtype::kI8, Dtype::kI16, Dtype::kI32,
                                           Dtype::kI64, Dtype::kF32, Dtype::kF64),
                         [](const auto& info) { return std::string(name(info.param)); });

// Division by a constant takes other paths than by a variable.
TEST(ScalarOps, DivisionByConstants) {
  for (Dtype dtype : {Dtype::kI8, Dtype::kI32, Dtype::kI64}) {
    for (int64_t divisor : {-128, -3, -1, 0, 1, 2, 3, 7, 8, 64, 100}) {
      for (ScalarOp op : {ScalarOp::div_, ScalarOp::rem_, ScalarOp::floordiv_, ScalarOp::floormod_}) {
        const int lanes = dtype == Dtype::kI64 ? 1 : 8;
        const Function f =
            elementwise("divide", {dtype}, dtype, kCount, lanes, [&](const std::vector<Expr>& x) {
              return make_apply(op, {x[0], make_int(x[0]->type, divisor)});
            });
        expect_same(f, {operand(dtype, 0), Array(dtype, kCount)});
      }
    }
  }
}

class Casts : public ::testing::TestWithParam<Dtype> {};

TEST_P(Casts, AgreeWithTheInterpreter) {
  const Dtype from = GetParam();
  Array source = operand(from, 0);
  for (Isa isa : supported_isas()) {
    const Target target = target_for(isa);
    for (int lanes : {1, 3, 8, 16}) {
      std::vector<Function> kernels;
      std::vector<Dtype> targets;
      for (size_t d = 0; d < kDtypes.size(); ++d) {
        const auto to = static_cast<Dtype>(d);
        if (to == from) continue;
        targets.push_back(to);
        kernels.push_back(elementwise("to_" + std::string(name(to)), {from}, to, kCount, lanes,
                                      [&](const std::vector<Expr>& x) { return make_cast(to, x[0]); }));
      }
      const auto library = jit_compile(kernels, target);
      for (size_t i = 0; i < targets.size(); ++i) {
        Array expected(targets[i], kCount), actual = expected;
        interpret(kernels[i], {&source, &expected});
        run(*library, kernels[i].name, {&source, &actual});
        EXPECT_EQ(difference(expected, actual), "")
            << name(from) << " to " << name(targets[i]) << "x" << lanes << " on " << name(isa);
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Dtypes, Casts,
                         ::testing::Values(Dtype::kBool, Dtype::kU8, Dtype::kI8, Dtype::kI16, Dtype::kI32,
                                           Dtype::kI64, Dtype::kF16, Dtype::kBF16, Dtype::kF32, Dtype::kF64),
                         [](const auto& info) { return std::string(name(info.param)); });

Array all_values(Dtype half) {
  Array bits(half, 65536);
  for (int64_t i = 0; i < bits.size; ++i) bits.set_int(i, i);
  return bits;
}

// f32 around each tie of bf16.
Array all_ties() {
  Array ties(Dtype::kF32, 65536 * 3);
  for (int64_t i = 0; i < ties.size; ++i)
    ties.set_float(i, std::bit_cast<float>((static_cast<uint32_t>(i / 3) << 16) + 0x7fff +
                                           static_cast<uint32_t>(i % 3)));
  return ties;
}

// Every bf16 and f16 value, and the rounding of f32 values around each tie.
TEST(Casts, HalfTypesExhaustively) {
  const Array ties = all_ties();
  for (Dtype half : {Dtype::kF16, Dtype::kBF16}) {
    const Array bits = all_values(half);
    expect_same(elementwise("widen", {half}, Dtype::kF32, 65536, 16,
                            [](const std::vector<Expr>& x) { return make_cast(Dtype::kF32, x[0]); }),
                {bits, Array(Dtype::kF32, 65536)});
    for (int lanes : {1, 16})
      expect_same(elementwise("round", {Dtype::kF32}, half, 65536 * 3, lanes,
                              [&](const std::vector<Expr>& x) { return make_cast(half, x[0]); }),
                  {ties, Array(half, 65536 * 3)});
  }
}

// The same values in the order of deinterleave: even lanes before odd ones, in registers and in parts of
// them.
TEST(Casts, PairsExhaustively) {
  const Array bits = all_values(Dtype::kBF16), ties = all_ties();
  for (auto [lanes, block] : {std::pair(8, 8), {16, 16}, {32, 16}, {32, 32}, {64, 16}, {64, 32}, {64, 64}}) {
    expect_same(elementwise("widen", {Dtype::kBF16}, Dtype::kF32, bits.size, lanes,
                            [lanes, block](const std::vector<Expr>& x) {
                              const Expr wide = make_cast(Dtype::kF32, x[0]);
                              return make_shuffle(wide, wide, deinterleave_mask(lanes, block));
                            }),
                {bits, Array(Dtype::kF32, bits.size)});
    expect_same(elementwise("round", {Dtype::kF32}, Dtype::kBF16, ties.size, lanes,
                            [lanes, block](const std::vector<Expr>& x) {
                              return make_cast(Dtype::kBF16,
                                               make_shuffle(x[0], x[0], interleave_mask(lanes, block)));
                            }),
                {ties, Array(Dtype::kBF16, ties.size)});
  }
}

// What a code generator knows of the bits of a rounded value must be true.
TEST(Casts, SignsSurviveRounding) {
  for (Dtype half : {Dtype::kF16, Dtype::kBF16})
    for (int lanes : {1, 8}) {
      Array values(Dtype::kF32, 64), sizes(Dtype::kF32, 64);
      for (int64_t i = 0; i < 64; ++i) {
        values.set_float(i, static_cast<double>(i - 32) / 3);
        sizes.set_float(i, static_cast<double>(i) + 0.25);
      }
      const auto rounded = [=](const Expr& x) { return make_cast(Dtype::kF32, make_cast(half, x)); };
      expect_same(elementwise("copysign", {Dtype::kF32, Dtype::kF32}, half, 64, lanes,
                              [=](const std::vector<Expr>& x) {
                                return make_cast(half,
                                                 make_apply(ScalarOp::copysign_, {x[1], rounded(x[0])}));
                              }),
                  {values, sizes, Array(half, 64)});
      expect_same(elementwise("abs", {Dtype::kF32}, Dtype::kF32, 64, lanes,
                              [=](const std::vector<Expr>& x) {
                                const Expr y = rounded(x[0]);
                                return make_apply(ScalarOp::sub_, {make_apply(ScalarOp::abs_, {y}), y});
                              }),
                  {values, Array(Dtype::kF32, 64)});
    }
}

}  // namespace
}  // namespace ipex::loop::testing

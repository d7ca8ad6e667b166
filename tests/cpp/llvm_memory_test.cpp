// Every form of index and mask that a load or store takes, for every dtype, against the interpreter.
#include <gtest/gtest.h>

#include <limits>
#include <regex>

#include "codegen/loop/text.h"
#include "tests/cpp/llvm_kernels.h"

namespace ipex::loop::testing {
namespace {

constexpr Dtype kAll[] = {Dtype::kBool, Dtype::kU8,  Dtype::kI8,   Dtype::kI16, Dtype::kI32,
                          Dtype::kI64,  Dtype::kF16, Dtype::kBF16, Dtype::kF32, Dtype::kF64};

Array counting(Dtype dtype, int64_t n) {
  Array a(dtype, n);
  for (int64_t i = 0; i < n; ++i) {
    if (is_float(dtype))
      a.set_float(i, static_cast<double>(i % 97) - 20);
    else
      a.set_int(i, dtype == Dtype::kBool ? i % 3 == 0 : i % 97 + 1);
  }
  return a;
}

// `text` copies elements of type T from x[64] to y[64], using index[64] (a permutation).
void expect_copies(const std::string& text) {
  for (Dtype dtype : kAll) {
    const std::string source = std::regex_replace(text, std::regex("\\bT\\b"), std::string(name(dtype)));
    SCOPED_TRACE(source);
    Array index(Dtype::kI64, 64);
    for (int64_t i = 0; i < 64; ++i) index.set_int(i, i * 29 % 64);
    expect_same(parse_function(source), {counting(dtype, 64), index, counting(dtype, 64)}, {});
  }
}

std::string copy_kernel(const std::string& statements) {
  return "func copy(in x: T[64], in index: i64[64], inout y: T[64]) {\n" + statements + "}\n";
}

TEST(Memory, Contiguous) {
  expect_copies(copy_kernel("for i in 0..8 { y[ramp(i*8, 1, 8)] = x[ramp(i*8, 1, 8)] }"));
  expect_copies(copy_kernel("for i in 0..4 { y[ramp(i*16, 1, 16)] = x[ramp(i*16, 1, 16)] }"));
  expect_copies(copy_kernel("for i in 0..4 { y[ramp(i*13, 1, 5)] = x[ramp(i*3 + 1, 1, 5)] }"));
  expect_copies(copy_kernel("for i in 0..64 { y[i] = x[63 - i] }"));
}

// Elements a few apart, from the first of the buffer and up to its last: nothing beyond it is read.
TEST(Memory, Interleaved) {
  for (int apart = 2; apart <= 4; ++apart)
    for (int lanes : {4, 5, 8, 16}) {
      const std::string n = std::to_string(lanes), step = std::to_string(apart),
                        first = std::to_string(63 - apart * (lanes - 1));
      expect_copies(copy_kernel("y[ramp(0, 1, " + n + ")] = x[ramp(0, " + step + ", " + n + ")]\n" +
                                "y[ramp(32, 1, " + n + ")] = x[ramp(" + first + ", " + step + ", " + n +
                                ")]"));
    }
}

// A part of the mask, a register or more, is known to be off, the rest only when the kernel runs.
TEST(Memory, MaskedAccessToAPart) {
  for (const char* lanes :
       {"< broadcast(3, 16)", "< broadcast(4, 16)", "< broadcast(7, 16)", "< broadcast(8, 16)",
        ">= broadcast(4, 16)", ">= broadcast(9, 16)", ">= broadcast(15, 16)"}) {
    const std::string on = "for i in 0..4 {\n let on: b1x16 = bitand(broadcast(i < 2, 16), ramp(0, 1, 16) " +
                           std::string(lanes) + ")\n";
    expect_copies(copy_kernel(on + " y[ramp(i*16, 1, 16)] = x[ramp(i*16, 1, 16) if on]\n}"));
    expect_copies(copy_kernel(on + " y[ramp(i*16, 1, 16)] = x[ramp(48 - i*16, 1, 16)] if on\n}"));
  }
}

TEST(Memory, MaskedTail) {
  // The last lanes are outside both buffers' extents, so a touch would show in the interpreter and under a
  // sanitizer.
  for (int lanes : {4, 8, 16, 32}) {
    const std::string n = std::to_string(lanes);
    for (int count : {0, 1, 3, 4, 15, 16, 61, 64}) {
      const std::string c = std::to_string(count), trips = std::to_string((count + lanes - 1) / lanes);
      expect_copies(copy_kernel("for i in 0.." + trips + " {\n let on: b1x" + n + " = ramp(i*" + n + ", 1, " +
                                n + ") < broadcast(" + c + ", " + n + ")\n y[ramp(i*" + n + ", 1, " + n +
                                ")] = x[ramp(i*" + n + ", 1, " + n + ") if on] if on\n}"));
    }
  }
}

TEST(Memory, TailMaskOfExtremeCounts) {
  const Function f = parse_function(R"(func mask(in n: i64[8], out y: b1[128]) {
  for i in 0..8 {
    y[ramp(i*16, 1, 16)] = ramp(n[7 - i], 1, 16) < broadcast(n[i], 16)
  }
}
)");
  const int64_t min = std::numeric_limits<int64_t>::min(), max = std::numeric_limits<int64_t>::max();
  expect_same(f, {Array::of_ints(Dtype::kI64, {min, min + 3, -5, 0, 2, 9, max - 40, max - 20}),
                  Array(Dtype::kBool, 128)});
}

TEST(Memory, ArbitraryMask) {
  expect_copies(copy_kernel(R"(for i in 0..8 {
    let on: b1x8 = index[ramp(i*8, 1, 8)] < broadcast(40, 8)
    y[ramp(i*8, 1, 8)] = x[ramp(i*8, 1, 8) if on]
  })"));
  expect_copies(copy_kernel(R"(for i in 0..4 {
    let on: b1x16 = index[ramp(i*16, 1, 16)] < broadcast(40, 16)
    y[ramp(i*16, 1, 16)] = x[ramp(i*16, 1, 16)] if on
  })"));
}

// y[to] = x[from] narrowed, where the constant mask says so; the elements around stay.
TEST(Memory, ConstantMaskOfNarrowedValues) {
  const std::pair<Dtype, Dtype> narrowings[] = {
      {Dtype::kI64, Dtype::kI32}, {Dtype::kI64, Dtype::kI16}, {Dtype::kI64, Dtype::kI8},
      {Dtype::kI32, Dtype::kI16}, {Dtype::kI32, Dtype::kU8},  {Dtype::kI16, Dtype::kI8},
      {Dtype::kF64, Dtype::kF32}, {Dtype::kF32, Dtype::kF16}, {Dtype::kF32, Dtype::kBF16}};
  for (auto [from, to] : narrowings)
    for (int lanes : {4, 8, 16, 32})
      for (const std::string condition : {"< 1", "< 2", "< 3", "== 0", "== 3", "!= 1"}) {
        const std::string n = std::to_string(lanes), ramp = "ramp(0, 1, " + n + ")";
        const size_t space = condition.find(' ');
        const std::string mask =
            ramp + condition.substr(0, space) + " broadcast(" + condition.substr(space) + ", " + n + ")";
        const std::string source = "func narrow(in x: " + std::string(name(from)) + "[" + n +
                                   "], inout y: " + std::string(name(to)) + "[" + n + "]) {\n  y[" + ramp +
                                   "] = cast." + std::string(name(to)) + "(x[" + ramp + "]) if " + mask +
                                   "\n}\n";
        SCOPED_TRACE(source);
        Array x(from, lanes);  // every byte of a wide element tells
        for (int i = 0; i < lanes; ++i) is_float(from) ? x.set_float(i, i + 1.5) : x.set_int(i, -100 - i);
        expect_same(parse_function(source), {x, counting(to, lanes)});
      }
}

// Only the last element of y is written: a wider access would touch the guard behind it.
TEST(Memory, LastLaneStaysInside) {
  for (Dtype to : {Dtype::kI8, Dtype::kI16, Dtype::kI32}) {
    const std::string source = "func last(in x: i64[8], inout y: " + std::string(name(to)) + R"([1]) {
  y[ramp(-7, 1, 8)] = cast.)" + std::string(name(to)) +
                               R"((x[ramp(0, 1, 8)]) if ramp(0, 1, 8) == broadcast(7, 8)
}
)";
    SCOPED_TRACE(source);
    Array x(Dtype::kI64, 8);
    for (int i = 0; i < 8; ++i) x.set_int(i, -2 - i);
    expect_same(parse_function(source), {x, Array(to, 1)});
  }
}

// Past the caches, at addresses where that instruction would fault as well.
TEST(Memory, Streamed) {
  const auto copy = [](const std::string& statements) {
    return "func copy(in x: T[64], in index: i64[64], out y: T[64] streamed) {\n" + statements + "}\n";
  };
  for (const int lanes : {4, 8, 16, 32}) {
    const std::string n = std::to_string(lanes), trips = std::to_string(64 / lanes);
    expect_copies(copy("for i in 0.." + trips + " { y[ramp(i*" + n + ", 1, " + n + ")] = x[ramp(i*" + n +
                       ", 1, " + n + ")] }"));
  }
  for (const int begin : {0, 1, 8, 16})
    expect_copies(copy("for j in 0..64 { y[j] = x[j] }\n for i in 0..3 { y[ramp(i*16 + " +
                       std::to_string(begin) + ", 1, 16)] = x[ramp(i*3, 1, 16)] }"));
  expect_copies(copy("for parallel i in 0..4 { y[ramp(i*16, 1, 16)] = x[ramp(i*16, 1, 16)] }"));
  expect_copies(
      copy("for j in 0..64 { y[j] = x[j] }\n for i in 0..10 { y[ramp(i*5, 1, 5)] = x[ramp(i*3, 1, 5)] }"));
  expect_copies(copy("for i in 0..64 { y[63 - i] = x[i] if i < 64 }"));
}

TEST(Memory, ScalarMask) {
  expect_copies(copy_kernel("for i in 0..64 { y[i] = x[i + 20 if i < 44] }"));
  expect_copies(copy_kernel("for i in 0..100 { y[i] = x[63 - i if i < 10] if i < 60 }"));
}

TEST(Memory, Reversed) {
  expect_copies(copy_kernel("for i in 0..8 { y[ramp(i*8, 1, 8)] = x[ramp(63 - i*8, -1, 8)] }"));
  expect_copies(copy_kernel("for i in 0..8 { y[ramp(63 - i*8, -1, 8)] = x[ramp(i*8, 1, 8)] }"));
  expect_copies(copy_kernel(R"(for i in 0..4 {
    let on: b1x16 = ramp(i*16, 1, 16) < broadcast(61, 16)
    y[ramp(60 - i*16, -1, 16)] = x[ramp(60 - i*16, -1, 16) if on] if on
  })"));
}

TEST(Memory, Strided) {
  expect_copies(copy_kernel("for i in 0..4 { y[ramp(i*8, 1, 8)] = x[ramp(i, 8, 8)] }"));
  expect_copies(copy_kernel("for i in 0..8 { y[ramp(i, 8, 8)] = x[ramp(i*8, 1, 8)] }"));
  expect_copies(copy_kernel("for i in 0..2 { y[ramp(i*16, 1, 16)] = x[ramp(62 + i, -3, 16)] }"));
  expect_copies(copy_kernel(R"(for i in 0..2 {
    let on: b1x16 = ramp(i*16, 1, 16) < broadcast(21, 16)
    y[ramp(i*48, 3, 16)] = x[ramp(i*48, 3, 16) if on] if on
  })"));
}

TEST(Memory, Broadcast) {
  expect_copies(copy_kernel("for i in 0..8 { y[ramp(i*8, 1, 8)] = x[broadcast(i*3, 8)] }"));
  expect_copies(copy_kernel(R"(for i in 0..8 {
    let on: b1x8 = index[ramp(i*8, 1, 8)] < broadcast(20, 8)
    y[ramp(i*8, 1, 8)] = x[broadcast(i, 8) if on]
  })"));
  // No lane is on, and the address is outside.
  expect_copies(copy_kernel("y[ramp(0, 1, 8)] = x[broadcast(1000000, 8) if broadcast(1 < 0, 8)]"));
  // All lanes write one element: the last wins.
  expect_copies(copy_kernel("for i in 0..8 { y[broadcast(i, 8)] = x[ramp(i*8, 1, 8)] }"));
}

TEST(Memory, GatherAndScatter) {
  expect_copies(copy_kernel("for i in 0..8 { y[ramp(i*8, 1, 8)] = x[index[ramp(i*8, 1, 8)]] }"));
  expect_copies(copy_kernel("for i in 0..4 { y[index[ramp(i*16, 1, 16)]] = x[ramp(i*16, 1, 16)] }"));
  expect_copies(copy_kernel(R"(for i in 0..4 {
    let at: i64x16 = index[ramp(i*16, 1, 16)]
    let on: b1x16 = at < broadcast(30, 16)
    y[at*broadcast(2, 16)] = x[at + broadcast(3, 16) if on] if on
  })"));
}

TEST(Memory, StridesAreSeenThroughNamesAndSums) {
  const std::string text = copy_kernel(R"(for i in 0..8 {
    let lane: i64x8 = ramp(0, 1, 8)
    let at: i64x8 = lane + broadcast(i*8, 8)
    y[at] = x[at]
  })");
  expect_copies(text);
  const std::string assembly = emit_assembly(
      {parse_function(std::regex_replace(text, std::regex("\\bT\\b"), "f32"))}, target_for(Isa::kAvx512));
  EXPECT_EQ(assembly.find("gather"), std::string::npos) << assembly;
}

}  // namespace
}  // namespace ipex::loop::testing

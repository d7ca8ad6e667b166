// Statements: loops and their states, parallel bodies and what they capture, scratch memory, branches, calls,
// and what the emitter refuses.
#include <gtest/gtest.h>

#include "codegen/loop/text.h"
#include "runtime/parallel.h"
#include "tests/cpp/llvm_kernels.h"

namespace ipex::loop::testing {
namespace {

Array numbers(Dtype dtype, int64_t n) {
  Array a(dtype, n);
  for (int64_t i = 0; i < n; ++i) {
    if (is_float(dtype))
      a.set_float(i, static_cast<double>((i * 37) % 101) / 8 - 5);
    else
      a.set_int(i, (i * 37) % 101 - 50);
  }
  return a;
}

TEST(Control, SumAndArgmaxThroughStates) {
  const Function f = parse_function(
      R"(func reduce(in x: f32[s0], out sum: f32[1], out best: f32[1], out at: i64[1]) symbols(s0) {
  for i in 0..s0 reduce(s: f32 = 0f, m: f32 = -inff, a: i64 = -1) {
    let v: f32 = x[i]
    let bigger: b1 = v > m
  } yield(s + v, select(bigger, v, m), select(bigger, i, a)) merge(s + s.other, max(m, m.other), max(a, a.other))
  sum[0] = s
  best[0] = m
  at[0] = a
}
)");
  for (int64_t n : {0, 1, 2, 63})
    expect_same(
        f, {numbers(Dtype::kF32, n), Array(Dtype::kF32, 1), Array(Dtype::kF32, 1), Array(Dtype::kI64, 1)},
        {n});
}

// One node in the bounds of a parallel loop and in its body is a value in each of the two functions.
TEST(Control, ParallelBodiesShareNoValuesWithTheirFunction) {
  Function f = parse_function(R"(func f(in x: f32[s0*s0], out y: f32[s0*s0]) symbols(s0) {
})");
  const Expr extent = make_var("s0") * make_var("s0"), i = make_var("i");
  For loop{"i", index_const(0), extent, ForKind::kParallel};
  loop.body = make_block({Alloc{"row", Dtype::kF32, extent}, Store{"row", i, make_load("x", Dtype::kF32, i)},
                          Store{"y", i, make_load("row", Dtype::kF32, i)}});
  f.body = make_block({std::move(loop)});
  expect_same(f, {numbers(Dtype::kF32, 81), Array(Dtype::kF32, 81)}, {9});
}

TEST(Control, NestedReductionCarriesTheOuterState) {
  const Function f = parse_function(R"(func nested(in x: f64[24], out y: f64[1]) {
  for i in 0..4 reduce(s: f64 = 10d identity(0d)) {
    for j in 0..6 reduce(t: f64 = s identity(0d)) {
    } yield(t + x[i*6 + j]) merge(t + t.other)
  } yield(t) merge(s + s.other)
  y[0] = s
}
)");
  expect_same(f, {numbers(Dtype::kF64, 24), Array(Dtype::kF64, 1)});
}

TEST(Control, VectorStatesAndReduceLanes) {
  for (const char* op : {"add", "mul", "min", "max"}) {
    for (int lanes : {2, 3, 7, 8, 16, 24}) {
      const std::string n = std::to_string(lanes), v = "f64x" + n;
      const std::string combine = std::string(op) == "add" ? "s + x[ramp(i*" + n + ", 1, " + n + ")]"
                                  : std::string(op) == "mul"
                                      ? "s*x[ramp(i*" + n + ", 1, " + n + ")]"
                                      : std::string(op) + "(s, x[ramp(i*" + n + ", 1, " + n + ")])";
      const Function f = parse_function(
          "func lanes(in x: f64[48], out y: f64[1]) {\n for i in 0..2 reduce(s: " + v + " = broadcast(1d, " +
          n + ")) {\n } yield(" + combine + ") merge(s)\n y[0] = reduce_lanes." + op + "(s)\n}\n");
      expect_same(f, {numbers(Dtype::kF64, 48), Array(Dtype::kF64, 1)}, {}, 64);
    }
  }
}

TEST(Control, ReduceLanesOfIntegersAndBits) {
  for (Dtype dtype : {Dtype::kI8, Dtype::kU8, Dtype::kI32, Dtype::kI64})
    for (const char* op : {"add", "mul", "min", "max", "bitand", "bitor", "bitxor"}) {
      const std::string t(name(dtype));
      expect_same(parse_function("func lanes(in x: " + t + "[16], out y: " + t +
                                 "[1]) {\n y[0] = reduce_lanes." + op + "(x[ramp(0, 1, 16)])\n}\n"),
                  {numbers(dtype, 16), Array(dtype, 1)});
    }
  expect_same(parse_function("func any(in x: i32[16], out y: b1[2]) {\n"
                             " y[0] = reduce_lanes.bitor(x[ramp(0, 1, 16)] > broadcast(40i32, 16))\n"
                             " y[1] = reduce_lanes.bitand(x[ramp(0, 1, 16)] > broadcast(40i32, 16))\n}\n"),
              {numbers(Dtype::kI32, 16), Array(Dtype::kBool, 2)});
}

TEST(Control, ParallelBodyCapturesWhatItUses) {
  const Function f =
      parse_function(R"(func rows(in x: f32[s0*s1], in scale: f32[1], out y: f32[s0*s1]) symbols(s0, s1) {
  let factor: f32 = scale[0]
  let wide: f32x8 = broadcast(factor, 8)
  alloc bias: f32[8]
  bias[ramp(0, 1, 8)] = wide + broadcast(1f, 8)
  for parallel(grain=2) r in 0..s0 {
    alloc row: f32[s1]
    for c in 0..s1 {
      row[c] = x[r*s1 + c]*factor
    }
    for c1 in 0..s1 {
      y[r*s1 + c1] = row[s1 - 1 - c1] + bias[c1%8]
    }
  }
}
)");
  for (auto [rows, columns] : {std::pair<int64_t, int64_t>{0, 5}, {1, 1}, {7, 13}, {64, 9000}})
    expect_same(
        f,
        {numbers(Dtype::kF32, rows * columns), numbers(Dtype::kF32, 1), Array(Dtype::kF32, rows * columns)},
        {rows, columns});
}

TEST(Control, SeveralParallelLoopsInOneKernel) {
  const Function f = parse_function(R"(func stages(in x: i64[100], out y: i64[100]) {
  alloc partial: i64[10]
  for parallel p in 0..10 {
    for i in 0..10 reduce(s: i64 = 0) {
    } yield(s + x[p*10 + i]) merge(s + s.other)
    partial[p] = s
  }
  for p1 in 0..10 reduce(total: i64 = 0) {
  } yield(total + partial[p1]) merge(total + total.other)
  for parallel q in 0..100 {
    y[q] = x[q]*total
  }
}
)");
  expect_same(f, {numbers(Dtype::kI64, 100), Array(Dtype::kI64, 100)});
}

TEST(Control, ScratchOfEverySize) {
  // On the stack, past the stack's share, and only known at run time.
  for (const char* extent : {"0", "1", "100", "4096", "4097", "100000", "s0*3"}) {
    const std::string text =
        std::string("func scratch(in x: f32[s0], out y: f32[s0]) symbols(s0) {\n alloc first: f32[s0]\n") +
        " alloc other: f32[" + extent +
        "]\n for i in 0..s0 {\n  first[i] = x[i] + 1f\n }\n"
        " for i1 in 0..s0 {\n  y[i1] = first[s0 - 1 - i1]\n }\n}\n";
    expect_same(parse_function(text), {numbers(Dtype::kF32, 50), Array(Dtype::kF32, 50)}, {50});
  }
}

TEST(Control, BranchesAndBlocks) {
  const Function f = parse_function(R"(func branch(in x: i64[40], out y: i64[40]) {
  for i in 0..40 {
    let v: i64 = x[i]
    if v < 0 {
      y[i] = -v
    } else {
      if v == 7 {
        y[i] = 1000
      } else {
        for j in 0..v reduce(s: i64 = 0) {
        } yield(s + j) merge(s + s.other)
        y[i] = s
      }
    }
    {
      let w: i64 = y[i]
      if w > 100 {
        y[i] = w//2
      }
    }
  }
}
)");
  expect_same(f, {numbers(Dtype::kI64, 40), Array(Dtype::kI64, 40)});
}

TEST(Control, LoopBoundsThatAreEmptyOrNegative) {
  const Function f = parse_function(R"(func bounds(in b: i64[2], inout y: i64[1]) {
  for i in b[0]..b[1] {
    y[0] = y[0] + 1
  }
}
)");
  for (auto [begin, end] : {std::pair<int64_t, int64_t>{0, 0}, {5, 3}, {-4, 2}, {-9, -9}})
    expect_same(f, {Array::of_ints(Dtype::kI64, {begin, end}), Array::of_ints(Dtype::kI64, {3})});
}

// An output may be given the memory of an input that dies here.
TEST(Control, OutputInPlaceOfAnInput) {
  const Function f = parse_function(R"(func in_place(in x: f32[64], out y: f32[64]) {
  for i in 0..8 {
    y[ramp(i*8, 1, 8)] = x[ramp(i*8, 1, 8)]*broadcast(2f, 8) + x[ramp(i*8, 1, 8)]
  }
}
)");
  for (Isa isa : supported_isas()) {
    Array x = numbers(Dtype::kF32, 64), expected(Dtype::kF32, 64);
    interpret(f, {&x, &expected});
    run(*jit_compile({f}, target_for(isa)), "in_place", {&x, &x});
    EXPECT_EQ(difference(expected, x), "");
  }
}

TEST(Control, ManyKernelsShareOneLibrary) {
  std::vector<Function> kernels;
  for (int k = 0; k < 12; ++k)
    kernels.push_back(
        elementwise("kernel" + std::to_string(k), {Dtype::kI32}, Dtype::kI32, 8, 1,
                    [&](const std::vector<Expr>& x) { return x[0] * make_int({Dtype::kI32, 1}, k / 2); }));
  CompileStats stats;
  const auto library = jit_compile(kernels, current_target(), &stats);
  EXPECT_EQ(stats.kernels, 6);  // names do not matter: two and two compute the same
  for (int k = 0; k < 12; ++k) {
    Array x = Array::of_ints(Dtype::kI32, {1, 2, 3, 4, 5, 6, 7, 8}), y(Dtype::kI32, 8);
    run(*library, kernels[k].name, {&x, &y});
    for (int i = 0; i < 8; ++i) EXPECT_EQ(y.get_int(i), (i + 1) * (k / 2));
  }
  EXPECT_THROW(library->lookup("kernel12"), InternalError);
}

TEST(Control, RefusesWhatThePipelineShouldHaveRemoved) {
  const Target target = current_target();
  for (const char* text : {
           "func f(inout y: f32[8]) {\n for vector(lanes=8) i in 0..8 {\n y[i] = 0f\n }\n}\n",
           "func f(inout y: f32[8]) {\n for parallel i in 0..8 {\n for parallel j in 0..8 {\n y[j] = 0f\n "
           "}\n }\n}\n",
           "func f(inout y: f32[8]) {\n for parallel i in 0..8 reduce(s: f32 = 0f) {\n } yield(s) merge(s)\n "
           "y[0] = s\n}\n",
           "func f(inout y: f32[8]) {\n y[0] = exp(y[1])\n}\n",
           "func f(inout y: f32[8]) {\n y[0] = floordiv(y[1], y[2])\n}\n",
           "func f(inout y: f32[8]) {\n call abort()\n}\n",
       })
    EXPECT_THROW(emit_llvm({parse_function(text)}, target), InternalError) << text;
}

}  // namespace
}  // namespace ipex::loop::testing

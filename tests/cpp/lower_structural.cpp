// Gathers, pads, scans, scatters and segments: the lowered nest against straightforward loops, on odd shapes.
#include "runtime/error.h"
#include "tests/cpp/graph_fixture.h"

namespace ipex::test {
namespace {

TEST(Structural, PadAndCrop) {
  const Floats x = ramp(12);
  const Floats r = run(R"(graph main(%x: f32[3,4]) {
    %0 = constant() value=9.0 : f32[]
    %1 = pad(%x, %0) low=[1,-1] high=[0,2] : f32[4,5]
    return %1
  })",
                       {tensor(x)});
  for (int i = 0; i < 4; ++i)
    for (int j = 0; j < 5; ++j) EXPECT_EQ(r[i * 5 + j], i >= 1 && j + 1 < 4 ? x[(i - 1) * 4 + j + 1] : 9.0f);
}

TEST(Structural, CatAsOutputAndInside) {
  const Floats a = ramp(6), b = ramp(9, 0.5f), c = ramp(15, 2.0f);
  const auto outputs = run_fused(graph::parse(R"(graph main(%a: f32[3,2], %b: f32[3,3], %c: f32[3,5]) {
    %0 = cat(%a, %b) axis=1 : f32[3,5]
    %1 = pointwise.add(%0, %c) : f32[3,5]
    return %0, %1
  })"),
                                 {tensor(a), tensor(b), tensor(c)})
                           .outputs;
  const Floats r = values<float>(outputs[0]), s = values<float>(outputs[1]);
  for (int i = 0; i < 3; ++i)
    for (int j = 0; j < 5; ++j) {
      const float expected = j < 2 ? a[i * 2 + j] : b[i * 3 + j - 2];
      EXPECT_EQ(r[i * 5 + j], expected);
      EXPECT_EQ(s[i * 5 + j], expected + c[i * 5 + j]);
    }
}

TEST(Structural, IotaFullAndSymbols) {
  const auto outputs = run_fused(graph::parse(R"(graph main(%x: i64[s0,3]) symbols(s0) {
    %0 = iota() axis=0 start=5 step=-2 : i64[s0,3]
    %1 = full() value=dim((s0*2)) : i64[]
    %2 = expand(%1) dims=[] : i64[s0,3]
    %3 = pointwise.add(%0, %2) : i64[s0,3]
    %4 = pointwise.add(%3, %x) : i64[s0,3]
    return %4
  })"),
                                 {tensor<int64_t>({0, 1, 2, 3, 4, 5})}, {2})
                           .outputs;
  EXPECT_EQ(values<int64_t>(outputs[0]), (Longs{9, 10, 11, 10, 11, 12}));
}

TEST(Structural, GatherRowsAndElements) {
  const Floats x = ramp(12);
  const Longs rows = {3, -1, 0, -4, 2};
  const Floats r = run(R"(graph main(%x: f32[4,3], %i: i64[5]) {
    %0 = expand(%i) dims=[0] : i64[5,3]
    %1 = gather(%x, %0) map=[-1,1] : f32[5,3]
    return %1
  })",
                       {tensor(x), tensor(rows)});
  for (int i = 0; i < 5; ++i)
    for (int j = 0; j < 3; ++j) EXPECT_EQ(r[i * 3 + j], x[((rows[i] + 4) % 4) * 3 + j]);
  const Floats e = run(R"(graph main(%x: f32[4,3], %i: i64[4,2]) {
    %0 = gather(%x, %i) map=[0,-1] : f32[4,2]
    return %0
  })",
                       {tensor(x), tensor<int64_t>({0, 2, 1, -1, 2, 0, -3, 1})});
  EXPECT_EQ(e, (Floats{x[0], x[2], x[4], x[5], x[8], x[6], x[9], x[10]}));
}

TEST(Structural, GatherOutOfRangeIsAnIndexError) {
  const std::string text = R"(graph main(%x: f32[4], %i: i64[2]) {
    %0 = gather(%x, %i) map=[-1] : f32[2]
    return %0
  })";
  EXPECT_THROW(run(text, {tensor(ramp(4)), tensor<int64_t>({0, 4})}), IndexError);
  EXPECT_THROW(run(text, {tensor(ramp(4)), tensor<int64_t>({-5, 0})}), IndexError);
}

TEST(Structural, CumulativeSumsAlongEitherAxis) {
  const Floats x = ramp(12);
  for (int axis : {0, 1}) {
    const Floats r =
        run("graph main(%x: f32[3,4]) {\n %0 = pointwise.neg(%x) : f32[3,4]\n %1 = scan.cumsum(%0) axis=" +
                std::to_string(axis) + " : f32[3,4]\n return %1\n}\n",
            {tensor(x)});
    for (int i = 0; i < 3; ++i)
      for (int j = 0; j < 4; ++j) {
        float sum = 0;
        for (int k = 0; k <= (axis == 0 ? i : j); ++k) sum -= axis == 0 ? x[k * 4 + j] : x[i * 4 + k];
        EXPECT_EQ(r[i * 4 + j], sum);
      }
  }
}

TEST(Structural, ScanUsedInsideItsGroup) {
  const Longs mask = {1, 1, 0, 1, 0, 1};
  const auto outputs = run_fused(graph::parse(R"(graph main(%x: i64[2,3]) {
    %0 = scan.cumsum(%x) axis=1 : i64[2,3]
    %1 = pointwise.mul(%0, %x) : i64[2,3]
    %2 = scan.cumprod(%1) axis=0 : i64[2,3]
    return %1, %2
  })"),
                                 {tensor(mask)})
                           .outputs;
  EXPECT_EQ(values<int64_t>(outputs[0]), (Longs{1, 2, 0, 1, 0, 2}));
  EXPECT_EQ(values<int64_t>(outputs[1]), (Longs{1, 2, 0, 1, 0, 0}));
}

TEST(Structural, ExtremaSoFarKeepNanAndTheLastIndex) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const auto outputs = run_fused(graph::parse(R"(graph main(%x: f32[6]) {
    %0, %0.1 = scan.cummax(%x) axis=0 : f32[6], i64[6]
    %1, %1.1 = scan.cummin(%x) axis=0 : f32[6], i64[6]
    %2 = pointwise.neg(%1.1) : i64[6]
    return %0, %0.1, %2
  })"),
                                 {tensor<float>({2, 1, 2, nan, 9, nan})})
                           .outputs;
  const Floats largest = values<float>(outputs[0]);
  EXPECT_EQ(Floats(largest.begin(), largest.begin() + 3), (Floats{2, 2, 2}));
  for (size_t i = 3; i < 6; ++i) EXPECT_TRUE(std::isnan(largest[i]));
  EXPECT_EQ(values<int64_t>(outputs[1]), (Longs{0, 0, 2, 3, 3, 5}));
  EXPECT_EQ(values<int64_t>(outputs[2]), (Longs{0, -1, -1, -3, -3, -5}));
}

TEST(Structural, LogOfSumsSoFarDoesNotOverflow) {
  const Floats r = run(R"(graph main(%x: f32[4]) {
    %0 = scan.logcumsumexp(%x) axis=0 : f32[4]
    return %0
  })",
                       {tensor<float>({-std::numeric_limits<float>::infinity(), 1000, 1000, 3})});
  EXPECT_EQ(r[0], -std::numeric_limits<float>::infinity());
  EXPECT_FLOAT_EQ(r[1], 1000);
  EXPECT_FLOAT_EQ(r[2], 1000 + std::log(2.0f));
  EXPECT_FLOAT_EQ(r[3], r[2]);
}

// 2^24 + 1 + 1 + ...: a sum in f32 would not move.
TEST(Structural, SumsOfFloatsAccumulateInDouble) {
  const Floats r = run("graph main(%x: f32[5]) {\n %0 = scan.cumsum(%x) axis=0 : f32[5]\n return %0\n}\n",
                       {tensor<float>({16777216, 1, 1, 1, 1})});
  EXPECT_EQ(r[4], 16777220);
}

TEST(Structural, ScatterAddRows) {
  // The gradient of an embedding: rows collide.
  const Floats x = ramp(12), src = ramp(15, 0.5f);
  const Longs rows = {1, 3, 1, -1, 0};
  const Floats r = run(R"(graph main(%x: f32[4,3], %i: i64[5], %s: f32[5,3]) {
    %0 = expand(%i) dims=[0] : i64[5,3]
    %1 = scatter(%x, %0, %s) map=[-1,1] combine="add" : f32[4,3]
    return %1
  })",
                       {tensor(x), tensor(rows), tensor(src)});
  Floats expected = x;
  for (int i = 0; i < 5; ++i)
    for (int j = 0; j < 3; ++j) expected[((rows[i] + 4) % 4) * 3 + j] += src[i * 3 + j];
  EXPECT_EQ(r, expected);
}

TEST(Structural, ScatterSetKeepsTheLast) {
  const Floats src = ramp(6);
  const Floats r = run(R"(graph main(%x: f32[2,4], %i: i64[2,3], %s: f32[2,3]) {
    %0 = scatter(%x, %i, %s) map=[0,-1] combine="set" : f32[2,4]
    return %0
  })",
                       {tensor(Floats(8, 7.0f)), tensor<int64_t>({1, 1, 3, 0, 2, 0}), tensor(src)});
  EXPECT_EQ(r, (Floats{7, src[1], 7, src[2], src[5], 7, src[4], 7}));
  EXPECT_THROW(run(R"(graph main(%x: f32[3], %i: i64[1], %s: f32[1]) {
    %0 = scatter(%x, %i, %s) map=[-1] combine="max" : f32[3]
    return %0
  })",
                   {tensor(ramp(3)), tensor<int64_t>({3}), tensor(ramp(1))}),
               IndexError);
}

TEST(Structural, ScatterThroughTwoIndices) {
  const Floats r = run(R"(graph main(%x: f32[2,3], %i: i64[4], %j: i64[4], %s: f32[4]) {
    %0 = scatter(%x, %i, %j, %s) map=[-1,-2] combine="add" : f32[2,3]
    return %0
  })",
                       {tensor(Floats(6, 0.0f)), tensor<int64_t>({0, 1, 0, 1}),
                        tensor<int64_t>({2, 0, 2, -1}), tensor<float>({1, 2, 3, 4})});
  EXPECT_EQ(r, (Floats{0, 0, 4, 2, 0, 4}));
}

TEST(Segments, SumsAndMaximaOfParts) {
  const Floats x = ramp(14);
  const Longs begins{0, 2, 2, 5}, ends{2, 2, 5, 7};  // the second is empty
  const auto outputs = run_fused(graph::parse(R"(graph main(%x: f32[7,2], %b: i64[4], %e: i64[4]) {
    %0 = segment.sum(%x, %b, %e) : f32[4,2]
    %1, %2 = segment.max_with_index(%x, %b, %e) : f32[4,2], i64[4,2]
    return %0, %2
  })"),
                                 {tensor(x), tensor(begins), tensor(ends)})
                           .outputs;
  const Floats sums = values<float>(outputs[0]);
  const Longs at = values<int64_t>(outputs[1]);
  for (size_t b = 0; b < 4; ++b)
    for (size_t j = 0; j < 2; ++j) {
      float sum = 0;
      int64_t best = -1;
      for (int64_t k = begins[b]; k < ends[b]; ++k) {
        sum += x[2 * k + j];
        if (best < 0 || x[2 * k + j] > x[2 * best + j]) best = k;
      }
      expect_near<float>({sums[2 * b + j]}, {sum});
      if (best < 0) continue;
      EXPECT_EQ(at[2 * b + j], best);
    }
}

TEST(Segments, BoundsBeyondTheOperandAreAnIndexError) {
  const std::string text = R"(graph main(%x: f32[7], %b: i64[2], %e: i64[2]) {
    %0 = segment.sum(%x, %b, %e) : f32[2]
    return %0
  })";
  const HostTensor x = tensor(ramp(7));
  EXPECT_THROW(run(text, {x, tensor(Longs{0, -5}), tensor(Longs{3, 7})}), IndexError);
  EXPECT_THROW(run(text, {x, tensor(Longs{0, 3}), tensor(Longs{3, 8})}), IndexError);
  EXPECT_EQ(run(text, {x, tensor(Longs{7, 7}), tensor(Longs{7, 0})}), (Floats{0, 0}));
}

// A block of keys begins behind the last query, in its block: the interpreter checks every index. Keys that
// no query sees have no gradient.
TEST(Attention, BackwardsWithKeysBehindTheLastQuery) {
  const auto gradients =
      graph::eval(graph::parse(R"(graph main(%g: f32[1,1,100,8], %q: f32[1,1,100,8], %k: f32[1,1,204,8]) {
    %y, %l = attention(%q, %k, %k) causal=true scale=0.25 : f32[1,1,100,8], f32[1,1,100]
    %dq, %dk, %dv = attention_backward(%g, %q, %k, %k, %y, %l) causal=true scale=0.25 : f32[1,1,100,8], f32[1,1,204,8], f32[1,1,204,8]
    return %dq, %dk, %dv
  })"),
                  {tensor(ramp(800, 0.125f)), tensor(ramp(800, 0.125f)), tensor(ramp(1632, 0.125f))});
  for (size_t k : {1, 2}) {
    const Floats keys = values<float>(gradients[k]);
    EXPECT_NE(keys[99 * 8], 0);
    EXPECT_EQ(Floats(keys.begin() + 800, keys.end()), Floats(832));
  }
}

}  // namespace
}  // namespace ipex::test

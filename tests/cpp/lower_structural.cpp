// Views, gathers, pads, windows, scans and scatters: the lowered nest against straightforward loops, on odd
// shapes.
#include <numeric>

#include "runtime/error.h"
#include "tests/cpp/graph_fixture.h"

namespace ipex::test {
namespace {

using Floats = std::vector<float>;
using Longs = std::vector<int64_t>;

Floats run(const std::string& text, std::vector<HostTensor> inputs, const Longs& symbols = {}) {
  return values<float>(run_fused(graph::parse(text), std::move(inputs), symbols).outputs[0]);
}

TEST(Views, PermuteExpandSlice) {
  const Floats x = ramp(6);
  const Floats r = run(R"(graph main(%x: f32[2,3]) {
    %0 = permute(%x) dims=[1,0] : f32[3,2]
    %1 = slice(%0) starts=(2,0) steps=[-1,1] : f32[3,2]
    %2 = expand(%1) dims=[0,2] : f32[3,4,2]
    %3 = pointwise.neg(%2) : f32[3,4,2]
    return %3
  })",
                       {tensor(x)});
  Floats expected;
  for (int i = 0; i < 3; ++i)
    for (int j = 0; j < 4; ++j)
      for (int k = 0; k < 2; ++k) expected.push_back(-x[k * 3 + (2 - i)]);
  EXPECT_EQ(r, expected);
}

TEST(Views, ExpandOfExtentOne) {
  const Floats x = ramp(3);
  const Floats r = run(R"(graph main(%x: f32[3,1]) {
    %0 = expand(%x) dims=[0,1] : f32[3,5]
    %1 = pointwise.abs(%0) : f32[3,5]
    return %1
  })",
                       {tensor(x)});
  for (int i = 0; i < 15; ++i) EXPECT_EQ(r[i], std::fabs(x[i / 5]));
}

TEST(Views, ReshapeWithoutCommonFactors) {
  const Floats x = ramp(24), y = ramp(24, 0.5f);
  const Floats r = run(R"(graph main(%x: f32[6,4], %y: f32[3,8]) {
    %0 = permute(%x) dims=[1,0] : f32[4,6]
    %1 = reshape(%0) : f32[3,8]
    %2 = pointwise.add(%1, %y) : f32[3,8]
    return %2
  })",
                       {tensor(x), tensor(y)});
  for (int i = 0; i < 24; ++i) EXPECT_EQ(r[i], x[(i % 6) * 4 + i / 6] + y[i]);
}

TEST(Views, LongChainsThatDoNotLineUpStayShort) {
  // Each permuted reshape mentions its whole index twice: 2^24 times the first one's, were it written out.
  constexpr int kSteps = 24;
  std::string text = "graph main(%x: f32[6,35]) {\n";
  Floats expected = ramp(210);
  const Floats x = expected;
  std::string last = "x";
  for (int step = 0, rows = 6; step < kSteps; ++step) {
    const int columns = 210 / rows, next = rows == 6 ? 10 : 6;
    const std::string k = std::to_string(step), from = std::to_string(rows), to = std::to_string(columns);
    text += "  %p" + k + " = permute(%" + last + ") dims=[1,0] : f32[" + to + "," + from + "]\n";
    last = "r" + k;
    text += "  %" + last + " = reshape(%p" + k + ") : f32[" + std::to_string(next) + "," +
            std::to_string(210 / next) + "]\n";
    Floats moved(210);
    for (int i = 0; i < 210; ++i) moved[i] = expected[i % rows * columns + i / rows];
    expected = moved;
    rows = next;
  }
  text += "  %y = pointwise.neg(%" + last + ") : f32[6,35]\n  return %y\n}";
  const auto kernel = run_fused(graph::parse(text), {tensor(x)});
  const Floats r = values<float>(kernel.outputs[0]);
  for (int i = 0; i < 210; ++i) EXPECT_EQ(r[i], -expected[i]);
  EXPECT_LT(loop::print(kernel.function).size(), 24u * 1024);
}

TEST(Views, AlignedReshapeNeedsNoDivision) {
  const Floats x = ramp(2 * 5 * 12), y = ramp(2 * 5 * 12, 0.5f);
  const auto kernel = run_fused(graph::parse(R"(graph main(%x: f32[2,5,12], %y: f32[2,3,5,4]) {
    %0 = reshape(%x) : f32[2,5,3,4]
    %1 = permute(%0) dims=[0,2,1,3] : f32[2,3,5,4]
    %2 = pointwise.add(%1, %y) : f32[2,3,5,4]
    return %2
  })"),
                                {tensor(x), tensor(y)});
  const Floats r = values<float>(kernel.outputs[0]);
  for (int b = 0; b < 2; ++b)
    for (int h = 0; h < 3; ++h)
      for (int s = 0; s < 5; ++s)
        for (int d = 0; d < 4; ++d)
          EXPECT_EQ(r[((b * 3 + h) * 5 + s) * 4 + d],
                    x[(b * 5 + s) * 12 + h * 4 + d] + y[((b * 3 + h) * 5 + s) * 4 + d]);
  const std::string text = loop::print(kernel.function);
  EXPECT_EQ(text.find("//"), std::string::npos) << text;
  EXPECT_EQ(text.find('%'), std::string::npos) << text;
}

TEST(Views, MergedHeadsIterateOverFactors) {
  // The output is [B,S,H*D]; the operand [B,H,S,D]: loops split H*D.
  const Floats x = ramp(2 * 3 * 5 * 4);
  const auto kernel = run_fused(graph::parse(R"(graph main(%x: f32[2,3,5,4]) {
    %0 = permute(%x) dims=[0,2,1,3] : f32[2,5,3,4]
    %1 = reshape(%0) : f32[2,5,12]
    %2 = pointwise.neg(%1) : f32[2,5,12]
    return %2
  })"),
                                {tensor(x)});
  const Floats r = values<float>(kernel.outputs[0]);
  for (int b = 0; b < 2; ++b)
    for (int s = 0; s < 5; ++s)
      for (int c = 0; c < 12; ++c)
        EXPECT_EQ(r[(b * 5 + s) * 12 + c], -x[((b * 3 + c / 4) * 5 + s) * 4 + c % 4]);
  const std::string text = loop::print(kernel.function);
  EXPECT_EQ(text.find("//"), std::string::npos) << text;
}

TEST(Views, SymbolicReshapeSplitsWithoutDivision) {
  const Floats x = ramp(3 * 4 * 5);
  const auto kernel = run_fused(graph::parse(R"(graph main(%x: f32[s0*4,5]) symbols(s0) {
    %0 = reshape(%x) : f32[s0,4,5]
    %1 = permute(%0) dims=[1,0,2] : f32[4,s0,5]
    %2 = pointwise.neg(%1) : f32[4,s0,5]
    return %2
  })"),
                                {tensor(x)}, {3});
  const Floats r = values<float>(kernel.outputs[0]);
  for (int a = 0; a < 4; ++a)
    for (int s = 0; s < 3; ++s)
      for (int c = 0; c < 5; ++c) EXPECT_EQ(r[(a * 3 + s) * 5 + c], -x[(s * 4 + a) * 5 + c]);
  EXPECT_EQ(loop::print(kernel.function).find("//"), std::string::npos) << loop::print(kernel.function);
}

TEST(Views, ReshapeOfWhatCannotBeProvedEqualMatchesFromTheRight) {
  // s0 is a multiple of 8, which nothing here says: the pixels after it still line up.
  const Floats x = ramp(16 * 5 * 7);
  const auto kernel = run_fused(graph::parse(R"(graph main(%x: f32[s0,s1,s2]) symbols(s0, s1, s2) {
    %0 = reshape(%x) : f32[8,s0//8,s1*s2]
    %1 = pointwise.neg(%0) : f32[8,s0//8,s1*s2]
    return %1
  })"),
                                {tensor(x)}, {16, 5, 7});
  const Floats r = values<float>(kernel.outputs[0]);
  for (size_t i = 0; i < x.size(); ++i) EXPECT_EQ(r[i], -x[i]);
  EXPECT_EQ(loop::print(kernel.function).find('%'), std::string::npos) << loop::print(kernel.function);
}

TEST(Views, AValueAndItsTransposeInOneKernel) {
  // Both dims of the sum become one axis; the loops must not.
  const Floats x = ramp(16);
  const Floats r = run(R"(graph main(%x: f32[4,4]) {
    %0 = permute(%x) dims=[1,0] : f32[4,4]
    %1 = pointwise.sub(%x, %0) : f32[4,4]
    return %1
  })",
                       {tensor(x)});
  for (int i = 0; i < 4; ++i)
    for (int j = 0; j < 4; ++j) EXPECT_EQ(r[i * 4 + j], x[i * 4 + j] - x[j * 4 + i]);
}

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

// ---- pooling ----

struct PoolCase {
  int h, w, kernel, stride, padding, dilation;
  bool ceil_mode;
  int out(int size) const {
    const int span = size + 2 * padding - dilation * (kernel - 1) - 1 + (ceil_mode ? stride - 1 : 0);
    int n = span / stride + 1;
    if (ceil_mode && (n - 1) * stride >= size + padding) --n;
    return n;
  }
};

TEST(Pool, MaxWithIndices) {
  for (const PoolCase& c : {PoolCase{5, 7, 3, 2, 1, 1, false}, PoolCase{6, 5, 2, 2, 0, 1, true},
                            PoolCase{7, 7, 3, 1, 1, 2, false}, PoolCase{4, 4, 2, 2, 0, 1, false}}) {
    const int oh = c.out(c.h), ow = c.out(c.w), n = 2;
    Floats x = ramp(static_cast<size_t>(n * c.h * c.w));
    x[3] = std::numeric_limits<float>::quiet_NaN();
    const std::string k = std::to_string(c.kernel), s = std::to_string(c.stride),
                      p = std::to_string(c.padding), d = std::to_string(c.dilation);
    const std::string type = "[1,2," + std::to_string(oh) + "," + std::to_string(ow) + "]";
    const auto outputs =
        run_fused(graph::parse("graph main(%x: f32[1,2," + std::to_string(c.h) + "," + std::to_string(c.w) +
                               "]) {\n %0, %1 = pool(%x) kind=\"max\" kernel=[" + k + "," + k + "] stride=[" +
                               s + "," + s + "] padding=[" + p + "," + p + "] dilation=[" + d + "," + d +
                               "] ceil_mode=" + (c.ceil_mode ? "true" : "false") + " : f32" + type + ", i64" +
                               type + "\n return %0, %1\n}\n"),
                  {tensor(x)})
            .outputs;
    const Floats r = values<float>(outputs[0]);
    const Longs index = values<int64_t>(outputs[1]);
    for (int ch = 0; ch < n; ++ch)
      for (int i = 0; i < oh; ++i)
        for (int j = 0; j < ow; ++j) {
          float best = -INFINITY;
          int64_t at = -1;
          for (int a = 0; a < c.kernel; ++a)
            for (int b = 0; b < c.kernel; ++b) {
              const int y = i * c.stride - c.padding + a * c.dilation,
                        z = j * c.stride - c.padding + b * c.dilation;
              if (y < 0 || y >= c.h || z < 0 || z >= c.w) continue;
              const float v = x[(ch * c.h + y) * c.w + z];
              if (at < 0 || v > best || (std::isnan(v) && !std::isnan(best))) {
                best = v;
                at = y * c.w + z;
              }
            }
          const size_t o = static_cast<size_t>((ch * oh + i) * ow + j);
          expect_near<float>({r[o]}, {best});
          EXPECT_EQ(index[o], at);
        }
  }
}

TEST(Pool, AverageCountsPaddingOrNot) {
  for (bool include : {true, false}) {
    const PoolCase c{5, 6, 3, 2, 1, 1, true};
    const int oh = c.out(5), ow = c.out(6);
    const Floats x = ramp(30);
    const std::string type = "[1,1," + std::to_string(oh) + "," + std::to_string(ow) + "]";
    const Floats r = run(
        "graph main(%x: f32[1,1,5,6]) {\n %0 = pool(%x) kind=\"avg\" kernel=[3,3] stride=[2,2] padding=[1,1] "
        "dilation=[1,1] ceil_mode=true count_include_pad=" +
            std::string(include ? "true" : "false") + " : f32" + type + "\n return %0\n}\n",
        {tensor(x)});
    for (int i = 0; i < oh; ++i)
      for (int j = 0; j < ow; ++j) {
        float sum = 0;
        int inside = 0;
        for (int a = 0; a < 3; ++a)
          for (int b = 0; b < 3; ++b) {
            const int y = i * 2 - 1 + a, z = j * 2 - 1 + b;
            if (y < 0 || y >= 5 || z < 0 || z >= 6) continue;
            sum += x[y * 6 + z];
            ++inside;
          }
        const int padded = (std::min(i * 2 + 2, 6) - (i * 2 - 1)) * (std::min(j * 2 + 2, 7) - (j * 2 - 1));
        expect_near<float>({r[i * ow + j]}, {sum / (include ? padded : inside)});
      }
  }
}

TEST(Pool, OneAndThreeDims) {
  const Floats x = ramp(8);
  EXPECT_EQ(run(R"(graph main(%x: f32[1,1,8]) {
    %0 = pool(%x) kind="avg" kernel=[2] stride=[2] padding=[0] divisor=4 : f32[1,1,4]
    return %0
  })",
                {tensor(x)}),
            (Floats{(x[0] + x[1]) / 4, (x[2] + x[3]) / 4, (x[4] + x[5]) / 4, (x[6] + x[7]) / 4}));
  const auto outputs = run_fused(graph::parse(R"(graph main(%x: f32[1,1,2,2,2]) {
    %0, %1 = pool(%x) kind="max" kernel=[2,2,2] stride=[2,2,2] padding=[0,0,0] dilation=[1,1,1] : f32[1,1,1,1,1], i64[1,1,1,1,1]
    return %0
  })"),
                                 {tensor(x)})
                           .outputs;
  EXPECT_EQ(values<float>(outputs[0])[0], *std::max_element(x.begin(), x.end()));
}

// Windows of 7 elements over 3 results: [0, 3) [2, 5) [4, 7).
TEST(Pool, AdaptiveWindows) {
  const Floats x = ramp(7);
  const Floats mean = run(R"(graph main(%x: f32[1,7]) {
    %0 = pool(%x) kind="avg" window="adaptive" kernel=[1] stride=[1] padding=[0] : f32[1,3]
    return %0
  })",
                          {tensor(x)});
  for (int p = 0; p < 3; ++p) expect_near<float>({mean[p]}, {(x[2 * p] + x[2 * p + 1] + x[2 * p + 2]) / 3});
  const auto outputs = run_fused(graph::parse(R"(graph main(%x: f32[1,7]) {
    %0, %1 = pool(%x) kind="max" window="adaptive" kernel=[1] stride=[1] padding=[0] : f32[1,3], i64[1,3]
    return %0, %1
  })"),
                                 {tensor(x)})
                           .outputs;
  const Floats largest = values<float>(outputs[0]);
  const Longs at = values<int64_t>(outputs[1]);
  for (int p = 0; p < 3; ++p) {
    EXPECT_EQ(largest[p], *std::max_element(x.begin() + 2 * p, x.begin() + 2 * p + 3));
    EXPECT_EQ(x[at[p]], largest[p]);
  }
}

// What covering windows gather, sliding ones spread.
TEST(Pool, CoveringWindowsAreTheGradient) {
  for (const auto& [kernel, stride, padding] : {std::array{3, 2, 1}, {2, 2, 0}, {4, 1, 2}, {2, 3, 0}}) {
    const int size = 11, outputs = (size + 2 * padding - kernel) / stride + 1;
    const Floats gradient = ramp(static_cast<size_t>(outputs));
    const Floats got = run("graph main(%g: f32[1," + std::to_string(outputs) +
                               "]) {\n %0 = pool(%g) kind=\"avg\" window=\"covering\" divisor=2 kernel=[" +
                               std::to_string(kernel) + "] stride=[" + std::to_string(stride) +
                               "] padding=[" + std::to_string(padding) + "] : f32[1,11]\n return %0\n}\n",
                           {tensor(gradient)});
    Floats expected(size);
    for (int p = 0; p < outputs; ++p)
      for (int k = 0; k < kernel; ++k)
        if (const int at = p * stride - padding + k; at >= 0 && at < size) expected[at] += gradient[p] / 2;
    expect_near<float>(got, expected);
  }
}

// ---- segments ----

TEST(Segments, SumsAndMaximaOfParts) {
  const Floats x = ramp(14);
  const Longs begins{0, 2, 2, 5}, ends{2, 2, 5, 99};  // the second is empty, the last is cut to x
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
      for (int64_t k = begins[b]; k < std::min<int64_t>(ends[b], 7); ++k) {
        sum += x[2 * k + j];
        if (best < 0 || x[2 * k + j] > x[2 * best + j]) best = k;
      }
      expect_near<float>({sums[2 * b + j]}, {sum});
      if (best < 0) continue;
      EXPECT_EQ(at[2 * b + j], best);
    }
}

// ---- contractions ----

TEST(Contractions, MatMulWithBiasAndPostOps) {
  const Floats a = ramp(2 * 3 * 4), b = ramp(2 * 4 * 5, 0.5f), bias = ramp(5), c = ramp(30, 2.0f);
  const Floats r = run(R"(graph main(%a: f32[2,3,4], %b: f32[2,4,5], %bias: f32[5], %c: f32[2,3,5]) {
    %0 = matmul(%a, %b, %bias, %c) bias=true post=["relu","add","hardtanh:-3:40"] : f32[2,3,5]
    return %0
  })",
                       {tensor(a), tensor(b), tensor(bias), tensor(c)});
  for (int n = 0; n < 2; ++n)
    for (int i = 0; i < 3; ++i)
      for (int j = 0; j < 5; ++j) {
        float sum = bias[j];
        for (int k = 0; k < 4; ++k) sum += a[(n * 3 + i) * 4 + k] * b[(n * 4 + k) * 5 + j];
        const float x = std::max(sum, 0.0f) + c[(n * 3 + i) * 5 + j];
        expect_near<float>({r[(n * 3 + i) * 5 + j]}, {std::min(std::max(x, -3.0f), 40.0f)});
      }
}

TEST(Contractions, IntegerMatMulWraps) {
  const auto r = run_fused(graph::parse(R"(graph main(%a: i64[1,2], %b: i64[2,1]) {
    %0 = matmul(%a, %b) : i64[1,1]
    return %0
  })"),
                           {tensor<int64_t>({int64_t{1} << 62, 1}), tensor<int64_t>({2, 5})})
                     .outputs;
  EXPECT_EQ(values<int64_t>(r[0])[0], std::numeric_limits<int64_t>::min() + 5);
}

struct ConvCase {
  int groups, stride, padding, dilation, output_padding;
  bool transposed;
};

// y, grad_x and grad_w by the definition: every (input element, weight, output element) that meet.
struct ConvReference {
  static constexpr int kN = 2, kIn = 4, kOut = 6, kSize = 6, kTaps = 3;
  ConvCase c;
  int out_size() const {
    if (c.transposed)
      return (kSize - 1) * c.stride - 2 * c.padding + c.dilation * (kTaps - 1) + c.output_padding + 1;
    return (kSize + 2 * c.padding - c.dilation * (kTaps - 1) - 1) / c.stride + 1;
  }
  template <class F>
  void each(F meet) const {
    const int out = out_size(), in_per = kIn / c.groups, out_per = kOut / c.groups;
    for (int n = 0; n < kN; ++n)
      for (int g = 0; g < c.groups; ++g)
        for (int i = 0; i < in_per; ++i)
          for (int o = 0; o < out_per; ++o)
            for (int k = 0; k < kTaps; ++k)
              for (int p = 0; p < (c.transposed ? kSize : out); ++p) {
                const int wide = p * c.stride - c.padding + k * c.dilation;
                if (wide < 0 || wide >= (c.transposed ? out : kSize)) continue;
                const int xi = c.transposed ? p : wide, yi = c.transposed ? wide : p;
                const int ci = g * in_per + i, co = g * out_per + o;
                const int w = c.transposed ? (ci * out_per + o) * kTaps + k : (co * in_per + i) * kTaps + k;
                meet((n * kIn + ci) * kSize + xi, w, (n * kOut + co) * out + yi);
              }
  }
};

TEST(Contractions, ConvolutionForwardAndBackward) {
  for (const ConvCase& c :
       {ConvCase{1, 1, 0, 1, 0, false}, ConvCase{2, 2, 1, 1, 0, false}, ConvCase{1, 1, 2, 2, 0, false},
        ConvCase{1, 1, 0, 1, 0, true}, ConvCase{2, 2, 1, 1, 1, true}, ConvCase{2, 3, 0, 2, 0, true}}) {
    const ConvReference reference{c};
    constexpr int kN = ConvReference::kN, kIn = ConvReference::kIn, kOut = ConvReference::kOut,
                  kSize = ConvReference::kSize, kTaps = ConvReference::kTaps;
    const int out = reference.out_size();
    const Floats x = ramp(kN * kIn * kSize), w = ramp(kIn * kOut / c.groups * kTaps, 0.5f), bias = ramp(kOut);
    const Floats grad = ramp(static_cast<size_t>(kN * kOut * out), 0.5f);
    Floats y(static_cast<size_t>(kN * kOut * out)), grad_x(x.size()), grad_w(w.size());
    for (size_t i = 0; i < y.size(); ++i) y[i] = bias[i / out % kOut];
    reference.each([&](int xi, int wi, int yi) {
      y[yi] += x[xi] * w[wi];
      grad_x[xi] += grad[yi] * w[wi];
      grad_w[wi] += grad[yi] * x[xi];
    });
    const std::string xt = "f32[2,4,6]", yt = "f32[2,6," + std::to_string(out) + "]";
    const std::string wt = c.transposed ? "f32[4," + std::to_string(kOut / c.groups) + ",3]"
                                        : "f32[6," + std::to_string(kIn / c.groups) + ",3]";
    const std::string attrs = " stride=[" + std::to_string(c.stride) + "] padding=[" +
                              std::to_string(c.padding) + "] dilation=[" + std::to_string(c.dilation) +
                              "] groups=" + std::to_string(c.groups) +
                              " transposed=" + (c.transposed ? "true" : "false") + " output_padding=[" +
                              std::to_string(c.output_padding) + "]";
    expect_near(run("graph main(%x: " + xt + ", %w: " + wt + ", %b: f32[6]) {\n %0 = conv(%x, %w, %b)" +
                        attrs + " bias=true : " + yt + "\n return %0\n}\n",
                    {tensor(x), tensor(w), tensor(bias)}),
                y);
    const std::string head =
        "graph main(%g: " + yt + ", %x: " + xt + ", %w: " + wt + ") {\n %0 = conv_backward(%g, %x, %w)";
    const std::vector<HostTensor> all = {tensor(grad), tensor(x), tensor(w)};
    expect_near(run(head + " which=\"data\"" + attrs + " : " + xt + "\n return %0\n}\n", all), grad_x);
    expect_near(run(head + " which=\"weights\"" + attrs + " : " + wt + "\n return %0\n}\n", all), grad_w);
  }
}

}  // namespace
}  // namespace ipex::test

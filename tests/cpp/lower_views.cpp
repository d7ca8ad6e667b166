// Views: the lowered nest against straightforward loops, on odd shapes, and that no index is longer or
// divides more than it must.
#include "tests/cpp/graph_fixture.h"

namespace ipex::test {
namespace {

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

}  // namespace
}  // namespace ipex::test

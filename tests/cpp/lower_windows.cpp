// Pooling, matrix products and convolutions: the lowered nest against their definitions.
#include "tests/cpp/graph_fixture.h"

namespace ipex::test {
namespace {

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
    // Of several in a window the last is found.
    for (int i : {2, 3, c.w + 2}) x[i] = std::numeric_limits<float>::quiet_NaN();
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
              if (at < 0 || v > best || std::isnan(v)) {
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

// Of the windows that cover an element, those whose maximum it is.
TEST(Pool, CoveringWindowsWithIndices) {
  for (const auto& [kernel, stride, padding] : {std::array{3, 2, 1}, {2, 2, 0}, {3, 1, 1}}) {
    const int size = 11, outputs = (size + 2 * padding - kernel) / stride + 1;
    const Floats gradient = ramp(static_cast<size_t>(2 * outputs));
    const std::string window = " kernel=[" + std::to_string(kernel) + "] stride=[" + std::to_string(stride) +
                               "] padding=[" + std::to_string(padding) + "]";
    const std::string shape = "[2," + std::to_string(outputs) + "]";
    const auto results =
        run_fused(graph::parse("graph main(%x: f32[2,11], %g: f32" + shape +
                               ") {\n %v, %i = pool(%x) kind=\"max\"" + window + " : f32" + shape + ", i64" +
                               shape + "\n %0 = pool(%g, %i) kind=\"avg\" window=\"covering\" divisor=1" +
                               window + " : f32[2,11]\n return %0, %i\n}\n"),
                  {tensor(ramp(22)), tensor(gradient)})
            .outputs;
    const Longs from = values<int64_t>(results[1]);
    Floats expected(2 * size);
    for (int p = 0; p < 2 * outputs; ++p) expected[p / outputs * size + from[p]] += gradient[p];
    expect_near<float>(values<float>(results[0]), expected);
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

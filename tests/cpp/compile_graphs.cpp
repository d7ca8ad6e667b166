// compile() and run: graphs from text, through every pass, the JIT and the library, against the interpreter;
// and once more with the program printed and read back.
#include <cmath>
#include <map>
#include <random>

#include "backend/compile.h"
#include "backend/plan_memory.h"
#include "codegen/loop/simplify.h"
#include "runtime/cpu.h"
#include "runtime/error.h"
#include "tests/cpp/graph_fixture.h"
#include "tests/cpp/program_fixture.h"

namespace ipex::test {
namespace {

CompileOptions options() {
  CompileOptions o;
  o.target = loop::current_target();
  return o;
}

// Runs a compiled graph on contiguous copies of the inputs; mutated inputs are read back from `inputs`.
std::vector<HostTensor> run(const Executable& executable, std::vector<HostTensor>& inputs,
                            const Longs& symbols = {}, std::span<const InputVersion> versions = {}) {
  std::vector<void*> in, out;
  for (HostTensor& t : inputs) in.push_back(t.data());
  const auto& parts = executable.parts();
  std::vector<HostTensor> outputs;
  for (const OutputSpec& output : parts.outputs) {
    int64_t elements = 1;
    for (const SizeExpr& size : output.spec.sizes) elements *= size.eval(symbols.data());
    outputs.emplace_back(static_cast<size_t>(elements * itemsize(output.spec.dtype)));
  }
  for (size_t k = 0; k < outputs.size(); ++k)
    out.push_back(parts.outputs[k].alias_input >= 0 ? nullptr : outputs[k].data());
  executable.run(in, out, symbols, versions);
  // Row-major results whatever the memory layout.
  for (size_t k = 0; k < outputs.size(); ++k) {
    const OutputSpec& output = parts.outputs[k];
    const std::byte* memory =
        output.alias_input >= 0 ? inputs[static_cast<size_t>(output.alias_input)].data() : outputs[k].data();
    const HostTensor raw(
        memory, memory + (output.alias_input >= 0 ? inputs[static_cast<size_t>(output.alias_input)].size()
                                                  : outputs[k].size()));
    const size_t item = static_cast<size_t>(itemsize(output.spec.dtype));
    Longs sizes, strides;
    for (const SizeExpr& s : output.spec.sizes) sizes.push_back(s.eval(symbols.data()));
    for (const SizeExpr& s : output.spec.strides) strides.push_back(s.eval(symbols.data()));
    const int64_t offset = output.spec.offset.eval(symbols.data());
    for (size_t i = 0; i < outputs[k].size() / item; ++i) {
      int64_t rest = static_cast<int64_t>(i), at = offset;
      for (size_t d = sizes.size(); d-- > 0; rest /= sizes[d]) at += rest % sizes[d] * strides[d];
      std::memcpy(outputs[k].data() + i * item, raw.data() + static_cast<size_t>(at) * item, item);
    }
  }
  return outputs;
}

std::vector<HostTensor> run(const CompiledGraph& compiled, std::vector<HostTensor>& inputs,
                            const Longs& symbols = {}, std::span<const InputVersion> versions = {}) {
  return run(*compiled.executable, inputs, symbols, versions);
}

CompiledGraph check(const std::string& text, std::vector<HostTensor> inputs, const Longs& symbols = {},
                    double tolerance = 1e-5) {
  const graph::Graph g = graph::parse(text);
  const auto expected = graph::eval(g, inputs, symbols);
  CompiledGraph compiled = compile(g, options());
  const auto actual = run(compiled, inputs, symbols);
  EXPECT_EQ(run(*through_text(compiled), inputs, symbols), actual);
  for (size_t k = 0; k < expected.size(); ++k) {
    const std::string what =
        "output " + std::to_string(k) + "\n" + compiled.report.graph_text + compiled.report.loop_text;
    switch (g.type(g.outputs[k].value).dtype) {
      case Dtype::kF32:
        expect_near(values<float>(actual[k]), values<float>(expected[k]), tolerance, what);
        break;
      case Dtype::kBF16:
        expect_near(bf16_values(actual[k]), bf16_values(expected[k]), 1.0 / 64, what);
        break;
      default:
        EXPECT_EQ(actual[k], expected[k]) << what;
    }
  }
  return compiled;
}

int count(const CompiledGraph& compiled, StepKind kind) {
  int n = 0;
  for (const auto& step : compiled.executable->parts().steps) n += step->info.kind == kind;
  return n;
}

TEST(Compile, OneKernel) {
  const CompiledGraph compiled = check(R"(graph main(%x: f32[3,17], %y: f32[17]) {
    %0 = pointwise.gelu(%x) : f32[3,17]      # model.py:3 gelu
    %1 = expand(%y) dims=[1] : f32[3,17]
    %2 = pointwise.mul(%0, %1) : f32[3,17]   # model.py:4 mul
    return %2
  })",
                                       {tensor(ramp(51)), tensor(ramp(17, 0.5f))});
  ASSERT_EQ(compiled.executable->parts().steps.size(), 1u);
  const StepInfo& info = compiled.executable->parts().steps[0]->info;
  EXPECT_EQ(info.name, "k0_gelu_mul");
  EXPECT_EQ(info.bytes, (51 + 17 + 51) * 4);
  EXPECT_EQ(info.flops, 102);
  EXPECT_EQ(info.sources, (std::vector<std::string>{"model.py:3 gelu", "model.py:4 mul"}));
  EXPECT_EQ(compiled.report.kernel_steps, 1);
  EXPECT_EQ(compiled.report.arena_bytes, 0);
}

TEST(Compile, EqualKernelsAreCompiledOnce) {
  const CompiledGraph compiled = check(R"(graph main(%x: f32[4,72], %w: f32[72,72]) {
    %0 = matmul(%x, %w) : f32[4,72]
    %1 = reduce.sum(%0) axes=[1] keepdim=true : f32[4,1]
    %2 = expand(%1) dims=[0,1] : f32[4,72]
    %3 = pointwise.div(%0, %2) : f32[4,72]
    %4 = matmul(%3, %w) : f32[4,72]
    %5 = reduce.sum(%4) axes=[1] keepdim=true : f32[4,1]
    %6 = expand(%5) dims=[0,1] : f32[4,72]
    %7 = pointwise.div(%4, %6) : f32[4,72]
    return %7
  })",
                                       {tensor(ramp(4 * 72, 1.0f)), tensor(ramp(72 * 72, 0.5f))});
  EXPECT_EQ(compiled.report.kernel_steps, 2);
  const std::string& text = compiled.report.loop_text;
  ASSERT_NE(text.find("func "), std::string::npos);
  EXPECT_EQ(text.find("func "), text.rfind("func "));
}

// Transposes as rows and shuffles: every size of an element, tiles and what is left beside them, every
// target; moved only, or computed with too.
TEST(Compile, TransposesOfEveryElementSize) {
  for (const char* dtype : {"i8", "bf16", "i16", "f32", "i32", "f64", "i64"})
    for (const auto& [rows, columns] : {std::pair{16, 16}, {17, 33}, {70, 131}, {8, 200}, {200, 8}})
      for (Isa isa : supported_isas()) {
        const std::string from =
            std::string(dtype) + "[" + std::to_string(rows) + "," + std::to_string(columns) + "]";
        const std::string to =
            std::string(dtype) + "[" + std::to_string(columns) + "," + std::to_string(rows) + "]";
        const graph::Graph g = graph::parse("graph main(%x: " + from + ", %y: " + to +
                                            ") { %t = permute(%x) dims=[1,0] : " + to +
                                            " %m = pointwise.maximum(%t, %y) : " + to +
                                            " %c = pointwise.clone(%t) : " + to + " return %m, %c }");
        const int64_t bytes = int64_t{rows} * columns * itemsize(g.type({0, 0}).dtype);
        std::vector<HostTensor> inputs(2, HostTensor(static_cast<size_t>(bytes)));
        std::mt19937 random(7);
        for (HostTensor& t : inputs)  // small numbers in any dtype, no NaN
          for (size_t i = 0; i < t.size(); ++i) t[i] = static_cast<std::byte>(random() % 64);
        CompileOptions o = options();
        o.target = loop::target_for(isa);
        EXPECT_EQ(run(compile(g, o), inputs), graph::eval(g, inputs, {})) << from << " " << name(isa);
      }
}

// A batch whose first member has nothing to do.
TEST(Compile, BatchWithoutItsFirstMember) {
  const CompiledGraph compiled = check(R"(graph main(%x: f32[0,5], %y: f32[5], %z: f32[3,7]) {
    %0 = pointwise.exp(%x) : f32[0,5]
    %1 = pointwise.exp(%y) : f32[5]
    %2 = pointwise.exp(%z) : f32[3,7]
    return %0{5,1}, %1{1}, %2{7,1}
  })",
                                       {tensor(ramp(0)), tensor(ramp(5)), tensor(ramp(21))});
  EXPECT_EQ(compiled.report.kernel_steps, 1);
}

TEST(Compile, SoftmaxOfOddShapes) {
  for (const auto& [rows, columns] :
       {std::pair(1, 1), std::pair(3, 5), std::pair(7, 130), std::pair(2, 4097)}) {
    const std::string full = "f32[" + std::to_string(rows) + "," + std::to_string(columns) + "]";
    const std::string row = "f32[" + std::to_string(rows) + ",1]";
    check("graph main(%x: " + full + ") {\n %0 = reduce.amax(%x) axes=[1] keepdim=true : " + row +
              "\n %1 = expand(%0) dims=[0,1] : " + full + "\n %2 = pointwise.sub(%x, %1) : " + full +
              "\n %3 = pointwise.exp(%2) : " + full + "\n %4 = reduce.sum(%3) axes=[1] keepdim=true : " +
              row + "\n %5 = expand(%4) dims=[0,1] : " + full + "\n %6 = pointwise.div(%3, %5) : " + full +
              "\n return %6\n}\n",
          {tensor(ramp(static_cast<size_t>(rows * columns)))});
  }
}

TEST(Compile, MatMulWithEpilogueAndTransposedWeights) {
  check(R"(graph main(%x: f32[5,8], %w: f32[6,8], %b: f32[6]) {
    %0 = permute(%w) dims=[1,0] : f32[8,6]
    %1 = matmul(%x, %0) : f32[5,6]
    %2 = expand(%b) dims=[1] : f32[5,6]
    %3 = pointwise.add(%1, %2) : f32[5,6]
    %4 = pointwise.relu(%3) : f32[5,6]
    return %4
  })",
        {tensor(ramp(40)), tensor(ramp(48, 0.5f)), tensor(ramp(6))});
}

TEST(Compile, BytesOfALibraryStepCountOnce) {
  const std::string text =
      "graph main(%x: f32[5,80], %w: f32[80,6]) {\n %0 = matmul(%x, %w) : f32[5,6]\n return %0\n}\n";
  const CompiledGraph compiled = check(text, {tensor(ramp(400)), tensor(ramp(480, 0.5f))});
  ASSERT_EQ(count(compiled, StepKind::kLibrary), 1);
  EXPECT_EQ(compiled.executable->parts().steps[0]->info.bytes, (400 + 480 + 30) * 4);
}

TEST(Compile, IntegerMatMulFallsBackToANest) {
  const CompiledGraph compiled = check(R"(graph main(%a: i64[3,4], %b: i64[4,2]) {
    %0 = matmul(%a, %b) : i64[3,2]
    return %0
  })",
                                       {tensor<int64_t>({1, 2, 3, 4, 5, 6, 7, 8, -9, 10, 11, 12}),
                                        tensor<int64_t>({1, -1, 2, 3, 4, 5, -6, 7})});
  EXPECT_EQ(count(compiled, StepKind::kKernel), 1);
}

// The kernel beside what it stands for, compiled and interpreted.
TEST(Compile, AttentionIsASoftmaxBetweenProducts) {
  const std::string text = R"(graph main(%q: f32[2,4,21,24], %k: f32[2,2,150,24]) {
    %y, %l = attention(%q, %k, %k) causal=false scale=0.25 : f32[2,4,21,24], f32[2,4,21]
    %r = reshape(%k) : f32[2,2,1,150,24]
    %e = expand(%r) dims=[0,1,2,3,4] : f32[2,2,2,150,24]
    %h = reshape(%e) : f32[2,4,150,24]
    %t = permute(%h) dims=[0,1,3,2] : f32[2,4,24,150]
    %p = matmul(%q, %t) : f32[2,4,21,150]
    %quarter = constant value=0.25 : f32[]
    %c = expand(%quarter) dims=[] : f32[2,4,21,150]
    %x = pointwise.mul(%p, %c) : f32[2,4,21,150]
    %w = pointwise.exp(%x) : f32[2,4,21,150]
    %n = reduce.sum(%w) axes=[3] keepdim=true : f32[2,4,21,1]
    %f = expand(%n) dims=[0,1,2,3] : f32[2,4,21,150]
    %a = pointwise.div(%w, %f) : f32[2,4,21,150]
    %z = matmul(%a, %h) : f32[2,4,21,24]
    %j = reshape(%n) : f32[2,4,21]
    %g = pointwise.log(%j) : f32[2,4,21]
    return %y, %z, %l, %g
  })";
  const std::vector<HostTensor> inputs = {tensor(ramp(2 * 4 * 21 * 24, 0.125f)),
                                          tensor(ramp(2 * 2 * 150 * 24, 0.125f))};
  const CompiledGraph compiled = check(text, inputs);
  EXPECT_NE(compiled.report.loop_text.find("_attention"), std::string::npos);
  const auto all = graph::eval(graph::parse(text), inputs);
  expect_near(values<float>(all[0]), values<float>(all[1]), 1e-5, "results");
  expect_near(values<float>(all[2]), values<float>(all[3]), 1e-5, "logarithms of sums");
}

// The heads of a model's activations are views; of a batch of one the first stride means nothing.
TEST(Compile, AttentionMultipliesPairsWhateverTheBatch) {
  for (const std::string batch : {"1", "2"}) {
    const std::string heads = "bf16[" + batch + ",4,32,16]";
    CompileOptions options;
    options.target = loop::target_for(Isa::kAvx512Bf16);
    options.jit = false;
    const CompiledGraph compiled = compile(graph::parse("graph main(%x: bf16[" + batch + R"(,32,64]) {
      %r = reshape(%x) : bf16[)" + batch + R"(,32,4,16]
      %h = permute(%r) dims=[0,2,1,3] : )" + heads + R"(
      %y = attention(%h, %h, %h) causal=false scale=0.25 : )" +
                                                        heads + R"(
      return %y
    })"),
                                           options);
    EXPECT_NE(compiled.report.loop_text.find("dot_bf16"), std::string::npos) << "batch " << batch;
  }
}

TEST(Compile, ConvolutionChain) {
  check(R"(graph main(%x: f32[2,3,9,9], %w: f32[8,3,3,3], %v: f32[4,8,1,1]) {
    %0 = conv(%x, %w) stride=[2,2] padding=[1,1] dilation=[1,1] groups=1 transposed=false output_padding=[0,0] bias=false : f32[2,8,5,5]
    %1 = pointwise.relu(%0) : f32[2,8,5,5]
    %2 = conv(%1, %v) stride=[1,1] padding=[0,0] dilation=[1,1] groups=1 transposed=false output_padding=[0,0] bias=false : f32[2,4,5,5]
    %3 = pointwise.sigmoid(%2) : f32[2,4,5,5]
    return %3{100,25,5,1}
  })",
        {tensor(ramp(486)), tensor(ramp(216)), tensor(ramp(32))}, {}, 1e-4);
}

TEST(Compile, DynamicShapes) {
  const std::string text = R"(graph main(%x: f32[s0,12]) symbols(s0=16) {
    %0 = reshape(%x) : f32[s0,3,4]
    %1 = permute(%0) dims=[1,0,2] : f32[3,s0,4]
    %2 = pointwise.tanh(%1) : f32[3,s0,4]
    %3 = reduce.sum(%2) axes=[1] keepdim=false : f32[3,4]
    return %2, %3
  })";
  for (int64_t s0 : {1, 2, 31}) check(text, {tensor(ramp(static_cast<size_t>(s0 * 12)))}, {s0});
}

TEST(Compile, BfloatIntermediatesAreTyped) {
  check(R"(graph main(%x: bf16[4,40]) {
    %0 = pointwise.silu(%x) : bf16[4,40]
    %1 = reduce.mean(%0) axes=[1] keepdim=true : bf16[4,1]
    %2 = expand(%1) dims=[0,1] : bf16[4,40]
    %3 = pointwise.sub(%0, %2) : bf16[4,40]
    return %3
  })",
        {bf16(ramp(160))});
}

TEST(Compile, OutputsThatAreInputsViewsAndConstants) {
  const CompiledGraph compiled = check(R"(graph main(%x: f32[2,3], %y: f32[4]) {
    %0 = permute(%x) dims=[1,0] : f32[3,2]
    %1 = constant() value=2.5 : f32[]
    %2 = pointwise.neg(%y) : f32[4]
    %3 = reshape(%2) : f32[2,2]
    return %0, %x, %1, %2, %2, %3
  })",
                                       {tensor(ramp(6)), tensor(ramp(4))});
  const auto& outputs = compiled.executable->parts().outputs;
  EXPECT_EQ(outputs[0].alias_input, 0);
  EXPECT_EQ(outputs[1].alias_input, 0);
  EXPECT_EQ(outputs[2].alias_input, -1);
  EXPECT_NE(outputs[3].spec.buffer,
            outputs[4].spec.buffer);  // the same value twice: memory of its own each time
  EXPECT_NE(outputs[3].spec.buffer, outputs[5].spec.buffer);
}

TEST(Compile, StridesOfOutputsAreTheCallers) {
  const CompiledGraph compiled = check(R"(graph main(%x: f32[2,3,4,5]) {
    %0 = pointwise.exp(%x) : f32[2,3,4,5]
    return %0{60,1,15,3}
  })",
                                       {tensor(ramp(120, 0.125f))});
  EXPECT_EQ(compiled.executable->parts().outputs[0].spec.strides[1].constant(), 1);
  EXPECT_EQ(compiled.executable->parts().steps.size(), 1u);
}

// A group norm whose result is wanted in channels_last: the group writes the layout that makes the caller's
// one a view.
TEST(Compile, StridesOfOutputsReachThroughViews) {
  const CompiledGraph compiled = check(R"(graph main(%x: f32[2,6,3,5]) {
    %0 = reshape(%x) : f32[2,2,3,15]
    %1 = reduce.sum(%0) axes=[2,3] keepdim=true : f32[2,2,1,1]
    %2 = expand(%1) dims=[0,1,2,3] : f32[2,2,3,15]
    %3 = pointwise.sub(%0, %2) : f32[2,2,3,15]
    %4 = reshape(%3) : f32[2,6,3,5]
    %5 = permute(%4) dims=[0,2,3,1] : f32[2,3,5,6]
    return %5{90,30,6,1}
  })",
                                       {tensor(ramp(180, 0.1f))});
  EXPECT_EQ(compiled.report.kernel_steps, 1) << "no copy";
}

TEST(Compile, EmptyTensors) {
  check(R"(graph main(%x: f32[0,3]) {
    %0 = pointwise.exp(%x) : f32[0,3]
    %1 = reduce.sum(%x) axes=[0] keepdim=false : f32[3]
    return %0, %1
  })",
        {tensor(Floats{})});
}

// ---- mutations ----

std::vector<HostTensor> mutate(const std::string& text, std::vector<HostTensor>& inputs,
                               CompiledGraph* out = nullptr) {
  CompiledGraph compiled = compile(graph::parse(text), options());
  auto outputs = run(compiled, inputs);
  if (out) *out = std::move(compiled);
  return outputs;
}

TEST(Mutations, AnUpdateWritesTheInputDirectly) {
  std::vector<HostTensor> inputs = {tensor<float>({1, 2, 3}), tensor<float>({10, 20, 30})};
  CompiledGraph compiled;
  mutate(R"(graph main(%p: f32[3], %g: f32[3]) {
    %0 = pointwise.sub(%p, %g) : f32[3]
    return
    mutate %p = %0
  })",
         inputs, &compiled);
  EXPECT_EQ(values<float>(inputs[0]), (Floats{-9, -18, -27}));
  EXPECT_EQ(compiled.executable->parts().steps.size(), 1u);
  EXPECT_EQ(compiled.report.naive_bytes, 0);
}

TEST(Mutations, OldValuesAreReadFirst) {
  // A swap, and an output that wants the old value.
  std::vector<HostTensor> inputs = {tensor<float>({1, 2}), tensor<float>({3, 4})};
  const auto outputs = mutate(R"(graph main(%a: f32[2], %b: f32[2]) {
    %0 = pointwise.add(%a, %b) : f32[2]
    return %a, %0
    mutate %a = %b
    mutate %b = %a
  })",
                              inputs);
  EXPECT_EQ(values<float>(inputs[0]), (Floats{3, 4}));
  EXPECT_EQ(values<float>(inputs[1]), (Floats{1, 2}));
  EXPECT_EQ(values<float>(outputs[0]), (Floats{1, 2}));
  EXPECT_EQ(values<float>(outputs[1]), (Floats{4, 6}));
}

TEST(Mutations, AReversalIsNotWrittenInPlace) {
  std::vector<HostTensor> inputs = {tensor<float>({1, 2, 3, 4})};
  mutate(R"(graph main(%a: f32[4]) {
    %0 = slice(%a) starts=(3) steps=[-1] : f32[4]
    %1 = pointwise.neg(%0) : f32[4]
    return
    mutate %a = %1
  })",
         inputs);
  EXPECT_EQ(values<float>(inputs[0]), (Floats{-4, -3, -2, -1}));
}

TEST(Mutations, LaterReadersSeeTheOldValue) {
  std::vector<HostTensor> inputs = {tensor<float>({1, 2, 3, 4}), tensor(ramp(16))};
  const auto outputs = mutate(R"(graph main(%a: f32[1,4], %w: f32[4,4]) {
    %0 = pointwise.neg(%a) : f32[1,4]
    %1 = matmul(%a, %w) : f32[1,4]
    return %1, %0
    mutate %a = %0
  })",
                              inputs);
  EXPECT_EQ(values<float>(inputs[0]), (Floats{-1, -2, -3, -4}));
  const Floats w = ramp(16), r = values<float>(outputs[0]);
  for (int j = 0; j < 4; ++j) EXPECT_NEAR(r[j], 1 * w[j] + 2 * w[4 + j] + 3 * w[8 + j] + 4 * w[12 + j], 1e-5);
}

// ---- memory ----

TEST(Memory, ADyingTemporaryLendsItsMemory) {
  // The matmul keeps both groups apart.
  const CompiledGraph compiled =
      check(R"(graph main(%a: f32[64,64], %b: f32[64,64]) {
    %0 = matmul(%a, %b) : f32[64,64]
    %1 = reduce.amax(%0) axes=[0] keepdim=true : f32[1,64]
    %2 = expand(%1) dims=[0,1] : f32[64,64]
    %3 = pointwise.sub(%0, %2) : f32[64,64]
    %4 = matmul(%3, %b) : f32[64,64]
    return %4
  })",
            {tensor(ramp(4096, 0.03125f)), tensor(ramp(4096, 0.03125f))}, {}, 1e-3);
  EXPECT_LE(compiled.report.arena_bytes, compiled.report.naive_bytes);
}

TEST(Memory, MayShareOnlyElementByElement) {
  const auto share = [](const std::string& body) {
    return graph::may_share(
        loop::parse_function("func f(in x: f32[8], in y: f32[8], out z: f32[8]) {\n" + body + "\n}"), "x",
        "z");
  };
  EXPECT_TRUE(share("for i in 0..8 {\n let t: f32 = x[i]\n z[i] = t + y[i]\n}"));
  EXPECT_FALSE(share("for i in 0..8 {\n z[i] = x[7 - i]\n}"));
  EXPECT_FALSE(share("for i in 0..8 {\n z[i] = x[0]\n}"));
  EXPECT_FALSE(share("for i in 0..8 {\n z[i] = y[i]\n}\nfor j in 0..8 {\n z[j] = x[j]\n}"));
  EXPECT_FALSE(share("for i in 0..8 {\n let t: f32 = x[i]\n z[i] = y[i]\n}"));
}

// A large result that nothing in the graph reads is written past the caches.
TEST(Memory, LargeResultsAreStreamed) {
  const auto streamed = [](const std::string& body, int64_t l3_bytes = 48 << 10) {
    CompileOptions o = options();
    o.target.l3_bytes = l3_bytes;
    const std::string text = "graph main(%x: f32[64,64], %y: f32[64,64]) {\n" + body + "\n}\n";
    return compile(graph::parse(text), o).report.loop_text.find("streamed") != std::string::npos;
  };
  const std::string sum = "%0 = pointwise.add(%x, %y) : f32[64,64]\n";  // three times 16 KB
  EXPECT_TRUE(streamed(sum + "return %0"));
  EXPECT_FALSE(streamed(sum + "return %0", 49 << 10));
  const std::string three =
      sum + "%1 = pointwise.mul(%x, %y) : f32[64,64]\n%2 = pointwise.sub(%x, %y) : f32[64,64]\n";
  EXPECT_TRUE(streamed(three + "return %0, %1"));
  EXPECT_EQ(streamed(three + "return %0, %1, %2"), options().target.vector_bytes == 64) << "parts of lines";
  EXPECT_FALSE(streamed(sum + "%1 = matmul(%0, %y) : f32[64,64]\n"
                              "%2 = reduce.sum(%1) axes=[0] keepdim=false : f32[64]\n return %0, %2"));
  EXPECT_FALSE(streamed(sum + "return\n mutate %x = %0"));
  EXPECT_FALSE(streamed(sum + "%1 = reduce.sum(%0) axes=[0] keepdim=false : f32[64]\n return %1"));
}

TEST(Memory, SizesBecomeProgramsOverSymbols) {
  const auto dim = [](const char* text) {
    return loop::parse_expr(text, {{"s0", loop::kIndex}, {"s1", loop::kIndex}});
  };
  const int64_t symbols[] = {10, 3};
  for (auto [text, expected] :
       {std::pair("s0*4 + 1", 41), std::pair("(s0 + s1)//2", 6), std::pair("s0 % s1", 1),
        std::pair("s0 - s1*2", 4), std::pair("max(s0, 12)", 12), std::pair("7", 7)})
    EXPECT_EQ(graph::to_size_expr(dim(text), {"s0", "s1"}).eval(symbols), expected) << text;
  EXPECT_THROW(graph::to_size_expr(dim("s0"), {}), InternalError);
}

TEST(Memory, DenseAndEqualStrides) {
  const auto dims = [](std::initializer_list<int64_t> v) {
    graph::Shape out;
    for (int64_t d : v) out.push_back(loop::index_const(d));
    return out;
  };
  EXPECT_TRUE(graph::is_dense(dims({2, 3, 4}), dims({12, 1, 3})));
  EXPECT_TRUE(graph::is_dense(dims({2, 1, 4}), dims({4, 99, 1})));
  EXPECT_FALSE(graph::is_dense(dims({2, 3}), dims({4, 1})));
  EXPECT_FALSE(graph::is_dense(dims({2, 3}), dims({0, 1})));
  EXPECT_EQ(loop::as_const_int(graph::span(dims({2, 3}), dims({10, 2}))), 15);
  EXPECT_EQ(loop::as_const_int(graph::span(dims({2, 0}), dims({10, 2}))), 0);
}

// ---- hoisting ----

TEST(Hoisting, StaticWorkRunsOncePerVersion) {
  const CompiledGraph compiled = compile(graph::parse(R"(graph main(%x: f32[4,64], %w: f32[64,64] static) {
    %0 = pointwise.exp(%w) : f32[64,64]
    %1 = matmul(%x, %0) : f32[4,64]
    return %1
  })"),
                                         options());
  const auto& parts = compiled.executable->parts();
  EXPECT_EQ(parts.static_inputs, (std::vector<int>{1}));
  ASSERT_FALSE(parts.hoisted.empty());
  EXPECT_TRUE(parts.hoisted[0]);
  EXPECT_FALSE(parts.hoisted.back());

  std::vector<HostTensor> inputs = {tensor(ramp(256)), tensor(Floats(4096, 0.0f))};
  std::vector<InputVersion> versions(2);
  versions[1] = {.storage = inputs[1].data(), .data = inputs[1].data(), .version = 1, .trackable = true};
  const auto sum_of_row = [&](const std::vector<HostTensor>& out) { return values<float>(out[0])[0]; };
  const Floats x = ramp(256);
  const float ones = std::accumulate(x.begin(), x.begin() + 64, 0.0f);
  EXPECT_NEAR(sum_of_row(run(compiled, inputs, {}, versions)), ones, 1e-4);
  // A change without a new version is not seen; with one it is.
  std::vector<float> twos(4096, std::log(2.0f));
  std::memcpy(inputs[1].data(), twos.data(), twos.size() * 4);
  EXPECT_NEAR(sum_of_row(run(compiled, inputs, {}, versions)), ones, 1e-4);
  versions[1].version = 2;
  EXPECT_NEAR(sum_of_row(run(compiled, inputs, {}, versions)), 2 * ones, 1e-4);
}

TEST(Hoisting, OffMeansEveryCall) {
  CompileOptions o = options();
  o.hoist = false;
  const CompiledGraph compiled = compile(graph::parse(R"(graph main(%x: f32[4], %w: f32[4] static) {
    %0 = pointwise.exp(%w) : f32[4]
    %1 = pointwise.add(%x, %0) : f32[4]
    return %1, %0
  })"),
                                         o);
  for (bool hoisted : compiled.executable->parts().hoisted) EXPECT_FALSE(hoisted);
}

// ---- faults ----

TEST(Faults, IndexErrorsReachTheCaller) {
  const CompiledGraph compiled = compile(graph::parse(R"(graph main(%x: f32[4,3], %i: i64[2]) {
    %0 = expand(%i) dims=[0] : i64[2,3]
    %1 = gather(%x, %0) map=[-1,1] : f32[2,3]
    return %1
  })"),
                                         options());
  std::vector<HostTensor> inputs = {tensor(ramp(12)), tensor<int64_t>({0, 4})};
  EXPECT_THROW(run(compiled, inputs), IndexError);
  inputs[1] = tensor<int64_t>({0, -4});
  EXPECT_EQ(values<float>(run(compiled, inputs)[0])[3], ramp(12)[0]);
}

TEST(Faults, ExternNeedsAFactory) {
  const std::string text =
      "graph main(%x: f32[4]) {\n %0 = extern.aten::topk.default(%x) args=\"[]\" : f32[4]\n return %0\n}\n";
  EXPECT_THROW(compile(graph::parse(text), options()), Unsupported);
}

TEST(Extern, StepsComeFromTheFactory) {
  struct Double final : Step {
    TensorSpec in, out;
    void run(RunContext& context) const override {
      const auto* x = static_cast<const float*>(context.data(in.buffer));
      auto* y = static_cast<float*>(context.data(out.buffer));
      std::shared_ptr<void> owner;
      if (!y) {
        owner = std::shared_ptr<void>(new float[4], [](void* p) { delete[] static_cast<float*>(p); });
        y = static_cast<float*>(owner.get());
      }
      for (int i = 0; i < 4; ++i) y[i] = 2 * x[i];
      if (owner) context.provide(out.buffer, y, owner);
    }
  };
  CompileOptions o = options();
  o.make_extern = [](const graph::Node& node, std::vector<TensorSpec> operands,
                     std::vector<TensorSpec> results) {
    auto step = std::make_unique<Double>();
    step->info.kind = StepKind::kExtern;
    step->info.name = node.get<graph::Extern>().overload;
    step->in = operands[0];
    step->out = results[0];
    step->reads = {operands[0].buffer};
    step->writes = {results[0].buffer};
    return step;
  };
  const CompiledGraph compiled = compile(graph::parse(R"(graph main(%x: f32[4]) {
    %0 = pointwise.neg(%x) : f32[4]
    %1 = extern.test::double(%0) args="[]" : f32[4]
    %2 = pointwise.abs(%1) : f32[4]
    %3 = extern.test::double(%2) args="[]" : f32[4]
    return %3
  })"),
                                         o);
  std::vector<HostTensor> inputs = {tensor<float>({1, -2, 3, 4})};
  EXPECT_EQ(values<float>(run(compiled, inputs)[0]), (Floats{4, 8, 12, 16}));
  EXPECT_EQ(compiled.report.extern_steps, 2);
  EXPECT_EQ(compiled.report.extern_ops, (std::vector<std::string>{"test::double", "test::double"}));
}

}  // namespace
}  // namespace ipex::test

// Which products the library multiplies, on packed copies of their weights, and which a kernel does on the
// weights as they are.
#include <algorithm>

#include "backend/compile.h"
#include "codegen/loop/text.h"
#include "codegen/passes/passes.h"
#include "runtime/cpu.h"
#include "tests/cpp/graph_fixture.h"

namespace ipex::test {
namespace {

struct Weights {
  int depth, columns;
  bool by_column = false;  // in memory: each column's terms side by side, as torch.nn.Linear has them
};

CompiledGraph product(Isa isa, const std::string& dtype, int rows, Weights w) {
  const auto shape = [&](int a, int b) {
    return dtype + "[" + std::to_string(a) + "," + std::to_string(b) + "]";
  };
  const std::string b = shape(w.depth, w.columns), stored = w.by_column ? shape(w.columns, w.depth) : b;
  CompileOptions options;
  options.target = loop::target_for(isa);
  return compile(
      graph::parse("graph main(%x: " + shape(rows, w.depth) + ", %w: " + stored + " static) {\n" +
                   (w.by_column ? "%b = permute(%w) dims=[1,0] : " + b : "") + "\n%0 = matmul(%x, " +
                   (w.by_column ? "%b" : "%w") + ") : " + shape(rows, w.columns) + "\nreturn %0 }"),
      options);
}

int64_t library_steps(const CompiledGraph& c) { return c.report.library_steps; }

int64_t hoisted_steps(const CompiledGraph& c) {
  const std::vector<bool>& flags = c.executable->parts().hoisted;
  return std::count(flags.begin(), flags.end(), true);
}

// The kernels' text once products are blocked.
std::string scheduled(const CompiledGraph& c, Isa isa) {
  return loop::print(loop::run_pipeline(c.functions, loop::target_for(isa), "block_products"));
}

class Products : public ::testing::TestWithParam<Isa> {};

// One row by weights that no cache holds.
TEST_P(Products, StreamedWeightsHaveNoCopy) {
  for (const char* dtype : {"f32", "bf16"}) {
    for (const bool by_column : {false, true}) {
      const CompiledGraph token = product(GetParam(), dtype, 1, {8192, 8192, by_column});
      EXPECT_EQ(library_steps(token), 0) << dtype << by_column;
      EXPECT_EQ(hoisted_steps(token), 0) << dtype << by_column;
    }
  }
  EXPECT_EQ(library_steps(product(GetParam(), "f32", 16, {4096, 8192})), 1) << "several rows";
}

TEST_P(Products, ManyRowsOfNumbers) {
  const int least = GetParam() == Isa::kAvx2 ? 32 : 128;
  for (const int rows : {least, 512}) {
    const CompiledGraph many = product(GetParam(), "f32", rows, {512, 320});
    EXPECT_EQ(library_steps(many), 0);
    EXPECT_EQ(hoisted_steps(many), 0);
  }
  EXPECT_EQ(library_steps(product(GetParam(), "f32", least - 1, {512, 320})), 1) << "several rows";
  EXPECT_EQ(library_steps(product(GetParam(), "f32", 128, {512, 256})), least == 128 ? 1 : 0)
      << "small weights";
}

// Which limit of the machine a profile holds a step against, the library's or ours.
TEST_P(Products, SayWhatTheyMultiply) {
  for (const int rows : {8, 256})
    for (const Dtype dtype : {Dtype::kF32, Dtype::kBF16}) {
      if (dtype == Dtype::kBF16 && GetParam() != Isa::kAvx512Bf16) continue;  // widened to f32
      const CompiledGraph c = product(GetParam(), std::string(name(dtype)), rows, {512, 320});
      const auto& steps = c.executable->parts().steps;
      EXPECT_TRUE(std::ranges::any_of(steps,
                                      [&](const auto& step) {
                                        return step->info.flops == int64_t{2} * rows * 512 * 320 &&
                                               step->info.multiplies == dtype;
                                      }))
          << rows << " rows of " << name(dtype);
    }
}

// Weights that are no parameters are ours too, on AVX2 by the thousand rows only where their terms lie side
// by side; rows' terms have to.
TEST_P(Products, ManyRowsByWeightsThatChange) {
  CompileOptions options;
  options.target = loop::target_for(GetParam());
  const auto steps = [&](const std::string& text) {
    return library_steps(compile(graph::parse(text), options));
  };
  const std::string transposed = "%t = permute(%w) dims=[1,0] : f32[256,520]\n",
                    result = " : f32[128,520]\nreturn %0 }", thousand = " : f32[1024,520]\nreturn %0 }";
  EXPECT_EQ(steps("graph main(%x: f32[1024,256], %w: f32[520,256]) {\n" + transposed + "%0 = matmul(%x, %t)" +
                  thousand),
            0);
  EXPECT_EQ(steps("graph main(%x: f32[128,256], %w: f32[256,520]) {\n%0 = matmul(%x, %w)" + result), 0);
  EXPECT_EQ(steps("graph main(%x: f32[1024,256], %w: f32[256,520]) {\n%0 = matmul(%x, %w)" + thousand),
            GetParam() == Isa::kAvx2 ? 1 : 0);
  EXPECT_EQ(steps("graph main(%x: f32[256,128], %w: f32[520,256]) {\n" + transposed +
                  "%a = permute(%x) dims=[1,0] : f32[128,256]\n%0 = matmul(%a, %t)" + result),
            1);
}

// Many rows of pairs of bf16, whichever way the weights lie; what does not lie in pairs is the library's.
TEST_P(Products, ManyRowsOfPairs) {
  if (GetParam() != Isa::kAvx512Bf16 || loop::target_for(GetParam()).matrix_tiles) return;
  for (const bool by_column : {false, true}) {
    const CompiledGraph many = product(GetParam(), "bf16", 128, {256, 320, by_column});
    EXPECT_EQ(library_steps(many), 0);
    EXPECT_EQ(hoisted_steps(many), 0);
    EXPECT_NE(scheduled(many, GetParam()).find("dot_bf16"), std::string::npos) << by_column;
  }
  EXPECT_EQ(library_steps(product(GetParam(), "bf16", 64, {256, 320})), 1) << "few rows";
  EXPECT_EQ(library_steps(product(GetParam(), "bf16", 128, {255, 320})), 1) << "an odd number of terms";
  EXPECT_EQ(library_steps(product(GetParam(), "bf16", 128, {256, 48})), 1) << "few columns";
}

TEST_P(Products, OneRowByCachedWeights) {
  EXPECT_EQ(library_steps(product(GetParam(), "f32", 1, {256, 256})), 1);
  EXPECT_EQ(library_steps(product(GetParam(), "f32", 1, {256, 256, true})), 1);
  EXPECT_EQ(library_steps(product(GetParam(), "bf16", 1, {256, 256, true})), 0) << "terms in pairs";
  if (GetParam() == Isa::kAvx512Bf16) {
    EXPECT_EQ(library_steps(product(GetParam(), "bf16", 1, {256, 256})), 1);
  }
}

// Batches of small products, whose calls cost the library more than the sums do.
TEST_P(Products, SmallProductsOfABatch) {
  const auto steps = [&](int rows, int terms, int columns, bool side_by_side) {
    const auto shape = [](int a, int b) {
      return "f32[256," + std::to_string(a) + "," + std::to_string(b) + "]";
    };
    CompileOptions options;
    options.target = loop::target_for(GetParam());
    const std::string b = shape(terms, columns), result = shape(rows, columns);
    const std::string stored = side_by_side ? shape(columns, terms) : b;
    return library_steps(compile(
        graph::parse("graph main(%x: " + shape(rows, terms) + ", %w: " + stored + ") {\n" +
                     (side_by_side ? "%b = permute(%w) dims=[0,2,1] : " + b : "") + "\n%0 = matmul(%x, " +
                     (side_by_side ? "%b" : "%w") + ") : " + result + "\nreturn %0 }"),
        options));
  };
  EXPECT_EQ(steps(9, 64, 9, false), 0);
  EXPECT_EQ(steps(32, 64, 32, false), 0);
  EXPECT_EQ(steps(9, 512, 9, true), 0);
  EXPECT_EQ(steps(9, 512, 9, false), 1) << "long columns";
  EXPECT_EQ(steps(48, 64, 48, true), 1) << "many results";
}

// One small product takes less time than the call of the library does.
TEST_P(Products, FewNumbers) {
  const int lanes = loop::target_for(GetParam()).lanes(Dtype::kF32);
  for (const bool by_column : {false, true}) {
    EXPECT_EQ(library_steps(product(GetParam(), "f32", 4, {4, 4, by_column})), 0) << by_column;
    EXPECT_EQ(library_steps(product(GetParam(), "f32", 8, {48, 2 * lanes, by_column})), 0) << by_column;
    EXPECT_EQ(library_steps(product(GetParam(), "bf16", 4, {4, 4, by_column})), 0) << by_column;
  }
  EXPECT_EQ(library_steps(product(GetParam(), "f32", 4, {64, 48, true})), 1) << "sums of terms, not vectors";
  EXPECT_EQ(library_steps(product(GetParam(), "f32", 16, {80, 8})), 1) << "many terms, half a vector";
  EXPECT_EQ(library_steps(product(GetParam(), "f32", 16, {80, 64})), 1) << "many products";
}

// The graph's text names the choice, and reports have a line for each that differs.
TEST_P(Products, SayWhoMultiplies) {
  const CompiledGraph few = product(GetParam(), "f32", 4, {4, 4});
  EXPECT_NE(few.report.graph_text.find("by=\"kernel\""), std::string::npos) << few.report.graph_text;
  ASSERT_EQ(few.report.choices.size(), 1);
  EXPECT_EQ(few.report.choices[0].find("matmul 4x4 f32 by 4x4 f32 - kernel: few numbers"), 0)
      << few.report.choices[0];
  const CompiledGraph library = product(GetParam(), "f32", 16, {80, 64});
  EXPECT_EQ(
      library.report.choices,
      std::vector<std::string>{"matmul 16x80 f32 by 80x64 f32 - library: the library has an implementation"});
  const CompiledGraph doubles = product(GetParam(), "f64", 16, {80, 64});
  EXPECT_EQ(doubles.report.choices,
            std::vector<std::string>{
                "matmul 16x80 f64 by 80x64 f64 - kernel: the library does not support the type"});
}

// A row that is skipped leaves the node to the next one that accepts it; the last one always does.
TEST_P(Products, RowsMayBeSkipped) {
  const auto reason = [&](const char* skipped) {
    setenv("IPEX_DISABLE_IMPLEMENTATIONS", skipped, 1);
    const std::string line = product(GetParam(), "f32", 4, {4, 4}).report.choices.at(0);
    unsetenv("IPEX_DISABLE_IMPLEMENTATIONS");
    return line.substr(line.find(" - ") + 3);
  };
  EXPECT_EQ(reason("small_batch,blocked").find("kernel: few numbers"), 0);
  EXPECT_EQ(reason("few_numbers"), "library: the library has an implementation");
  EXPECT_EQ(reason("few_numbers,library,kernel").find("kernel: "), 0);
}

CompileReport compiled_with(MatmulSelection selection, const std::string& text) {
  CompileOptions options;
  options.target = loop::current_target();
  options.matmul = selection;
  return compile(graph::parse(text), options).report;
}

// The requested selection is used, even against the cost model. A product is measured once.
TEST(MatmulSelections, AreChosenByTheCaller) {
  const std::string text =
      "graph main(%x: f32[64,128], %w: f32[128,96] static, %y: f32[96,64]) {\n"
      "%0 = matmul(%x, %w) : f32[64,96]\n%1 = matmul(%0, %y) : f32[64,64]\nreturn %1 }";
  EXPECT_EQ(compiled_with(MatmulSelection::kKernel, text).library_steps, 0);
  EXPECT_GE(compiled_with(MatmulSelection::kLibrary, text).library_steps, 2);
  EXPECT_TRUE(compiled_with(MatmulSelection::kCostModel, text).measured.empty());
  const CompileReport measured = compiled_with(MatmulSelection::kMeasured, text);
  ASSERT_EQ(measured.measured.size(), 2);
  EXPECT_EQ(measured.measured[0].find("64x128 f32 by 128x96 f32 - kernel "), 0) << measured.measured[0];
  EXPECT_EQ(compiled_with(MatmulSelection::kMeasured, text).measured, measured.measured) << "the same times";
  const auto by_library =
      std::count_if(measured.measured.begin(), measured.measured.end(),
                    [](const std::string& line) { return line.substr(line.rfind(' ') + 1) == "library"; });
  EXPECT_EQ(measured.library_steps > 0, by_library > 0);
}

TEST(MatmulSelections, MeasureProductsOfKnownSizeInGraphsOfOthers) {
  const CompileReport report =
      compiled_with(MatmulSelection::kMeasured,
                    "graph main(%x: f32[64,128], %w: f32[128,96] static, %y: f32[s0,8]) symbols(s0=64) {\n"
                    "%0 = matmul(%x, %w) : f32[64,96]\n%1 = pointwise.exp(%y) : f32[s0,8]\nreturn %0, %1 }");
  EXPECT_EQ(report.measured.size(), 1);
}

TEST(MatmulSelections, MeasureNothingWhereThereIsNoChoice) {
  EXPECT_TRUE(compiled_with(MatmulSelection::kMeasured,
                            "graph main(%x: f32[s0,128], %w: f32[128,96] static) symbols(s0=64) {\n"
                            "%0 = matmul(%x, %w) : f32[s0,96]\nreturn %0 }")
                  .measured.empty())
      << "rows of a number that is not known";
  EXPECT_TRUE(compiled_with(MatmulSelection::kMeasured,
                            "graph main(%x: f32[64,s0], %w: f32[128,96] static) symbols(s0=200) {\n"
                            "%a = slice(%x) starts=(0,0) steps=[1,1] : f32[64,128]\n"
                            "%0 = matmul(%a, %w) : f32[64,96]\nreturn %0 }")
                  .measured.empty())
      << "rows that lie a number apart that is not known";
  EXPECT_TRUE(compiled_with(MatmulSelection::kMeasured,
                            "graph main(%x: f32[2,8], %w: f32[8,4]) {\n"
                            "%0 = matmul(%x, %w) : f32[2,4]\nreturn %0 }")
                  .measured.empty())
      << "a product that takes no time";
}

INSTANTIATE_TEST_SUITE_P(Isas, Products, ::testing::ValuesIn(supported_isas()),
                         [](const auto& info) { return std::string(name(info.param)); });

}  // namespace
}  // namespace ipex::test

// Convolutions by Winograd's method: compiled and run against the sum over windows in f64, and as Loop IR for
// every ISA.
#include <random>
#include <regex>

#include "backend/compile.h"
#include "backend/convolutions/winograd.h"
#include "codegen/llvm/jit.h"
#include "codegen/loop/text.h"
#include "codegen/passes/passes.h"
#include "runtime/cpu.h"
#include "tests/cpp/graph_fixture.h"

namespace ipex::test {
namespace {

struct Case {
  int64_t batch, terms, columns, height, width, padding = 1;
  bool bias = false, residual = false, gradient = false;

  int64_t rows() const { return height + 2 * padding - 2; }  // of the result
  int64_t row() const { return width + 2 * padding - 2; }
};

std::string shape(std::initializer_list<int64_t> sizes) {
  std::string text = "f32[";
  for (int64_t size : sizes) text += (text.back() == '[' ? "" : ",") + std::to_string(size);
  return text + "]";
}

std::string channels_last(int64_t channels, int64_t height, int64_t width) {
  return "{" + std::to_string(channels * height * width) + ",1," + std::to_string(channels * width) + "," +
         std::to_string(channels) + "}";
}

// A convolution; or the gradient of the data of one whose result has `terms` channels.
std::string text_of(const Case& c, bool symbolic) {
  const std::string batch = symbolic ? "s0" : std::to_string(c.batch);
  const auto image = [&](int64_t channels, int64_t height, int64_t width) {
    return "f32[" + batch + "," + std::to_string(channels) + "," + std::to_string(height) + "," +
           std::to_string(width) + "]";
  };
  const std::string x = image(c.terms, c.height, c.width), y = image(c.columns, c.rows(), c.row()),
                    x_layout = channels_last(c.terms, c.height, c.width),
                    y_layout = channels_last(c.columns, c.rows(), c.row());
  const std::string window = " stride=[1,1] dilation=[1,1] groups=1 transposed=false output_padding=[0,0] ";
  const std::string end = symbolic ? ") symbols(s0=2) {\n" : ") {\n";
  if (c.gradient) {
    const std::string p = std::to_string(2 - c.padding);
    return "graph main(%g: " + x + x_layout + ", %x: " + y + y_layout +
           ", %w: " + shape({c.terms, c.columns, 3, 3}) + " static" + end +
           "%0 = conv_backward(%g, %x, %w) which=\"data\"" + window + "padding=[" + p + "," + p + "] : " + y +
           "\nreturn %0" + y_layout + " }";
  }
  const std::string p = std::to_string(c.padding);
  std::string operands = "%x, %w",
              inputs = "%x: " + x + x_layout + ", %w: " + shape({c.columns, c.terms, 3, 3}) + " static";
  if (c.bias) operands += ", %b", inputs += ", %b: " + shape({c.columns});
  if (c.residual) operands += ", %r", inputs += ", %r: " + y + y_layout;
  return "graph main(" + inputs + end + "%0 = conv(" + operands + ")" + window + "padding=[" + p + "," + p +
         "] bias=" + (c.bias ? "true" : "false") + " post=[" + (c.residual ? "\"add\",\"relu\"" : "") +
         "] : " + y + "\nreturn %0" + y_layout + " }";
}

Floats random_numbers(int64_t n, std::mt19937& random) {
  std::normal_distribution<float> normal;
  Floats out(static_cast<size_t>(n));
  for (float& x : out) x = normal(random);
  return out;
}

// In f64, of tensors whose channels lie side by side.
std::vector<double> expected(const Case& c, const std::vector<Floats>& in) {
  const Floats &x = in[0], &w = in[c.gradient ? 2 : 1];
  std::vector<double> y;
  for (int64_t n = 0; n < c.batch; ++n)
    for (int64_t i = 0; i < c.rows(); ++i)
      for (int64_t j = 0; j < c.row(); ++j)
        for (int64_t k = 0; k < c.columns; ++k) {
          double sum = c.bias ? in[2][k] : 0;
          for (int64_t r = 0; r < 3; ++r)
            for (int64_t q = 0; q < 3; ++q) {
              const int64_t row = i + r - c.padding, column = j + q - c.padding;
              if (row < 0 || row >= c.height || column < 0 || column >= c.width) continue;
              for (int64_t t = 0; t < c.terms; ++t) {
                const int64_t at = c.gradient ? ((t * c.columns + k) * 3 + 2 - r) * 3 + 2 - q
                                              : ((k * c.terms + t) * 3 + r) * 3 + q;
                sum += double{x[((n * c.height + row) * c.width + column) * c.terms + t]} * w[at];
              }
            }
          if (c.residual) sum = std::max(0., sum + in.back()[y.size()]);
          y.push_back(sum);
        }
  return y;
}

std::vector<Floats> inputs_of(const Case& c) {
  std::mt19937 random(7);
  std::vector<Floats> in{random_numbers(c.batch * c.terms * c.height * c.width, random)};
  const int64_t results = c.batch * c.columns * c.rows() * c.row();
  if (c.gradient) in.push_back(random_numbers(results, random));
  in.push_back(random_numbers(c.columns * c.terms * 9, random));
  if (c.bias) in.push_back(random_numbers(c.columns, random));
  if (c.residual) in.push_back(random_numbers(results, random));
  return in;
}

void expect_error_below(const std::vector<double>& expected, const Floats& actual, double limit,
                        const std::string& what) {
  ASSERT_EQ(expected.size(), actual.size()) << what;
  double error = 0, norm = 0, most = 0;
  for (size_t i = 0; i < expected.size(); ++i) {
    error += (expected[i] - actual[i]) * (expected[i] - actual[i]);
    norm += expected[i] * expected[i];
    most = std::max(most, std::fabs(expected[i] - actual[i]));
  }
  EXPECT_LE(std::sqrt(error / norm), limit) << what;
  EXPECT_LE(most, 40 * limit * std::sqrt(norm / static_cast<double>(expected.size()))) << what;
}

const std::vector<Case>& cases() {
  static const std::vector<Case> all = {
      {1, 32, 32, 12, 12},                       // tiles that end with the rows
      {2, 32, 48, 7, 9, 1, true},                // results beyond both edges
      {3, 64, 32, 10, 12, 0, true, true},        // no padding
      {1, 40, 32, 8, 11, 1, true, true},         // terms that fill no pair of vectors
      {2, 32, 32, 6, 5, 2},                      // more than "same"
      {1, 64, 64, 28, 28, 1, true},              // several blocks
      {2, 32, 64, 9, 8, 1, false, false, true},  // gradients
      {1, 64, 32, 6, 7, 2, false, false, true},
  };
  return all;
}

TEST(Winograd, CompiledConvolutions) {
  for (const Isa isa : supported_isas()) {
    CompileOptions options;
    options.target = loop::target_for(isa);
    size_t ours = 0;
    for (const Case& c : cases())
      for (const bool symbolic : {false, true}) {
        const std::string text = text_of(c, symbolic);
        const CompiledGraph compiled = compile(graph::parse(text), options);
        if (isa == Isa::kAvx2) {
          EXPECT_EQ(compiled.report.library_steps, 0) << text;
        }
        if (compiled.report.library_steps > 0) continue;
        ++ours;
        std::vector<Floats> in = inputs_of(c);
        Floats out(static_cast<size_t>(c.batch * c.columns * c.rows() * c.row()));
        std::vector<void*> arguments, results{out.data()};
        for (Floats& x : in) arguments.push_back(x.data());
        const Longs symbols = symbolic ? Longs{c.batch} : Longs{};
        compiled.executable->run(arguments, results, symbols, {});
        // The sum over windows has 1e-7 to 3e-7.
        expect_error_below(expected(c, in), out, 5e-7, std::string(name(isa)) + "\n" + text);
      }
    EXPECT_GE(ours, isa == Isa::kAvx2 ? 2 * cases().size() : cases().size()) << name(isa);
  }
}

std::vector<std::pair<Isa, bool>> isas_and_batches() {
  std::vector<std::pair<Isa, bool>> all;
  for (const Isa isa : supported_isas())
    for (const bool symbolic : {false, true}) all.emplace_back(isa, symbolic);
  return all;
}

// The gradient of a convolution's weights.
struct Window {
  int64_t batch, terms, columns, height, width, rows = 3, row = 3, stride = 1, padding = 1;
  int threads = 0;  // that the target has; 0: as many as this machine

  int64_t down() const { return (height + 2 * padding - rows) / stride + 1; }
  int64_t across() const { return (width + 2 * padding - row) / stride + 1; }
};

std::string text_of(const Window& c, bool symbolic) {
  const std::string batch = symbolic ? "s0" : std::to_string(c.batch);
  const auto pair = [](int64_t n) { return "[" + std::to_string(n) + "," + std::to_string(n) + "]"; };
  const auto image = [&](int64_t channels, int64_t height, int64_t width) {
    return "f32[" + batch + "," + std::to_string(channels) + "," + std::to_string(height) + "," +
           std::to_string(width) + "]" + channels_last(channels, height, width);
  };
  const bool winograd = c.rows * c.row == 9 && c.stride == 1;
  return "graph main(%g: " + image(c.columns, c.down(), c.across()) +
         ", %x: " + image(c.terms, c.height, c.width) + (symbolic ? ") symbols(s0=2) {" : ") {") +
         "\n%0 = weight_gradient(%g, %x) stride=" + pair(c.stride) + " padding=" + pair(c.padding) +
         " winograd=" + (winograd ? "true" : "false") + " : " + shape({c.columns, c.terms, c.rows, c.row}) +
         "\nreturn %0 }";
}

// Of the weights: by tiles in several chunks and in one that is not full; by taps, of windows that Winograd's
// method does not have; by so many threads that the sums of all would be too many, and panels are divided
// too.
TEST(Winograd, GradientOfWeights) {
  for (const Window& c : {Window{4, 32, 48, 20, 20}, Window{3, 32, 40, 15, 17, 3, 3, 1, 0},
                          Window{2, 32, 64, 9, 12, 3, 3, 1, 2}, Window{2, 64, 64, 56, 56},
                          Window{2, 64, 72, 19, 18, 3, 3, 2, 1}, Window{2, 48, 56, 15, 13, 1, 1, 1, 0},
                          Window{3, 16, 8, 14, 14, 1, 1, 2, 0}, Window{2, 32, 40, 16, 15, 5, 3, 2, 2},
                          Window{2, 96, 80, 19, 18, 3, 3, 2, 1}, Window{2, 64, 48, 15, 13, 1, 1, 1, 0},
                          Window{2, 96, 192, 20, 20, 3, 3, 1, 1, 64}})
    for (const auto& [isa, symbolic] : isas_and_batches()) {
      CompileOptions options;
      options.target = loop::target_for(isa);
      if (c.threads > 0) options.target.threads = c.threads;
      const int64_t lanes = options.target.lanes(Dtype::kF32);
      if (c.terms % graph::winograd_panel(options.target) != 0 || c.columns % lanes != 0) continue;
      const std::string text = text_of(c, symbolic);
      const CompiledGraph compiled = compile(graph::parse(text), options);
      std::mt19937 random(7);
      std::vector<Floats> in{random_numbers(c.batch * c.columns * c.down() * c.across(), random),
                             random_numbers(c.batch * c.terms * c.height * c.width, random)};
      Floats out(static_cast<size_t>(c.columns * c.terms * c.rows * c.row));
      std::vector<void*> arguments, results{out.data()};
      for (Floats& x : in) arguments.push_back(x.data());
      compiled.executable->run(arguments, results, symbolic ? Longs{c.batch} : Longs{}, {});
      std::vector<double> expected(out.size());
      for (int64_t n = 0; n < c.batch; ++n)
        for (int64_t i = 0; i < c.down(); ++i)
          for (int64_t j = 0; j < c.across(); ++j)
            for (int64_t r = 0; r < c.rows; ++r)
              for (int64_t q = 0; q < c.row; ++q) {
                const int64_t row = i * c.stride + r - c.padding, column = j * c.stride + q - c.padding;
                if (row < 0 || row >= c.height || column < 0 || column >= c.width) continue;
                const float* g = &in[0][((n * c.down() + i) * c.across() + j) * c.columns];
                const float* x = &in[1][((n * c.height + row) * c.width + column) * c.terms];
                for (int64_t k = 0; k < c.columns; ++k)
                  for (int64_t t = 0; t < c.terms; ++t)
                    expected[((k * c.terms + t) * c.rows + r) * c.row + q] += double{g[k]} * x[t];
              }
      expect_error_below(expected, out, 1e-6, text);
      if (!symbolic) continue;
      compiled.executable->run(arguments, results, Longs{0}, {});  // no images
      EXPECT_TRUE(std::ranges::all_of(out, [](float w) { return w == 0; })) << text;
    }
}

// Each row of a tile of 13 has an address of its own. Where LLVM computes all from one number in the loop, it
// loads every row before the products, and sums leave their registers.
TEST(Winograd, SumsOfGradientsStayInRegisters) {
  CompileOptions options;
  options.target = loop::target_for(Isa::kAvx512);
  options.jit = false;
  for (const Window& c : {Window{2, 64, 64, 56, 56}, Window{2, 64, 256, 14, 14, 1, 1, 1, 0}}) {
    const CompiledGraph compiled = compile(graph::parse(text_of(c, false)), options);
    const std::string code =
        loop::emit_assembly(loop::run_pipeline(compiled.functions, options.target), options.target);
    ASSERT_NE(code.find("vfmadd"), std::string::npos);
    const std::regex to_stack("vmov[au]ps\\s+%zmm\\d+, -?\\d*\\(%rsp\\)");
    EXPECT_FALSE(std::regex_search(code, to_stack)) << text_of(c, false);
  }
}

// Interpreted, with panels of each ISA's width.
TEST(Winograd, Evaluated) {
  const Case c{2, 8, 32, 3, 4, 1, true};
  const auto windows = graph::parse(text_of(c, false));
  std::vector<HostTensor> in;
  for (const Floats& x : inputs_of(c)) in.push_back(tensor(x));
  const Floats expected = values<float>(graph::eval(windows, in)[0]);
  for (const Isa isa : {Isa::kAvx2, Isa::kAvx512}) {
    const graph::WinogradShape sizes{c.terms, c.columns, c.rows(), c.row(), c.batch};
    const graph::Shape u = graph::winograd_filter_shape(sizes, loop::target_for(isa));
    const std::string text = "graph main(%x: " + shape({c.batch, c.terms, c.height, c.width}) +
                             ", %w: " + shape({c.columns, c.terms, 3, 3}) + ", %b: " + shape({c.columns}) +
                             ") {\n%u = winograd_filter(%w) gradient=false : " +
                             shape({16, *loop::as_const_int(u[1]), c.terms, *loop::as_const_int(u[3])}) +
                             "\n%y = winograd(%x, %u, %b) padding=[1,1] bias=true post=[] : " +
                             shape({c.batch, c.columns, c.rows(), c.row()}) + "\nreturn %y }";
    expect_near(values<float>(graph::eval(graph::parse(text), in)[0]), expected, 1e-5, text);
  }
}

// Where the library's sum over windows takes less time, or the method does not apply.
TEST(Winograd, Refused) {
  CompileOptions options;
  options.target = loop::target_for(Isa::kAvx2);
  const auto uses = [&](const Case& c, const std::string& from = "", const std::string& to = "") {
    std::string text = text_of(c, false);
    for (size_t at = 0; !from.empty() && (at = text.find(from, at)) != std::string::npos; at += to.size())
      text.replace(at, from.size(), to);
    const graph::Graph laid_out = graph::run_pass(graph::parse(text), "plan_layouts", options.target);
    const graph::Graph g = graph::run_pass(laid_out, "choose_implementations", options.target);
    return print(g).find("winograd") != std::string::npos;
  };
  const Case c{1, 64, 64, 28, 28};
  EXPECT_TRUE(uses(c));
  EXPECT_TRUE(uses(c, "f32", "bf16")) << "in f32 between casts";
  EXPECT_FALSE(uses({1, 64, 40, 28, 28})) << "columns that fill no panels";
  EXPECT_FALSE(uses({1, 64, 64, 2, 2})) << "one tile";
  options.target = loop::target_for(Isa::kAvx512Bf16);
  EXPECT_FALSE(uses(c, "f32", "bf16"));
}

}  // namespace
}  // namespace ipex::test

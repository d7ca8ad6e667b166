// An LSTM layer, compared with its equations in double.
#include <utility>

#include "kernels/step_fields.h"
#include "kernels/step_table.h"
#include "kernels_fixture.h"

namespace ipex::kernels {
namespace {

using testing::in_order;
using testing::Sizes;
using testing::Tensor;

struct Case {
  int64_t steps, batch, inputs, hidden;
  bool bias = true, reverse = false, pack = true;
};

double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

// Buffers: the three results, then the operands. If `strided`, none is row-major.
struct Layer {
  explicit Layer(const Case& c, Dtype dtype = Dtype::kF32, bool strided = false) : given(c) {
    const auto strides = [&](const Sizes& sizes) {
      if (!strided) return Sizes{};
      return sizes.size() == 3 ? in_order(sizes, {1, 0, 2}) : in_order(sizes, {1, 0});
    };
    const auto random = [&](Dtype type, const Sizes& sizes, int seed) {
      return Tensor::random(type, sizes, seed, strides(sizes));
    };
    const Sizes state = {c.batch, c.hidden}, sequence = {c.steps, c.batch, c.hidden};
    x = random(dtype, {c.steps, c.batch, c.inputs}, 1);
    h = random(dtype, state, 2);
    cell = random(Dtype::kF32, state, 3);
    w_input = random(dtype, {4 * c.hidden, c.inputs}, 4);
    w_hidden = random(dtype, {4 * c.hidden, c.hidden}, 5);
    for (Tensor* w : {&w_input, &w_hidden})  // initialised as in nn.LSTM
      w->each([&](const Sizes& at) { w->set(at, w->at(at) / std::sqrt(static_cast<double>(c.hidden))); });
    bias = Tensor::random(Dtype::kF32, {4 * c.hidden}, 6);
    dst = Tensor(dtype, sequence, strides(sequence));
    h_last = Tensor(dtype, state, strides(state));
    c_last = Tensor(Dtype::kF32, state, strides(state));
  }

  LstmDesc desc() const {
    LstmDesc desc{x.spec(3), h.spec(4), cell.spec(5), w_input.spec(6), w_hidden.spec(7)};
    if (given.bias) desc.bias = bias.spec(8);
    desc.dst = dst.spec(0);
    desc.h_last = h_last.spec(1);
    desc.c_last = c_last.spec(2);
    desc.reverse = given.reverse;
    desc.pack = given.pack;
    return desc;
  }

  void run(LibrarySteps steps, const Sizes& symbols = {}) {
    Executable::Parts parts;
    parts.buffers.resize(testing::kPacked + 1);
    for (int i = 0; i < 3; ++i) parts.buffers[i] = {BufferKind::kOutput, i};
    for (int i = 0; i < 6; ++i) parts.buffers[3 + i] = {BufferKind::kInput, i};
    parts.inputs.resize(6);
    parts.outputs.resize(3);
    parts.static_inputs = {3, 4};
    parts.symbol_count = static_cast<int>(symbols.size());
    EXPECT_EQ(steps.main->writes, (std::vector<int>{0, 1, 2}));
    if (steps.pack) {
      EXPECT_EQ(steps.pack->writes, std::vector<int>{testing::kPacked});
      EXPECT_EQ(steps.pack->reads, (std::vector<int>{6, 7}));
      EXPECT_FALSE(steps.pack->recipe.empty());
      parts.buffers[testing::kPacked] = {BufferKind::kHoisted, -1, steps.packed_bytes};
      parts.steps.push_back(std::move(steps.pack));
      parts.hoisted.push_back(true);
    }
    parts.steps.push_back(std::move(steps.main));
    parts.hoisted.push_back(false);
    void* inputs[] = {x.data(), h.data(), cell.data(), w_input.data(), w_hidden.data(), bias.data()};
    void* outputs[] = {dst.data(), h_last.data(), c_last.data()};
    Executable(std::move(parts)).run(inputs, outputs, symbols, {});
  }

  void check(double tolerance) const {
    const auto [steps, batch, inputs, hidden, has_bias, reverse, pack] = given;
    for (int64_t n = 0; n < batch; ++n) {
      std::vector<double> state(hidden), cells(hidden);
      for (int64_t j = 0; j < hidden; ++j) {
        state[j] = h.at({n, j});
        cells[j] = cell.at({n, j});
      }
      for (int64_t step = 0; step < steps; ++step) {
        const int64_t t = reverse ? steps - 1 - step : step;
        std::vector<double> gates(4 * hidden);
        for (int64_t g = 0; g < 4 * hidden; ++g) {
          gates[g] = has_bias ? bias.at({g}) : 0;
          for (int64_t i = 0; i < inputs; ++i) gates[g] += w_input.at({g, i}) * x.at({t, n, i});
          for (int64_t j = 0; j < hidden; ++j) gates[g] += w_hidden.at({g, j}) * state[j];
        }
        for (int64_t j = 0; j < hidden; ++j) {
          const double in = sigmoid(gates[j]), keep = sigmoid(gates[hidden + j]);
          cells[j] = keep * cells[j] + in * std::tanh(gates[2 * hidden + j]);
          state[j] = sigmoid(gates[3 * hidden + j]) * std::tanh(cells[j]);
          ASSERT_NEAR(dst.at({t, n, j}), state[j], tolerance) << t << "," << n << "," << j;
        }
      }
      for (int64_t j = 0; j < hidden; ++j) {
        ASSERT_NEAR(h_last.at({n, j}), state[j], tolerance);
        ASSERT_NEAR(c_last.at({n, j}), cells[j], tolerance);
      }
    }
  }

  Case given;
  Tensor x, h, cell, w_input, w_hidden, bias, dst, h_last, c_last;
};

constexpr Case kCases[] = {
    {7, 3, 6, 10},     {7, 3, 6, 10, false},       {7, 3, 6, 10, true, true},
    {1, 1, 1, 1},      {5, 1, 33, 17, true, true}, {4, 9, 16, 48, false, false, false},
    {12, 20, 64, 128},
};

TEST(Lstm, FollowsItsEquations) {
  for (const Case& c : kCases)
    for (const bool strided : {false, true}) {
      Layer layer(c, Dtype::kF32, strided);
      LibrarySteps steps = make_lstm(layer.desc(), testing::kPacked);
      EXPECT_EQ(steps.pack != nullptr, c.pack);
      EXPECT_EQ(steps.main->info.detail.find("packed weights") != std::string::npos, c.pack);
      layer.run(std::move(steps));
      layer.check(testing::tolerance(Dtype::kF32));
    }
}

TEST(Lstm, HalfPrecision) {
  if (current_isa() == Isa::kAvx2) GTEST_SKIP() << "no bf16 on this target";
  for (const Case& c : kCases) {
    Layer layer(c, Dtype::kBF16);
    layer.run(make_lstm(layer.desc(), testing::kPacked));
    layer.check(4 * testing::tolerance(Dtype::kBF16));  // each step rounds the state
  }
}

// s0 steps, s1 rows; the weights are packed once for all of them.
TEST(Lstm, SizesOfEachRun) {
  for (const auto& [length, batch] : std::vector<std::pair<int64_t, int64_t>>{{5, 2}, {1, 40}, {9, 1}}) {
    Layer layer({length, batch, 12, 24});
    LstmDesc desc = layer.desc();
    using Code = SizeExpr::Code;
    const SizeExpr steps({{Code::kSymbol, 0}}), rows({{Code::kSymbol, 1}});
    const auto sequence = [&](TensorSpec& spec, int64_t features) {
      spec.sizes = {steps, rows, features};
      spec.strides = {SizeExpr({{Code::kSymbol, 1}, {Code::kConst, features}, {Code::kMul}}), features, 1};
    };
    sequence(desc.x, 12);
    sequence(desc.dst, 24);
    for (TensorSpec* state : {&desc.h, &desc.c, &desc.h_last, &desc.c_last}) state->sizes[0] = rows;
    layer.run(make_lstm(desc, testing::kPacked), {length, batch});
    layer.check(testing::tolerance(Dtype::kF32));
  }
}

TEST(Lstm, WithoutStepsTheStateStays) {
  Layer layer({0, 3, 6, 10});
  layer.run(make_lstm(layer.desc(), testing::kPacked));
  layer.check(0);
  Layer nobody({4, 0, 6, 10});
  nobody.run(make_lstm(nobody.desc(), testing::kPacked));
}

TEST(Lstm, ComesBackFromItsText) {
  for (const Case& c : kCases) {
    Layer layer(c);
    const std::string text = make_lstm(layer.desc(), testing::kPacked).main->text;
    FieldReader io(text, "test", {testing::kPacked + 1, 0});
    MadeSteps made = read_step(io);
    EXPECT_EQ(made.main->text, text);
    EXPECT_EQ(made.packed_buffer, testing::kPacked);
    layer.run({std::move(made.main), std::move(made.pack), made.packed_bytes});
    layer.check(testing::tolerance(Dtype::kF32));
  }
}

TEST(Lstm, TextThatContradictsItselfIsRefused) {
  const Layer layer(kCases[0]);
  const auto refused = [&](void (*change)(LstmDesc&)) {
    LstmDesc desc = layer.desc();
    change(desc);
    const std::string text = to_line("onednn.lstm", WithPacked<LstmDesc>{desc, testing::kPacked});
    FieldReader io(text, "test", {testing::kPacked + 1, 0});
    EXPECT_THROW(read_step(io), std::exception) << text;
  };
  refused([](LstmDesc& d) { d.x = d.h; });
  refused([](LstmDesc& d) { d.h_last = d.dst; });
  refused([](LstmDesc& d) { d.bias = d.c; });
  refused([](LstmDesc& d) { d.w_hidden = d.w_input; });
  refused([](LstmDesc& d) { d.c = d.w_hidden; });
  refused([](LstmDesc& d) { d.bias->sizes[0] = 4; });
}

}  // namespace
}  // namespace ipex::kernels

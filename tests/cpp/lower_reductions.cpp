// Rows of reduction.def on edge values, through lowering and the interpreter.
#include <limits>

#include "backend/ops/tables.h"
#include "tests/cpp/graph_fixture.h"

namespace ipex::test {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInf = std::numeric_limits<float>::infinity();

std::vector<HostTensor> reduce(const std::string& row, const std::string& dtype, const std::string& result,
                               const HostTensor& x, size_t n, const std::string& attrs = "") {
  std::string types = result;
  const bool pair = result.find(',') != std::string::npos;
  const std::string text = "graph main(%x: " + dtype + "[" + std::to_string(n) + "]) {\n  %0" +
                           (pair ? ", %1" : "") + " = reduce." + row + "(%x) axes=[0] " + attrs +
                           " keepdim=false : " + types + "\n  return %0" + (pair ? ", %1" : "") + "\n}\n";
  return run_fused(graph::parse(text), {x}).outputs;
}
float reduce_f32(const std::string& row, const Floats& x, const std::string& attrs = "") {
  return values<float>(reduce(row, "f32", "f32[]", tensor(x), x.size(), attrs)[0])[0];
}
int64_t reduce_index(const std::string& row, const Floats& x) {
  return values<int64_t>(reduce(row, "f32", "i64[]", tensor(x), x.size())[0])[0];
}

TEST(Reductions, SumsAndProducts) {
  EXPECT_EQ(reduce_f32("sum", {1, 2, 3.5f}), 6.5f);
  EXPECT_EQ(reduce_f32("sum", {}), 0);
  EXPECT_EQ(reduce_f32("prod", {}), 1);
  EXPECT_EQ(reduce_f32("prod", {2, -3, 4}), -24);
  EXPECT_TRUE(std::isnan(reduce_f32("sum", {kInf, -kInf})));
  EXPECT_EQ(reduce_f32("mean", {1, 2, 6}), 3);
  EXPECT_TRUE(std::isnan(reduce_f32("mean", {})));
  const std::vector<int64_t> big = {std::numeric_limits<int64_t>::max(), 1};
  EXPECT_EQ(values<int64_t>(reduce("sum", "i64", "i64[]", tensor(big), 2)[0])[0],
            std::numeric_limits<int64_t>::min());
}

TEST(Reductions, HalvesAccumulateInFloat) {
  // 1 + 256 ones: in bf16 the sum would stop at 256.
  const Floats ones(300, 1.0f);
  EXPECT_EQ(bf16_values(reduce("sum", "bf16", "bf16[]", bf16(ones), 300)[0])[0], 300.0f);
}

TEST(Reductions, Extrema) {
  EXPECT_EQ(reduce_f32("amax", {1, 5, -7}), 5);
  EXPECT_EQ(reduce_f32("amin", {1, 5, -7}), -7);
  EXPECT_EQ(reduce_f32("amax", {-kInf, -kInf}), -kInf);
  EXPECT_TRUE(std::isnan(reduce_f32("amax", {1, kNan, 2})));
  EXPECT_TRUE(std::isnan(reduce_f32("amin", {1, kNan, 2})));
  EXPECT_EQ(reduce_f32("fmax", {1, kNan, 2}), 2);
  EXPECT_EQ(reduce_f32("fmax", {kNan, -kInf}), -kInf);
  EXPECT_EQ(values<uint8_t>(reduce("amax", "u8", "u8[]", tensor<uint8_t>({3, 200, 7}), 3)[0])[0], 200);
  EXPECT_EQ(values<int64_t>(reduce("amin", "i64", "i64[]",
                                   tensor<int64_t>({3, std::numeric_limits<int64_t>::max()}), 2)[0])[0],
            3);
  EXPECT_EQ(reduce("amax", "b1", "b1[]", bools({0, 1}), 2)[0], bools({1}));
}

TEST(Reductions, IndicesPreferTheFirstAndNan) {
  EXPECT_EQ(reduce_index("argmax", {1, 3, 3, 2}), 1);
  EXPECT_EQ(reduce_index("argmin", {1, 0, 0, 2}), 1);
  EXPECT_EQ(reduce_index("argmax", {1, kNan, kNan, kInf}), 1);
  EXPECT_EQ(reduce_index("argmin", {1, kNan, -kInf}), 1);
  EXPECT_EQ(reduce_index("argmax", {-kInf, -kInf}), 0);
  EXPECT_EQ(reduce_index("argmin", {kInf, kInf}), 0);
  const auto pair = reduce("max_with_index", "f32", "f32[], i64[]", tensor<float>({4, 9, 9}), 3);
  EXPECT_EQ(values<float>(pair[0])[0], 9);
  EXPECT_EQ(values<int64_t>(pair[1])[0], 1);
}

TEST(Reductions, AnyAndAll) {
  EXPECT_EQ(reduce("any", "f32", "b1[]", tensor<float>({0, -0.0f}), 2)[0], bools({0}));
  EXPECT_EQ(reduce("any", "f32", "b1[]", tensor<float>({0, kNan}), 2)[0], bools({1}));
  EXPECT_EQ(reduce("all", "i32", "b1[]", tensor<int32_t>({1, 0}), 2)[0], bools({0}));
  EXPECT_EQ(reduce("all", "b1", "b1[]", bools({}), 0)[0], bools({1}));
  EXPECT_EQ(reduce("any", "b1", "b1[]", bools({}), 0)[0], bools({0}));
}

TEST(Reductions, Variance) {
  EXPECT_FLOAT_EQ(reduce_f32("var", {1, 2, 3, 4}, "correction=1.0"), 5.0f / 3);
  EXPECT_FLOAT_EQ(reduce_f32("var", {1, 2, 3, 4}, "correction=0.0"), 1.25f);
  EXPECT_FLOAT_EQ(reduce_f32("std", {1, 2, 3, 4}, "correction=0.0"), std::sqrt(1.25f));
  EXPECT_TRUE(std::isnan(reduce_f32("var", {2}, "correction=1.0")));
  EXPECT_EQ(reduce_f32("var", {1, 2}, "correction=5.0"), kInf);
  EXPECT_TRUE(std::isnan(reduce_f32("var", {}, "correction=0.0")));
  // A large mean does not swallow a small spread.
  EXPECT_NEAR(reduce_f32("var", {1e6f, 1e6f + 1, 1e6f + 2}, "correction=0.0"), 2.0f / 3, 1e-2);
  const auto pair = reduce("var_mean", "f32", "f32[], f32[]", tensor<float>({1, 3}), 2, "correction=0.0");
  EXPECT_EQ(values<float>(pair[0])[0], 1);
  EXPECT_EQ(values<float>(pair[1])[0], 2);
}

// Splitting a reduction in two and merging must not change what is decided by comparison, and sums only by
// rounding.
TEST(Reductions, MergeAgreesWithUpdate) {
  for (const auto& row : ops::reduction_rows()) {
    const Dtype dtype = row.floats ? Dtype::kF32 : Dtype::kI64;
    auto fold = [&](const Floats& x, int64_t begin) {
      std::vector<loop::Expr> states;
      for (const auto& s : row.states(dtype, Dtype::kI64)) states.push_back(s.identity);
      for (size_t i = 0; i < x.size(); ++i)
        states = row.update(states, loop::make_const({dtype}, x[i]),
                            loop::index_const(begin + static_cast<int64_t>(i)));
      return states;
    };
    for (const Floats& x : {Floats{1, 5, 5, -2}, Floats{kNan, 1, 2, kNan}, Floats{0, 0, 0, 0}}) {
      const Floats left(x.begin(), x.begin() + 2), right(x.begin() + 2, x.end());
      const auto whole = fold(x, 0), merged = row.merge(fold(left, 0), fold(right, 2));
      const auto empty = row.merge(fold({}, 0), fold(x, 0));
      ASSERT_EQ(whole.size(), merged.size()) << row.name;
      for (size_t k = 0; k < whole.size(); ++k) {
        auto number = [&](const loop::Expr& e) {
          loop::Function f;
          f.name = "f";
          f.buffers = {{"out", e->type.dtype, loop::Access::kOut, loop::index_const(1)}};
          f.body = loop::make_block({loop::Store{"out", loop::index_const(0), e, nullptr}});
          char memory[8] = {};
          void* buffer = memory;
          loop::eval(f, {&buffer, 1}, {});
          if (e->type.dtype == Dtype::kF32) return static_cast<double>(*reinterpret_cast<float*>(memory));
          if (e->type.dtype == Dtype::kI64) return static_cast<double>(*reinterpret_cast<int64_t*>(memory));
          return static_cast<double>(memory[0]);
        };
        expect_near<double>({number(merged[k])}, {number(whole[k])}, 1e-5, std::string(row.name));
        expect_near<double>({number(empty[k])}, {number(whole[k])}, 1e-5,
                            std::string(row.name) + " with empty");
      }
    }
  }
}

}  // namespace
}  // namespace ipex::test

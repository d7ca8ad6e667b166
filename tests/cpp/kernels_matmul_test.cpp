// Matrix products, compared with sums in double: strides, batches, broadcasts, bias, all post-ops, packing,
// empty sizes, threads.
#include <omp.h>

#include <thread>

#include "runtime/arena.h"
#include "runtime/error.h"
#include "tests/cpp/kernels_products.h"

namespace ipex::kernels::testing {
namespace {

// Without AVX-512, weights are packed for an inner product: both orientations of b, all forms of bias,
// epilogues with and without an operand, operands with gaps between rows. For many rows they are unpacked.
TEST(PackedProduct, ComputesTheProduct) {
  for (int64_t m : {2, 16, 100})
    for (bool transposed : {false, true})
      for (int64_t gap : {0, 3})
        for (const Sizes& bias : {Sizes{40}, Sizes{1}, Sizes{m, 1}, Sizes{m, 40}}) {
          SCOPED_TRACE(::testing::Message() << m << " rows, transposed " << transposed << ", gap " << gap
                                            << ", bias of rank " << bias.size());
          Case c = plain(Dtype::kF32, m, 40, 66);
          c.a = Tensor::random(Dtype::kF32, {m, 66}, 1, {66 + gap, 1});
          c.dst = Tensor(Dtype::kF32, {m, 40}, {40 + gap, 1});
          if (transposed) c.b = Tensor::random(Dtype::kF32, {66, 40}, 2, {1, 66});
          c.pack = true;
          c.bias = {Tensor::random(Dtype::kF32, bias, 3)};
          c.post = {"gelu", "add"};
          c.operands = {Tensor::random(Dtype::kF32, {m, 40}, 4)};
          const std::string detail = expect_product(c);
          if (current_isa() == Isa::kAvx2) {
            EXPECT_EQ(detail.find("brgemm:avx2"), 0) << detail;
          }
        }
}

std::unique_ptr<Step> pack_step(int64_t m, int64_t n, int64_t k, bool pack = true) {
  Case c = plain(Dtype::kF32, m, n, k);
  c.pack = pack;
  return make_matmul(describe(c), kPacked).pack;
}

// One packed copy of a weight is used for all numbers of rows.
TEST(PackedProduct, PacksAlikeForAnyRows) {
  const std::string first = pack_step(16, 512, 512)->recipe;
  EXPECT_FALSE(first.empty());
  for (int64_t m : {2, 24, 32, 64, 127}) EXPECT_EQ(pack_step(m, 512, 512)->recipe, first) << m << " rows";
}

TEST(PackedProduct, NoCopyBesideManyRows) {
  for (int64_t m : {128, 250, 1024}) EXPECT_FALSE(pack_step(m, 512, 512)) << m << " rows";
}

TEST(PackedProduct, OnlyWhereItIsFasterAndExact) {
  if (current_isa() != Isa::kAvx2) GTEST_SKIP() << "the library packs for every product on this target";
  EXPECT_FALSE(pack_step(120, 768, 768, false)) << "weights that change";
  EXPECT_FALSE(pack_step(1, 768, 768)) << "one row streams b";
  EXPECT_FALSE(pack_step(120, 64, 8192)) << "a deep sum";
  EXPECT_FALSE(pack_step(16, 768, 3072)) << "a deep sum of few rows, in one chain";
  EXPECT_TRUE(pack_step(120, 768, 3072));
  EXPECT_TRUE(pack_step(16, 768, 768));
}

class MatMul : public ByType {};
INSTANTIATE_TEST_SUITE_P(Types, MatMul, ::testing::Values(Dtype::kF32, Dtype::kBF16),
                         [](const auto& info) { return std::string(name(info.param)); });

TEST_P(MatMul, OddSizes) {
  for (int64_t m : {1, 2, 7, 33})
    for (int64_t n : {1, 3, 17, 65})
      for (int64_t k : {1, 5, 64, 129})
        for (bool pack : {false, true}) {
          Case c = plain(GetParam(), m, n, k);
          c.pack = pack;
          SCOPED_TRACE(::testing::Message() << m << "x" << n << "x" << k << " pack " << pack);
          expect_product(c);
        }
}

TEST_P(MatMul, EveryOrientation) {
  const int64_t m = 9, n = 21, k = 13;
  for (int bits = 0; bits < 8; ++bits)
    for (bool pack : {false, true}) {
      SCOPED_TRACE(::testing::Message() << "orientation " << bits);
      Case c = plain(GetParam(), m, n, k);
      if (bits & 1) c.a = Tensor::random(GetParam(), {m, k}, 1, {1, m});
      if (bits & 2) c.b = Tensor::random(GetParam(), {k, n}, 2, {1, k});
      if (bits & 4) c.dst = Tensor(GetParam(), {m, n}, {1, m});
      c.bias = {Tensor::random(GetParam(), {n}, 3)};
      c.pack = pack;
      expect_product(c);
    }
}

TEST_P(MatMul, VectorsInEveryOrientation) {
  for (const auto& [m, n, k] : {std::tuple{1, 9, 7}, {9, 1, 7}, {9, 7, 1}, {1, 1, 5}, {1, 5, 1}, {5, 1, 1}})
    for (int bits = 0; bits < 8; ++bits) {
      SCOPED_TRACE(::testing::Message() << m << "x" << n << "x" << k << " orientation " << bits);
      Case c = plain(GetParam(), m, n, k);
      if (bits & 1) c.a = Tensor::random(GetParam(), {m, k}, 1, {3, 3 * m});
      if (bits & 2) c.b = Tensor::random(GetParam(), {k, n}, 2, {1, k + 2});
      if (bits & 4) c.dst = Tensor(GetParam(), {m, n}, {1, m});
      expect_product(c);
    }
}

TEST_P(MatMul, SlicedAndSteppedOperands) {
  const int64_t m = 12, n = 20, k = 18;
  for (bool pack : {false, true}) {
    Case c = plain(GetParam(), m, n, k);
    c.pack = pack;
    c.a = Tensor::random(GetParam(), {m, k}, 1, {k + 7, 1}, 5);
    c.b = Tensor::random(GetParam(), {k, n}, 2, {n + 3, 1}, 1);
    c.dst = Tensor(GetParam(), {m, n}, {n + 9, 1}, 4);
    expect_product(c);
    c.a = Tensor::random(GetParam(), {m, k}, 1, {2 * k, 2});
    expect_product(c);
    c.b = Tensor::random(GetParam(), {k, n}, 2, {3, 3 * k});
    c.dst = Tensor(GetParam(), {m, n}, {3 * n, 3});
    expect_product(c);
    c.a = Tensor::random(GetParam(), {m, k}, 1, {0, 1});  // one row repeated
    expect_product(c);
    c.a = Tensor::random(GetParam(), {m, k}, 1, {1, 0});
    expect_product(c);
  }
}

TEST_P(MatMul, WritesOnlyItsElements) {
  Case c = plain(GetParam(), 3, 4, 5);
  c.dst = Tensor(GetParam(), {3, 4}, {6, 1});
  const auto executable = executable_of(make_matmul(describe(c), kPacked), 2);
  const double untouched = Tensor(GetParam(), {1}).at({0});
  Tensor whole(GetParam(), {3, 6});
  run(*executable, whole, inputs(c));
  for (int64_t row = 0; row < 2; ++row)
    for (int64_t column = 4; column < 6; ++column) EXPECT_EQ(whole.at({row, column}), untouched);
}

TEST_P(MatMul, Batches) {
  for (const Sizes& batch : {Sizes{3}, Sizes{12, 4}, Sizes{2, 1, 3}, Sizes{1, 1}, Sizes{1, 5}})
    for (bool pack : {false, true}) {
      Case c = plain(GetParam(), 6, 10, 8, batch);
      c.pack = pack;
      expect_product(c);
    }
}

TEST_P(MatMul, BatchesSideBySideInMemory) {
  const int64_t batch = 2, heads = 3, rows = 5, width = 16;
  const auto by_row = [&](int64_t packs) {
    return Sizes{rows * packs * heads * width, width, packs * heads * width, 1};
  };
  for (int64_t packs : {1, 3}) {
    SCOPED_TRACE(packs);
    Case c;
    c.a = Tensor::random(GetParam(), {batch, heads, rows, width}, 1, by_row(packs));
    Sizes transposed = by_row(packs);
    std::swap(transposed[2], transposed[3]);
    c.b = Tensor::random(GetParam(), {batch, heads, width, rows}, 2, transposed);
    c.dst = Tensor(GetParam(), {batch, heads, rows, rows});
    expect_product(c);
    c.a = Tensor::random(GetParam(), {batch, heads, rows, rows}, 1);
    c.b = Tensor::random(GetParam(), {batch, heads, rows, width}, 2, by_row(packs));
    c.dst = Tensor(GetParam(), {batch, heads, rows, width}, by_row(1));
    expect_product(c);
  }
  Case c;  // one batch of heads
  c.a = Tensor::random(GetParam(), {heads, rows, width}, 1, {width, heads * width, 1});
  c.b = Tensor::random(GetParam(), {heads, width, rows}, 2, {width, 1, heads * width});
  c.dst = Tensor(GetParam(), {heads, rows, rows});
  const std::string detail = expect_product(c);
  if (current_isa() == Isa::kAvx512Bf16) {
    EXPECT_NE(detail.find("brg"), std::string::npos) << detail;
  }
}

TEST_P(MatMul, BroadcastBatchBecomesRows) {
  for (bool pack : {false, true}) {
    Case c = plain(GetParam(), 7, 32, 64, {2, 3});
    c.b = Tensor::random(GetParam(), {2, 3, 64, 32}, 2, {0, 0, 1, 64});  // a linear layer's weight
    c.bias = {Tensor::random(GetParam(), {32}, 3)};
    c.post = {"gelu"};
    c.pack = pack;
    const std::string detail = expect_product(c);
    EXPECT_EQ(detail.find("packed") != std::string::npos, pack) << detail;
    c.b = Tensor::random(GetParam(), {64, 32}, 2);
    expect_product(c);
  }
  Case c = plain(GetParam(), 7, 9, 11, {4, 3});
  c.a = Tensor::random(GetParam(), {4, 1, 7, 11}, 1);
  c.b = Tensor::random(GetParam(), {1, 3, 11, 9}, 1);
  expect_product(c);
}

TEST_P(MatMul, BiasOfEveryShape) {
  for (const Sizes& shape :
       {Sizes{8}, Sizes{1}, Sizes{6, 8}, Sizes{6, 1}, Sizes{2, 1, 8}, Sizes{2, 6, 8}, Sizes{2, 6, 1}})
    for (bool column_major : {false, true}) {
      SCOPED_TRACE(::testing::PrintToString(shape));
      Case c = plain(GetParam(), 6, 8, 10, {2});
      if (column_major) c.dst = Tensor(GetParam(), {2, 6, 8}, {48, 1, 6});
      c.bias = {Tensor::random(GetParam(), shape, 3)};
      expect_product(c);
    }
  Case c = plain(GetParam(), 6, 8, 10);
  c.bias = {Tensor::random(GetParam(), {8}, 3, {2})};
  expect_product(c);
  c.bias = {Tensor::random(GetParam(), {6, 8}, 3, {0, 1})};
  expect_product(c);
  c.bias = {Tensor::random(Dtype::kF32, {8}, 3)};
  expect_product(c);
}

std::string example(const PostOpRow& row) {
  std::string text(row.name);
  if (row.name == "hardtanh" || row.name == "clip") return text + ":-0.5:0.75";
  return row.parameters > 0 ? text + ":0.25" : text;
}

TEST_P(MatMul, EveryPostOp) {
  for (const PostOpRow& row : post_op_rows())
    for (bool pack : {false, true}) {
      SCOPED_TRACE(row.name);
      Case c = plain(GetParam(), 11, 19, 16);
      c.pack = pack;
      c.bias = {Tensor::random(GetParam(), {19}, 3)};
      c.post = {example(row)};
      if (row.name == "sqrt") c.post.insert(c.post.begin(), "abs");
      if (row.takes_operand) c.operands = {Tensor::random(GetParam(), {11, 19}, 4)};
      expect_product(c);
    }
}

// Infinities and NaN, as in eager. The product is zero, so that the sum is the bias.
TEST_P(MatMul, SpecialValuesThroughEveryPostOp) {
  constexpr double kInf = std::numeric_limits<double>::infinity();
  const double specials[] = {kInf, -kInf, std::numeric_limits<double>::quiet_NaN(), 0.0, -0.0, 2, -2,
                             1e30, -1e30};
  std::vector<std::string> post = {"leaky_relu:0"};
  for (const PostOpRow& row : post_op_rows())
    if (row.keeps_nan) post.push_back(example(row));
  for (const std::string& text : post)
    for (double special : specials) {
      if (text == "gelu" && special == kInf) continue;  // eager's vector path says NaN, its scalar path inf
      SCOPED_TRACE(text + " of " + std::to_string(special));
      Case c = plain(GetParam(), 3, 19, 4);
      c.a.each([&](const Sizes& at) { c.a.set(at, 0); });
      c.bias = {Tensor(GetParam(), {19})};
      c.bias[0].each([&](const Sizes& at) { c.bias[0].set(at, special); });
      c.post = {text};
      const PostOp op = parse_post_op(text);
      if (text == "add" || text == "sub" || text == "mul" || text == "sum")
        c.operands = {Tensor::random(GetParam(), {3, 19}, 4)};
      const auto executable =
          executable_of(make_matmul(describe(c), kPacked), static_cast<int>(inputs(c).size()));
      run(*executable, c.dst, inputs(c));
      c.dst.each([&](const Sizes& at) {
        const double got = c.dst.at(at);
        const double wanted =
            reference(op, c.bias[0].at_broadcast(at), c.operands.empty() ? 0 : c.operands[0].at(at));
        if (std::isfinite(wanted) && std::abs(wanted) < 1e37)
          EXPECT_NEAR(got, wanted, 1e-2 * std::abs(wanted));
        else if (std::isfinite(wanted))  // beyond the result's range
          EXPECT_GT(std::abs(got), 1e37);
        else
          EXPECT_TRUE(got == wanted || (std::isnan(got) && std::isnan(wanted))) << got << ", not " << wanted;
      });
    }
}

TEST_P(MatMul, PostOperandsOfEveryShapeAndLayout) {
  const Sizes dst = {2, 3, 6, 8};
  for (const Sizes& shape :
       {Sizes{1}, Sizes{8}, Sizes{6, 1}, Sizes{6, 8}, Sizes{3, 1, 1}, Sizes{3, 6, 8}, Sizes{2, 1, 1, 8},
        Sizes{2, 1, 6, 8}, Sizes{2, 3, 1, 1}, Sizes{2, 3, 6, 1}, Sizes{1, 3, 1, 8}, Sizes{2, 3, 6, 8}})
    for (const char* op : {"add", "mul"})
      for (bool heads : {false, true}) {
        SCOPED_TRACE(::testing::PrintToString(shape) + op);
        Case c = plain(GetParam(), 6, 8, 10, {2, 3});
        if (heads) c.dst = Tensor(GetParam(), dst, in_order(dst, {0, 2, 1, 3}));
        if (heads) c.bias = {Tensor::random(GetParam(), {8}, 7)};
        c.post = {"relu", op, "tanh"};
        c.operands = {Tensor::random(GetParam(), shape, 5)};
        expect_product(c);
        std::vector<int> reversed(shape.size());
        std::iota(reversed.rbegin(), reversed.rend(), 0);
        c.operands = {Tensor::random(GetParam(), shape, 5, in_order(shape, reversed))};
        expect_product(c);
      }
  Case c = plain(GetParam(), 6, 8, 10);
  c.operands = {Tensor::random(Dtype::kF32, {6, 8}, 5), Tensor::random(GetParam(), {8}, 6)};
  c.post = {"add", "mul"};
  expect_product(c);
}

TEST_P(MatMul, OperandInTheResultsOwnMemory) {
  for (const char* text : {"add", "sum", "mul", "sub"})
    for (bool same_buffer : {false, true})
      for (const Sizes& strides : {Sizes{8, 1}, Sizes{11, 1}, Sizes{1, 6}, Sizes{16, 2}}) {
        SCOPED_TRACE(::testing::Message() << text << same_buffer << ::testing::PrintToString(strides));
        Case c = plain(GetParam(), 6, 8, 10);
        c.post = {text, "relu"};
        c.dst = Tensor::random(GetParam(), {6, 8}, 9, strides);
        const Tensor residual = c.dst;
        c.operands = {residual};
        MatMulDesc desc = describe(c);
        if (same_buffer) desc.post[0].operand->buffer = 0;
        const auto executable = executable_of(make_matmul(desc, kPacked), same_buffer ? 2 : 3);
        std::vector<Tensor*> operands = {&c.a, &c.b};
        if (!same_buffer) operands.push_back(&c.dst);
        run(*executable, c.dst, operands);
        c.dst.each([&](const Sizes& index) {
          double sum = 0;
          for (int64_t k = 0; k < 10; ++k) sum += c.a.at({index[0], k}) * c.b.at({k, index[1]});
          sum = std::max(reference(desc.post[0], sum, residual.at(index)), 0.0);
          EXPECT_NEAR(c.dst.at(index), sum, 12 * tolerance(GetParam()));
        });
      }
}

TEST_P(MatMul, EmptySumIsBias) {
  for (const Sizes& batch : {Sizes{}, Sizes{3}})
    for (bool pack : {false, true}) {
      Case c = plain(GetParam(), 4, 6, 0, batch);
      c.pack = pack;
      expect_product(c);
      c.bias = {Tensor::random(GetParam(), {6}, 3)};
      c.post = {"sigmoid"};
      expect_product(c);
    }
}

TEST_P(MatMul, EmptyResult) {
  for (const auto& [m, n, k] : {std::tuple{0, 4, 5}, {4, 0, 5}, {0, 0, 0}})
    expect_product(plain(GetParam(), m, n, k));
  expect_product(plain(GetParam(), 3, 4, 5, {0}));
}

TEST_P(MatMul, FloatResultOfHalfOperands) {
  Case c = plain(GetParam(), 17, 23, 40);
  c.dst = Tensor(Dtype::kF32, {17, 23});
  c.pack = true;
  expect_product(c);
}

TEST_P(MatMul, DynamicSizes) {
  // a [s0, s1, 24] x b [24, s2]: rows and columns known at run time, weights read unpacked.
  MatMulDesc desc;
  const SizeExpr s0({{SizeExpr::Code::kSymbol, 0}}), s1({{SizeExpr::Code::kSymbol, 1}});
  const auto times = [](SizeExpr x, int64_t value) {
    auto program = x.program();
    program.push_back({SizeExpr::Code::kConst, value});
    program.push_back({SizeExpr::Code::kMul});
    return SizeExpr(program);
  };
  desc.a = {1, GetParam(), {s0, s1, 24}, {times(s1, 24), 24, 1}};
  desc.b = {2, GetParam(), {24, 48}, {1, 24}};
  desc.dst = {0, GetParam(), {s0, s1, 48}, {times(s1, 48), 48, 1}};
  desc.bias = TensorSpec{3, GetParam(), {48}, {1}};
  desc.post = {parse_post_op("silu")};
  for (bool pack : {false, true}) {
    desc.pack_b = pack;
    LibrarySteps steps = make_matmul(desc, kPacked);
    EXPECT_EQ(steps.pack != nullptr, pack);
    const auto executable = executable_of(std::move(steps), 3, 2);
    Tensor b = Tensor::random(GetParam(), {24, 48}, 2, {1, 24}), bias = Tensor::random(GetParam(), {48}, 3);
    for (const auto& [batch, rows] : {std::pair{1, 1}, {3, 5}, {2, 129}, {0, 5}, {9, 129}, {3, 5}, {7, 1}}) {
      Tensor a = Tensor::random(GetParam(), {batch, rows, 24}, batch), dst(GetParam(), {batch, rows, 48});
      run(*executable, dst, {&a, &b, &bias}, {batch, rows});
      dst.each([&](const Sizes& at) {
        double sum = bias.at({at[2]});
        for (int64_t k = 0; k < 24; ++k) sum += a.at({at[0], at[1], k}) * b.at({k, at[2]});
        EXPECT_NEAR(dst.at(at), sum / (1 + std::exp(-sum)), 20 * tolerance(GetParam()));
      });
    }
    for (int64_t rows = 1; rows < 100; ++rows) {  // more sizes than plans are kept for
      Tensor a = Tensor::random(GetParam(), {1, rows, 24}, 1), dst(GetParam(), {1, rows, 48});
      run(*executable, dst, {&a, &b, &bias}, {1, rows});
    }
  }
}

TEST_P(MatMul, ThreadCountMayChange) {
  const int before = omp_get_max_threads();
  Case c = plain(GetParam(), 64, 96, 128);
  c.pack = true;
  omp_set_num_threads(2);
  const auto executable = executable_of(make_matmul(describe(c), kPacked), 2);
  for (int threads : {2, 1, 3, 2}) {
    omp_set_num_threads(threads);
    Tensor dst(GetParam(), {64, 96});
    run(*executable, dst, inputs(c));
    dst.each([&](const Sizes& at) {
      double sum = 0;
      for (int64_t k = 0; k < 128; ++k) sum += c.a.at({at[0], k}) * c.b.at({k, at[1]});
      ASSERT_NEAR(dst.at(at), sum, 40 * tolerance(GetParam()));
    });
  }
  omp_set_num_threads(before);
}

TEST_P(MatMul, RunsFromSeveralThreads) {
  Case c = plain(GetParam(), 40, 50, 60);
  c.post = {"gelu"};
  c.pack = true;
  const auto executable = executable_of(make_matmul(describe(c), kPacked), 2);
  run(*executable, c.dst, inputs(c));
  std::vector<Tensor> results(4, Tensor(GetParam(), {40, 50}));
  std::vector<std::thread> threads;
  for (Tensor& result : results)
    threads.emplace_back([&] {
      for (int i = 0; i < 25; ++i) run(*executable, result, inputs(c));
    });
  for (std::thread& thread : threads) thread.join();
  for (const Tensor& result : results) EXPECT_EQ(result.bytes(), c.dst.bytes());
}

TEST_P(MatMul, RunsInsideAParallelRegion) {
  Case c = plain(GetParam(), 40, 50, 60);
  const auto executable = executable_of(make_matmul(describe(c), kPacked), 2);
  run(*executable, c.dst, inputs(c));
  std::vector<Tensor> results(2, Tensor(GetParam(), {40, 50}));
#pragma omp parallel for num_threads(2)
  for (int i = 0; i < 2; ++i) run(*executable, results[i], inputs(c));
  for (const Tensor& result : results)
    result.each(
        [&](const Sizes& at) { EXPECT_NEAR(result.at(at), c.dst.at(at), 40 * tolerance(GetParam())); });
}

TEST(MatMulPacking, RepacksWhenTheWeightChanges) {
  Case c = plain(Dtype::kF32, 8, 64, 32);
  c.pack = true;
  LibrarySteps steps = make_matmul(describe(c), kPacked);
  if (!steps.pack) GTEST_SKIP() << "this target reads weights as they are";
  EXPECT_EQ(steps.pack->info.name, "onednn.pack");
  const auto executable = executable_of(std::move(steps), 2);
  std::vector<InputVersion> versions(2, InputVersion{.version = 1, .trackable = true});
  run(*executable, c.dst, inputs(c), {}, versions);
  const auto first = c.dst.bytes();
  const auto untouched = c.b.bytes();
  c.b.set({0, 0}, 5);
  run(*executable, c.dst, inputs(c), {}, versions);
  EXPECT_EQ(c.dst.bytes(), first) << "the packed weight is kept while its version stays";
  versions[1].version = 2;
  run(*executable, c.dst, inputs(c), {}, versions);
  EXPECT_NE(c.dst.bytes(), first);
  c.b.set({0, 0}, Tensor::random(Dtype::kF32, {32, 64}, 2).at({0, 0}));
  EXPECT_EQ(c.b.bytes(), untouched) << "weights of the caller stay as they are";
}

TEST(MatMulPacking, KeepsNarrowWeightsPlain) {
  Case c = plain(Dtype::kF32, 8, 1, 768);
  c.pack = true;
  EXPECT_FALSE(make_matmul(describe(c), kPacked).pack);
}

TEST(MatMulPacking, SteadyStateAllocatesNothing) {
  Case c = plain(Dtype::kF32, 2, 3072, 768);  // for one row, oneDNN 3.13 reads weights as they are
  c.b = Tensor::random(Dtype::kF32, {768, 3072}, 2, {1, 768});
  c.bias = {Tensor::random(Dtype::kF32, {3072}, 3)};
  c.post = {"gelu"};
  c.pack = true;
  EXPECT_NE(expect_product(c).find("packed b"), std::string::npos);
  const auto executable = executable_of(make_matmul(describe(c), kPacked), 3);
  const std::vector<InputVersion> versions(3, InputVersion{.version = 1, .trackable = true});
  run(*executable, c.dst, inputs(c), {}, versions);
  auto& allocator = CachingAllocator::instance();
  const size_t live = allocator.live_bytes(), cached = allocator.cached_bytes();
  for (int i = 0; i < 100; ++i) run(*executable, c.dst, inputs(c), {}, versions);
  EXPECT_EQ(allocator.live_bytes(), live);
  EXPECT_EQ(allocator.cached_bytes(), cached);
}

TEST(MatMulErrors, SayWhatIsUnsupported) {
  for (Dtype dtype : {Dtype::kF64, Dtype::kI64, Dtype::kBool, Dtype::kI8}) {
    MatMulDesc desc;
    desc.a = {1, dtype, {4, 4}, {4, 1}};
    desc.b = {2, dtype, {4, 4}, {4, 1}};
    desc.dst = {0, dtype, {4, 4}, {4, 1}};
    try {
      make_matmul(desc, kPacked);
      ADD_FAILURE() << "accepted " << name(dtype);
    } catch (const Unsupported& error) {
      EXPECT_NE(std::string(error.what()).find("onednn.matmul"), std::string::npos) << error.what();
    }
  }
  Case mixed = plain(Dtype::kF32, 4, 4, 4);
  mixed.b = Tensor::random(Dtype::kBF16, {4, 4}, 2);
  EXPECT_THROW(make_matmul(describe(mixed), kPacked), Unsupported);
  Case overlapping = plain(Dtype::kF32, 4, 4, 4);
  overlapping.a = Tensor::random(Dtype::kF32, {4, 4}, 1, {2, 1});
  EXPECT_THROW(make_matmul(describe(overlapping), kPacked), Unsupported);
}

TEST(PostOps, ParseTheirTextForm) {
  EXPECT_EQ(parse_post_op("relu").name, "relu");
  const PostOp clip = parse_post_op("clip:-1.5:6");
  EXPECT_EQ(clip.alpha, -1.5f);
  EXPECT_EQ(clip.beta, 6.0f);
  for (const char* bad :
       {"", "nonsense", "relu:1", "clip", "clip:1", "clip:1:2:3", "elu:x", "elu:", "elu:1x"})
    EXPECT_THROW(parse_post_op(bad), UserError) << bad;
}

}  // namespace
}  // namespace ipex::kernels::testing

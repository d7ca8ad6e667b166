// Matrix products as test cases: operands, epilogue, and the comparison with sums in double.
#pragma once

#include <string>
#include <vector>

#include "tests/cpp/kernels_fixture.h"

namespace ipex::kernels::testing {

struct Case {
  Tensor a, b, dst;
  std::vector<Tensor> bias;  // none or one
  std::vector<std::string> post;
  std::vector<Tensor> operands;  // operands of binary post-ops, in order
  bool pack = false;
};

inline MatMulDesc describe(const Case& c) {
  MatMulDesc desc{c.a.spec(1), c.b.spec(2), c.dst.spec(0)};
  int buffer = 3;
  if (!c.bias.empty()) desc.bias = c.bias[0].spec(buffer++);
  size_t next = 0;
  for (const std::string& text : c.post) {
    PostOp op = parse_post_op(text);
    if (op.name == "add" || op.name == "sub" || op.name == "mul" || op.name == "sum")
      op.operand = c.operands[next++].spec(buffer++);
    desc.post.push_back(op);
  }
  desc.pack_b = c.pack;
  return desc;
}

inline std::vector<Tensor*> inputs(Case& c) {
  std::vector<Tensor*> list = {&c.a, &c.b};
  for (Tensor& bias : c.bias) list.push_back(&bias);
  for (Tensor& operand : c.operands) list.push_back(&operand);
  return list;
}

// Runs steps that compute the case and compares; returns the main step's detail.
inline std::string expect_product(Case c, LibrarySteps steps) {
  const MatMulDesc desc = describe(c);
  const std::string detail = steps.main->info.detail;
  const auto executable = executable_of(std::move(steps), static_cast<int>(inputs(c).size()));
  run(*executable, c.dst, inputs(c));
  const int64_t k_extent = c.a.sizes().back();
  double worst = 0;
  c.dst.each([&](const Sizes& index) {
    const size_t rank = index.size();
    Sizes at_a = index, at_b = index;
    double sum = 0, magnitude = 1;
    for (int64_t k = 0; k < k_extent; ++k) {
      at_a[rank - 1] = at_b[rank - 2] = k;
      const double product = c.a.at_broadcast(at_a) * c.b.at_broadcast(at_b);
      sum += product;
      magnitude += std::abs(product);
    }
    if (!c.bias.empty()) sum += c.bias[0].at_broadcast(index);
    size_t next = 0;
    for (const PostOp& op : desc.post) {
      const double operand = op.operand ? c.operands[next++].at_broadcast(index) : 0;
      sum = reference(op, sum, operand);
    }
    const double got = c.dst.at(index);
    if (std::isnan(sum)) {
      EXPECT_TRUE(std::isnan(got)) << detail;
      return;
    }
    worst = std::max(worst, std::abs(got - sum) / (magnitude + std::abs(sum)));
  });
  EXPECT_LE(worst, tolerance(c.dst.dtype())) << detail;
  return detail;
}

inline std::string expect_product(const Case& c) {
  return expect_product(c, make_matmul(describe(c), kPacked));
}

inline Case plain(Dtype dtype, int64_t m, int64_t n, int64_t k, Sizes batch = {}) {
  const auto sizes = [&](int64_t rows, int64_t cols) {
    Sizes all = batch;
    all.push_back(rows);
    all.push_back(cols);
    return all;
  };
  return {Tensor::random(dtype, sizes(m, k), 1), Tensor::random(dtype, sizes(k, n), 2),
          Tensor(dtype, sizes(m, n))};
}

}  // namespace ipex::kernels::testing

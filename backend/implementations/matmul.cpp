// The implementations of matrix products: a generated kernel or the library. The cost models follow
// measurements.
#include <algorithm>

#include "backend/implementations/implementation.h"
#include "backend/views.h"
#include "codegen/product_tile.h"

namespace ipex::graph {
namespace {

bool at_most(const Dim& dim, int64_t limit) {
  const auto number = loop::as_const_int(dim);
  return number && *number <= limit;
}

// Whether operand k has stride 1 along this dim.
bool is_contiguous(const Problem& p, int k, size_t dim) { return known(p.layout(k).strides[dim]) == 1; }

bool is_plain(const Problem& p) {  // two matrices, no batch
  return p.operand(0).shape.size() == 2 && p.operand(1).shape.size() == 2;
}

bool has_one_type(const Problem& p) {
  return std::ranges::all_of(p.node.operands,
                             [&](Value v) { return p.graph.type(v).dtype == p.result().dtype; });
}

// A product of few rows is bound by reading its second operand. Half the bytes gain more than the library's
// speed (768 x 3072 on AVX2, ms of bf16 and of the widened product: 1 row 0.29 and 0.36, 4 rows 0.64 and
// 0.56, 16 rows 2.29 and 1.30).
bool is_half_of_few_rows(const Problem& p) {
  constexpr int64_t kFewRows = 4;
  const Shape& result = p.result().shape;
  return lacks_half_type(p) &&
         (at_most(result.back(), kFewRows) || at_most(result[result.size() - 2], kFewRows));
}

bool is_forced_to_kernel(const Problem& p) { return p.context.matmul == MatmulSelection::kKernel; }
bool is_forced_to_library(const Problem& p) {
  return p.context.matmul == MatmulSelection::kLibrary && p.library_plans();
}

// Many rows of bf16 with contiguous K, which block_products computes with packed dot products: as fast as the
// library on packed weights, and faster than the library on plain ones (Zen 4, GFLOP/s of kernel, packed and
// plain: 1024 rows, 768 x 3072 448, 429 and 385; 128 rows 434, 439 and 392). Not for CPUs with matrix tiles
// (AMX), nor for artifacts, which may run on one.
bool is_of_packed_dots(const Problem& p) {
  constexpr int64_t kMinRows = 96, kMinColumns = 64, kMinK = 64;
  const loop::Target& target = p.context.target;
  if (!target.native_bf16 || target.matrix_tiles || !p.context.jit || !is_plain(p)) return false;
  if (p.operand(0).dtype != Dtype::kBF16 || p.operand(1).dtype != Dtype::kBF16) return false;
  const OperandLayout a = p.layout(0), b = p.layout(1);
  const Shape &rows = p.operand(0).shape, &columns = p.operand(1).shape;
  const auto pairs = [&](const OperandLayout& x, size_t k) {
    return known(x.strides[k]) == 1 && loop::provably_even(x.strides[1 - k]) &&
           loop::provably_even(x.offset) && loop::provably_even(x.extent);
  };
  return known(rows[0]) >= kMinRows && known(columns[1]) >= kMinColumns && known(rows[1]) >= kMinK &&
         loop::provably_even(rows[1]) && pairs(a, 1) && (pairs(b, 0) || known(b.strides[1]) == 1) &&
         known(p.result_strides()[1]) == 1;
}

// Many small products of f32, dominated by the library's overhead per product. Zen 3, us of kernel and
// library, 256 products of 9 x 64 by 64 x 9: 64 and 87, with contiguous K of the second operand 44 and 129;
// 32 x 64 by 64 x 32: 239 and 258; 27 x 27 results with K = 128: 437 and 410.
bool is_batch_of_small(const Problem& p) {
  constexpr int64_t kMaxResults = 1024, kMaxK = 64, kFewResults = 256;
  const Shape &a = p.operand(0).shape, &result = p.result().shape;
  if (p.result().dtype != Dtype::kF32 || !has_one_type(p) || a.size() != 3) return false;
  const int64_t results = known(result[1]) * known(result[2]), k = known(a[2]);
  if (results == 0 || k == 0) return false;
  return (results <= kMaxResults && k <= kMaxK) || (results <= kFewResults && is_contiguous(p, 1, 1));
}

// One small product, dominated by the library's overhead of 0.7 us, or 1.8 us with threads. Zen 4, f32, ns of
// kernel and library: 4 x 4 by 4 x 4 15 and 720, 32 x 32 by 32 x 32 840 and 2150. Contiguous columns fill
// vectors. With contiguous K each result is a sum of its own (16 x 16 results, K = 16: 1500 and 800) unless
// block_products transposes the operand.
bool is_of_few_numbers(const Problem& p) {
  constexpr int64_t kMaxProducts = 64 << 10, kMaxK = 64, kFewResults = 64, kBlockedRows = 8;
  if (!is_plain(p) || !has_one_type(p)) return false;
  const Shape &a = p.operand(0).shape, &b = p.operand(1).shape;
  const int64_t rows = known(a[0]), k = known(b[0]), columns = known(b[1]);
  const int64_t products = rows * k * columns;
  if (products == 0 || products > kMaxProducts) return false;
  if (is_contiguous(p, 1, 1)) return k <= kMaxK;
  if (!is_contiguous(p, 1, 0)) return false;
  if (rows * columns <= kFewResults) return true;
  return p.result().dtype == Dtype::kF32 && rows >= kBlockedRows &&
         columns >= 2 * p.context.target.lanes(Dtype::kF32);
}

bool is_plain_and_wide(const Problem& p) {
  constexpr int64_t kWidth = 32;
  return is_plain(p) && has_one_type(p) && known(p.operand(1).shape[0]) >= kWidth &&
         known(p.operand(1).shape[1]) >= kWidth;
}

// Many rows of f32 by block_products, on unpacked weights: as fast as the library on packed weights, without
// a second copy of them in memory. GFLOP/s of kernel and library: Zen 3, 1024 rows 185 and 182; with
// contiguous columns 256 rows 175 and 90, 512 rows by 1408 x 512 131 and 90, by 1408 x 768 125 and 134, 1024
// rows 180 and 183; Zen 4, 788 rows 218 and 201, 1024 rows 211 and 209, with contiguous columns 204 and 178.
bool is_blocked(const Problem& p) {
  if (!is_plain_and_wide(p) || p.result().dtype != Dtype::kF32) return false;
  const Shape &a = p.operand(0).shape, &b = p.operand(1).shape;
  const loop::Target& target = p.context.target;
  return loop::blocking_beats_library(target, known(a[0]), known(b[0]), known(b[1])) &&
         is_contiguous(p, 0, 1) &&
         (p.is_hoisted(1) || known(a[0]) <= target.max_unpacked_rows || is_contiguous(p, 1, 0));
}

// One row by weights that do not fit into the caches: bound by memory bandwidth. A thread of the kernel reads
// one stream, a thread of the library several; one stream has twice the bandwidth on Zen 4.
bool is_row_by_streamed_weights(const Problem& p) {
  constexpr int64_t kCached = 64 << 20;
  const Dtype dtype = p.result().dtype;
  return (dtype == Dtype::kF32 || dtype == Dtype::kBF16) && is_plain_and_wide(p) &&
         known(p.operand(0).shape[0]) == 1 && p.is_hoisted(1) && p.weight_bytes() > kCached;
}

// One row of bf16 by weights with contiguous columns, by packed dot products: from caches 1.1 to 1.5 times as
// fast as the library (0.6 with contiguous rows).
bool is_row_of_packed_dots(const Problem& p) {
  return p.result().dtype == Dtype::kBF16 && is_plain_and_wide(p) && known(p.operand(0).shape[0]) == 1 &&
         p.is_hoisted(1) && is_contiguous(p, 1, 0);
}

// Measured times overrule the cost models only if they differ by more than noise.
bool is_measured_faster(const Problem& p) {
  constexpr double kMinGain = 1.03;
  if (!p.measured()) return false;
  const double ratio = p.measured()->library_us / p.measured()->kernel_us;
  const bool expected = std::ranges::any_of(matmul_implementations(), [&](const auto& row) {
    return row.basis == Basis::kModel && row.accepts(p);
  });
  return expected ? ratio > 1 / kMinGain : ratio > kMinGain;
}
bool is_measured(const Problem& p) { return p.measured().has_value(); }

constexpr ImplementationRow kTable[] = {
    {"few_rows_of_half", is_half_of_few_rows, Method::kKernel,
     "few rows or columns of a type that the library does not support: bound by the bytes of the other "
     "operand"},
    kWidened,
    kOtherType,
    {"forced_kernel", is_forced_to_kernel, Method::kKernel, "requested"},
    {"forced_library", is_forced_to_library, Method::kLibrary, "requested"},
    {"measured_kernel", is_measured_faster, Method::kKernel, "", Basis::kMeasured},
    {"measured_library", is_measured, Method::kLibrary, "", Basis::kMeasured},
    {"packed_dot_products", is_of_packed_dots, Method::kKernel, "many rows of bf16, by packed dot products",
     Basis::kModel},
    {"small_batch", is_batch_of_small, Method::kKernel,
     "a batch of small products, dominated by the library's overhead", Basis::kModel},
    {"few_numbers", is_of_few_numbers, Method::kKernel, "few numbers, dominated by the library's overhead",
     Basis::kModel},
    {"blocked", is_blocked, Method::kKernel, "many rows of f32, as fast on unpacked weights", Basis::kModel},
    {"streamed_row", is_row_by_streamed_weights, Method::kKernel,
     "one row by weights larger than the caches: bound by memory", Basis::kModel},
    {"row_of_packed_dot_products", is_row_of_packed_dots, Method::kKernel,
     "one row of bf16 by contiguous columns, by packed dot products", Basis::kModel},
    kByLibrary,
    kByKernel,
};

}  // namespace

std::span<const ImplementationRow> matmul_implementations() { return kTable; }

}  // namespace ipex::graph

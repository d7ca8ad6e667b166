// Who multiplies two matrices, a kernel of ours or the library: by models of their costs, or by measurement.
#include <algorithm>
#include <iomanip>
#include <sstream>

#include "backend/compiler.h"
#include "backend/graph/parameters.h"
#include "backend/measured_products.h"
#include "backend/step_info.h"
#include "codegen/loop/simplify.h"
#include "codegen/product_tile.h"

namespace ipex::graph {
namespace {

int64_t known(const Dim& dim) { return loop::as_const_int(dim).value_or(0); }  // 0: it is not

// "128x768 f32 by 768x3072 f32 +bias +gelu", of a product whose sizes are known.
std::string product_text(const Graph& g, const Node& node) {
  std::ostringstream text;
  for (int k : {0, 1}) {
    const Type& type = g.type(node.operands[k]);
    text << (k ? " by " : "");
    for (size_t d = 0; d < type.shape.size(); ++d) text << (d ? "x" : "") << known(type.shape[d]);
    text << " " << name(type.dtype);
  }
  if (has_bias(node)) text << " +bias";
  for (const std::string& post : post_ops(node)) text << " +" << post;
  return text.str();
}

}  // namespace

// Many rows of bf16, terms side by side, that block_products multiplies in pairs: as fast as the library on
// packed weights, and faster than it packs them (Zen 4, 1024 rows, 768 x 3072: 448, 429 and 385 GFLOP/s; 128
// rows 434, 439 and 392). Not where the library has tiles (AMX), which an artifact may find where it runs.
bool Compiler::multiplies_pairs(int32_t n) const {
  constexpr int64_t kLeastRows = 96, kLeastColumns = 64, kLeastTerms = 64;
  const Node& node = g_.nodes[n];
  const loop::Target& target = options_.target;
  if (node.op() != Op::kMatMul || !target.native_bf16 || target.matrix_tiles || !options_.jit) return false;
  for (int k : {0, 1}) {
    const Type& type = g_.type(node.operands[k]);
    if (type.dtype != Dtype::kBF16 || type.shape.size() != 2) return false;
  }
  const OperandLayout a = layout_of(node.operands[0]), b = layout_of(node.operands[1]);
  const Shape &rows = g_.type(node.operands[0]).shape, &columns = g_.type(node.operands[1]).shape;
  const auto pairs = [&](const OperandLayout& x, size_t terms) {
    return known(x.strides[terms]) == 1 && loop::provably_even(x.strides[1 - terms]) &&
           loop::provably_even(x.offset) && loop::provably_even(x.extent);
  };
  return known(rows[0]) >= kLeastRows && known(columns[1]) >= kLeastColumns &&
         known(rows[1]) >= kLeastTerms && loop::provably_even(rows[1]) && pairs(a, 1) &&
         (pairs(b, 0) || known(b.strides[1]) == 1) && known(g_.layout({n, 0})[1]) == 1;
}

// Many small products of f32, each of which the library takes longer to begin than to multiply. Zen 3, 256 of
// 9 x 64 by 64 x 9: 64 us for 87, 44 for 129 where the second's terms lie side by side; 32 x 64 by 64 x 32
// 239 for 258; with 128 terms 27 x 27 results are even (437 for 410).
bool Compiler::multiplies_small(int32_t n) const {
  constexpr int64_t kMostResults = 1024, kMostTerms = 64, kFewResults = 256;
  const Node& node = g_.nodes[n];
  const Shape &a = g_.type(node.operands[0]).shape, &result = g_.type({n, 0}).shape;
  if (a.size() != 3) return false;
  const int64_t results = known(result[1]) * known(result[2]), terms = known(a[2]);
  if (results == 0 || terms == 0) return false;
  if (results <= kMostResults && terms <= kMostTerms) return true;
  const bool side_by_side = known(layout_of(node.operands[1]).strides[1]) == 1;
  return results <= kFewResults && side_by_side;
}

// One product of few numbers, which the library takes 0.7 us to begin, 1.8 with threads. Zen 4, f32: 4 x 4 by
// 4 x 4 takes 15 ns for 720, 32 x 32 by 32 x 32 840 for 2150. Columns that lie side by side fill vectors;
// terms that do are added up for each result (16 x 16 results of 16 terms: 1500 ns for 800), unless
// block_products transposes them.
bool Compiler::multiplies_few(int32_t n) const {
  constexpr int64_t kMostProducts = 64 << 10, kMostTerms = 64, kFewResults = 64, kBlockedRows = 8;
  const Node& node = g_.nodes[n];
  const Shape &a = g_.type(node.operands[0]).shape, &b = g_.type(node.operands[1]).shape;
  if (a.size() != 2 || b.size() != 2) return false;
  const int64_t rows = known(a[0]), terms = known(b[0]), columns = known(b[1]);
  const int64_t products = rows * terms * columns;
  if (products == 0 || products > kMostProducts) return false;
  const OperandLayout weights = layout_of(node.operands[1]);
  if (known(weights.strides[1]) == 1) return terms <= kMostTerms;
  if (known(weights.strides[0]) != 1) return false;
  if (rows * columns <= kFewResults) return true;
  return g_.type({n, 0}).dtype == Dtype::kF32 && rows >= kBlockedRows &&
         columns >= 2 * options_.target.lanes(Dtype::kF32);
}

// Products that our kernels compute as fast as the library does on packed weights, without a second copy of
// them in memory.
//
// Many rows of f32, by block_products (blocking_beats_library). On weights as they are, GFLOP/s of ours and
// of the library: Zen 3, 1024 rows 185 and 182, where their columns lie side by side, 256 rows 175 and 90,
// 512 rows by 1408 x 512 131 and 90, by 1408 x 768 125 and 134, 1024 rows 180 and 183; Zen 4, 788 rows 218
// and 201, 1024 rows 211 and 209, columns side by side 204 and 178.
//
// One row by weights that together no cache holds, as they come at the pace of memory: each thread reads one
// stream, of which Zen 4 makes twice the bandwidth of the library's several.
//
// One row of bf16 by weights whose columns are contiguous, which pack_dot_products multiplies: from
// caches 1.1 to 1.5 times the library's pace (by weights whose rows are contiguous 0.6).
bool Compiler::multiplies_best(int32_t n) const {
  constexpr int64_t kWidth = 32, kCached = 64 << 20;
  const Node& node = g_.nodes[n];
  if (multiplies_pairs(n)) return true;
  if (node.op() != Op::kMatMul) return false;
  const Dtype dtype = g_.type({n, 0}).dtype;
  const auto same = [&](Value v) { return g_.type(v).dtype == dtype; };
  if (!std::all_of(node.operands.begin(), node.operands.end(), same)) return false;
  if ((dtype == Dtype::kF32 && multiplies_small(n)) || multiplies_few(n)) return true;
  const Shape &a = g_.type(node.operands[0]).shape, &b = g_.type(node.operands[1]).shape;
  if (a.size() != 2 || b.size() != 2 || known(b[0]) < kWidth || known(b[1]) < kWidth) return false;
  const bool is_static = is_static_operand(node, 1);
  const auto steps_by_one = [&](int k, size_t dim) {
    return known(layout_of(node.operands[k]).strides[dim]) == 1;
  };
  const loop::Target& target = options_.target;
  if (dtype == Dtype::kF32 && loop::blocking_beats_library(target, known(a[0]), known(b[0]), known(b[1])))
    return steps_by_one(0, 1) && (is_static || known(a[0]) <= target.max_unpacked_rows || steps_by_one(1, 0));
  if (!is_static) return false;
  const bool one_row = known(a[0]) == 1, streams = weight_bytes_ > kCached;
  if (dtype == Dtype::kBF16)
    return one_row && (streams || known(resolve_view(g_, node.operands[1]).strides[0]) == 1);
  return dtype == Dtype::kF32 && one_row && streams;
}

bool Compiler::kernel_multiplies(int32_t n) {
  // Of few rows or columns, or of a type that no library has: widen_library has left them.
  if (!kernels::runs_on(options_.target.isa, g_.type(g_.nodes[n].operands[0]).dtype)) return true;
  if (options_.products == Multiplier::kLibrary) return false;
  if (options_.products == Multiplier::kKernel) return g_.nodes[n].op() == Op::kMatMul;
  if (options_.products == Multiplier::kMeasured)
    if (const auto measured = measured_best(n)) return *measured;
  return multiplies_best(n);
}

std::optional<bool> Compiler::measured_best(int32_t n) {
  constexpr int64_t kLeastFlops = 100'000;  // below, multiplies_few decides
  constexpr double kLeastGain = 1.03;  // what the models chose stays where the other is not clearly better
  const Node& node = g_.nodes[n];
  const auto is_known = [&](Value v) {
    return is_static(g_.type(v).shape) && is_static(layout_of(v).strides);
  };
  if (node.op() != Op::kMatMul || !options_.jit || !names_no_symbol(node) ||
      !std::ranges::all_of(node.operands, is_known) || product_flops(g_, node) < kLeastFlops)
    return std::nullopt;
  const bool streams = is_static_operand(node, 1) && weight_bytes_ > options_.target.l3_bytes;
  const auto measured = measure_product(product_of(n), options_, streams);
  if (!measured) return std::nullopt;
  const double ratio = measured->library_us / measured->kernel_us;
  const bool judged = multiplies_best(n), kernel = judged ? ratio > 1 / kLeastGain : ratio > kLeastGain;
  std::ostringstream line;
  line << product_text(g_, node) << std::fixed << std::setprecision(1) << " - kernel " << measured->kernel_us
       << " us, library " << measured->library_us << " us, " << (kernel ? "kernel" : "library");
  auto& lines = report_.measured;  // one a product: layers repeat
  if (std::find(lines.begin(), lines.end(), line.str()) == lines.end()) lines.push_back(line.str());
  return kernel;
}

Graph Compiler::product_of(int32_t n) const {
  Graph product = body_of(g_, n);
  product.nodes.back().source.clear();  // the same product wherever the model computes it
  product.symbols.clear();              // it names none
  product.symbol_hints.clear();
  product.symbol_lows.clear();
  for (size_t k = 0; k < product.inputs.size(); ++k) {
    Node& input = product.nodes[product.inputs[k]];
    input.layouts = {layout_of(g_.nodes[n].operands[k]).strides};
    if (is_static_operand(g_.nodes[n], static_cast<int>(k))) input.get<Input>().is_static = true;
  }
  product.outputs[0].strides = g_.layout({n, 0});
  return product;
}

}  // namespace ipex::graph

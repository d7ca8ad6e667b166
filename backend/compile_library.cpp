// Matrix products and convolutions as steps of the library, ATen calls as steps of the caller's.
#include <algorithm>
#include <iomanip>
#include <sstream>

#include "backend/compiler.h"
#include "backend/measured_products.h"
#include "backend/step_info.h"
#include "codegen/loop/simplify.h"

namespace ipex::graph {

kernels::Planning Compiler::planning(const Node& node) const {
  if (options_.jit) return kernels::Planning::kJudge;
  const Isa isa = options_.target.isa;
  for (Value v : node.operands)
    if (!kernels::runs_on(isa, g_.type(v).dtype))
      throw Unsupported("a library step of type " + std::string(name(g_.type(v).dtype)) + " on " +
                        std::string(name(isa)));
  return isa <= current_isa() ? kernels::Planning::kJudge : kernels::Planning::kLater;
}

bool Compiler::is_static_operand(const Node& node, int k) const {
  return static_only_[resolve_view(g_, node.operands[k]).root.node];
}

// Many rows of bf16, terms side by side, that block_products multiplies in pairs: as fast as the library on
// packed weights, and faster than it packs them (Zen 4, 1024 rows, 768 x 3072: 448, 429 and 385 GFLOP/s; 128
// rows 434, 439 and 392). Not where the library has tiles (AMX), which an artifact may find where it runs.
bool Compiler::multiplies_pairs(int32_t n) const {
  constexpr int64_t kLeastRows = 96, kLeastColumns = 64, kLeastTerms = 64;
  const Node& node = g_.nodes[n];
  const loop::Target& target = options_.target;
  if (node.op != Op::kMatMul || !target.native_bf16 || target.matrix_tiles || !options_.jit) return false;
  const auto size = [](const Dim& dim) { return loop::as_const_int(dim).value_or(0); };
  for (int k : {0, 1}) {
    const Type& type = g_.type(node.operands[k]);
    if (type.dtype != Dtype::kBF16 || type.shape.size() != 2) return false;
  }
  const OperandLayout a = layout_of(node.operands[0]), b = layout_of(node.operands[1]);
  const Shape &rows = g_.type(node.operands[0]).shape, &columns = g_.type(node.operands[1]).shape;
  const auto pairs = [&](const OperandLayout& x, size_t terms) {
    return size(x.strides[terms]) == 1 && loop::provably_even(x.strides[1 - terms]) &&
           loop::provably_even(x.offset) && loop::provably_even(x.extent);
  };
  return size(rows[0]) >= kLeastRows && size(columns[1]) >= kLeastColumns && size(rows[1]) >= kLeastTerms &&
         loop::provably_even(rows[1]) && pairs(a, 1) && (pairs(b, 0) || size(b.strides[1]) == 1) &&
         size(g_.layout({n, 0})[1]) == 1;
}

// Many small products of f32, each of which the library takes longer to begin than to multiply. Zen 3, 256 of
// 9 x 64 by 64 x 9: 64 us for 87, 44 for 129 where the second's terms lie side by side; 32 x 64 by 64 x 32
// 239 for 258; with 128 terms 27 x 27 results are even (437 for 410).
bool Compiler::multiplies_small(int32_t n) const {
  constexpr int64_t kMostResults = 1024, kMostTerms = 64, kFewResults = 256;
  const Node& node = g_.nodes[n];
  const Shape &a = g_.type(node.operands[0]).shape, &result = g_.type({n, 0}).shape;
  if (node.op != Op::kMatMul || a.size() != 3 || g_.type({n, 0}).dtype != Dtype::kF32) return false;
  const auto size = [](const Dim& dim) { return loop::as_const_int(dim).value_or(INT32_MAX); };
  const int64_t results = size(result[1]) * size(result[2]), terms = size(a[2]);
  if (results <= kMostResults && terms <= kMostTerms) return true;
  const bool side_by_side = size(layout_of(node.operands[1]).strides[1]) == 1;
  return results <= kFewResults && terms < INT32_MAX && side_by_side;
}

// Products that our kernels compute as fast as the library does on packed weights, without a second copy of
// them in memory.
//
// Many rows of f32 on AVX2, by block_products. Zen 3, 768 x 3072, GFLOP/s of ours and of the library on
// packed weights: 16 rows 106 and 116, 32 rows 145 and 143, 96 rows 179 and 161; on weights as they are, 1024
// rows 185 and 182; where their columns lie side by side, 256 rows 175 and 90, 1024 rows 180 and 183.
//
// One row by weights that together no cache holds, as they come at the pace of memory: each thread reads one
// stream, of which Zen 4 makes twice the bandwidth of the library's several.
//
// One row of bf16 by weights whose columns are contiguous, which pair_products multiplies: from caches 1.1 to
// 1.5 times the library's pace (by weights whose rows are contiguous 0.6).
bool Compiler::multiplies_best(int32_t n) const {
  constexpr int64_t kWidth = 32, kLeastRows = 32, kMostRows = 512, kCached = 64 << 20;
  const Node& node = g_.nodes[n];
  if (multiplies_pairs(n) || multiplies_small(n)) return true;
  if (node.op != Op::kMatMul) return false;
  const Dtype dtype = g_.type({n, 0}).dtype;
  const auto same = [&](Value v) { return g_.type(v).dtype == dtype; };
  if (!std::all_of(node.operands.begin(), node.operands.end(), same)) return false;
  const Shape &a = g_.type(node.operands[0]).shape, &b = g_.type(node.operands[1]).shape;
  const auto size = [](const Dim& dim) { return loop::as_const_int(dim).value_or(0); };
  if (a.size() != 2 || b.size() != 2 || size(b[0]) < kWidth || size(b[1]) < kWidth) return false;
  const bool is_static = is_static_operand(node, 1);
  const auto steps_by_one = [&](int k, size_t dim) {
    return size(layout_of(node.operands[k]).strides[dim]) == 1;
  };
  if (options_.target.isa == Isa::kAvx2 && dtype == Dtype::kF32 && size(a[0]) >= kLeastRows)
    return steps_by_one(0, 1) && (is_static || size(a[0]) < kMostRows || steps_by_one(1, 0));
  if (!is_static) return false;
  const bool one_row = size(a[0]) == 1, streams = weight_bytes_ > kCached;
  if (dtype == Dtype::kBF16)
    return one_row && (streams || size(resolve_view(g_, node.operands[1]).strides[0]) == 1);
  return dtype == Dtype::kF32 && one_row && streams;
}

bool Compiler::kernel_multiplies(int32_t n) {
  if (options_.products == Multiplier::kLibrary) return false;
  if (options_.products == Multiplier::kKernel) return g_.nodes[n].op == Op::kMatMul;
  if (options_.products == Multiplier::kMeasured)
    if (const auto measured = measured_best(n)) return *measured;
  return multiplies_best(n);
}

std::optional<bool> Compiler::measured_best(int32_t n) {
  constexpr double kLeastFlops = 100'000;  // below, either takes less than the call of a step
  constexpr double kLeastGain = 1.03;  // what the models chose stays where the other is not clearly better
  const Node& node = g_.nodes[n];
  if (node.op != Op::kMatMul || !options_.jit || !names_no_symbol(node)) return std::nullopt;
  double flops = 2;
  const Shape &a = g_.type(node.operands[0]).shape, &result = g_.type({n, 0}).shape;
  for (const Dim& dim : result) flops *= static_cast<double>(loop::as_const_int(dim).value_or(0));
  flops *= static_cast<double>(loop::as_const_int(a.back()).value_or(0));
  if (flops < kLeastFlops) return std::nullopt;
  const bool streams = is_static_operand(node, 1) && weight_bytes_ > options_.target.l3_bytes;
  const auto measured = measure_product(product_of(n), options_, streams);
  if (!measured) return std::nullopt;
  const double ratio = measured->library_us / measured->kernel_us;
  const bool judged = multiplies_best(n), kernel = judged ? ratio > 1 / kLeastGain : ratio > kLeastGain;
  std::ostringstream line;
  for (int k : {0, 1}) {
    const Type& type = g_.type(node.operands[k]);
    for (size_t d = 0; d < type.shape.size(); ++d)
      line << (d ? "x" : "") << *loop::as_const_int(type.shape[d]);
    line << " " << name(type.dtype) << (k ? " " : " by ");
  }
  if (node.attr_or<bool>("bias", false)) line << "+bias ";
  for (const std::string& post : node.attr_or<std::vector<std::string>>("post", {}))
    line << "+" << post << " ";
  line << std::fixed << std::setprecision(1) << "- kernel " << measured->kernel_us << " us, library "
       << measured->library_us << " us, " << (kernel ? "kernel" : "library");
  auto& lines = report_.measured;  // one a product: layers repeat
  if (std::find(lines.begin(), lines.end(), line.str()) == lines.end()) lines.push_back(line.str());
  return kernel;
}

Graph Compiler::product_of(int32_t n) const {
  Graph product = body_of(g_, n);
  for (size_t k = 0; k < product.inputs.size(); ++k) {
    Node& input = product.nodes[product.inputs[k]];
    input.layouts = {layout_of(g_.nodes[n].operands[k]).strides};
    if (is_static_operand(g_.nodes[n], static_cast<int>(k))) input.attrs["static"] = true;
  }
  product.outputs[0].strides = g_.layout({n, 0});
  return product;
}

void Compiler::emit_library(int32_t n) {
  const Node& node = g_.nodes[n];
  using Ints = std::vector<int64_t>;
  if (node.op == Op::kConvBackward) {
    kernels::ConvBackwardDesc desc{spec_of(node.operands[0]), spec_of(node.operands[1]),
                                   spec_of(node.operands[2]), spec_of({n, 0})};
    desc.weights = node.attr<std::string>("which") == "weights";
    desc.stride = node.attr<Ints>("stride");
    desc.padding = node.attr<Ints>("padding");
    desc.dilation = node.attr<Ints>("dilation");
    desc.output_padding = node.attr_or<Ints>("output_padding", {});
    desc.groups = node.attr_or<int64_t>("groups", 1);
    desc.transposed = node.attr_or<bool>("transposed", false);
    desc.planning = planning(node);
    return add_library(n, {kernels::make_conv_backward(desc), nullptr, 0});
  }
  if (node.op == Op::kLstm) return emit_lstm(n);
  size_t next = 2;
  std::optional<TensorSpec> bias;
  if (node.attr_or<bool>("bias", false)) bias = spec_of(node.operands[next++]);
  std::vector<kernels::PostOp> post;
  for (const std::string& text : node.attr_or<std::vector<std::string>>("post", {})) {
    kernels::PostOp op = kernels::parse_post_op(text);
    const auto rows = kernels::post_op_rows();
    const auto row = std::find_if(rows.begin(), rows.end(), [&](const auto& r) { return r.name == op.name; });
    if (row->takes_operand) op.operand = spec_of(node.operands[next++]);
    post.push_back(std::move(op));
  }
  const bool pack = is_static_operand(node, 1);
  const TensorSpec a = spec_of(node.operands[0]), b = spec_of(node.operands[1]), dst = spec_of({n, 0});
  const int packed_buffer = add_buffer(BufferKind::kHoisted, -1, 0);
  if (node.op == Op::kMatMul) {
    const kernels::MatMulDesc desc{a, b, dst, bias, std::move(post), pack, planning(node)};
    return add_library(n, kernels::make_matmul(desc, packed_buffer), packed_buffer);
  }
  kernels::ConvDesc desc{a, b, dst, bias};
  desc.stride = node.attr<Ints>("stride");
  desc.padding = node.attr<Ints>("padding");
  desc.dilation = node.attr<Ints>("dilation");
  desc.output_padding = node.attr_or<Ints>("output_padding", {});
  desc.groups = node.attr_or<int64_t>("groups", 1);
  desc.transposed = node.attr_or<bool>("transposed", false);
  desc.post = std::move(post);
  desc.pack_w = pack;
  desc.planning = planning(node);
  add_library(n, kernels::make_conv(desc, packed_buffer), packed_buffer);
}

void Compiler::emit_lstm(int32_t n) {
  const Node& node = g_.nodes[n];
  const auto operand = [&](int k) { return spec_of(node.operands[k]); };
  kernels::LstmDesc desc{operand(0), operand(3), operand(4), operand(1), operand(2)};
  if (node.attr<bool>("bias")) desc.bias = operand(5);
  desc.dst = spec_of({n, 0});
  desc.h_last = spec_of({n, 1});
  desc.c_last = spec_of({n, 2});
  desc.reverse = node.attr<bool>("reverse");
  desc.pack = is_static_operand(node, 1) && is_static_operand(node, 2);
  desc.planning = planning(node);
  const int packed_buffer = add_buffer(BufferKind::kHoisted, -1, 0);
  add_library(n, kernels::make_lstm(desc, packed_buffer), packed_buffer);
}

void Compiler::add_library(int32_t n, kernels::LibrarySteps steps, int packed_buffer) {
  if (steps.pack) {
    parts_.buffers[packed_buffer].bytes = steps.packed_bytes;
    if (!g_.nodes[n].source.empty()) steps.pack->info.sources.push_back(g_.nodes[n].source);
    add_step(std::move(steps.pack), true);
  }
  describe(*steps.main, g_, n);
  ++report_.library_steps;
  add_step(std::move(steps.main), static_only_[n]);
}

void Compiler::emit_extern(int32_t n) {
  const Node& node = g_.nodes[n];
  if (!options_.make_extern)
    throw Unsupported(node.name + ": an ATen call in a graph compiled without libtorch");
  std::unique_ptr<Step> step = options_.make_extern(node, specs_of(node.operands), read_results(n));
  describe(*step, g_, n);
  ++report_.extern_steps;
  report_.extern_ops.push_back(node.name + (step->info.detail.empty() ? "" : ": " + step->info.detail));
  add_step(std::move(step), false);
}

}  // namespace ipex::graph

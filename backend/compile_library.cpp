// Matrix products and convolutions as steps of the library, ATen calls as steps of the caller's.
#include <algorithm>

#include "backend/compiler.h"
#include "backend/step_info.h"
#include "codegen/loop/simplify.h"
#include "kernels/check.h"

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

namespace {

void set_window(auto& desc, const Node& node) {
  const ConvWindow window = conv_window(node);
  desc.stride = window.stride;
  desc.padding = window.padding;
  desc.dilation = window.dilation;
  desc.output_padding = window.output_padding;
  desc.groups = window.groups;
  desc.transposed = window.transposed;
}

}  // namespace

void Compiler::emit_library(int32_t n) {
  const Node& node = g_.nodes[n];
  if (node.op() == Op::kConvBackward) {
    kernels::ConvBackwardDesc desc{spec_of(node.operands[0]), spec_of(node.operands[1]),
                                   spec_of(node.operands[2]), spec_of({n, 0})};
    desc.weights = node.get<ConvBackward>().which == GradientOf::kWeights;
    set_window(desc, node);
    desc.planning = planning(node);
    return add_library(n, {kernels::make_conv_backward(desc), nullptr, 0});
  }
  if (node.op() == Op::kLstm) return emit_lstm(n);
  size_t next = 2;
  std::optional<TensorSpec> bias;
  if (has_bias(node)) bias = spec_of(node.operands[next++]);
  std::vector<kernels::PostOp> post;
  for (const std::string& text : post_ops(node)) {
    kernels::PostOp op = kernels::parse_post_op(text);
    const auto rows = kernels::post_op_rows();
    const auto row = std::find_if(rows.begin(), rows.end(), [&](const auto& r) { return r.name == op.name; });
    if (row->takes_operand) op.operand = spec_of(node.operands[next++]);
    post.push_back(std::move(op));
  }
  const bool pack = is_static_operand(node, 1);
  const TensorSpec a = spec_of(node.operands[0]), b = spec_of(node.operands[1]), dst = spec_of({n, 0});
  const int packed_buffer = add_buffer(BufferKind::kHoisted, -1, 0);
  if (node.op() == Op::kMatMul) {
    const kernels::MatMulDesc desc{a, b, dst, bias, std::move(post), pack, planning(node)};
    return add_library(n, kernels::make_matmul(desc, packed_buffer), packed_buffer);
  }
  kernels::ConvDesc desc{a, b, dst, bias};
  set_window(desc, node);
  desc.post = std::move(post);
  desc.pack_w = pack;
  desc.planning = planning(node);
  add_library(n, kernels::make_conv(desc, packed_buffer), packed_buffer);
}

void Compiler::emit_lstm(int32_t n) {
  const Node& node = g_.nodes[n];
  const auto operand = [&](int k) { return spec_of(node.operands[k]); };
  kernels::LstmDesc desc{operand(0), operand(3), operand(4), operand(1), operand(2)};
  if (node.get<Lstm>().bias) desc.bias = operand(5);
  desc.dst = spec_of({n, 0});
  desc.h_last = spec_of({n, 1});
  desc.c_last = spec_of({n, 2});
  desc.reverse = node.get<Lstm>().reverse;
  desc.pack = is_static_operand(node, 1) && is_static_operand(node, 2);
  desc.planning = planning(node);
  const int packed_buffer = add_buffer(BufferKind::kHoisted, -1, 0);
  add_library(n, kernels::make_lstm(desc, packed_buffer), packed_buffer);
}

void Compiler::add_library(int32_t n, kernels::LibrarySteps steps, int packed_buffer) {
  if (steps.pack) {
    parts_.buffers[packed_buffer].bytes = steps.packed_bytes;
    steps.pack->info.sources = split_sources(g_.nodes[n].source);
    add_step(std::move(steps.pack), true);
  }
  describe(*steps.main, g_, n);
  ++report_.library_steps;
  add_step(std::move(steps.main), static_only_[n]);
}

void Compiler::emit_extern(int32_t n) {
  const Node& node = g_.nodes[n];
  const Extern& call = node.get<Extern>();
  if (call.overload == kernels::kCheck) {
    const std::string message = kernels::check_message(call.args);
    return add_library(n, {kernels::make_check({spec_of(node.operands[0]), message})});
  }
  if (!options_.make_extern)
    throw Unsupported(call.overload + ": an ATen call in a graph compiled without libtorch");
  std::unique_ptr<Step> step = options_.make_extern(node, specs_of(node.operands), read_results(n));
  describe(*step, g_, n);
  ++report_.extern_steps;
  report_.extern_ops.push_back(call.overload + (step->info.detail.empty() ? "" : ": " + step->info.detail));
  add_step(std::move(step), false);
}

}  // namespace ipex::graph

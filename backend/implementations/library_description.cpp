// See library_description.h.
#include "backend/implementations/library_description.h"

#include <algorithm>

#include "runtime/error.h"

namespace ipex::graph {
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

LibraryDescription library_description(const Graph& graph, int32_t n, kernels::Planning planning,
                                       const std::function<TensorSpec(Value)>& spec_of,
                                       const std::function<bool(Value)>& is_hoisted) {
  const Node& node = graph.nodes[n];
  const auto operand = [&](size_t k) { return spec_of(node.operands[k]); };
  const auto result = [&](int r) { return spec_of({n, r}); };
  if (const auto* gradient = node.get_if<ConvBackward>()) {
    kernels::ConvBackwardDesc desc{operand(0), operand(1), operand(2), result(0)};
    desc.weights = gradient->which == GradientOf::kWeights;
    set_window(desc, node);
    desc.planning = planning;
    return desc;
  }
  if (const auto* lstm = node.get_if<Lstm>()) {
    kernels::LstmDesc desc{operand(0), operand(3), operand(4), operand(1), operand(2)};
    if (lstm->bias) desc.bias = operand(5);
    desc.dst = result(0);
    desc.h_last = result(1);
    desc.c_last = result(2);
    desc.reverse = lstm->reverse;
    desc.pack = is_hoisted(node.operands[1]) && is_hoisted(node.operands[2]);
    desc.planning = planning;
    return desc;
  }
  size_t next = 2;
  std::optional<TensorSpec> bias;
  if (has_bias(node)) bias = operand(next++);
  std::vector<kernels::PostOp> post;
  for (const std::string& text : post_ops(node)) {
    kernels::PostOp op = kernels::parse_post_op(text);
    const auto rows = kernels::post_op_rows();
    const auto row = std::ranges::find(rows, op.name, &kernels::PostOpRow::name);
    if (row->takes_operand) op.operand = operand(next++);
    post.push_back(std::move(op));
  }
  const bool pack = is_hoisted(node.operands[1]);
  if (node.op() == Op::kMatMul)
    return kernels::MatMulDesc{operand(0), operand(1), result(0), bias, std::move(post), pack, planning};
  kernels::ConvDesc desc{operand(0), operand(1), result(0), bias};
  set_window(desc, node);
  desc.post = std::move(post);
  desc.pack_w = pack;
  desc.planning = planning;
  return desc;
}

std::optional<kernels::Planning> library_planning(const Graph& graph, const Node& node,
                                                  const PassOptions& options) {
  if (options.jit) return kernels::Planning::kJudge;
  const Isa isa = options.target.isa;
  for (Value v : node.operands)
    if (!kernels::runs_on(isa, graph.type(v).dtype)) return std::nullopt;
  return isa <= current_isa() ? kernels::Planning::kJudge : kernels::Planning::kLater;
}

}  // namespace ipex::graph

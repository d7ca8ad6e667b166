// See step_info.h. The estimates use hints for symbols and count an elementwise op as one operation per
// element.
#include "backend/step_info.h"

#include <algorithm>
#include <vector>

#include "backend/convolutions/winograd.h"

namespace ipex::graph {
namespace {

int64_t elements(const Graph& g, const Shape& shape) { return hint(numel(shape), g); }

void add_source(Step& step, const Node& node) {
  std::vector<std::string>& sources = step.info.sources;
  for (std::string& source : split_sources(node.source))
    if (std::ranges::find(sources, source) == sources.end()) sources.push_back(std::move(source));
}

// Every output element of the forward convolution is multiplied by every weight of its channel.
int64_t conv_flops(const Graph& g, const Node& node) {
  const bool forward = node.op() == Op::kConv;
  const Shape& x = g.type(node.operands[forward ? 0 : 1]).shape;
  const Shape& y = forward ? node.types[0].shape : g.type(node.operands[0]).shape;
  const Shape& w = g.type(node.operands[forward ? 1 : 2]).shape;
  const Shape& positions = conv_window(node).transposed ? x : y;
  return 2 * elements(g, positions) * elements(g, w) / std::max<int64_t>(1, hint(w[0], g));
}

// Counts the products of the sixteen planes; the transforms are small compared to them.
int64_t winograd_flops(const Graph& g, const Shape& x, const Shape& y) {
  const WinogradShape s{hint(x[1], g), hint(y[1], g), hint(y[2], g), hint(y[3], g), hint(y[0], g)};
  return 2 * kWinogradPlanes * s.batch * s.tiles_of_image() * s.terms * s.columns;
}

int64_t weight_gradient_flops(const Graph& g, const Node& node) {
  const Shape &grad = g.type(node.operands[0]).shape, &w = node.types[0].shape;
  if (node.get<WeightGradient>().winograd) return winograd_flops(g, g.type(node.operands[1]).shape, grad);
  return 2 * elements(g, grad) * elements(g, w) / hint(w[0], g);
}

// Every row of every time step is multiplied by both weights.
int64_t lstm_flops(const Graph& g, const Node& node) {
  const Shape& x = g.type(node.operands[0]).shape;
  const int64_t weights =
      elements(g, g.type(node.operands[1]).shape) + elements(g, g.type(node.operands[2]).shape);
  return 2 * hint(x[0], g) * hint(x[1], g) * weights;
}

// The forward pass has two products (queries by keys, probabilities by values), the backward pass five.
int64_t attention_flops(const Graph& g, const Node& node, bool causal, int q, int products) {
  const int64_t keys = hint(g.type(node.operands[q + 1]).shape[2], g);
  return 2 * products * elements(g, g.type(node.operands[q]).shape) * keys / (causal ? 2 : 1);
}

// The bytes of an operand that a node reads: all, or for a kernel that only slices or gathers, those it
// picks.
int64_t read_bytes(const Graph& g, const Node& node, size_t operand) {
  const int64_t whole = bytes_hint(g, node.operands[operand]);
  if (const auto* gradient = node.get_if<ConvBackward>()) {
    const size_t only_shape = gradient->which == GradientOf::kWeights ? 2 : 1;
    return operand == only_shape ? 0 : whole;
  }
  const auto* group = node.get_if<Group>();
  if (!group) return whole;
  const Value input{group->body->inputs[operand], 0};
  int64_t picked = 0;
  for (const Node& inner : group->body->nodes)
    for (size_t k = 0; k < inner.operands.size(); ++k) {
      if (inner.operands[k] != input) continue;
      if (inner.op() != Op::kSlice && (inner.op() != Op::kGather || k > 0)) return whole;
      picked += elements(g, inner.types[0].shape) * itemsize(inner.types[0].dtype);
    }
  return std::min(picked, whole);
}

}  // namespace

int64_t bytes_hint(const Graph& g, Value v) {
  return elements(g, g.type(v).shape) * itemsize(g.type(v).dtype);
}

int64_t product_flops(const Graph& g, const Node& node) {
  return 2 * elements(g, node.types[0].shape) * hint(g.type(node.operands[0]).shape.back(), g);
}

void describe(Step& step, const Graph& g, int32_t n) {
  const Node& node = g.nodes[n];
  add_source(step, node);
  const auto* group = node.get_if<Group>();
  if (group)
    for (const Node& inner : group->body->nodes) {
      add_source(step, inner);
      if (inner.op() == Op::kPointwise) step.info.flops += elements(g, inner.types[0].shape);
      if (inner.op() == Op::kReduce)
        step.info.flops += elements(g, group->body->type(inner.operands[0]).shape);
    }
  for (size_t k = 0; k < node.operands.size(); ++k) step.info.bytes += read_bytes(g, node, k);
  for (size_t r = 0; r < node.types.size(); ++r)
    step.info.bytes += bytes_hint(g, {n, static_cast<int32_t>(r)});
  if (node.op() == Op::kMatMul) step.info.flops = product_flops(g, node);
  if (node.op() == Op::kConv || node.op() == Op::kConvBackward) step.info.flops = conv_flops(g, node);
  if (node.op() == Op::kWinograd)
    step.info.flops = winograd_flops(g, g.type(node.operands[0]).shape, node.types[0].shape);
  if (node.op() == Op::kWeightGradient) step.info.flops = weight_gradient_flops(g, node);
  if (const auto* attention = node.get_if<Attention>())
    step.info.flops = attention_flops(g, node, attention->causal, 0, 2);
  if (const auto* attention = node.get_if<AttentionBackward>())
    step.info.flops = attention_flops(g, node, attention->causal, 1, 5);
  if (node.op() == Op::kLstm) step.info.flops = lstm_flops(g, node);
  if (!group && step.info.flops > 0) step.info.multiplies = g.type(node.operands[0]).dtype;
}

std::string kernel_suffix(const Graph& body) {
  constexpr size_t kLongest = 56;
  std::vector<std::string> ops;
  for (const Node& node : body.nodes) {
    std::string op;
    if (node.op() == Op::kPointwise || node.op() == Op::kReduce || node.op() == Op::kScan)
      op = name_of(node.operation).substr(info(node.op()).name.size() + 1);
    else if (node.op() != Op::kInput && node.op() != Op::kConstant && node.op() != Op::kPermute &&
             node.op() != Op::kExpand && node.op() != Op::kReshape && node.op() != Op::kFull)
      op = info(node.op()).name;
    if (!op.empty() && op != "cast" && op != "clone" && std::find(ops.begin(), ops.end(), op) == ops.end())
      ops.push_back(op);
  }
  if (ops.empty()) return "_copy";
  std::string suffix;
  for (const std::string& op : ops) {
    if (suffix.size() + 1 + op.size() > kLongest) break;
    suffix += "_" + op;
  }
  return suffix;
}

}  // namespace ipex::graph

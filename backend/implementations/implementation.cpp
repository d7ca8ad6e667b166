// See implementation.h. The queries of rows, and the choice among the rows.
#include "backend/implementations/implementation.h"

#include <algorithm>
#include <iomanip>
#include <sstream>

#include "backend/compile.h"
#include "backend/implementations/library_description.h"
#include "backend/plan_memory.h"
#include "backend/step_info.h"
#include "backend/views.h"
#include "codegen/loop/simplify.h"
#include "codegen/loop/text.h"
#include "runtime/env.h"
#include "runtime/pass_names.h"

namespace ipex::graph {

GraphFacts::GraphFacts(const Graph& g, const PassContext& ctx) : graph(g), context(ctx), is_parameter_(g) {
  for (const Node& node : g.nodes)
    if (node.op() == Op::kMatMul && is_hoisted(node.operands[1]))
      weight_bytes += bytes_hint(g, node.operands[1]);
}

bool GraphFacts::is_hoisted(Value v) { return context.hoist && is_parameter_(resolve_view(graph, v).root); }

OperandLayout Problem::layout(int k) const { return layout_of(graph, node.operands[k]); }

bool Problem::library_has_type() const { return kernels::runs_on(context.target.isa, operand(0).dtype); }

bool Problem::library_plans() const {
  const auto planning = library_planning(graph, node, context);
  if (!planning) return false;
  std::map<Value, int> buffers;
  const auto spec = [&](Value v) {
    const int next = static_cast<int>(buffers.size());
    return spec_of(graph, v, buffers.try_emplace(resolve_view(graph, v).root, next).first->second);
  };
  const auto desc =
      library_description(graph, n_, *planning, spec, [&](Value v) { return facts_.is_hoisted(v); });
  return std::visit([&](const auto& each) { return context.library->refusal(each).empty(); }, desc);
}

const std::optional<MeasuredProduct>& Problem::measured() const {
  if (!measured_) measured_ = measure();
  return *measured_;
}

std::optional<MeasuredProduct> Problem::measure() const {
  constexpr int64_t kMinFlops = 100'000;  // the row few_numbers decides smaller ones
  const auto is_known = [&](Value v) {
    return is_static(graph.type(v).shape) && is_static(layout_of(graph, v).strides);
  };
  if (context.matmul != MatmulSelection::kMeasured || !context.jit || !names_no_symbol(node) ||
      !std::ranges::all_of(node.operands, is_known) || product_flops(graph, node) < kMinFlops)
    return std::nullopt;
  CompileOptions options;
  static_cast<PassOptions&>(options) = context;
  return measure_product(alone(), options, is_hoisted(1) && weight_bytes() > context.target.l3_bytes);
}

Graph Problem::alone() const {
  Graph product = body_of(graph, n_);
  product.nodes.back().source.clear();  // equal products in the model are measured once
  product.symbols.clear();              // the product uses none
  product.symbol_hints.clear();
  product.symbol_lows.clear();
  for (size_t k = 0; k < product.inputs.size(); ++k) {
    Node& input = product.nodes[product.inputs[k]];
    input.layouts = {layout(static_cast<int>(k)).strides};
    if (is_hoisted(static_cast<int>(k))) input.get<Input>().is_static = true;
  }
  product.outputs[0].strides = result_strides();
  return product;
}

bool lacks_type(const Problem& p) { return !p.library_has_type(); }
bool lacks_half_type(const Problem& p) { return is_half(p.operand(0).dtype) && lacks_type(p); }
bool is_planned_by_library(const Problem& p) { return p.library_plans(); }
bool always(const Problem&) { return true; }

std::span<const ImplementationRow> implementations(Op op) {
  switch (op) {
    case Op::kMatMul:
      return matmul_implementations();
    case Op::kConv:
      return conv_implementations();
    case Op::kConvBackward:
      return conv_backward_implementations();
    case Op::kLstm:
      return lstm_implementations();
    default:
      return {};
  }
}

namespace {

std::string disabled_rows() {
  std::string rows = env::get("IPEX_DISABLE_IMPLEMENTATIONS");
  // Names of former passes, which settings may still disable.
  const std::string passes = env::get("IPEX_DISABLE_PASS");
  if (listed(passes, "widen_library")) rows += ",widened";
  if (listed(passes, "choose_convolutions"))
    rows += ",winograd,winograd_of_data,weights_by_taps,weights_by_winograd";
  return rows;
}

}  // namespace

const ImplementationRow& first_accepting(const Problem& problem) {
  const auto rows = implementations(problem.node.op());
  const std::string disabled = disabled_rows();
  const auto is_disabled = [&](const ImplementationRow& row) { return listed(disabled, row.name); };
  return *std::find_if(rows.begin(), rows.end() - 1, [&](const ImplementationRow& row) {
    return !is_disabled(row) && row.accepts(problem);
  });
}

namespace {

std::string operands_text(const Graph& g, const Node& node) {
  const bool backward = node.op() == Op::kConvBackward;  // only the shape of one operand is read
  const bool weights = backward && node.get<ConvBackward>().which == GradientOf::kWeights;
  std::string text;
  for (int k : {0, backward && !weights ? 2 : 1}) {
    const Type& type = g.type(node.operands[k]);
    text += k ? " by " : "";
    for (size_t d = 0; d < type.shape.size(); ++d) text += (d ? "x" : "") + loop::print(type.shape[d]);
    text += " " + std::string(name(type.dtype));
  }
  if (has_bias(node)) text += " +bias";
  for (const std::string& post : post_ops(node)) text += " +" + post;
  return text;
}

constexpr std::string_view kMeasured = "measured: ";

// Layers repeat, so equal lines are added once.
void add_line(std::vector<std::string>& lines, std::string line) {
  if (std::ranges::find(lines, line) == lines.end()) lines.push_back(std::move(line));
}

}  // namespace

std::string measured_text(const MeasuredProduct& measured) {
  std::ostringstream text;
  text << kMeasured << std::fixed << std::setprecision(1) << "kernel " << measured.kernel_us
       << " us, library " << measured.library_us << " us";
  return text.str();
}

Choices choices_of(const Graph& graph) {
  Choices choices;
  for (const Node& node : graph.nodes) {
    const auto [implementation, why] = choice_of(node);
    if (!implementation || why.empty()) continue;
    const std::string operands = operands_text(graph, node), by(text(*implementation));
    add_line(choices.all, name_of(node.operation) + " " + operands + " - " + by + ": " + why);
    if (why.starts_with(kMeasured))
      add_line(choices.measured, operands + " - " + why.substr(kMeasured.size()) + ", " + by);
  }
  return choices;
}

}  // namespace ipex::graph

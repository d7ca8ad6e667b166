// The reference semantics of a graph: each node is lowered by itself over contiguous memory and interpreted.
// It has no fusion, layouts or vectors, so results of these can be checked against it.
#include "codegen/loop/eval.h"

#include "backend/lower/lower.h"
#include "backend/sort_steps.h"
#include "kernels/check.h"
#include "runtime/error.h"

namespace ipex::graph {
namespace {

class Evaluator {
 public:
  Evaluator(const Graph& graph, const std::vector<int64_t>& symbols) : graph_(graph), symbols_(symbols) {
    IPEX_CHECK(symbols.size() == graph.symbols.size(), "eval: one value a symbol");
    for (size_t k = 0; k < symbols.size(); ++k) binding_[graph.symbols[k]] = symbols[k];
  }

  std::vector<HostTensor> run(const std::vector<HostTensor>& inputs) {
    IPEX_CHECK(inputs.size() == graph_.inputs.size(), "eval: one tensor an input");
    values_.resize(graph_.nodes.size());
    for (size_t k = 0; k < inputs.size(); ++k) {
      const int32_t n = graph_.inputs[k];
      const size_t expected = bytes_of(graph_.nodes[n].types[0]);
      IPEX_CHECK(inputs[k].size() == expected, "eval: input " + std::to_string(k) + " has " +
                                                   std::to_string(inputs[k].size()) + " bytes, its type " +
                                                   std::to_string(expected));
      values_[n] = {inputs[k]};
    }
    for (size_t n = 0; n < graph_.nodes.size(); ++n)
      if (graph_.nodes[n].op() != Op::kInput) values_[n] = evaluate(static_cast<int32_t>(n));
    std::vector<HostTensor> outputs;
    for (const GraphOutput& output : graph_.outputs) outputs.push_back(at(output.value));
    return outputs;
  }

 private:
  const HostTensor& at(Value v) const { return values_[v.node][v.result]; }

  size_t bytes_of(const Type& type) const {
    return static_cast<size_t>(loop::eval_int(numel(type.shape), binding_) * itemsize(type.dtype));
  }

  std::vector<HostTensor> evaluate(int32_t n) {
    const Node& node = graph_.nodes[n];
    std::vector<HostTensor> operands;
    for (Value v : node.operands) operands.push_back(at(v));
    if (const auto* group = node.get_if<Group>()) return eval(*group->body, operands, symbols_);
    if (const auto* call = node.get_if<Extern>()) {
      if (call->overload == kernels::kCheck) return check(*call, operands[0]);
      throw Unsupported("eval: " + call->overload + " is an ATen call; it has no meaning in Graph IR");
    }
    if (node.op() == Op::kLstm) throw Unsupported("eval: an lstm is computed by the library alone");
    if (node.op() == Op::kSort || node.op() == Op::kSearch) return eval_sort(graph_, n, operands, symbols_);
    if (const auto* constant = node.get_if<Constant>(); constant && constant->data)
      return {constant->data->bytes};
    const Graph body = body_of(graph_, n);
    auto layouts = [&](const Type& type) {
      return OperandLayout{contiguous_strides(type.shape), loop::index_const(0), numel(type.shape)};
    };
    std::vector<OperandLayout> inputs, outputs;
    std::vector<void*> buffers;
    std::vector<HostTensor> results;
    for (size_t k = 0; k < node.operands.size(); ++k) {
      inputs.push_back(layouts(graph_.type(node.operands[k])));
      buffers.push_back(operands[k].data());
    }
    for (const Type& type : node.types) {
      outputs.push_back(layouts(type));
      results.emplace_back(bytes_of(type));
    }
    for (HostTensor& result : results) buffers.push_back(result.data());
    const std::string name(info(node.op()).name);
    loop::eval(lower(body, inputs, outputs, name, loop::target_for(Isa::kAvx2)), buffers, symbols_);
    return results;
  }

  static std::vector<HostTensor> check(const Extern& call, const HostTensor& condition) {
    if (condition.at(0) == std::byte{0}) throw CheckError(kernels::check_message(call.args));
    return {};
  }

  const Graph& graph_;
  const std::vector<int64_t>& symbols_;
  std::map<std::string, int64_t> binding_;
  std::vector<std::vector<HostTensor>> values_;
};

}  // namespace

Graph body_of(const Graph& graph, int32_t node) {
  Graph body = graph.without_nodes();
  Node copy = graph.nodes[node];
  for (Value& operand : copy.operands) {
    operand = body.add({Input{"x" + std::to_string(body.inputs.size()), false}, {}, {graph.type(operand)}});
    body.inputs.push_back(operand.node);
  }
  const int results = static_cast<int>(copy.types.size());
  const Value v = body.add(std::move(copy));
  for (int r = 0; r < results; ++r) body.outputs.push_back({{v.node, r}, {}});
  return body;
}

std::vector<HostTensor> eval(const Graph& graph, const std::vector<HostTensor>& inputs,
                             const std::vector<int64_t>& symbols) {
  return Evaluator(graph, symbols).run(inputs);
}

}  // namespace ipex::graph

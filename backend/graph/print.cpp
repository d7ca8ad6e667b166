// Graph to text. Values are named by their node's position (%3, %3.1 for a second result); inputs keep their
// names.
#include "backend/graph/constants.h"
#include "backend/graph/ir.h"
#include "backend/graph/names.h"
#include "codegen/loop/text.h"

namespace ipex::graph {
namespace {

std::string print_dims(const std::vector<Dim>& dims) {
  std::string text;
  for (const Dim& dim : dims) text += (text.empty() ? "" : ",") + loop::print(dim);
  return text;
}

std::string print_strides(const Strides& strides) { return "{" + print_dims(strides) + "}"; }

std::string print_type(const Type& type) {
  return std::string(name(type.dtype)) + "[" + print_dims(type.shape) + "]";
}

std::string quote(const std::string& text) {
  std::string quoted = "\"";
  for (char c : text) {
    if (c == '"' || c == '\\') quoted += '\\';
    if (c == '\n') {
      quoted += "\\n";
      continue;
    }
    quoted += c;
  }
  return quoted + "\"";
}

template <class T, class Fn>
std::string list(const std::vector<T>& items, Fn print_item) {
  std::string text = "[";
  for (size_t i = 0; i < items.size(); ++i) text += (i ? "," : "") + print_item(items[i]);
  return text + "]";
}

struct AttrPrinter {
  std::string operator()(bool value) const { return value ? "true" : "false"; }
  std::string operator()(int64_t value) const { return std::to_string(value); }
  std::string operator()(double value) const { return print_number(value); }
  std::string operator()(const std::string& value) const { return quote(value); }
  std::string operator()(const std::vector<int64_t>& value) const {
    return list(value, [](int64_t v) { return std::to_string(v); });
  }
  std::string operator()(const std::vector<Dim>& value) const { return "(" + print_dims(value) + ")"; }
  std::string operator()(const Dim& value) const { return "dim(" + loop::print(value) + ")"; }
  std::string operator()(const std::vector<std::string>& value) const { return list(value, quote); }
};

std::string print_graph(const Graph& graph, const std::string& indent);

std::string print_expression(const Graph& graph, const Node& node, const std::string& indent) {
  std::string text = name_of(node.operation);
  for (size_t i = 0; i < node.operands.size(); ++i)
    text += (i ? ", " : "(") + value_name(graph, node.operands[i]);
  if (!node.operands.empty()) text += ")";
  for (const auto& [key, value] : attributes_of(node.operation))
    text += " " + key + "=" + std::visit(AttrPrinter{}, value);
  if (const auto* constant = node.get_if<Constant>(); constant && constant->data)
    text += print_payload(*constant->data, node.types[0].dtype);
  if (const auto* group = node.get_if<Group>(); group && group->body)
    text += " " + print_graph(*group->body, indent + "  ");
  text += " :";
  for (size_t r = 0; r < node.types.size(); ++r) {
    text += (r ? ", " : " ") + print_type(node.types[r]);
    if (r < node.layouts.size() && !node.layouts[r].empty()) text += print_strides(node.layouts[r]);
  }
  return text;
}

std::string print_node(const Graph& graph, int32_t index, const std::string& indent) {
  const Node& node = graph.nodes[index];
  std::string text = indent;
  for (size_t r = 0; r < node.types.size(); ++r)
    text += (r ? ", " : "") + value_name(graph, {index, static_cast<int32_t>(r)});
  text += " = " + print_expression(graph, node, indent);
  if (!node.source.empty()) text += "  # " + node.source.substr(0, node.source.find('\n'));
  return text + "\n";
}

std::string print_graph(const Graph& graph, const std::string& indent) {
  std::string text = "graph " + graph.name + "(";
  for (size_t i = 0; i < graph.inputs.size(); ++i) {
    const Node& input = graph.nodes[graph.inputs[i]];
    text += (i ? ", " : "") + value_name(graph, {graph.inputs[i], 0}) + ": " + print_type(input.types[0]);
    if (!input.layouts.empty() && !input.layouts[0].empty()) text += print_strides(input.layouts[0]);
    if (input.get<Input>().is_static) text += " static";
  }
  text += ")";
  if (!graph.symbols.empty()) {
    text += " symbols(";
    for (size_t i = 0; i < graph.symbols.size(); ++i) {
      text += (i ? ", " : "") + graph.symbols[i];
      if (i < graph.symbol_hints.size()) text += "=" + std::to_string(graph.symbol_hints[i]);
      if (auto low = graph.symbol_lows.find(graph.symbols[i]); low != graph.symbol_lows.end())
        text += " >= " + std::to_string(low->second);
    }
    text += ")";
  }
  text += " {\n";
  for (size_t i = 0; i < graph.nodes.size(); ++i)
    if (graph.nodes[i].op() != Op::kInput) text += print_node(graph, static_cast<int32_t>(i), indent + "  ");
  text += indent + "  return";
  for (size_t i = 0; i < graph.outputs.size(); ++i) {
    text += (i ? ", " : " ") + value_name(graph, graph.outputs[i].value);
    if (!graph.outputs[i].strides.empty()) text += print_strides(graph.outputs[i].strides);
  }
  text += "\n";
  for (const InputMutation& m : graph.mutations)
    text += indent + "  mutate " + value_name(graph, {graph.inputs[m.input], 0}) + " = " +
            value_name(graph, m.value) + "\n";
  return text + indent + "}";
}

}  // namespace

std::string value_name(const Graph& graph, Value v) {
  const Node& node = graph.nodes[v.node];
  if (const auto* input = node.get_if<Input>(); input && !input->name.empty()) return "%" + input->name;
  std::string text = "%" + std::to_string(v.node);
  return v.result ? text + "." + std::to_string(v.result) : text;
}

std::string node_expression(const Graph& graph, int32_t index) {
  return print_expression(graph, graph.nodes[index], "");
}

std::string print(const Graph& graph) { return print_graph(graph, "") + "\n"; }

}  // namespace ipex::graph

// See parameters.h.
#include "backend/graph/parameters.h"

#include <algorithm>

namespace ipex::graph {

ParameterAnalysis::ParameterAnalysis(const Graph& graph, const Graph& original) : graph_(graph) {
  for (const InputMutation& m : original.mutations)
    written_.insert(original.nodes[original.inputs[m.input]].get<Input>().name);
}

bool ParameterAnalysis::operator()(Value v) {
  while (std::ssize(known_) <= v.node) known_.push_back(judge(graph_.nodes[known_.size()]));
  return known_[v.node];
}

bool ParameterAnalysis::judge(const Node& node) const {
  const auto* input = node.get_if<Input>();
  if (input && (!input->is_static || written_.contains(input->name))) return false;
  // An ATen call may have effects, or draw random numbers.
  return node.op() != Op::kExtern && names_no_symbol(node) &&
         std::ranges::all_of(node.operands, [&](Value v) { return known_[v.node]; });
}

bool names_no_symbol(const Node& node) {
  if (!std::ranges::all_of(node.types, [](const Type& type) { return is_static(type.shape); })) return false;
  const auto* group = node.get_if<Group>();
  return is_static(dims_in(node.operation)) &&
         (!group || std::ranges::all_of(group->body->nodes, names_no_symbol));
}

}  // namespace ipex::graph

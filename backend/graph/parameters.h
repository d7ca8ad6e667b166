// What depends on parameters and buffers only. It is computed once, and again when one of them has changed.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "backend/graph/ir.h"

namespace ipex::graph {

class ParameterAnalysis {
 public:
  explicit ParameterAnalysis(const Graph& graph) : ParameterAnalysis(graph, graph) {}
  // Of a graph to which nodes are still added: `original`, which it is rewritten from, knows what a run
  // writes.
  ParameterAnalysis(const Graph& graph, const Graph& original);

  bool operator()(Value v);

 private:
  bool judge(const Node& node) const;

  const Graph& graph_;
  std::set<std::string> written_;  // inputs that a run updates, by name
  std::vector<bool> known_;        // by node, as far as anybody has asked
};

// A symbol may change from call to call without any input changing.
bool names_no_symbol(const Node& node);

}  // namespace ipex::graph

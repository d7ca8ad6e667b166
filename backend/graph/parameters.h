// Which values depend only on parameters and buffers. They are computed once, and again after a parameter has
// changed.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "backend/graph/ir.h"

namespace ipex::graph {

class ParameterAnalysis {
 public:
  explicit ParameterAnalysis(const Graph& graph) : ParameterAnalysis(graph, graph) {}
  // For a graph that is still being built: `original`, the graph that is rewritten, has the mutations.
  ParameterAnalysis(const Graph& graph, const Graph& original);

  bool operator()(Value v);

 private:
  bool judge(const Node& node) const;

  const Graph& graph_;
  std::set<std::string> written_;  // names of the inputs that a run updates
  std::vector<bool> known_;        // by node, for the nodes up to the last query
};

// Whether no type or attribute of the node has a symbol. A symbol may change between calls although no
// parameter does.
bool names_no_symbol(const Node& node);

}  // namespace ipex::graph

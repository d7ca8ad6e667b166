// The hand-written steps of graph ops Sort and Search.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "backend/graph/ir.h"
#include "backend/lower/lower.h"
#include "runtime/executable.h"

namespace ipex::graph {

// Results with buffer -1 are not wanted.
std::unique_ptr<Step> make_sort_step(const Node& node, const std::vector<std::string>& symbols,
                                     const std::vector<TensorSpec>& operands,
                                     const std::vector<TensorSpec>& results);

// What the step of `node` makes of row-major operands: these ops are their own reference.
std::vector<HostTensor> eval_sort(const Graph& graph, int32_t node, std::vector<HostTensor>& operands,
                                  const std::vector<int64_t>& symbols);

}  // namespace ipex::graph

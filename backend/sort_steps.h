// The steps of the ops sort and search, which hand-written kernels compute.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "backend/graph/ir.h"
#include "backend/lower/lower.h"
#include "runtime/executable.h"

namespace ipex::graph {

// Results with buffer -1 are not stored.
std::unique_ptr<Step> make_sort_step(const Node& node, const std::vector<std::string>& symbols,
                                     const std::vector<TensorSpec>& operands,
                                     const std::vector<TensorSpec>& results);

// Runs the step of `node` on row-major operands. The reference evaluation of these ops uses it too.
std::vector<HostTensor> eval_sort(const Graph& graph, int32_t node, std::vector<HostTensor>& operands,
                                  const std::vector<int64_t>& symbols);

}  // namespace ipex::graph

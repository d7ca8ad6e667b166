// A node as the library is asked for it.
#pragma once

#include <functional>
#include <variant>

#include "backend/graph/ir.h"
#include "backend/passes/context.h"

namespace ipex::graph {

using LibraryDescription =
    std::variant<kernels::MatMulDesc, kernels::ConvDesc, kernels::ConvBackwardDesc, kernels::LstmDesc>;

// `n` is a matmul, conv, conv_backward or lstm; spec_of gives the memory of a value, is_hoisted says whether
// it depends on parameters only.
LibraryDescription library_description(const Graph& graph, int32_t n, kernels::Planning planning,
                                       const std::function<TensorSpec(Value)>& spec_of,
                                       const std::function<bool(Value)>& is_hoisted);

// How library steps are planned; nullopt for types that not every CPU of the target's ISA multiplies.
std::optional<kernels::Planning> library_planning(const Graph& graph, const Node& node,
                                                  const PassOptions& options);

}  // namespace ipex::graph

// Describes a node to the library.
#pragma once

#include <functional>
#include <variant>

#include "backend/graph/ir.h"
#include "backend/passes/context.h"

namespace ipex::graph {

using LibraryDescription =
    std::variant<kernels::MatMulDesc, kernels::ConvDesc, kernels::ConvBackwardDesc, kernels::LstmDesc>;

// `n` is a matmul, conv, conv_backward or lstm. spec_of gives the memory of a value; is_hoisted tells whether
// it depends only on parameters.
LibraryDescription library_description(const Graph& graph, int32_t n, kernels::Planning planning,
                                       const std::function<TensorSpec(Value)>& spec_of,
                                       const std::function<bool(Value)>& is_hoisted);

// How to plan library steps; nullopt for types that some CPU of the target ISA does not support.
std::optional<kernels::Planning> library_planning(const Graph& graph, const Node& node,
                                                  const PassOptions& options);

}  // namespace ipex::graph

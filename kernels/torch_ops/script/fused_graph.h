// The operator ipex::CompiledGraph: a part of a TorchScript graph that the compiler compiles.
#pragma once

#include <ATen/core/symbol.h>

namespace ipex::torch_ops::script {

// The node has the part as its attribute Subgraph.
c10::Symbol compiled_graph();

}  // namespace ipex::torch_ops::script

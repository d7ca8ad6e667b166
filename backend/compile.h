// compile(): compiles a Graph to an Executable and a report.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "backend/graph/ir.h"
#include "backend/passes/passes.h"
#include "codegen/llvm/jit.h"
#include "codegen/target.h"
#include "runtime/executable.h"

namespace ipex {

// Makes the step of an Extern node; a result without a reader has buffer -1. python/ supplies the function,
// so that backend/ does not depend on libtorch.
using ExternFactory = std::function<std::unique_ptr<Step>(
    const graph::Node& node, std::vector<TensorSpec> operands, std::vector<TensorSpec> results)>;

struct CompileOptions : PassOptions {
  bool alias_outputs = true;  // an output that is (a view of) an input aliases it; false: it is copied
  ExternFactory make_extern;
  std::string stop_after;  // name of a graph pass
};

struct CompileReport {
  std::vector<graph::PassTime> times;  // graph passes, lowering, loop pipeline, LLVM, primitives
  loop::CompileStats kernels;
  int kernel_steps = 0, library_steps = 0, extern_steps = 0;
  std::vector<std::string> extern_ops;  // name and reason, one for each Extern node
  std::vector<std::string> choices;     // implementations of products and convolutions, and the reasons
  std::vector<std::string> measured;    // products that were timed, with both times
  int64_t arena_bytes = 0, naive_bytes = 0;
  int64_t argument_bytes = 0;  // of inputs and outputs
  std::string target;          // the target as text (codegen/llvm/cache_text.h)
  std::string graph_text;      // after all passes
  std::string loop_text;       // kernels as lowered
};

struct CompiledGraph {
  std::shared_ptr<const Executable> executable;
  std::shared_ptr<const FunctionLibrary> kernels;  // null if there are none
  std::vector<loop::Function> functions;           // the kernels before scheduling
  CompileReport report;
};

CompiledGraph compile(graph::Graph graph, const CompileOptions& options);

}  // namespace ipex

// compile(): Graph in, Executable and its description out.
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

// Makes the step of an Extern node (a result that nobody reads has buffer -1); the caller (python/) supplies
// it, so that backend/ does not know libtorch.
using ExternFactory = std::function<std::unique_ptr<Step>(
    const graph::Node& node, std::vector<TensorSpec> operands, std::vector<TensorSpec> results)>;

struct CompileOptions : PassOptions {
  bool alias_outputs = true;  // an output that is (a view of) an input is the input's memory, else a copy
  ExternFactory make_extern;
  std::string stop_after;  // graph pass
};

struct CompileReport {
  std::vector<graph::PassTime> times;  // graph passes, lowering, loop pipeline, LLVM, primitives
  loop::CompileStats kernels;
  int kernel_steps = 0, library_steps = 0, extern_steps = 0;
  std::vector<std::string> extern_ops;  // name and why, one an Extern node
  std::vector<std::string> choices;     // who computes products and convolutions, and why
  std::vector<std::string> measured;    // products, with the times of both ways
  int64_t arena_bytes = 0, naive_bytes = 0;
  int64_t argument_bytes = 0;  // of inputs and outputs
  std::string target;          // what the kernels were scheduled for (codegen/llvm/cache_text.h)
  std::string graph_text;      // after all passes
  std::string loop_text;       // kernels as lowered
};

struct CompiledGraph {
  std::shared_ptr<const Executable> executable;
  std::shared_ptr<const FunctionLibrary> kernels;  // null: there are none
  std::vector<loop::Function> functions;           // of the kernels, before their schedule
  CompileReport report;
};

CompiledGraph compile(graph::Graph graph, const CompileOptions& options);

}  // namespace ipex

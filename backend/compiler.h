// What compile() knows while it turns a graph's nodes into steps; a file for each kind of step that it makes.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "backend/compile.h"
#include "backend/lower/lower.h"
#include "backend/plan_memory.h"
#include "backend/views.h"
#include "kernels/library.h"
#include "runtime/kernel_steps.h"

namespace ipex::graph {

class Compiler {
 public:
  Compiler(Graph graph, const CompileOptions& options)
      : g_(std::move(graph)), options_(options), context_(options) {}

  CompiledGraph run();

 private:
  // ---- compile.cpp: placement ----

  void find_static();
  void make_inputs();
  void claim_outputs();
  void find_needed();
  void link_kernels();
  CompiledGraph finish();

  // ---- compile.cpp: descriptions ----

  SizeExpr size(const Dim& dim) const { return to_size_expr(dim, g_.symbols); }
  int add_buffer(BufferKind kind, int index, SizeExpr bytes);
  // The buffer of a value that owns memory, made on first use.
  int buffer_of(Value root);
  std::shared_ptr<const void> constant_data(int32_t n) const;
  TensorSpec spec_of(Value v);
  OperandLayout layout_of(Value v) const { return graph::layout_of(g_, v); }
  std::vector<TensorSpec> specs_of(const std::vector<Value>& values);
  std::vector<Value> results_of(int32_t n) const;
  // A result that nobody reads has no buffer: ATen may shape such leftovers as it likes.
  std::vector<TensorSpec> read_results(int32_t n);
  bool is_read(Value v) const;
  // Every result has no elements: nothing to compute (an extern call still runs, for its checks).
  bool is_empty(int32_t n) const;

  // ---- compile.cpp: steps ----

  void emit(int32_t n);
  void add_step(std::unique_ptr<Step> step, bool hoisted);

  // ---- compile_kernels.cpp ----

  // `body` as a loop nest; equal bodies of equal layouts, as the layers of a model have, are lowered once.
  loop::Function lowered(const Graph& body, const std::vector<OperandLayout>& inputs,
                         const std::vector<OperandLayout>& outputs);
  void emit_kernel(int32_t n, const Graph& body);
  std::string next_kernel_name(const Graph& body) const;
  // The kernel's text under a name that does not depend on its place in the graph.
  std::string recipe_of(loop::Function f) const;
  // Layers repeat: kernels that differ in name only are compiled once.
  void add_kernel(loop::Function f, std::unique_ptr<KernelStep> step, bool hoisted);
  // `out` of kernel f and every operand in `buffer` agree element by element, so they may be one memory.
  bool shares(const loop::Function& f, const std::string& out, const std::vector<int>& buffers,
              int buffer) const;
  // The input that this value updates, when it may be written right now: nothing reads the old value later,
  // and this kernel reads each element only where it replaces it.
  int mutation_target(Value v, const loop::Function& f, const std::string& out,
                      const std::vector<int>& buffers,
                      const std::function<bool(int buffer)>& allowed = nullptr);
  // A temporary that dies here and has the result's size can lend its memory to the result.
  void share_operand(Value v, const loop::Function& f, const std::string& out,
                     const std::vector<int>& buffers, std::set<int>& taken);
  // Marks a large result of the graph, whose memory is its own, as streamed.
  void stream_results(loop::Function& f, int32_t n);

  // ---- compile_batches.cpp ----

  // Emitted with the first member that is; those whose memory is no plain run of elements have kernels of
  // their own.
  void emit_batch(int32_t n);
  void emit_batch_step(const std::vector<int32_t>& members, const std::vector<int32_t>& others);
  // May the group run over its memory as one dim: operands and results dense, in one order of dims?
  bool is_run_of_elements(int32_t n) const;
  void add_entries(BatchStep& step, const std::vector<int32_t>& members, const std::vector<int32_t>& others,
                   const loop::Function& f);

  // ---- compile_library.cpp ----

  void emit_library(int32_t n);
  void add_library(int32_t n, kernels::LibrarySteps steps, int packed_buffer = -1);
  void emit_extern(int32_t n);

  // ---- compile_copies.cpp ----

  void add_copy(Value v, const OperandLayout& to, int buffer);
  OperandLayout whole(const Shape& shape, const Strides& strides) const;
  static constexpr int32_t kAtEnd = INT32_MAX;  // as a node's number: behind every node
  void copy_outputs(int32_t after);
  void copy_mutations();

  Graph g_;
  const CompileOptions& options_;
  PassContext context_;
  CompileReport report_;
  Executable::Parts parts_;
  std::map<Value, int> buffers_;                       // of values that own memory
  std::vector<int> in_place_;                          // by buffer
  std::set<int32_t> mutated_;                          // input nodes
  std::set<int> written_;                              // mutated inputs (positions) that a step already wrote
  std::vector<bool> static_only_, needed_;             // by node
  std::vector<int32_t> last_reader_;                   // by node that owns memory: last node that reads it
  std::map<int32_t, std::vector<int>> output_copies_;  // outputs to copy, by the node behind which
  std::vector<loop::Function> kernels_;
  std::map<std::string, loop::Function> lowered_;    // by body and layouts: layers repeat
  std::map<std::string, std::string> kernel_names_;  // recipe: name of the kernel that has it
  std::vector<KernelStep*> unlinked_;
  std::shared_ptr<const FunctionLibrary> library_;
  std::set<int64_t> emitted_batches_;
  double primitives_ms_ = 0;
};

}  // namespace ipex::graph

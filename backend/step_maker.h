// The second stage of compile(): every node that computes becomes a step; a file for each kind of step.
#pragma once

#include <functional>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "backend/compile.h"
#include "backend/kernel_table.h"
#include "backend/placed_buffers.h"
#include "backend/plan_memory.h"
#include "backend/views.h"
#include "kernels/library_plans.h"

namespace ipex::graph {

struct MadeSteps {
  std::vector<std::unique_ptr<Step>> steps;
  std::vector<bool> hoisted;
  KernelTable kernels;
  // For the report.
  int kernel_steps = 0, library_steps = 0, extern_steps = 0;
  std::vector<std::string> extern_ops;
  double primitives_ms = 0;
};

// `placed` learns where results and copies lie.
MadeSteps make_steps(PlacedBuffers& placed, const CompileOptions& options, kernels::LibraryPlans& library);

class StepMaker {
 public:
  StepMaker(PlacedBuffers& placed, const CompileOptions& options, kernels::LibraryPlans& library)
      : placed_(placed), g_(placed.graph), options_(options), library_(library) {}

  MadeSteps run();

 private:
  void emit(int32_t n);
  void add_step(std::unique_ptr<Step> step, bool hoisted);
  // Every result has no elements: nothing to compute (an extern call still runs, for its checks).
  bool is_empty(int32_t n) const;
  OperandLayout layout_of(Value v) const { return graph::layout_of(g_, v); }
  // A result that nobody reads has no buffer: ATen may shape such leftovers as it likes.
  std::vector<TensorSpec> read_results(int32_t n);

  // ---- compile_kernels.cpp ----

  void emit_kernel(int32_t n, const Graph& body);
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
  void copy_outputs(int32_t after);
  void copy_mutations();

  PlacedBuffers& placed_;
  Graph& g_;
  const CompileOptions& options_;
  kernels::LibraryPlans& library_;
  MadeSteps made_;
  std::set<int> written_;  // mutated inputs (positions) that a step already wrote
  std::set<int64_t> emitted_batches_;
};

}  // namespace ipex::graph

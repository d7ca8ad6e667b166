// The second stage of compile(): makes a step for every node that computes. Each kind of step has its own
// file.
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

// Adds the buffers of results and copies to `placed`.
MadeSteps make_steps(PlacedBuffers& placed, const CompileOptions& options, kernels::LibraryPlans& library);

class StepMaker {
 public:
  StepMaker(PlacedBuffers& placed, const CompileOptions& options, kernels::LibraryPlans& library)
      : placed_(placed), g_(placed.graph), options_(options), library_(library) {}

  MadeSteps run();

 private:
  void emit(int32_t n);
  void add_step(std::unique_ptr<Step> step, bool hoisted);
  // No result has elements, so there is nothing to compute. (An extern call still runs, for its checks.)
  bool is_empty(int32_t n) const;
  OperandLayout layout_of(Value v) const { return graph::layout_of(g_, v); }
  // Results without a reader have no buffer, because ATen may give them any shape.
  std::vector<TensorSpec> read_results(int32_t n);

  // ---- compile_kernels.cpp ----

  void emit_kernel(int32_t n, const Graph& body);
  void add_kernel(loop::Function f, std::unique_ptr<KernelStep> step, bool hoisted);
  // May `out` of kernel f share memory with every operand in `buffer`?
  bool shares(const loop::Function& f, const std::string& out, const std::vector<int>& buffers,
              int buffer) const;
  // The buffer of the input that this value updates, if this kernel may write it directly: no later step
  // reads the old value, and the kernel reads each element only where it overwrites it. Otherwise -1.
  int mutation_target(Value v, const loop::Function& f, const std::string& out,
                      const std::vector<int>& buffers,
                      const std::function<bool(int buffer)>& allowed = nullptr);
  // Lets the result reuse the memory of an operand: a temporary of the same size whose live range ends here.
  void share_operand(Value v, const loop::Function& f, const std::string& out,
                     const std::vector<int>& buffers, std::set<int>& taken);
  // Marks large outputs of the graph as streamed: written with non-temporal stores.
  void stream_results(loop::Function& f, int32_t n);

  // ---- compile_batches.cpp ----

  // Emits all members of a batch when the first one is reached. Members whose memory is not one run of
  // elements get kernels of their own.
  void emit_batch(int32_t n);
  void emit_batch_step(const std::vector<int32_t>& members, const std::vector<int32_t>& others);
  // May the group treat its memory as one dim: all operands and results dense, with the same order of dims?
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
  std::set<int> written_;  // positions of mutated inputs that a step has already written
  std::set<int64_t> emitted_batches_;
};

}  // namespace ipex::graph

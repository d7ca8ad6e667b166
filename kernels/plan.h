// A Plan: the primitives that one step runs for one set of sizes, and where each finds its memory.
//
// Most plans are one primitive. Operands in a layout that no good implementation takes are copied into
// scratch memory first, results out of it afterwards; each is one more stage. Plans are immutable once built
// and run on any number of threads: a run borrows a Context (memory objects and argument lists) from the
// plan's pool, so that the steady state allocates nothing.
#pragma once

#include <dnnl.hpp>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "runtime/tensor.h"

namespace ipex::kernels {

class Plan {
 public:
  using Arguments = std::vector<std::pair<int, int>>;  // DNNL_ARG_*, slot

  Plan();
  ~Plan();
  Plan(Plan&&) noexcept;

  // A slot is memory with a layout. These return its number.
  int operand(int index, const dnnl::memory::desc& desc);  // the step's operand
  int scratch(const dnnl::memory::desc& desc);
  int zeros(const dnnl::memory::desc& desc);  // scratch, filled with zero bytes before each run
  // `slot` itself when it has the layout, else scratch memory that it is copied to at this point.
  int in_layout(int slot, const dnnl::memory::desc& desc);
  int copied(int slot, const dnnl::memory::desc& desc);
  void copy(int from, int to);

  // Stages run in the order they are added.
  void add(const dnnl::primitive_desc_base& desc, Arguments arguments);
  void fill_with_zeros(int operand_index, const TensorView& layout);

  // `operands`: pointers to the first element of each operand of the step.
  void run(std::span<void* const> operands) const;

  std::string detail;  // for StepInfo

 private:
  struct Slot {
    dnnl::memory::desc desc;
    int operand = -1;    // -1: scratch
    int64_t offset = 0;  // in the scratch block
    bool zero = false;
  };
  struct Stage {
    dnnl::primitive primitive;
    Arguments arguments;
  };
  struct Context;

  std::unique_ptr<Context> borrow() const;

  std::vector<Slot> slots_;
  std::vector<Stage> stages_;
  std::vector<std::pair<int, TensorView>> fills_;
  int64_t scratch_bytes_ = 0;

  struct Pool {
    std::mutex mutex;
    std::vector<std::unique_ptr<Context>> idle;
  };
  std::unique_ptr<Pool> pool_;
};

}  // namespace ipex::kernels

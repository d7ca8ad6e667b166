// A Plan: the oneDNN primitives that one step runs for one set of sizes, and their memory.
//
// Most plans consist of one primitive. If no good implementation accepts the layout of an operand or result,
// it is copied to or from scratch memory in an additional stage. Plans are immutable once built, and can run
// on several threads at once: each run takes a Context (memory objects and argument lists) from the plan's
// pool, so that the steady state allocates nothing.
#pragma once

#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "kernels/onednn.h"
#include "runtime/tensor.h"

namespace ipex::kernels {

class Plan {
 public:
  using Arguments = std::vector<std::pair<int, int>>;  // DNNL_ARG_*, slot

  Plan();
  ~Plan();
  Plan(Plan&&) noexcept;

  // A slot is memory with a layout. These functions add one and return its number.
  int operand(int index, const dnnl::memory::desc& desc);  // an operand of the step
  int scratch(const dnnl::memory::desc& desc);
  int zeros(const dnnl::memory::desc& desc);  // scratch, filled with zero bytes before each run
  // `slot` itself if it has this layout, else scratch memory that it is copied to.
  int in_layout(int slot, const dnnl::memory::desc& desc);
  int copied(int slot, const dnnl::memory::desc& desc);
  void copy(int from, int to);

  // Stages run in the order in which they are added.
  void add(const dnnl::primitive_desc_base& desc, Arguments arguments);
  void fill_with_zeros(int operand_index, const TensorView& layout);
  // Before the stages, copies an operand to dense row-major memory, which the plan uses in its place. For
  // strides that oneDNN cannot describe.
  void gather(int operand_index, const TensorView& layout);

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
  struct Gather {
    int operand;
    TensorView layout;
    int64_t offset;  // in the scratch block
  };

  std::vector<std::pair<int, TensorView>> fills_;
  std::vector<Gather> gathers_;
  int64_t scratch_bytes_ = 0;

  struct Pool {
    std::mutex mutex;
    std::vector<std::unique_ptr<Context>> idle;
  };
  std::unique_ptr<Pool> pool_;
};

}  // namespace ipex::kernels

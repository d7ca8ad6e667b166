// Steps that run compiled kernels, wherever their code comes from: one kernel on the buffers of one group, or
// on a table of tensors.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "runtime/executable.h"
#include "runtime/fields.h"
#include "runtime/function_library.h"

namespace ipex {

// It runs once it was linked.
class KernelStep : public Step {
 public:
  virtual void rename(std::string kernel) = 0;  // to an equal one
  void link(std::shared_ptr<const FunctionLibrary> library);

 protected:
  KernelStep() { info.kind = StepKind::kKernel; }
  ipex_kernel_fn function_ = nullptr;

 private:
  std::shared_ptr<const FunctionLibrary> library_;
};

// The step of a saved program's line; null when its word names no step of this file.
std::unique_ptr<KernelStep> read_kernel_step(FieldReader& io);

// A kernel whose parameters are pointers to `reads`, then to `writes`.
class CallStep final : public KernelStep {
 public:
  CallStep(std::string kernel, std::vector<int> reads, std::vector<int> writes, std::string recipe = "");
  void rename(std::string kernel) override;
  void run(RunContext& context) const override;
};

// A kernel over one dim of `n` elements, called for every entry of a table in one parallel region: long
// tensors are cut into pieces, short ones share a thread. The kernel itself is serial and has the symbol n.
class BatchStep final : public KernelStep {
 public:
  // Bytes from element to element, by parameter; 0: one element for all n.
  BatchStep(std::string kernel, std::vector<int64_t> strides);

  struct Entry {
    std::vector<int> buffers;      // by parameter
    std::vector<int64_t> offsets;  // bytes
    int64_t count = 0;             // elements
  };
  void add(Entry entry);
  void rename(std::string kernel) override;
  void run(RunContext& context) const override;

 private:
  struct Piece {
    int entry = 0;
    int64_t begin = 0, count = 0;
  };
  void run_tasks(RunContext& context, int64_t begin, int64_t end) const;

  std::vector<int64_t> strides_;
  std::vector<Entry> entries_;
  std::vector<Piece> pieces_;
  std::vector<size_t> tasks_;    // first piece of each
  int64_t last_task_count_ = 0;  // elements in the last task
};

}  // namespace ipex

// Steps that run compiled kernels: a kernel on the buffers of one group, or on each entry of a table of
// tensors.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "runtime/executable.h"
#include "runtime/fields.h"
#include "runtime/function_library.h"

namespace ipex {

// A step that can run after it is linked.
class KernelStep : public Step {
 public:
  virtual void rename(std::string kernel) = 0;  // use another kernel with the same code
  void link(std::shared_ptr<const FunctionLibrary> library);

 protected:
  KernelStep() { info.kind = StepKind::kKernel; }
  ipex_kernel_fn function_ = nullptr;

 private:
  std::shared_ptr<const FunctionLibrary> library_;
};

// Reads a step from a line of a saved program; null if the line's word is not a step of this file.
std::unique_ptr<KernelStep> read_kernel_step(FieldReader& io);

// A kernel whose parameters are pointers to `reads`, then to `writes`.
class CallStep final : public KernelStep {
 public:
  CallStep(std::string kernel, std::vector<int> reads, std::vector<int> writes, std::string recipe = "");
  void rename(std::string kernel) override;
  void run(RunContext& context) const override;
};

// A kernel over one dimension of `n` elements, called for every entry of a table in one parallel region. Long
// tensors are split into pieces; short ones are processed together in one task. The kernel itself is serial
// and has the symbol n.
class BatchStep final : public KernelStep {
 public:
  // Distance between elements in bytes, by parameter; 0: the same element for all n.
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
  std::vector<size_t> tasks_;    // the first piece of each task
  int64_t last_task_count_ = 0;  // elements in the last task
};

}  // namespace ipex

// Runs an executable on tensors: checks the arguments, allocates the results, and frees arguments after their
// last use.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/SmallVector.h>

#include <memory>
#include <utility>
#include <vector>

#include "runtime/executable.h"

namespace ipex::torch_ops {

using Sizes = c10::SmallVector<int64_t, 6>;

Sizes evaluate(const std::vector<SizeExpr>& exprs, const int64_t* symbols);

class TensorProgram {
 public:
  // By input: whether a run writes to it, and whether the caller needs it after the run, because it or a view
  // of it is a result.
  TensorProgram(std::shared_ptr<const Executable> executable, std::vector<bool> written,
                const std::vector<bool>& kept);

  const Executable& executable() const { return *executable_; }
  bool writes(int input) const { return written_[input]; }
  // Whether only steps use the input's memory, so that it may be freed during the call. The caller drops its
  // own reference then.
  bool may_go(int input) const { return may_go_[input]; }

  class Call;

 private:
  std::shared_ptr<const Executable> executable_;
  std::vector<bool> written_, is_static_, may_go_;  // by input
};

// The data of one call, without heap allocations for usual numbers of tensors. A result is allocated when a
// step first writes it. An argument is released after its last reader, so that a backward pass frees its
// activations layer by layer if the caller holds no references.
class TensorProgram::Call final : public RunMemory {
 public:
  // `program` must outlive the call.
  Call(const TensorProgram& program, Sizes symbols);

  // Adds the next input. A tensor whose layout or kind does not fit is copied. `position`: of the argument,
  // for messages. Throws UserError for a tensor that does not match the program.
  void add_input(const at::Tensor& tensor, int position);
  // Runs the steps, and reports them to `observer`, or to torch.profiler if it records.
  void run(StepObserver* observer = nullptr);
  // The tensor of an output, after run().
  const at::Tensor& result(int index) const { return outputs_[index]; }
  const int64_t* symbols() const { return symbols_.data(); }

 private:
  void* output(int index) override;
  void release_input(int index) override { storages_[index] = c10::Storage(); }
  at::Tensor make_output(int index) const;
  // The tensor, or a copy if its layout or kind does not match.
  at::Tensor take(const at::Tensor& tensor, int input, int position);

  const TensorProgram& program_;
  const Executable::Parts& parts_;
  c10::SmallVector<at::Tensor, 16> inputs_;      // undefined: only its storage is held
  c10::SmallVector<c10::Storage, 16> storages_;  // of inputs that may be freed during the call
  c10::SmallVector<void*, 16> input_data_;
  c10::SmallVector<InputVersion, 16> versions_;
  c10::SmallVector<at::Tensor, 8> outputs_;
  std::vector<std::pair<at::Tensor, at::Tensor>>
      written_copies_;  // an argument, and the copy that steps write
  Sizes symbols_;
};

}  // namespace ipex::torch_ops

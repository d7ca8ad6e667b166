// One step of an optimizer over a list of parameters, in one parallel loop.
//
// The elements of all parameters are laid end to end and cut into units of the same size, which the threads
// share. Units do not depend on the number of threads, so neither do sums over a parameter.
//
// A parameter may have any dense layout, such as channels-last; its gradient and states are then expected in
// the same layout. What has another layout, or gaps, is copied to one that fits, and back if it is written.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/FunctionRef.h>
#include <c10/util/SmallVector.h>

#include <array>
#include <vector>

#include "kernels/torch_ops/optimizer_kernels.h"

namespace ipex::torch_ops {

// An operand of a step, with its name in messages.
struct StepState {
  const char* name;
  at::Tensor tensor;
};

struct StepParameter {
  at::Tensor param, grad;
  at::Tensor param2;  // the lower halves or the copy in low precision; empty or undefined if there is none
  c10::SmallVector<StepState, 3> states;  // undefined tensors are null for the kernel
  StepScalars scalars;
};

class OptimizerStep {
 public:
  // `op` names the operator in messages. Throws if dtypes or sizes do not fit together. Parameters that are
  // empty have no effect.
  OptimizerStep(const char* op, std::vector<StepParameter> parameters);

  using Kernel = StepKernel OptimizerKernels::*;
  void run(Kernel kernel);
  // Two sums of squares for each parameter.
  std::vector<std::array<double, 2>> run_norms(Kernel kernel);
  StepScalars& scalars(size_t parameter) { return work_[parameter].scalars; }

  // Applies the kernel to rows of one parameter: row rows[i] with row i of the gradient. Rows are distinct.
  void run_rows(Kernel kernel, c10::ArrayRef<int64_t> rows, int64_t width);

  // Copies back what was copied, and counts the writes. To be called at the end.
  void finish();

 private:
  struct Work {
    StepMemory memory;
    StepScalars scalars;
    int64_t elements = 0;
    bool f64 = false;
  };
  struct Piece {  // a part of a parameter within one unit
    size_t parameter;
    int64_t begin, end;
  };
  struct CopiedOperand {
    at::Tensor original, copy;
  };

  void prepare(const char* op, const StepParameter& parameter);
  at::Tensor in_order(const at::Tensor& tensor, const at::Tensor& order, bool written);
  void cut_into_pieces();
  void for_pieces(c10::function_ref<void(size_t piece)> run);

  std::vector<Work> work_;
  std::vector<Piece> pieces_;
  std::vector<size_t> units_;         // the first piece of each unit, and the end
  std::vector<at::Tensor> operands_;  // keeps their memory
  std::vector<at::Tensor> written_;
  std::vector<CopiedOperand> copied_;
};

}  // namespace ipex::torch_ops

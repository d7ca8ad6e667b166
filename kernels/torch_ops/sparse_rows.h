// Steps of optimizers for parameters with sparse gradients: the rows that have a gradient are updated.
#pragma once

#include "kernels/torch_ops/optimizer_step.h"

namespace ipex::torch_ops {

// Duplicate rows of the gradient are added first.
void step_rows(const char* op, StepParameter parameter, OptimizerStep::Kernel kernel);

}  // namespace ipex::torch_ops

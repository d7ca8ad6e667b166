// Finds the rows of a sparse gradient in its parameter.
#include "kernels/torch_ops/sparse_rows.h"

#include <ATen/core/LegacyTypeDispatch.h>

namespace ipex::torch_ops {

using at::Tensor;

void step_rows(const char* op, StepParameter parameter, OptimizerStep::Kernel kernel) {
  at::AutoDispatchBelowADInplaceOrView below_autograd;
  // Sums of duplicates must have the precision of the arithmetic.
  if (!parameter.grad.is_coalesced() && c10::isReducedFloatingType(parameter.grad.scalar_type()))
    parameter.grad = parameter.grad.to(at::kFloat);
  parameter.grad = parameter.grad.coalesce();
  const Tensor indices = parameter.grad._indices();  // [sparse dims, rows]
  const auto sizes = parameter.param.sizes();
  TORCH_CHECK(parameter.grad.sizes() == sizes, op,
              ": param and grad must have the same sizes, param sizes: ", sizes,
              "; grad sizes: ", parameter.grad.sizes());
  std::vector<int64_t> rows(indices.size(1));
  for (int64_t dim = 0; dim < indices.size(0); ++dim) {
    const int64_t* index = indices.const_data_ptr<int64_t>() + dim * indices.stride(0);
    for (size_t i = 0; i < rows.size(); ++i, index += indices.stride(1)) {
      TORCH_CHECK_INDEX(*index >= 0 && *index < sizes[dim], op, ": index ", *index,
                        " of the gradient, but param has ", sizes[dim], " rows");
      rows[i] = rows[i] * sizes[dim] + *index;
    }
  }
  const int64_t width = c10::multiply_integers(sizes.slice(indices.size(0)));
  OptimizerStep step(op, {std::move(parameter)});
  step.run_rows(kernel, rows, width);
  step.finish();
}

}  // namespace ipex::torch_ops

// f32 values as two bf16 tensors, the upper and the lower 16 bits: torch_ipex::split_float_bfloat16,
// cat_bfloat16_float, and packed_add, which adds to such values. Also the copies in low precision of f32
// values: sync_master_weight_to_bf16, sync_master_weight_to_fp16.
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/empty_strided.h>
#include <torch/library.h>

#include "kernels/torch_ops/operators.h"
#include "kernels/torch_ops/sparse_rows.h"

namespace ipex::torch_ops {
namespace {

using at::Tensor;

// A new tensor with the strides of this one, also where they leave gaps. Not where they repeat elements.
Tensor empty_with_strides_of(const Tensor& tensor, c10::ScalarType dtype) {
  const auto options = tensor.options().dtype(dtype);
  for (int64_t dim = 0; dim < tensor.dim(); ++dim)
    if (tensor.size(dim) > 1 && tensor.stride(dim) == 0) return at::empty_like(tensor, options);
  return at::empty_strided(tensor.sizes(), tensor.strides(), options);
}

std::tuple<Tensor, Tensor> split_float_bfloat16(const Tensor& given) {
  TORCH_CHECK(given.scalar_type() == at::kFloat, "split_float_bfloat16 expects a float32 tensor, got ",
              given.scalar_type());
  at::AutoDispatchBelowADInplaceOrView below_autograd;
  const Tensor tensor = materialized(given);
  Tensor top = empty_with_strides_of(tensor, at::kBFloat16),
         trail = empty_with_strides_of(tensor, at::kBFloat16);
  const Tensor bits = tensor.view(at::kInt);
  // `>>` keeps the sign, which the conversion to 16 bits drops.
  top.view(at::kShort).copy_(bits.__rshift__(16));
  trail.view(at::kShort).copy_(bits);
  return {top, trail};
}

Tensor cat_bfloat16_float(const Tensor& given_top, const Tensor& given_trail) {
  TORCH_CHECK(given_top.scalar_type() == at::kBFloat16 && given_trail.scalar_type() == at::kBFloat16,
              "cat_bfloat16_float expects bfloat16 tensors, got ", given_top.scalar_type(), " and ",
              given_trail.scalar_type());
  TORCH_CHECK(given_top.sizes() == given_trail.sizes(), "cat_bfloat16_float: top has sizes ",
              given_top.sizes(), ", trail has ", given_trail.sizes());
  at::AutoDispatchBelowADInplaceOrView below_autograd;
  const Tensor top = materialized(given_top), trail = materialized(given_trail);
  Tensor result = empty_with_strides_of(top, at::kFloat);
  Tensor bits = result.view(at::kInt);
  bits.copy_(top.view(at::kShort));
  bits.__ilshift__(16);
  bits.bitwise_or_(trail.view(at::kShort).to(at::kInt).bitwise_and_(0xffff));
  return result;
}

void packed_add(const Tensor& top_half, const Tensor& bot_half, const Tensor& grad, double alpha) {
  StepParameter parameter{top_half, grad, bot_half, {}, {}};
  parameter.scalars.lr = -alpha;
  if (grad.is_sparse()) return step_rows("packed_add", std::move(parameter), &OptimizerKernels::sgd);
  OptimizerStep step("packed_add", {std::move(parameter)});
  step.run(&OptimizerKernels::sgd);
  step.finish();
}

void sync_master_weight(const Tensor& master, const Tensor& low, c10::ScalarType type) {
  TORCH_CHECK(master.scalar_type() == at::kFloat && low.scalar_type() == type,
              "sync_master_weight expects a float32 master weight and a copy of type ", type, ", got ",
              master.scalar_type(), " and ", low.scalar_type());
  TORCH_CHECK(master.sizes() == low.sizes(), "sync_master_weight: the master weight has sizes ",
              master.sizes(), ", the copy has ", low.sizes());
  at::AutoDispatchBelowADInplaceOrView below_autograd;
  low.copy_(master);
  count_write(low);
}

}  // namespace

TORCH_LIBRARY_FRAGMENT(torch_ipex, m) {
  m.def("split_float_bfloat16(Tensor tensor) -> (Tensor, Tensor)");
  m.def("cat_bfloat16_float(Tensor top_half, Tensor bot_half) -> Tensor");
  m.def("packed_add(Tensor(a!) top_half, Tensor(b!) bot_half, Tensor grad, float alpha) -> ()");
  m.def("sync_master_weight_to_bf16(Tensor master_weight, Tensor(a!) bf16_weight) -> ()");
  m.def("sync_master_weight_to_fp16(Tensor master_weight, Tensor(a!) fp16_weight) -> ()");
}
TORCH_LIBRARY_IMPL(torch_ipex, CPU, m) {
  m.impl("split_float_bfloat16", split_float_bfloat16);
  m.impl("cat_bfloat16_float", cat_bfloat16_float);
  m.impl("packed_add", packed_add);
  m.impl("sync_master_weight_to_bf16",
         [](const Tensor& master, const Tensor& low) { sync_master_weight(master, low, at::kBFloat16); });
  m.impl("sync_master_weight_to_fp16",
         [](const Tensor& master, const Tensor& low) { sync_master_weight(master, low, at::kHalf); });
}
TORCH_LIBRARY_IMPL(torch_ipex, SparseCPU, m) { m.impl("packed_add", packed_add); }

}  // namespace ipex::torch_ops

// What the files that register operators share.
//
// Each operator has a kernel for dense CPU tensors, and a definition by ATen ops. The definition serves every
// other tensor: tracing (torch.compile, torch.export, make_fx), vmap, meta tensors, and gradients of
// gradients. So another compiler sees ATen ops, and an optimized model compiles as the plain one.
#pragma once

#include <ATen/Context.h>
#include <ATen/autocast_mode.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/core/impl/TorchDispatchModeTLS.h>

#include <algorithm>
#include <optional>

#include "kernels/torch_ops/tensor_kinds.h"

namespace ipex::torch_ops {

using OptionalTensor = std::optional<at::Tensor>;

inline bool is_given(const OptionalTensor& tensor) { return tensor && tensor->defined(); }
inline const at::Tensor& tensor_of(const at::Tensor& tensor) { return tensor; }
inline const at::Tensor& tensor_of(const at::Tensor&&) = delete;  // it would refer to a tensor that is gone
inline at::Tensor tensor_of(const OptionalTensor& tensor) { return tensor.value_or(at::Tensor()); }

// An input of a layer in the dtype of its weight: weights that optimize() cast take any floating-point input,
// as they do under autocast.
inline at::Tensor in_dtype_of(const at::Tensor& weight, const at::Tensor& input) {
  TORCH_CHECK(input.is_floating_point() || input.scalar_type() == weight.scalar_type(),
              "expected an input of ", weight.scalar_type(), " or another floating-point type, got ",
              input.scalar_type());
  return input.to(weight.scalar_type());
}

// Whether the kernel can read all of these, and nothing records the ATen ops or asks for forward-mode
// derivatives. Undefined tensors are ignored.
template <class... Tensors>
bool all_dense(const Tensors&... tensors) {
  const auto dense = [](const at::Tensor& t) {
    return !t.defined() ||
           (t.device().is_cpu() && t.layout() == c10::kStrided && !is_wrapper(t) && !has_tangent(t));
  };
  return !c10::impl::TorchDispatchModeTLS::any_modes_set() && (... && dense(tensor_of(tensors)));
}

inline bool all_dense(at::TensorList tensors) {
  return std::all_of(tensors.begin(), tensors.end(), [](const at::Tensor& t) { return all_dense(t); });
}

template <class... Tensors>
bool needs_gradient(const Tensors&... tensors) {
  const auto needs = [](const at::Tensor& t) { return t.defined() && t.requires_grad(); };
  return at::GradMode::is_enabled() && (... || needs(tensor_of(tensors)));
}
inline bool needs_gradient(at::TensorList tensors) {
  return std::any_of(tensors.begin(), tensors.end(), [](const at::Tensor& t) { return needs_gradient(t); });
}

// Counts a write that ATen does not make.
inline void count_write(const at::Tensor& tensor) {
  if (!tensor.is_inference()) tensor.unsafeGetTensorImpl()->bump_version();
}

// [rows, columns], without a copy where the strides allow.
inline at::Tensor as_rows(const at::Tensor& tensor) {
  return tensor.dim() == 2 ? tensor : tensor.reshape({-1, tensor.size(-1)});
}

// Whether the compiler has kernels for the products of an operator. ATen computes the others: those of f64
// and f16, and those of f32 for which torch.backends.mkldnn allows bf16.
inline bool has_products(c10::ScalarType dtype, at::Float32Op op) {
  if (dtype == at::kBFloat16) return true;
  const auto precision = at::globalContext().float32Precision(at::Float32Backend::MKLDNN, op);
  return dtype == at::kFloat && precision != at::Float32Precision::BF16 &&
         precision != at::Float32Precision::TF32;
}

// The operator torch_ipex::`name`. A static variable holds the result: looking it up takes a lock.
template <class Signature>
c10::TypedOperatorHandle<Signature> typed_operator(const char* name) {
  return c10::Dispatcher::singleton().findSchemaOrThrow(name, "").typed<Signature>();
}

// As autocast casts the operands of a matrix product: floating-point tensors but not f64.
inline at::Tensor autocast_operand(const at::Tensor& tensor) {
  return at::autocast::cached_cast(at::autocast::get_autocast_dtype(at::kCPU), tensor, c10::DeviceType::CPU);
}
inline OptionalTensor autocast_operand(const OptionalTensor& tensor) {
  return is_given(tensor) ? OptionalTensor(autocast_operand(*tensor)) : tensor;
}

}  // namespace ipex::torch_ops

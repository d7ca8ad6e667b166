// Kinds of tensors other than dense CPU memory. Compiled code reads memory by pointer. Tensors whose memory
// does not hold their values are materialised or refused first.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>

namespace ipex::torch_ops {

// Tensors whose values differ from their memory: zero tensors without memory, negated and conjugated views.
inline constexpr c10::DispatchKeySet kLazyValues{c10::DispatchKey::ZeroTensor, c10::DispatchKey::Negative,
                                                 c10::DispatchKey::Conjugate};
// Tensors that only the dispatcher can read: fake and wrapper tensors, tensors of torch.func's transforms,
// nested tensors.
inline constexpr c10::DispatchKeySet kWrappers{
    c10::DispatchKey::Python,        c10::DispatchKey::Fake,
    c10::DispatchKey::Functionalize, c10::DispatchKey::FuncTorchBatched,
    c10::DispatchKey::Batched,       c10::DispatchKey::FuncTorchGradWrapper,
    c10::DispatchKey::NestedTensor,  c10::DispatchKey::BatchedNestedTensor};

inline bool is_wrapper(const at::Tensor& tensor) { return tensor.key_set().has_any(kWrappers); }

// Whether forward-mode differentiation carries a derivative beside it, which a kernel would lose.
inline bool has_tangent(const at::Tensor& tensor) { return tensor._fw_grad(/*level=*/0).defined(); }
inline bool has_lazy_values(const at::Tensor& tensor) { return tensor.key_set().has_any(kLazyValues); }

// Throws a UserError that begins with `what` ("argument 0") unless the tensor is dense and on the CPU. Lazy
// values are allowed.
void require_dense(const at::Tensor& tensor, const std::string& what);

// Throws UserError if a tensor with elements has no memory because its storage was resized to 0.
void require_memory(const void* data, const at::Tensor& tensor, const std::string& what);

// Throws for tensors that may not be written, as in eager.
void require_writable(const at::Tensor& tensor);

// The tensor, or a copy whose memory holds its values.
at::Tensor materialized(const at::Tensor& tensor);

}  // namespace ipex::torch_ops

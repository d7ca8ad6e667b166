// What a tensor is beside dense memory on the CPU. Compiled code reads by pointer: a tensor whose memory is
// not what it stands for is made one whose is, or refused, before a pointer is taken.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>

namespace ipex::python {

// Kinds that stand for other values than their memory holds: zeros without memory, negated views.
inline constexpr c10::DispatchKeySet kLazyValues{c10::DispatchKey::ZeroTensor, c10::DispatchKey::Negative,
                                                 c10::DispatchKey::Conjugate};
// Kinds that only the dispatcher can read: fake and wrapper tensors, those of torch.func's transforms, nested
// ones.
inline constexpr c10::DispatchKeySet kWrappers{
    c10::DispatchKey::Python,        c10::DispatchKey::Fake,
    c10::DispatchKey::Functionalize, c10::DispatchKey::FuncTorchBatched,
    c10::DispatchKey::Batched,       c10::DispatchKey::FuncTorchGradWrapper,
    c10::DispatchKey::NestedTensor,  c10::DispatchKey::BatchedNestedTensor};

inline bool is_wrapper(const at::Tensor& tensor) { return tensor.key_set().has_any(kWrappers); }
inline bool has_lazy_values(const at::Tensor& tensor) { return tensor.key_set().has_any(kLazyValues); }

// Throws UserError, which opens with `what` ("argument 0"), unless the tensor is dense memory on the CPU, its
// values lazy or not.
void require_dense(const at::Tensor& tensor, const std::string& what);

// Throws UserError where a tensor with elements has its memory nowhere: its storage was resized to nothing.
void require_memory(const void* data, const at::Tensor& tensor, const std::string& what);

// Throws for tensors that may not be written, as eager does.
void require_writable(const at::Tensor& tensor);

// A tensor whose memory holds its values.
at::Tensor materialized(const at::Tensor& tensor);

}  // namespace ipex::python

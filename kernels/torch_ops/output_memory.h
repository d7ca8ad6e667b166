// Memory of result tensors: PyTorch tensors over the runtime's caching allocator.
#pragma once

#include <ATen/core/Tensor.h>

namespace ipex::torch_ops {

// PyTorch's allocator interface over runtime/arena, so that results can be resized and their memory returns
// to the caching allocator.
c10::Allocator* output_allocator();

// A dense tensor with these strides; under inference mode an inference tensor, as in eager.
at::Tensor make_tensor(c10::ScalarType dtype, c10::IntArrayRef sizes, c10::IntArrayRef strides);

// A tensor over the storage of `base`, which it keeps alive. `offset` counts elements from the first element
// of `base`.
at::Tensor make_alias(const at::Tensor& base, c10::ScalarType dtype, c10::IntArrayRef sizes,
                      c10::IntArrayRef strides, int64_t offset);

}  // namespace ipex::torch_ops

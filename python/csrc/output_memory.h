// Memory of tensors that leave the compiler: PyTorch tensors over the runtime's caching allocator.
#pragma once

#include <ATen/core/Tensor.h>

namespace ipex::python {

// PyTorch's allocator interface over runtime/arena, so that results can be resized and their pages come back
// to us.
c10::Allocator* output_allocator();

// A dense tensor with these strides; under inference mode an inference tensor, as eager makes.
at::Tensor make_tensor(c10::ScalarType dtype, c10::IntArrayRef sizes, c10::IntArrayRef strides);

// A tensor over the storage of `base`, which it keeps alive; `offset` in elements from base's first element.
at::Tensor make_alias(const at::Tensor& base, c10::ScalarType dtype, c10::IntArrayRef sizes,
                      c10::IntArrayRef strides, int64_t offset);

}  // namespace ipex::python

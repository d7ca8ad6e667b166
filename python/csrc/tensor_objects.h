// Conversion between tensors and Python objects. It has its own translation unit because PyTorch's header for
// it declares every ATen op and compiles slowly.
#pragma once

#include <ATen/core/Tensor.h>
#include <pybind11/pybind11.h>

namespace ipex::python {

bool is_tensor(pybind11::handle object);
// `object` must be a tensor. The reference is valid as long as the object lives.
const at::Tensor& tensor_of(pybind11::handle object);
pybind11::object object_of(at::Tensor tensor);

}  // namespace ipex::python

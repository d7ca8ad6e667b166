// Tensors as Python objects. In a unit of their own: PyTorch's header for them declares every op of ATen,
// which takes longer to read than any file here.
#pragma once

#include <ATen/core/Tensor.h>
#include <pybind11/pybind11.h>

namespace ipex::python {

bool is_tensor(pybind11::handle object);
// Of an object that is one; lives as long as the object.
const at::Tensor& tensor_of(pybind11::handle object);
pybind11::object object_of(at::Tensor tensor);

}  // namespace ipex::python

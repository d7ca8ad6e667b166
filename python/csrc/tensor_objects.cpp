#include "python/csrc/tensor_objects.h"

#include <torch/csrc/autograd/python_variable.h>

namespace ipex::python {

bool is_tensor(pybind11::handle object) { return THPVariable_Check(object.ptr()); }

const at::Tensor& tensor_of(pybind11::handle object) { return THPVariable_Unpack(object.ptr()); }

pybind11::object object_of(at::Tensor tensor) {
  return pybind11::reinterpret_steal<pybind11::object>(THPVariable_Wrap(std::move(tensor)));
}

}  // namespace ipex::python

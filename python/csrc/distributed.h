// The backend "ccl" of torch.distributed, for Python.
#pragma once

#include <pybind11/pybind11.h>

namespace ipex::python {

void bind_distributed(pybind11::module_& m);

}  // namespace ipex::python

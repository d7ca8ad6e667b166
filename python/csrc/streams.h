// Python bindings for pinned teams and asynchronous tasks: what ipex.cpu.runtime is made of.
#pragma once

#include <pybind11/pybind11.h>

namespace ipex::python {

void bind_streams(pybind11::module_& m);

}  // namespace ipex::python

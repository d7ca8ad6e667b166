// Python bindings for artifacts: compiling and writing them, and running loaded ones.
#pragma once

#include <pybind11/pybind11.h>

#include "runtime/executable.h"

namespace ipex::python {

// The steps of an executable in order, as dicts for explain and for the description of an artifact.
pybind11::list step_dicts(const Executable& executable);

void bind_ahead_of_time(pybind11::module_& m);

}  // namespace ipex::python

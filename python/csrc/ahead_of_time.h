// Artifacts as Python sees them: writing one from an imported graph, and a loaded one as a callable.
#pragma once

#include <pybind11/pybind11.h>

#include "runtime/executable.h"

namespace ipex::python {

// What explain and the description of an artifact say of an executable's steps, in their order.
pybind11::list step_dicts(const Executable& executable);

void bind_ahead_of_time(pybind11::module_& m);

}  // namespace ipex::python

// Artifacts as Python sees them: writing one from an imported graph, and a loaded one as a callable.
#pragma once

#include <pybind11/pybind11.h>

namespace ipex::python {

void bind_ahead_of_time(pybind11::module_& m);

}  // namespace ipex::python

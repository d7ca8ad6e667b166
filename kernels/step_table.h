// Reads the library steps of a saved program (runtime/program.h).
#pragma once

#include "runtime/program.h"

namespace ipex::kernels {

// Reads a step from a line; its first word selects a row of the table. ParseError for an unknown word or an
// inconsistent description; Unsupported when this machine cannot run the step.
MadeSteps read_step(FieldReader& io);

}  // namespace ipex::kernels

// The table of steps that a saved program may name: what read_program (runtime/program.h) asks.
#pragma once

#include "runtime/program.h"

namespace ipex::kernels {

// Makes the step of one line; the word that begins it is a row of the table. ParseError when it is not, or
// when the description contradicts itself; Unsupported when this machine cannot run it.
MadeSteps read_step(FieldReader& io);

}  // namespace ipex::kernels

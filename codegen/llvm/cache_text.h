// What identifies a compiled kernel: its text with names taken out, and the compiler that made it.
#pragma once

#include <string>

#include "codegen/loop/ir.h"
#include "codegen/target.h"

namespace ipex::loop {

// The text of f with its own name and every name bound in it numbered by first appearance. Two functions with
// one canonical text compute the same: the repeated layers of a model share one kernel.
std::string canonical_text(const Function& f);

// Identity of the binary that holds this compiler: its GNU build id, else the size and time of its file. Any
// change of the compiler makes old cache entries foreign.
const std::string& build_identity();

// The compiler and the machine that it generates code for.
std::string target_text(const Target& target);

}  // namespace ipex::loop

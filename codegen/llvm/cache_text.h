// What identifies a compiled kernel: its text without names, and the compiler that made it.
#pragma once

#include <string>

#include "codegen/loop/ir.h"
#include "codegen/target.h"

namespace ipex::loop {

// The text of f, in which its own name and every bound name are numbered in the order of their first
// appearance. Two functions with the same canonical text compute the same, so the repeated layers of a model
// share one kernel.
std::string canonical_text(const Function& f);

// Identifies the binary that contains an address: its GNU build id, or the size and time of its file.
std::string binary_identity(const void* address);

// Identifies the binary that contains this compiler. Any change of the compiler invalidates old cache
// entries.
const std::string& build_identity();

// Identifies the compiler and the machine that it generates code for.
std::string target_text(const Target& target);

}  // namespace ipex::loop

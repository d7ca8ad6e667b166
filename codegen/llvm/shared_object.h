// Kernels as a shared object for any ISA, linked inside this process. Artifacts contain such objects.
//
// The object has no imports for the dynamic linker. Calls from kernels (runtime/abi.h, memcpy and similar
// functions, Sleef) jump through a table that the loader fills. `ipex_import_names` holds the names, each
// terminated by a zero byte and the last by two. `ipex_imports` has one slot per name
// (runtime/loaded_code.h).
#pragma once

#include <string>
#include <vector>

#include "codegen/loop/ir.h"
#include "codegen/target.h"

namespace ipex::loop {

// Runs the loop pipeline and LLVM on each kernel. Returns ELF bytes, which are always the same for the same
// kernels and target.
std::string make_shared_object(const std::vector<Function>& kernels, const Target& target);

}  // namespace ipex::loop

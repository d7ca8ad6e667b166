// Kernels as a shared object for any ISA, linked in the process: what an artifact carries.
//
// The object imports nothing by the dynamic linker's rules. What kernels call (runtime/abi.h, memcpy and its
// kin, Sleef) goes through jumps over a table that its loader fills: `ipex_import_names` holds the names,
// each ended by a zero byte and the last by two, `ipex_imports` a slot a name (runtime/loaded_code.h).
#pragma once

#include <string>
#include <vector>

#include "codegen/loop/ir.h"
#include "codegen/target.h"

namespace ipex::loop {

// Runs the loop pipeline and LLVM on each kernel; ELF bytes, the same for the same kernels and target.
std::string make_shared_object(const std::vector<Function>& kernels, const Target& target);

}  // namespace ipex::loop

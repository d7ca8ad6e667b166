// Compiles scheduled Loop IR to callable code. This is the only interface to LLVM; no LLVM type appears here.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "codegen/loop/ir.h"
#include "codegen/target.h"
#include "runtime/function_library.h"

namespace ipex::loop {

// Each element is one kernel (a Function at the end of the pipeline). Kernels are compiled in parallel on
// oneTBB. The object cache on disk is consulted first (key: text + target + version of the compiler and of
// this library).
struct CompileStats {
  int kernels = 0, cache_hits = 0;
  double passes_ms = 0, llvm_ms = 0, link_ms = 0;
  std::map<std::string, std::string> keys;  // for each kernel, its key in the object cache
};
std::shared_ptr<FunctionLibrary> jit_compile(const std::vector<Function>& kernels, const Target& target,
                                             CompileStats* stats = nullptr);
// The same, but runs the loop pipeline (passes/passes.h) on each kernel first, inside the same parallel
// tasks.
std::shared_ptr<FunctionLibrary> schedule_and_compile(const std::vector<Function>& kernels,
                                                      const Target& target, CompileStats* stats = nullptr);
// Loads kernels that an earlier compilation left in the object cache, by name and key (CompileStats::keys).
// Null if one of them is missing.
std::shared_ptr<FunctionLibrary> load_kernels(const std::map<std::string, std::string>& keys,
                                              CompileStats* stats = nullptr);

std::string emit_llvm(const std::vector<Function>& module,
                      const Target& target);  // optimized LLVM IR as text
std::string emit_assembly(const std::vector<Function>& module, const Target& target);  // any ISA on any host
std::string emit_object(const std::vector<Function>& module, const Target& target);    // ELF bytes

std::string llvm_version();

}  // namespace ipex::loop

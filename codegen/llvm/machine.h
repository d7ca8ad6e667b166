// LLVM's side of a Target: its code generator and our pass pipeline. Private to codegen/llvm.
#pragma once

#include <llvm/IR/Module.h>
#include <llvm/Support/CodeGen.h>
#include <llvm/Target/TargetMachine.h>

#include <string>

#include "codegen/target.h"

namespace ipex::loop {

// One per thread and ISA, made on first use; building one costs more than compiling a small kernel.
llvm::TargetMachine& machine_for(const Target& target);

// Loop IR arrives scheduled and in SSA, so this only cleans up: common subexpressions, address arithmetic,
// invariants.
void optimize(llvm::Module& module, const Target& target);

// An ELF object or assembly text. The module is consumed by code generation.
std::string generate(llvm::Module& module, llvm::TargetMachine& machine, llvm::CodeGenFileType type);

std::string module_text(const llvm::Module& module);

}  // namespace ipex::loop

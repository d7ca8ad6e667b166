// LLVM's side of a Target: its code generator, and our pipeline of LLVM passes. Private to codegen/llvm.
#pragma once

#include <llvm/IR/Module.h>
#include <llvm/Support/CodeGen.h>
#include <llvm/Target/TargetMachine.h>

#include <string>

#include "codegen/target.h"

namespace ipex::loop {

// One machine per thread and ISA, created on first use, because creating one takes longer than compiling a
// small kernel.
llvm::TargetMachine& machine_for(const Target& target);

// Loop IR arrives scheduled and in SSA form, so this only cleans up: common subexpressions, address
// arithmetic, loop invariants.
void optimize(llvm::Module& module, const Target& target);

// An ELF object or assembly text. Code generation consumes the module.
std::string generate(llvm::Module& module, llvm::TargetMachine& machine, llvm::CodeGenFileType type);

std::string module_text(const llvm::Module& module);

}  // namespace ipex::loop

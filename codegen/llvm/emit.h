// Translates Loop IR to LLVM IR. Private to codegen/llvm; the public interface is jit.h.
#pragma once

#include <llvm/IR/LLVMContext.h>
#include <llvm/IR/Module.h>

#include <memory>
#include <vector>

#include "codegen/loop/ir.h"
#include "codegen/target.h"

namespace ipex::loop {

// Each function becomes an external symbol of the same name with the signature ipex_kernel_fn. Its parallel
// loops become internal functions that are called through ipex_parallel_for.
//
//   pre: the end of the loop pipeline: no vector loop, no parallel loop with a Reduction, legal operations
std::unique_ptr<llvm::Module> emit_module(llvm::LLVMContext& context, const std::vector<Function>& functions,
                                          const Target& target);

}  // namespace ipex::loop

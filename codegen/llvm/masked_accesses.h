// Rewrites masked loads and stores that LLVM's code generator handles incorrectly.
#pragma once

#include <llvm/IR/Module.h>

namespace ipex::loop {

// A masked store with one known active lane becomes a scalar store. LLVM 22 does this too late: on AVX-512, a
// truncation is already part of the masked store, and the element is written with its width before the
// truncation.
void store_single_lanes(llvm::Function& function);

// A masked load that is wider than a register becomes one load per register. LLVM 22 splits it itself, but on
// CPUs without mask registers it turns a part whose mask is known to be all zeros into an unmasked load,
// which reads beyond the buffer.
void split_masked_loads(llvm::Function& function, unsigned register_bytes);

}  // namespace ipex::loop

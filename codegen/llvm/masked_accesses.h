// Masked loads and stores that LLVM's code generator gets wrong, rewritten before it sees them.
#pragma once

#include <llvm/IR/Module.h>

namespace ipex::loop {

// A masked store of one known lane becomes a scalar store. LLVM 22 makes one of it too late: on AVX-512 a
// truncation is part of the masked store by then, and the element is written at its width from before.
void store_single_lanes(llvm::Function& function);

// A masked load wider than a register becomes one load a register. LLVM 22 splits it itself, but without mask
// registers it takes a part whose mask is known to be all zeros for an unmasked load, and reads beyond the
// buffer.
void split_masked_loads(llvm::Function& function, unsigned register_bytes);

}  // namespace ipex::loop

// What code is generated for. Data, not behaviour: everything a pass may ask of the machine.
#pragma once

#include <cstdint>
#include <string>

#include "runtime/cpu.h"
#include "runtime/dtype.h"

namespace ipex::loop {

inline constexpr int64_t kCacheLine = 64;  // bytes, on every CPU with AVX2

struct Target {
  Isa isa = Isa::kAvx2;
  int vector_bytes = 32;
  int vector_registers = 16;
  bool masked_memory = false;  // predicated loads and stores cost nothing (AVX-512)
  bool native_bf16 = false;    // conversions to bf16 and dot products of its pairs (AVX512-BF16)
  bool matrix_tiles = false;   // this CPU has AMX, which the library uses and our kernels do not
  int vector_multiplies = 2;   // a cycle, each with an add
  std::string cpu;             // LLVM -mcpu
  std::string features;        // LLVM feature string
  int64_t l1_bytes = 32 << 10, l2_bytes = 1 << 20, l3_bytes = 32 << 20;
  int threads = 1;  // hint for grains; never baked into correctness
  int lanes(Dtype dtype) const { return vector_bytes / static_cast<int>(itemsize(opmath(dtype))); }
};

Target target_for(Isa isa);
// For code that is to be the same whatever machine compiles it: nominal caches and threads.
Target portable_target(Isa isa);
Target current_target();  // of runtime/cpu.h's current_isa()

}  // namespace ipex::loop

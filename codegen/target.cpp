// The machines code is generated for, one row an ISA. LLVM gets a portable CPU level, so that an object made
// on one host runs on every CPU that has the ISA.
#include "codegen/target.h"

#include <unistd.h>

#include <fstream>

#include "runtime/error.h"
#include "runtime/parallel.h"

namespace ipex::loop {
namespace {

struct Row {
  Isa isa;
  int vector_bytes, registers;
  bool masked_memory, native_bf16;
  const char* cpu;
  const char* features;
};

// Gathers are slow on every AVX2 core, but LLVM's substitute for a masked one is a branch a lane.
constexpr Row kRows[] = {
    {Isa::kAvx2, 32, 16, false, false, "x86-64-v3", "+avx2,+fma,+f16c,+bmi2,+fast-gather"},
    {Isa::kAvx512, 64, 32, true, false, "x86-64-v4", "+avx512f,+avx512cd,+avx512bw,+avx512dq,+avx512vl"},
    {Isa::kAvx512Bf16, 64, 32, true, true, "x86-64-v4",
     "+avx512f,+avx512cd,+avx512bw,+avx512dq,+avx512vl,+avx512bf16"},
};

int64_t cache_bytes(int name, int64_t fallback) {
  const long bytes = sysconf(name);
  return bytes > 0 ? bytes : fallback;
}

// From the kernel: glibc multiplies an AMD CPU's by what it takes for the number of its instances (320 MB for
// a Zen 4 with one of 32).
int64_t l3_bytes(int64_t fallback) {
  for (int index = 0; index < 8; ++index) {
    const std::string cache = "/sys/devices/system/cpu/cpu0/cache/index" + std::to_string(index);
    int level = 0;
    int64_t size = 0;
    char unit = 0;
    std::ifstream(cache + "/level") >> level;
    std::ifstream(cache + "/size") >> size >> unit;
    if (level == 3 && size > 0 && unit == 'K') return size << 10;
  }
  return fallback;
}

}  // namespace

Target target_for(Isa isa) {
  for (const Row& row : kRows) {
    if (row.isa != isa) continue;
    Target target;
    target.isa = isa;
    target.vector_bytes = row.vector_bytes;
    target.vector_registers = row.registers;
    target.masked_memory = row.masked_memory;
    target.native_bf16 = row.native_bf16;
    target.matrix_tiles = row.native_bf16 && __builtin_cpu_supports("amx-bf16");
    // Zen 4 computes on vectors of 512 bits in two halves.
    if (isa != Isa::kAvx2 && __builtin_cpu_is("amdfam19h")) target.vector_multiplies = 1;
    target.cpu = row.cpu;
    target.features = row.features;
    target.l1_bytes = cache_bytes(_SC_LEVEL1_DCACHE_SIZE, target.l1_bytes);
    target.l2_bytes = cache_bytes(_SC_LEVEL2_CACHE_SIZE, target.l2_bytes);
    static const int64_t kL3Bytes = l3_bytes(target.l3_bytes);
    target.l3_bytes = kL3Bytes;
    target.threads = num_threads();
    return target;
  }
  throw InternalError("codegen/target.cpp has no row for ISA " + std::to_string(static_cast<int>(isa)));
}

Target portable_target(Isa isa) {
  Target target = target_for(isa);
  const Target nominal;
  target.l1_bytes = nominal.l1_bytes;
  target.l2_bytes = nominal.l2_bytes;
  target.l3_bytes = nominal.l3_bytes;
  target.vector_multiplies = nominal.vector_multiplies;
  target.threads = 16;
  return target;
}

Target current_target() { return target_for(current_isa()); }

}  // namespace ipex::loop

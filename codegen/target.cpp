// The machines that code is generated for: one row for each ISA, completed by what this CPU reports of
// itself.
#include "codegen/target.h"

#include <unistd.h>

#include <fstream>

#include "runtime/error.h"
#include "runtime/parallel.h"

namespace ipex::loop {
namespace {

// LLVM gets a portable CPU level, so that an object made on one host runs on every CPU that has the ISA.
//
// Gathers are slow on every AVX2 core, but LLVM replaces a masked gather by a branch for each lane, which is
// slower.
//
// tile_shapes: Zen 4, bf16, 1024 rows, 768 x 3072: six by four 452, twelve by two 421 GFLOP/s. Zen 3, f32,
// 768 x 3072: six by two and four by three reach 176 and 180 with 128 rows, which six does not divide, and
// 185 and 178 with 197 rows.
//
// min_blocked_rows, max_library_weights: GFLOP/s of block_products and of the library. Zen 3 (AVX2), 768 x
// 3072: 16 rows 106 and 116, 32 rows 145 and 143, 96 rows 179 and 161. Zen 4 (AVX-512): 64 rows 165 and 185,
// 96 rows 212 and 214, 128 rows 211 and 199, 197 rows 215 and 206, but 1 or 2 % less with weights that L2
// holds (256 rows, 512 x 256: 209 and 213).
constexpr Target avx512() {
  return {.isa = Isa::kAvx512,
          .cpu = "x86-64-v4",
          .features = "+avx512f,+avx512cd,+avx512bw,+avx512dq,+avx512vl",
          .sleef = "avx512f",
          .vector_bytes = 64,
          .vector_registers = 32,
          .masked_memory = true,
          .two_register_permute = true,
          .scale_by_power = true,
          .table_lanes = 16,
          .math_accumulators = 2,
          .tile_shapes = {{{6, 4, 1}, {8, 3, 1.02}, {12, 2, 1.07}}},
          .min_blocked_rows = 128,
          .max_library_weights = 128 << 10,
          .gradient_tile_rows = 8,
          .library_gradient = 0.75,
          .library_strided_gradient = 0.6};
}

constexpr Target avx512_bf16() {
  Target target = avx512();
  target.isa = Isa::kAvx512Bf16;
  target.features = "+avx512f,+avx512cd,+avx512bw,+avx512dq,+avx512vl,+avx512bf16";
  target.native_bf16 = true;
  return target;
}

constexpr Target kTargets[] = {
    {.isa = Isa::kAvx2,
     .cpu = "x86-64-v3",
     .features = "+avx2,+fma,+f16c,+bmi2,+fast-gather",
     .sleef = "avx2",
     .tile_shapes = {{{6, 2, 1}, {4, 3, 1.02}}},
     .max_unpacked_rows = 512},
    avx512(),
    avx512_bf16(),
};

int64_t cache_bytes(int name, int64_t fallback) {
  const long bytes = sysconf(name);
  return bytes > 0 ? bytes : fallback;
}

// Reads the size from the kernel. glibc computes the size of an AMD CPU's L3 with a wrong number of instances
// (320 MB for a Zen 4 that has one of 32 MB).
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
  for (const Target& row : kTargets) {
    if (row.isa != isa) continue;
    Target target = row;
    target.matrix_tiles = row.native_bf16 && __builtin_cpu_supports("amx-bf16");
    // Zen 4 processes vectors of 512 bits in two halves.
    if (row.vector_bytes > 32 && __builtin_cpu_is("amdfam19h")) target.vector_multiplies = 1;
    target.l1_bytes = cache_bytes(_SC_LEVEL1_DCACHE_SIZE, target.l1_bytes);
    target.l2_bytes = cache_bytes(_SC_LEVEL2_CACHE_SIZE, target.l2_bytes);
    static const int64_t kL3Bytes = l3_bytes(target.l3_bytes);
    target.l3_bytes = kL3Bytes;
    target.threads = num_threads();
    return target;
  }
  throw InternalError("codegen/target.cpp has no row for ISA number " +
                      std::to_string(static_cast<int>(isa)));
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

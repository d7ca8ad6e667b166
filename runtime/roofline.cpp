// Loops that only move memory or multiply registers, in one version per instruction set.
#include "runtime/roofline.h"

#include <immintrin.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <functional>
#include <memory>
#include <vector>

#include "runtime/cpu.h"
#include "runtime/error.h"
#include "runtime/parallel.h"

namespace ipex {
namespace {

constexpr int kRuns = 5;
constexpr int64_t kSteps = 4'000'000;  // iterations of the arithmetic loops: some milliseconds

// Twelve independent chains hide the latency of a multiply-add on every CPU with AVX2. Returns the number of
// operations.
constexpr int kChains = 12;

__attribute__((target("avx2,fma"))) int64_t multiply_add_avx2() {
  __m256 sum[kChains], factor = _mm256_set1_ps(0.5F);
  for (auto& s : sum) s = _mm256_setzero_ps();
  for (int64_t i = 0; i < kSteps; ++i)
#pragma GCC unroll 12  // = kChains: in registers
    for (auto& s : sum) {
      s = _mm256_fmadd_ps(s, factor, factor);
      asm volatile("" : "+x"(s));
    }
  return kSteps * kChains * 8 * 2;
}

__attribute__((target("avx512f"))) int64_t multiply_add_avx512() {
  __m512 sum[kChains], factor = _mm512_set1_ps(0.5F);
  for (auto& s : sum) s = _mm512_setzero_ps();
  for (int64_t i = 0; i < kSteps; ++i)
#pragma GCC unroll 12  // = kChains: in registers
    for (auto& s : sum) {
      s = _mm512_fmadd_ps(s, factor, factor);
      asm volatile("" : "+v"(s));
    }
  return kSteps * kChains * 16 * 2;
}

__attribute__((target("avx512f,avx512bf16"))) int64_t dot_bf16() {
  __m512 sum[kChains];
  const auto pairs = (__m512bh)_mm512_set1_epi16(0x3f00);  // 0.5
  for (auto& s : sum) s = _mm512_setzero_ps();
  for (int64_t i = 0; i < kSteps; ++i)
#pragma GCC unroll 12  // = kChains: in registers
    for (auto& s : sum) {
      s = _mm512_dpbf16_ps(s, pairs, pairs);
      asm volatile("" : "+v"(s));
    }
  return kSteps * kChains * 32 * 2;
}

// Four sums of 16 x 16 floats; each step multiplies 16 x 32 by 32 x 16 numbers.
__attribute__((target("amx-tile,amx-bf16"))) int64_t dot_tiles() {
  struct alignas(64) {
    uint8_t palette = 1, start_row = 0, reserved[14] = {};
    uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64};
    uint8_t rows[16] = {16, 16, 16, 16, 16, 16};
  } shape;
  asm volatile("" ::"r"(&shape) : "memory");  // the intrinsic does not declare that it reads all of `shape`
  _tile_loadconfig(&shape);
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
  _tile_zero(4);
  _tile_zero(5);
  const int64_t steps = kSteps / 16;
  for (int64_t i = 0; i < steps; ++i) {
    _tile_dpbf16ps(0, 4, 5);
    _tile_dpbf16ps(1, 4, 5);
    _tile_dpbf16ps(2, 4, 5);
    _tile_dpbf16ps(3, 4, 5);
  }
  _tile_release();
  return steps * 4 * 16 * 16 * 32 * 2;
}

// Whether the tile instructions can be used; requests the permission that Linux requires.
bool may_use_tiles() {
  constexpr int kRequestPermission = 0x1023, kTileData = 18;  // arch_prctl(ARCH_REQ_XCOMP_PERM, XTILEDATA)
  return __builtin_cpu_supports("amx-bf16") && syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
}

__attribute__((target("avx2,fma"))) void copy(float* a, const float* b, const float*, int64_t n) {
  for (int64_t i = 0; i < n; i += 8) _mm256_store_ps(a + i, _mm256_load_ps(b + i));
}

__attribute__((target("avx2,fma"))) void triad(float* a, const float* b, const float* c, int64_t n) {
  const __m256 scale = _mm256_set1_ps(3);
  for (int64_t i = 0; i < n; i += 8)
    _mm256_store_ps(a + i, _mm256_fmadd_ps(scale, _mm256_load_ps(c + i), _mm256_load_ps(b + i)));
}

__attribute__((target("avx2,fma"))) void read(float* a, const float*, const float*, int64_t n) {
  __m256 sum[8] = {};
  for (int64_t i = 0; i < n; i += 64)
#pragma GCC unroll 8
    for (int64_t j = 0; j < 8; ++j) sum[j] = _mm256_add_ps(sum[j], _mm256_load_ps(a + i + 8 * j));
  for (auto& s : sum) asm volatile("" : "+x"(s));
}

double seconds_of(const std::function<void()>& work) {
  double best = 1e30;
  for (int run = 0; run < kRuns; ++run) {
    const auto start = std::chrono::steady_clock::now();
    work();
    best = std::min(best, std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
  }
  return best;
}

// 1e9 operations per second over all threads.
double arithmetic(int64_t (*loop)(), int threads) {
  std::vector<int64_t> done(static_cast<size_t>(threads));
  struct Closure {
    int64_t (*loop)();
    int64_t* done;
  } closure = {loop, done.data()};
  const double seconds = seconds_of([&] {
    auto body = [](void* c, int64_t begin, int64_t end, int64_t) {
      const auto* closure = static_cast<Closure*>(c);
      for (int64_t i = begin; i < end; ++i) closure->done[i] = closure->loop();
    };
    parallel_for(0, threads, 1, body, &closure);
  });
  double operations = 0;
  for (int64_t d : done) operations += static_cast<double>(d);
  return operations / seconds / 1e9;
}

using MemoryLoop = void (*)(float*, const float*, const float*, int64_t);

struct Free {
  void operator()(float* memory) const { std::free(memory); }
};
using Memory =
    std::unique_ptr<float, Free>;  // not from the caching allocator, which would keep this much memory

Memory allocate(int64_t bytes) {
  auto* memory = static_cast<float*>(std::aligned_alloc(4096, static_cast<size_t>(bytes)));
  if (!memory) throw OutOfMemory(static_cast<size_t>(bytes), 0);
  return Memory(memory);
}

struct Arrays {
  float *a, *b, *c;
  int64_t blocks;  // number of blocks of kBlock floats
};
constexpr int64_t kBlock = 4096;

double seconds_over(const Arrays& arrays, MemoryLoop loop) {
  struct Closure {
    const Arrays& arrays;
    MemoryLoop loop;
  } closure = {arrays, loop};
  return seconds_of([&] {
    auto body = [](void* c, int64_t begin, int64_t end, int64_t) {
      const auto* closure = static_cast<Closure*>(c);
      const auto& [a, b, third, blocks] = closure->arrays;
      const int64_t at = begin * kBlock;
      closure->loop(a + at, b + at, third + at, (end - begin) * kBlock);
    };
    parallel_for(0, arrays.blocks, 1, body, &closure);
  });
}

}  // namespace

MachineLimits measure_limits(int64_t bytes) {
  current_isa();  // throws if there is no AVX2
  MachineLimits limits = {};
  limits.threads = num_threads();
  limits.f32_gflops =
      arithmetic(cpu_supports(Isa::kAvx512) ? multiply_add_avx512 : multiply_add_avx2, limits.threads);
  if (cpu_supports(Isa::kAvx512Bf16)) limits.bf16_gflops = arithmetic(dot_bf16, limits.threads);
  if (may_use_tiles())
    limits.bf16_gflops = std::max(limits.bf16_gflops, arithmetic(dot_tiles, limits.threads));

  const int64_t blocks = std::max<int64_t>(bytes / (kBlock * 4), 1), size = blocks * kBlock * 4;
  const Memory a = allocate(size), b = allocate(size), c = allocate(size);
  const Arrays arrays = {a.get(), b.get(), c.get(), blocks};
  for (float* array : {arrays.b, arrays.c})  // first touch by the threads that will read it
    seconds_over({array, array, array, blocks},
                 [](float* x, const float*, const float*, int64_t n) { std::fill(x, x + n, 1.0F); });
  const auto gigabytes = static_cast<double>(size) / 1e9;
  limits.copy_gbs = 2 * gigabytes / seconds_over(arrays, copy);
  limits.triad_gbs = 3 * gigabytes / seconds_over(arrays, triad);
  limits.read_gbs = gigabytes / seconds_over(arrays, read);
  return limits;
}

}  // namespace ipex

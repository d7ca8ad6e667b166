// Measures the machine's memory bandwidth and peak arithmetic, with which measured kernels are compared.
#pragma once

#include <cstdint>

namespace ipex {

struct MachineLimits {
  int threads;         // number of threads
  double copy_gbs;     // STREAM copy with ordinary stores: bytes read plus bytes written, in 1e9 per second
  double triad_gbs;    // STREAM triad, a = b + s * c, counted in the same way
  double read_gbs;     // a sum over memory
  double f32_gflops;   // fused multiply-adds between registers, two operations each
  double bf16_gflops;  // bf16 dot products in f32, by AMX tiles or vdpbf16ps; 0 if the CPU has neither
};

// The best of several runs on num_threads() threads, with arrays of `bytes` each. Takes about a second and
// 3 * `bytes` of memory; throws OutOfMemory. Bandwidths are counted as in STREAM (McCalpin, 1995): a write
// counts once, although ordinary stores also read the cache line.
MachineLimits measure_limits(int64_t bytes = int64_t{192} << 20);

}  // namespace ipex

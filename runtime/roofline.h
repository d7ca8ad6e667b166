// What this machine gives at most: the two lines of the roofline that measured kernels are compared with.
#pragma once

#include <cstdint>

namespace ipex {

struct MachineLimits {
  int threads;         // of the team that reached the figures below
  double copy_gbs;     // STREAM copy with ordinary stores: bytes read plus bytes written, 1e9 a second
  double triad_gbs;    // STREAM triad, a = b + s * c, counted in the same way
  double read_gbs;     // a sum over memory
  double f32_gflops;   // fused multiply-adds between registers, two operations each
  double bf16_gflops;  // bf16 products summed in f32, by tiles or by vdpbf16ps; 0: the CPU has neither
};

// Best of several runs on num_threads() threads, with arrays of `bytes` each. Takes about a second and three
// times `bytes` of memory; throws OutOfMemory. The bandwidths are STREAM's (McCalpin, 1995), so that a write
// counts once although ordinary stores also read what they replace.
MachineLimits measure_limits(int64_t bytes = int64_t{192} << 20);

}  // namespace ipex

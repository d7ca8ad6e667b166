// The measured limits are plausible for current machines, and higher in cache than in memory.
#include <gtest/gtest.h>

#include "runtime/cpu.h"
#include "runtime/parallel.h"
#include "runtime/roofline.h"

namespace ipex {
namespace {

TEST(Roofline, LimitsAreThoseOfAMachine) {
  const MachineLimits limits = measure_limits(int64_t{32} << 20);
  EXPECT_EQ(limits.threads, num_threads());
  for (double gbs : {limits.copy_gbs, limits.triad_gbs, limits.read_gbs}) {
    EXPECT_GT(gbs, 0);
    EXPECT_LT(gbs, 1e5);
  }
  EXPECT_GT(limits.f32_gflops, 0);
  EXPECT_LT(limits.f32_gflops, 1000 * limits.threads);
  EXPECT_EQ(limits.bf16_gflops > 0, cpu_supports(Isa::kAvx512Bf16));
}

}  // namespace
}  // namespace ipex

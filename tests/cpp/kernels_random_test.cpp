// The vectorised generator, compared word for word with the standard library's.
#include <gtest/gtest.h>

#include <memory>
#include <random>

#include "kernels/mersenne_twister.h"
#include "runtime/cpu.h"

namespace ipex::kernels {
namespace {

// The state after seeding, where all words are used, as in ATen's generator.
MersenneTwister seeded(uint32_t seed) {
  MersenneTwister twister{.state = {}, .unused = 0};
  twister.state[0] = seed;
  for (uint32_t j = 1; j < twister.state.size(); ++j)
    twister.state[j] = 1812433253u * (twister.state[j - 1] ^ (twister.state[j - 1] >> 30)) + j;
  return twister;
}

TEST(Random, DrawsFromAnyPlaceInTheStream) {
  if (!cpu_supports(Isa::kAvx2)) GTEST_SKIP() << "needs AVX2";
  for (const uint32_t seed : {0u, 1u, 5489u, 4294967295u}) {
    MersenneTwister twister = seeded(seed);
    std::mt19937 reference(seed);
    int drawn = 0;
    // Sizes around a vector, a block of 312 numbers, and several blocks.
    for (const size_t count : {1, 2, 3, 4, 5, 0, 31, 311, 312, 313, 1, 1000, 623, 624, 625, 4097}) {
      const double p = (drawn++ % 7) / 6.0;
      const auto mask = std::make_unique<bool[]>(count + 1);
      mask[count] = true;  // must not be overwritten
      draw_bernoulli(twister, p, {mask.get(), count});
      for (size_t i = 0; i < count; ++i) {
        const uint64_t high = reference();
        const uint64_t number = ((high << 32) | reference()) & ((uint64_t{1} << 53) - 1);
        ASSERT_EQ(mask[i], static_cast<double>(number) / 9007199254740992.0 < p)
            << "seed " << seed << ", " << i << " of " << count;
      }
      EXPECT_TRUE(mask[count]);
    }
  }
}

// A generator that has drawn an odd number of words, so that numbers cross block boundaries.
TEST(Random, NumbersAcrossBlocks) {
  if (!cpu_supports(Isa::kAvx2)) GTEST_SKIP() << "needs AVX2";
  MersenneTwister twister = seeded(7);
  std::mt19937 reference(7);
  bool first[1];
  draw_bernoulli(twister, 0.5, first);
  reference.discard(3);
  --twister.unused;
  bool mask[2000];
  draw_bernoulli(twister, 0.25, mask);
  for (const bool drawn : mask) {
    const uint64_t high = reference();
    const uint64_t number = ((high << 32) | reference()) & ((uint64_t{1} << 53) - 1);
    ASSERT_EQ(drawn, static_cast<double>(number) < 0.25 * 9007199254740992.0);
  }
}

}  // namespace
}  // namespace ipex::kernels

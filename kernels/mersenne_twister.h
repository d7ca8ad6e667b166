// Eager's random bits, block by block: the generator of at::CPUGeneratorImpl, with AVX2.
//
// M. Matsumoto, T. Nishimura: Mersenne Twister: a 623-dimensionally equidistributed uniform pseudo-random
// number generator, ACM TOMACS 8 (1998). Every number depends on the one 397 places before it, so that eight
// of them can be made at a time; ATen makes one, behind a call.
#pragma once

#include <array>
#include <cstdint>
#include <span>

namespace ipex::kernels {

struct MersenneTwister {
  static constexpr int kWords = 624;
  std::array<uint32_t, kWords> state;
  int unused;  // words at the end of `state` that nobody has drawn yet
};

// out[i] = whether a uniform number of 53 bits in [0, 1) is less than p. Draws two words a number, as ATen's
// bernoulli_distribution<double> does, and leaves the state that it leaves. Needs AVX2.
void draw_bernoulli(MersenneTwister& twister, double p, std::span<bool> out);

}  // namespace ipex::kernels

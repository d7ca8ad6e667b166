// The random generator of eager PyTorch (at::CPUGeneratorImpl), vectorized with AVX2.
//
// M. Matsumoto, T. Nishimura: Mersenne Twister: a 623-dimensionally equidistributed uniform pseudo-random
// number generator, ACM TOMACS 8 (1998). Every number depends on the one 397 places before it, so eight of
// them can be computed at once. ATen computes one per call.
#pragma once

#include <array>
#include <cstdint>
#include <span>

namespace ipex::kernels {

struct MersenneTwister {
  static constexpr int kWords = 624;
  std::array<uint32_t, kWords> state;
  int unused;  // number of words at the end of `state` that are not drawn yet
};

// out[i]: whether a uniform 53-bit number in [0, 1) is less than p. Like ATen's
// bernoulli_distribution<double>, it draws two words per number, and it leaves the same state. Needs AVX2.
void draw_bernoulli(MersenneTwister& twister, double p, std::span<bool> out);

}  // namespace ipex::kernels

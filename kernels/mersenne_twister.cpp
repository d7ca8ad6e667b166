// See mersenne_twister.h. A block of 624 words is advanced, tempered and compared eight words at a time.
#include "kernels/mersenne_twister.h"

#include <immintrin.h>

#include <algorithm>
#include <cmath>
#include <cstring>

namespace ipex::kernels {
namespace {

constexpr int kWords = MersenneTwister::kWords;
constexpr int kMiddle = 397;
constexpr int kLanes = 8;

#define AVX2 [[gnu::target("avx2")]]

AVX2 inline __m256i load(const uint32_t* p) {
  return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
}
AVX2 inline void store(uint32_t* p, __m256i v) { _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), v); }

// The next state of one word, or of eight, from the word, the next one, and the one 397 places later.
uint32_t twisted(uint32_t word, uint32_t next, uint32_t middle) {
  const uint32_t mixed = (word & 0x80000000u) | (next & 0x7fffffffu);
  return middle ^ (mixed >> 1) ^ ((next & 1) != 0 ? 0x9908b0dfu : 0);
}

AVX2 inline __m256i twisted(__m256i word, __m256i next, __m256i middle) {
  const __m256i top = _mm256_set1_epi32(static_cast<int>(0x80000000u));
  const __m256i mixed = _mm256_or_si256(_mm256_and_si256(top, word), _mm256_andnot_si256(top, next));
  const __m256i odd = _mm256_srai_epi32(_mm256_slli_epi32(next, 31), 31);
  const __m256i matrix = _mm256_and_si256(odd, _mm256_set1_epi32(static_cast<int>(0x9908b0dfu)));
  return _mm256_xor_si256(_mm256_xor_si256(middle, _mm256_srli_epi32(mixed, 1)), matrix);
}

AVX2 void next_block(uint32_t* s) {
  // Word j becomes a function of words j, j + 1 and j + 397 (modulo 624). From j = 227 on, the latter is new.
  constexpr int kWrapped = kWords - kMiddle;
  int j = 0;
  for (; j + kLanes <= kWrapped; j += kLanes)
    store(s + j, twisted(load(s + j), load(s + j + 1), load(s + j + kMiddle)));
  for (; j < kWrapped; ++j) s[j] = twisted(s[j], s[j + 1], s[j + kMiddle]);
  for (; j + kLanes < kWords; j += kLanes)
    store(s + j, twisted(load(s + j), load(s + j + 1), load(s + j - kWrapped)));
  for (; j < kWords; ++j) s[j] = twisted(s[j], s[(j + 1) % kWords], s[j - kWrapped]);
}

// Writes whole vectors, up to seven words more than `count`.
AVX2 void temper(const uint32_t* words, int count, uint32_t* out) {
  for (int i = 0; i < count; i += kLanes) {
    __m256i y = load(words + i);
    y = _mm256_xor_si256(y, _mm256_srli_epi32(y, 11));
    y = _mm256_xor_si256(
        y, _mm256_and_si256(_mm256_slli_epi32(y, 7), _mm256_set1_epi32(static_cast<int>(0x9d2c5680u))));
    y = _mm256_xor_si256(
        y, _mm256_and_si256(_mm256_slli_epi32(y, 15), _mm256_set1_epi32(static_cast<int>(0xefc60000u))));
    y = _mm256_xor_si256(y, _mm256_srli_epi32(y, 18));
    store(out + i, y);
  }
}

constexpr int kPairs = kLanes / 2;

// Four bytes that say whether each number is below the bound. A number is the low 53 bits of two words, the
// first of which is the upper half.
AVX2 inline uint32_t four_below(const uint32_t* pairs, __m256i bounds) {
  const __m256i low53 = _mm256_set1_epi64x((int64_t{1} << 53) - 1);
  const __m256i number = _mm256_and_si256(_mm256_shuffle_epi32(load(pairs), 0b10110001), low53);
  const unsigned below = _mm256_movemask_pd(_mm256_castsi256_pd(_mm256_cmpgt_epi64(bounds, number)));
  return (below * 0x00204081u) & 0x01010101u;  // bit k becomes byte k
}

// Sets out[i] for `count` numbers. Reads whole vectors.
AVX2 void compare(const uint32_t* pairs, int64_t bound, int count, bool* out) {
  const __m256i bounds = _mm256_set1_epi64x(bound);
  int i = 0;
  for (; i + kPairs <= count; i += kPairs) {
    const uint32_t bytes = four_below(pairs + 2 * i, bounds);
    std::memcpy(out + i, &bytes, kPairs);
  }
  if (i == count) return;
  const uint32_t bytes = four_below(pairs + 2 * i, bounds);
  std::memcpy(out + i, &bytes, count - i);
}

}  // namespace

AVX2 void draw_bernoulli(MersenneTwister& twister, double p, std::span<bool> out) {
  // For an integer x, x / 2^53 < p is equivalent to x < bound.
  const auto bound = static_cast<int64_t>(std::ceil(std::ldexp(p, 53)));
  std::array<uint32_t, 1 + kWords + kLanes> words;
  std::array<uint32_t, kWords + kLanes> padded{};
  int carried = 0;  // 1 if the first word of a number is drawn and the second is in the next block
  for (size_t done = 0; done < out.size();) {
    if (twister.unused == 0) {
      next_block(twister.state.data());
      twister.unused = kWords;
    }
    const auto wanted = static_cast<int64_t>(2 * (out.size() - done)) - carried;
    const int taken = static_cast<int>(std::min<int64_t>(twister.unused, wanted));
    std::copy_n(twister.state.end() - twister.unused, taken, padded.begin());
    temper(padded.data(), taken, words.data() + carried);
    twister.unused -= taken;
    const int pairs = (carried + taken) / 2;
    compare(words.data(), bound, pairs, out.data() + done);
    done += pairs;
    if (carried = (carried + taken) % 2; carried != 0) words[0] = words[2 * pairs];
  }
}

}  // namespace ipex::kernels

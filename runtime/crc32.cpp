// CRC-32 by carry-less multiplication, after V. Gopal et al., "Fast CRC Computation for Generic Polynomials
// Using PCLMULQDQ Instruction" (Intel, 2009). The remainder uses a table. Every CPU with AVX2 has the
// instruction; others use only the table.
#include "runtime/crc32.h"

#include <immintrin.h>

#include <array>

namespace ipex {
namespace {

constexpr std::array<uint32_t, 256> make_table() {
  std::array<uint32_t, 256> table{};
  for (uint32_t byte = 0; byte < 256; ++byte) {
    uint32_t rest = byte;
    for (int bit = 0; bit < 8; ++bit) rest = rest >> 1 ^ (rest & 1 ? 0xedb88320u : 0u);
    table[byte] = rest;
  }
  return table;
}
constexpr auto kTable = make_table();

uint32_t by_table(uint32_t state, const std::byte* data, size_t size) {
  for (size_t i = 0; i < size; ++i)
    state = state >> 8 ^ kTable[(state ^ static_cast<uint32_t>(data[i])) & 255];
  return state;
}

// x^(n-32) and x^(n+32) modulo the polynomial, reflected: they fold 128 bits over n bits of input.
constexpr long long kBy1024[2] = {0x014a7fe880, 0x01e88ef372};
constexpr long long kBy512[2] = {0x01c6e41596, 0x0154442bd4};
constexpr long long kBy128[2] = {0x00ccaa009e, 0x01751997d0};

constexpr size_t kBlock = 64, kWideBlock = 128;  // bytes folded at once: four registers
constexpr size_t kWideFrom = 512;                // below it, wide registers are not faster

[[gnu::target("pclmul,sse4.1")]] __m128i load(const std::byte* data) {
  return _mm_loadu_si128(reinterpret_cast<const __m128i*>(data));
}

[[gnu::target("pclmul,sse4.1")]] __m128i fold(__m128i x, __m128i constants, __m128i next) {
  const __m128i low = _mm_clmulepi64_si128(x, constants, 0x00);
  const __m128i high = _mm_clmulepi64_si128(x, constants, 0x11);
  return _mm_xor_si128(_mm_xor_si128(low, high), next);
}

// `sum` is the folded input before `data`; `size` is a multiple of 16.
[[gnu::target("pclmul,sse4.1")]] uint32_t finish(__m128i sum, const std::byte* data, size_t size) {
  const __m128i by_128 = _mm_set_epi64x(kBy128[0], kBy128[1]);
  for (; size >= 16; data += 16, size -= 16) sum = fold(sum, by_128, load(data));

  // Reduce 128 bits to 64 and to 32, then apply Barrett's reduction.
  const __m128i low_halves = _mm_setr_epi32(~0, 0, ~0, 0);
  sum = _mm_xor_si128(_mm_srli_si128(sum, 8), _mm_clmulepi64_si128(sum, by_128, 0x10));
  const __m128i to_32 = _mm_set_epi64x(0, 0x0163cd6124);
  sum = _mm_xor_si128(_mm_srli_si128(sum, 4),
                      _mm_clmulepi64_si128(_mm_and_si128(sum, low_halves), to_32, 0x00));
  const __m128i polynomial = _mm_set_epi64x(0x01f7011641, 0x01db710641);
  __m128i quotient = _mm_clmulepi64_si128(_mm_and_si128(sum, low_halves), polynomial, 0x10);
  quotient = _mm_clmulepi64_si128(_mm_and_si128(quotient, low_halves), polynomial, 0x00);
  return static_cast<uint32_t>(_mm_extract_epi32(_mm_xor_si128(sum, quotient), 1));
}

// `size` is a multiple of 16, at least kBlock.
[[gnu::target("pclmul,sse4.1")]] uint32_t by_folding(uint32_t state, const std::byte* data, size_t size) {
  const __m128i by_512 = _mm_set_epi64x(kBy512[0], kBy512[1]);
  const __m128i by_128 = _mm_set_epi64x(kBy128[0], kBy128[1]);
  __m128i a = _mm_xor_si128(load(data), _mm_cvtsi32_si128(static_cast<int>(state)));
  __m128i b = load(data + 16), c = load(data + 32), d = load(data + 48);
  for (data += kBlock, size -= kBlock; size >= kBlock; data += kBlock, size -= kBlock) {
    a = fold(a, by_512, load(data));
    b = fold(b, by_512, load(data + 16));
    c = fold(c, by_512, load(data + 32));
    d = fold(d, by_512, load(data + 48));
  }
  return finish(fold(fold(fold(a, by_128, b), by_128, c), by_128, d), data, size);
}

// The same with 256-bit registers; `size` is at least kWideBlock.
[[gnu::target("vpclmulqdq,pclmul,avx2")]] uint32_t by_wide_folding(uint32_t state, const std::byte* data,
                                                                   size_t size) {
  constexpr int kRegisters = 4;
  const __m256i by_1024 = _mm256_set_epi64x(kBy1024[0], kBy1024[1], kBy1024[0], kBy1024[1]);
  const __m128i by_128 = _mm_set_epi64x(kBy128[0], kBy128[1]);
  __m256i sums[kRegisters];
  for (int i = 0; i < kRegisters; ++i)
    sums[i] = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(data) + i);
  sums[0] = _mm256_xor_si256(sums[0], _mm256_zextsi128_si256(_mm_cvtsi32_si128(static_cast<int>(state))));
  for (data += kWideBlock, size -= kWideBlock; size >= kWideBlock; data += kWideBlock, size -= kWideBlock)
    for (int i = 0; i < kRegisters; ++i) {
      const __m256i low = _mm256_clmulepi64_epi128(sums[i], by_1024, 0x00);
      const __m256i high = _mm256_clmulepi64_epi128(sums[i], by_1024, 0x11);
      const __m256i next = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(data) + i);
      sums[i] = _mm256_xor_si256(_mm256_xor_si256(low, high), next);
    }
  __m128i sum = _mm256_castsi256_si128(sums[0]);
  for (int i = 0; i < kRegisters; ++i) {
    if (i) sum = fold(sum, by_128, _mm256_castsi256_si128(sums[i]));
    sum = fold(sum, by_128, _mm256_extracti128_si256(sums[i], 1));
  }
  return finish(sum, data, size);
}

}  // namespace

uint32_t crc32(std::span<const std::byte> bytes) {
  uint32_t state = ~0u;
  size_t folded = 0;
  if (bytes.size() >= kBlock && __builtin_cpu_supports("pclmul") && __builtin_cpu_supports("sse4.1")) {
    folded = bytes.size() / 16 * 16;
    const bool wide =
        folded >= kWideFrom && __builtin_cpu_supports("vpclmulqdq") && __builtin_cpu_supports("avx2");
    state = (wide ? by_wide_folding : by_folding)(state, bytes.data(), folded);
  }
  return ~by_table(state, bytes.data() + folded, bytes.size() - folded);
}

}  // namespace ipex

// Exact conversions between f32 and the two half types, rounding to nearest even. They define the meaning of
// `cast.bf16` and `cast.f16`: the interpreter and the constant folder use them, and generated code must
// agree.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

namespace ipex::loop {

inline float bf16_to_f32(uint16_t bits) { return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16); }

inline uint16_t f32_to_bf16(float x) {
  if (std::isnan(x)) return 0x7fc0;
  auto bits = std::bit_cast<uint32_t>(x);
  return static_cast<uint16_t>((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}

inline float f16_to_f32(uint16_t bits) {
  int exponent = (bits >> 10) & 0x1f, mantissa = bits & 0x3ff;
  float sign = bits & 0x8000 ? -1.0f : 1.0f;
  if (exponent == 0x1f) return mantissa ? NAN : sign * INFINITY;
  if (exponent == 0) return sign * std::ldexp(static_cast<float>(mantissa), -24);
  return sign * std::ldexp(static_cast<float>(mantissa | 0x400), exponent - 25);
}

inline uint16_t f32_to_f16(float x) {
  if (std::isnan(x)) return 0x7e00;
  uint16_t sign = std::signbit(x) ? 0x8000 : 0;
  float magnitude = std::fabs(x);
  if (magnitude >= 65520.0f)
    return sign | 0x7c00;      // halfway between the largest finite value and the next power of two
  if (magnitude < 0x1p-14f) {  // subnormal: a multiple of 2^-24
    return sign | static_cast<uint16_t>(std::nearbyint(std::ldexp(magnitude, 24)));
  }
  auto bits = std::bit_cast<uint32_t>(magnitude) - (112u << 23);  // rebias the exponent from 127 to 15
  return sign | static_cast<uint16_t>((bits + 0xfff + ((bits >> 13) & 1)) >> 13);
}

}  // namespace ipex::loop

// Maps elements of all types to unsigned integers, called keys, that compare like the values, so that one
// sorting code serves all types.
//
// The order is total and the same as ATen's: NaN is greatest and equal to itself, -0 equals +0.
#pragma once

#include <cstdint>
#include <cstring>
#include <limits>

#include "runtime/dtype.h"
#include "runtime/error.h"

namespace ipex::kernels {

template <class UInt>
struct UnsignedKey {
  using Bits = UInt;
  static constexpr bool kHasNan = false;
  static UInt key(UInt bits) { return bits; }
};

template <class UInt>
struct SignedKey {
  using Bits = UInt;
  static constexpr bool kHasNan = false;
  static UInt key(UInt bits) { return static_cast<UInt>(bits ^ ~(std::numeric_limits<UInt>::max() >> 1)); }
};

// Keys of floats; kInfinity is the largest magnitude that is not NaN. It has no branches, because random
// signs would be mispredicted.
template <class UInt, UInt kInfinity>
struct FloatKey {
  using Bits = UInt;
  static constexpr bool kHasNan = true;
  static UInt key(UInt bits) {
    constexpr UInt kMagnitude = std::numeric_limits<UInt>::max() >> 1;
    constexpr UInt kSign = static_cast<UInt>(~kMagnitude);
    constexpr int kLast = std::numeric_limits<UInt>::digits - 1;
    const auto all_if = [](UInt bit) { return static_cast<UInt>(UInt{0} - bit); };
    const auto flipped = static_cast<UInt>(bits ^ (all_if(bits >> kLast) | kSign));
    const auto zero_is_one = static_cast<UInt>(flipped + (bits == kSign));
    return zero_is_one | all_if((bits & kMagnitude) > kInfinity);
  }
};

template <class Key>
typename Key::Bits key_at(const void* data, int64_t index) {
  typename Key::Bits bits;
  std::memcpy(&bits, static_cast<const typename Key::Bits*>(data) + index, sizeof bits);
  return Key::key(bits);
}

// Whether it is the key of NaN, which no number has.
template <class Key>
constexpr bool is_nan_key(typename Key::Bits key) {
  return Key::kHasNan && key == std::numeric_limits<typename Key::Bits>::max();
}

// visit(key type of dtype)
template <class Visit>
auto with_keys(Dtype dtype, Visit visit) {
  switch (dtype) {
    case Dtype::kBool:
    case Dtype::kU8:
      return visit(UnsignedKey<uint8_t>{});
    case Dtype::kI8:
      return visit(SignedKey<uint8_t>{});
    case Dtype::kI16:
      return visit(SignedKey<uint16_t>{});
    case Dtype::kI32:
      return visit(SignedKey<uint32_t>{});
    case Dtype::kI64:
      return visit(SignedKey<uint64_t>{});
    case Dtype::kF16:
      return visit(FloatKey<uint16_t, 0x7c00>{});
    case Dtype::kBF16:
      return visit(FloatKey<uint16_t, 0x7f80>{});
    case Dtype::kF32:
      return visit(FloatKey<uint32_t, 0x7f800000>{});
    case Dtype::kF64:
      return visit(FloatKey<uint64_t, 0x7ff0000000000000>{});
  }
  throw InternalError("unknown dtype");
}

}  // namespace ipex::kernels

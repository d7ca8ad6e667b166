// The element types that all layers share, with their sizes and their names in text IR.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace ipex {

enum class Dtype : uint8_t { kBool, kU8, kI8, kI16, kI32, kI64, kF16, kBF16, kF32, kF64 };

struct DtypeInfo {
  std::string_view name;
  uint8_t bytes;
  bool is_float;
  bool is_signed;
};

inline constexpr std::array<DtypeInfo, 10> kDtypes = {{
    {"b1", 1, false, false},
    {"u8", 1, false, false},
    {"i8", 1, false, true},
    {"i16", 2, false, true},
    {"i32", 4, false, true},
    {"i64", 8, false, true},
    {"f16", 2, true, true},
    {"bf16", 2, true, true},
    {"f32", 4, true, true},
    {"f64", 8, true, true},
}};

constexpr const DtypeInfo& info(Dtype dtype) { return kDtypes[static_cast<size_t>(dtype)]; }
constexpr std::string_view name(Dtype dtype) { return info(dtype).name; }
constexpr int64_t itemsize(Dtype dtype) { return info(dtype).bytes; }
constexpr bool is_float(Dtype dtype) { return info(dtype).is_float; }
constexpr bool is_int(Dtype dtype) { return !is_float(dtype) && dtype != Dtype::kBool; }
constexpr bool is_half(Dtype dtype) { return dtype == Dtype::kF16 || dtype == Dtype::kBF16; }

// The type of arithmetic: fp32 for fp16 and bf16, else the type itself.
constexpr Dtype opmath(Dtype dtype) { return is_half(dtype) ? Dtype::kF32 : dtype; }

constexpr std::optional<Dtype> parse_dtype(std::string_view text) {
  for (size_t i = 0; i < kDtypes.size(); ++i)
    if (kDtypes[i].name == text) return static_cast<Dtype>(i);
  return std::nullopt;
}

}  // namespace ipex

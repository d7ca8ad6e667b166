// Where blocks of memory start: at cache lines, which are also the widest vectors.
#pragma once

#include <cstdint>

namespace ipex {

inline constexpr int64_t kAlignment = 64;  // bytes

constexpr int64_t aligned(int64_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

}  // namespace ipex

// The alignment of memory blocks: 64 bytes, the size of a cache line and of the widest vector.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <span>

namespace ipex {

inline constexpr int64_t kAlignment = 64;  // bytes

constexpr int64_t aligned(int64_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

// A copy of the bytes in a new aligned block.
inline std::shared_ptr<const void> aligned_copy(std::span<const std::byte> bytes) {
  const auto size = static_cast<size_t>(aligned(std::max<int64_t>(std::ssize(bytes), 1)));
  std::shared_ptr<void> data(std::aligned_alloc(kAlignment, size), std::free);
  if (!bytes.empty()) std::memcpy(data.get(), bytes.data(), bytes.size());
  return data;
}

}  // namespace ipex

// Memory that stays mapped: a caching allocator for outputs and arenas, so that no call pays page faults
// twice.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

namespace ipex {

// 64-byte aligned blocks from per-size-class free lists; thread-safe; keeps little more than the high-water
// mark.
class CachingAllocator {
 public:
  static CachingAllocator& instance();
  void* allocate(size_t bytes);  // throws OutOfMemory, and is as before then
  void deallocate(void* pointer) noexcept;
  void trim() noexcept;  // returns every cached block to the system
  size_t cached_bytes() const;
  size_t live_bytes() const;

 private:
  CachingAllocator();
  ~CachingAllocator();
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

struct CachedBlockDeleter {
  void operator()(void* pointer) const noexcept { CachingAllocator::instance().deallocate(pointer); }
};
using CachedBlock = std::unique_ptr<void, CachedBlockDeleter>;

inline CachedBlock allocate_block(size_t bytes) {
  return CachedBlock(CachingAllocator::instance().allocate(bytes));
}

}  // namespace ipex

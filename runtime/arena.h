// A caching allocator for outputs and arenas. Its memory stays mapped, so that repeated calls cause no page
// faults.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

namespace ipex {

// Allocates 64-byte aligned blocks from free lists, one per size class. Thread-safe. Live and cached memory
// together stay little above the high-water mark of live memory.
class CachingAllocator {
 public:
  static CachingAllocator& instance();
  void* allocate(size_t bytes);  // OutOfMemory leaves the allocator unchanged
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

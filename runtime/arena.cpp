// Size classes are powers of two with four steps between (at most 25 % waste); each class has a stack of free
// blocks. A block carries its class in the 64 bytes before it. What is cached never exceeds what was live at
// the high-water mark, so a program that shrinks gives memory back as it allocates other sizes.
#include "runtime/arena.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstdlib>
#include <mutex>
#include <vector>

#include "runtime/alignment.h"
#include "runtime/error.h"

namespace ipex {
namespace {

constexpr size_t kHeader = kAlignment;
constexpr size_t kSmallest = 256;
constexpr int kClasses = 4 * 40;
constexpr size_t kLargest = size_t{1} << 47;  // bytes of address space that a process has

struct Header {
  int size_class;
};

int class_of(size_t bytes) {
  const size_t size = std::max(bytes, kSmallest);
  const int log = std::bit_width(size - 1);    // size <= 2^log
  const size_t step = size_t{1} << (log - 3);  // four classes in (2^(log-1), 2^log]
  const size_t base = size_t{1} << (log - 1);
  const int quarter = static_cast<int>((size - base + step - 1) / step);
  return 4 * (log - 8) + quarter;
}

size_t class_bytes(int size_class) {
  const int log = (size_class - 1) / 4 + 8;
  const int quarter = (size_class - 1) % 4 + 1;
  return (size_t{1} << (log - 1)) + quarter * (size_t{1} << (log - 3));
}

}  // namespace

struct CachingAllocator::Impl {
  mutable std::mutex mutex;
  std::array<std::vector<void*>, kClasses> free;
  size_t cached = 0, live = 0, high_water = 0;

  void count(size_t now_live) {
    live = now_live;
    high_water = std::max(high_water, live);
  }

  // Frees cached blocks, largest first, until at most `limit` bytes stay cached.
  void shrink(size_t limit) {
    for (int c = kClasses - 1; c > 0 && cached > limit; --c) {
      while (!free[c].empty() && cached > limit) {
        std::free(free[c].back());
        free[c].pop_back();
        cached -= class_bytes(c);
      }
    }
  }
};

CachingAllocator& CachingAllocator::instance() {
  static CachingAllocator* allocator = new CachingAllocator;  // outlives every tensor freed at exit
  return *allocator;
}

CachingAllocator::CachingAllocator() : impl_(std::make_unique<Impl>()) {}
CachingAllocator::~CachingAllocator() { trim(); }

void* CachingAllocator::allocate(size_t bytes) {
  const int c = bytes > kLargest ? kClasses : class_of(bytes);
  if (c >= kClasses) throw OutOfMemory(bytes, live_bytes());
  const size_t size = class_bytes(c);
  {
    std::lock_guard lock(impl_->mutex);
    const size_t live = impl_->live + size;
    if (auto& blocks = impl_->free[c]; !blocks.empty()) {
      void* block = blocks.back();
      blocks.pop_back();
      impl_->cached -= size;
      impl_->count(live);
      return static_cast<char*>(block) + kHeader;
    }
    // A new block: let go of cached ones that would carry the process over its high-water mark.
    impl_->shrink(impl_->high_water - std::min(impl_->high_water, live));
  }
  const size_t total = aligned(static_cast<int64_t>(size + kHeader));
  void* block = std::aligned_alloc(kAlignment, total);
  if (!block) {
    trim();
    block = std::aligned_alloc(kAlignment, total);
  }
  std::lock_guard lock(impl_->mutex);
  if (!block) throw OutOfMemory(bytes, impl_->live);
  impl_->count(impl_->live + size);
  static_cast<Header*>(block)->size_class = c;
  return static_cast<char*>(block) + kHeader;
}

void CachingAllocator::deallocate(void* pointer) noexcept {
  if (!pointer) return;
  void* block = static_cast<char*>(pointer) - kHeader;
  const int c = static_cast<Header*>(block)->size_class;
  std::lock_guard lock(impl_->mutex);
  impl_->live -= class_bytes(c);
  impl_->cached += class_bytes(c);
  impl_->free[c].push_back(block);
}

void CachingAllocator::trim() noexcept {
  std::lock_guard lock(impl_->mutex);
  impl_->shrink(0);
  impl_->high_water = impl_->live;
}

size_t CachingAllocator::cached_bytes() const {
  std::lock_guard lock(impl_->mutex);
  return impl_->cached;
}

size_t CachingAllocator::live_bytes() const {
  std::lock_guard lock(impl_->mutex);
  return impl_->live;
}

}  // namespace ipex

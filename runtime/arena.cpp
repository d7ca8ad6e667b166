// Small blocks have size classes, four per power of two (at most 25 % waste), each with a stack of free
// blocks. Large blocks are pages from page_heap.h. (malloc would not return large blocks to the system: it
// raises its mmap threshold with every mapped block that is freed.) The 64 bytes before a block hold its
// header.
//
// Cached and live memory together exceed the high-water mark of live memory by at most a small slack. So a
// program whose memory use shrinks returns memory as it allocates other sizes. Without the slack, a program
// that repeats itself at its high-water mark would forever trade pages of a large block for a small block,
// and then fault in fresh pages for the large one.
#include "runtime/arena.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <vector>

#include "runtime/alignment.h"
#include "runtime/env.h"
#include "runtime/error.h"
#include "runtime/page_heap.h"

namespace ipex {
namespace {

constexpr size_t kHeader = kAlignment;
constexpr size_t kMinBlock = 256;
constexpr size_t kPaged = size_t{1} << 20;     // blocks of this size or larger are pages
constexpr int kClasses = 4 * (20 - 8) + 5;     // from 256 bytes to kPaged
constexpr size_t kMaxBytes = size_t{1} << 47;  // address space of a process
constexpr int kPages = -1;
// The slack is a sixteenth of the high-water mark, at least 8 MiB.
constexpr size_t kMinSlack = size_t{8} << 20, kSlackShare = 16;

struct Header {
  int size_class;  // or kPages
  size_t bytes;    // size of the block, including the header
};

int class_of(size_t bytes) {
  const size_t size = std::max(bytes, kMinBlock);
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

// The header of a block for so many bytes.
Header header_for(size_t bytes) {
  if (bytes + kHeader >= kPaged)
    return {kPages, (bytes + kHeader + PageHeap::kPage - 1) / PageHeap::kPage * PageHeap::kPage};
  const int c = class_of(bytes + kHeader);
  return {c, class_bytes(c)};
}

}  // namespace

struct CachingAllocator::Impl {
  mutable std::mutex mutex;
  std::array<std::vector<void*>, kClasses> free;
  PageHeap pages;
  size_t cached_small = 0, live = 0, high_water = 0;

  size_t cached() const { return cached_small + pages.free_bytes(); }

  // A block that was freed before, or nullptr.
  void* take(const Header& header) {
    if (header.size_class == kPages) return pages.take(header.bytes);
    std::vector<void*>& blocks = free[header.size_class];
    if (blocks.empty()) return nullptr;
    void* block = blocks.back();
    blocks.pop_back();
    cached_small -= header.bytes;
    return block;
  }

  void* make(const Header& header) {
    if (header.size_class == kPages) return pages.map(header.bytes);
    return std::aligned_alloc(kAlignment, header.bytes);
  }

  // The number of bytes that may be cached beside so many live bytes.
  size_t room(size_t live_bytes) const {
    const size_t limit = high_water + std::max(kMinSlack, high_water / kSlackShare);
    return limit - std::min(limit, live_bytes);
  }

  // Frees cached memory until at most `limit` bytes are cached: pages first, then the largest blocks.
  void shrink(size_t limit) {
    if (cached() > limit) pages.unmap(std::min(cached() - limit, pages.free_bytes()));
    for (int c = kClasses - 1; c > 0 && cached() > limit; --c) {
      while (!free[c].empty() && cached() > limit) {
        std::free(free[c].back());
        free[c].pop_back();
        cached_small -= class_bytes(c);
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
  if (bytes > kMaxBytes) throw OutOfMemory(bytes, live_bytes());
  const Header header = header_for(bytes);
  std::lock_guard lock(impl_->mutex);
  const size_t live = impl_->live + header.bytes;
  void* block = impl_->take(header);
  if (!block) {
    // Before a new block, free cached ones that would exceed the limit.
    const size_t over = header.size_class == kPages ? PageHeap::mapped_bytes(header.bytes) - header.bytes : 0;
    impl_->shrink(impl_->room(live + over));
    block = impl_->make(header);
  }
  if (!block) {
    impl_->shrink(0);
    block = impl_->make(header);
  }
  if (!block) throw OutOfMemory(bytes, impl_->live);
  impl_->live = live;
  impl_->high_water = std::max(impl_->high_water, live);
  *static_cast<Header*>(block) = header;
  void* memory = static_cast<char*>(block) + kHeader;
  static const bool poison = env::flag("IPEX_POISON");
  if (poison) std::memset(memory, 0xff, bytes);  // NaN in every floating-point type
  return memory;
}

void CachingAllocator::deallocate(void* pointer) noexcept {
  if (!pointer) return;
  void* block = static_cast<char*>(pointer) - kHeader;
  const Header header = *static_cast<Header*>(block);
  std::lock_guard lock(impl_->mutex);
  impl_->live -= header.bytes;
  if (header.size_class == kPages) {
    impl_->pages.release(block, header.bytes);
  } else {
    impl_->cached_small += header.bytes;
    impl_->free[header.size_class].push_back(block);
  }
}

void CachingAllocator::trim() noexcept {
  std::lock_guard lock(impl_->mutex);
  impl_->shrink(0);
  impl_->high_water = impl_->live;
}

size_t CachingAllocator::cached_bytes() const {
  std::lock_guard lock(impl_->mutex);
  return impl_->cached();
}

size_t CachingAllocator::live_bytes() const {
  std::lock_guard lock(impl_->mutex);
  return impl_->live;
}

}  // namespace ipex

// Small blocks have size classes, powers of two with four steps between (at most 25 % waste), each with a
// stack of free blocks; large ones are pages (page_heap.h). malloc would keep large ones for itself: it
// raises the size from which it maps blocks with every mapped one that is freed. A block carries its size in
// the 64 bytes before it. What is cached and live together exceeds what was live at the high-water mark by a
// little at most, so a program that shrinks gives memory back as it allocates other sizes. Without the
// little, a program that repeats itself at its high-water mark would pay for every small block with pages of
// a large one, and for the large one with fresh pages, forever.
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
constexpr size_t kSmallest = 256;
constexpr size_t kPaged = size_t{1} << 20;    // from here on, blocks are pages
constexpr int kClasses = 4 * (20 - 8) + 5;    // of 256 bytes to kPaged
constexpr size_t kLargest = size_t{1} << 47;  // bytes of address space that a process has
constexpr int kPages = -1;
constexpr size_t kLeastSlack = size_t{8} << 20, kSlackShare = 16;  // of the high-water mark

struct Header {
  int size_class;  // or kPages
  size_t bytes;    // that the block takes from the system
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

// What a block for so many bytes is, and takes.
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

  // How much may be cached beside this much that is live.
  size_t room(size_t beside) const {
    const size_t most = high_water + std::max(kLeastSlack, high_water / kSlackShare);
    return most - std::min(most, beside);
  }

  // Frees what is cached, pages and then the largest blocks first, until at most `limit` bytes stay so.
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
  if (bytes > kLargest) throw OutOfMemory(bytes, live_bytes());
  const Header header = header_for(bytes);
  std::lock_guard lock(impl_->mutex);
  const size_t live = impl_->live + header.bytes;
  void* block = impl_->take(header);
  if (!block) {
    // A new block: let go of cached ones that would carry the process too far over its high-water mark.
    const size_t over = header.size_class == kPages ? PageHeap::whole(header.bytes) - header.bytes : 0;
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
  if (poison) std::memset(memory, 0xff, bytes);  // NaN in every floating point type
  return memory;
}

void CachingAllocator::deallocate(void* pointer) noexcept {
  if (!pointer) return;
  void* block = static_cast<char*>(pointer) - kHeader;
  const Header header = *static_cast<Header*>(block);
  std::lock_guard lock(impl_->mutex);
  impl_->live -= header.bytes;
  if (header.size_class == kPages) {
    impl_->pages.give_back(block, header.bytes);
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

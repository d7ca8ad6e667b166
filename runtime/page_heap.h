// A heap of large memory blocks, in pages from the system. Free ranges are split and merged, so that a block
// of one size can reuse the memory of blocks of other sizes without page faults. Huge pages are requested:
// they replace 512 page faults by one, and cause fewer TLB misses.
#pragma once

#include <cstddef>
#include <map>
#include <set>
#include <utility>

namespace ipex {

// Not thread-safe. Sizes are multiples of kPage.
class PageHeap {
 public:
  static constexpr size_t kPage = 4096, kHugePage = size_t{2} << 20;

  // A block from the smallest free range that is large enough; nullptr if there is none.
  void* take(size_t bytes);
  // The number of bytes that map() requests from the system.
  static size_t mapped_bytes(size_t bytes) { return (bytes + kHugePage - 1) / kHugePage * kHugePage; }
  // A new block from the system. The rest of its last huge page becomes a free range. nullptr on failure.
  void* map(size_t bytes);
  // Frees a block from take() or map(), as a whole, and merges it with adjacent free ranges.
  void release(void* block, size_t bytes);
  // Returns so many free bytes to the system, from the largest ranges.
  void unmap(size_t bytes);
  size_t free_bytes() const { return free_bytes_; }

 private:
  void add(char* begin, size_t bytes);
  void remove(char* begin, size_t bytes);
  std::map<char*, size_t> ranges_;              // free ranges by address
  std::set<std::pair<size_t, char*>> by_size_;  // the same ranges by size
  size_t free_bytes_ = 0;
};

}  // namespace ipex

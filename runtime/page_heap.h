// Large blocks of memory from the system's pages: split to fit and joined again, so that what one size left
// behind serves another without a page fault, and goes back to the system when it must. The system is asked
// for huge pages: 512 page faults become one, and the CPU finds where a page lies in its TLB.
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

  // From the smallest free range that is large enough; nullptr when there is none.
  void* take(size_t bytes);
  // What map() takes from the system for so many.
  static size_t whole(size_t bytes) { return (bytes + kHugePage - 1) / kHugePage * kHugePage; }
  // Fresh from the system, a multiple of huge pages, of which the rest is free; nullptr when it refuses.
  void* map(size_t bytes);
  // What take() or map() gave, whole. It joins the free ranges beside it.
  void give_back(void* block, size_t bytes);
  // Returns this many free bytes to the system, from the largest ranges.
  void unmap(size_t bytes);
  size_t free_bytes() const { return free_bytes_; }

 private:
  void add(char* begin, size_t bytes);
  void remove(char* begin, size_t bytes);
  std::map<char*, size_t> ranges_;              // free ones
  std::set<std::pair<size_t, char*>> by_size_;  // the same
  size_t free_bytes_ = 0;
};

}  // namespace ipex

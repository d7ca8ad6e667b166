// See page_heap.h. Free ranges may span several mappings, and any range of pages may be unmapped.
#include "runtime/page_heap.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdint>

namespace ipex {

void* PageHeap::take(size_t bytes) {
  const auto found = by_size_.lower_bound({bytes, nullptr});
  if (found == by_size_.end()) return nullptr;
  const auto [size, begin] = *found;
  remove(begin, size);
  if (size > bytes) add(begin + bytes, size - bytes);
  return begin;
}

void* PageHeap::map(size_t bytes) {
  const size_t size = mapped_bytes(bytes);
  void* mapped = mmap(nullptr, size + kHugePage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapped == MAP_FAILED) return nullptr;
  // Use the last aligned position. As mappings grow downwards, the block then borders on the previous one.
  char *first = static_cast<char*>(mapped), *last = first + size + kHugePage;
  const size_t after = reinterpret_cast<uintptr_t>(last) % kHugePage;
  if (after > 0) munmap(last - after, after);
  char* block = last - after - size;
  if (block > first) munmap(first, static_cast<size_t>(block - first));
  // Request huge pages for the part that fills them. If that fails, small pages are used.
  madvise(block, bytes / kHugePage * kHugePage, MADV_HUGEPAGE);
  if (size > bytes) release(block + bytes, size - bytes);
  return block;
}

void PageHeap::release(void* block, size_t bytes) {
  char* begin = static_cast<char*>(block);
  const auto after = ranges_.find(begin + bytes);
  if (after != ranges_.end()) {
    const size_t size = after->second;
    remove(begin + bytes, size);
    bytes += size;
  }
  auto before = ranges_.lower_bound(begin);
  if (before != ranges_.begin() && (--before)->first + before->second == begin) {
    const auto [at, size] = *before;
    remove(at, size);
    begin = at;
    bytes += size;
  }
  add(begin, bytes);
}

void PageHeap::unmap(size_t bytes) {
  while (bytes > 0 && !by_size_.empty()) {
    const auto [size, begin] = *by_size_.rbegin();
    const size_t returned = std::min(size, bytes);
    remove(begin, size);
    if (size > returned) add(begin, size - returned);
    munmap(begin + (size - returned), returned);
    bytes -= returned;
  }
}

void PageHeap::add(char* begin, size_t bytes) {
  ranges_.emplace(begin, bytes);
  by_size_.emplace(bytes, begin);
  free_bytes_ += bytes;
}

void PageHeap::remove(char* begin, size_t bytes) {
  ranges_.erase(begin);
  by_size_.erase({bytes, begin});
  free_bytes_ -= bytes;
}

}  // namespace ipex

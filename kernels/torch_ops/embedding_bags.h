// What the operators over several embedding bags and their vector code share.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <utility>
#include <vector>

namespace ipex::torch_ops {

// One table, with the bags that read it. Bag b holds the indices from offsets[b] to offsets[b + 1], or to the
// last index.
struct BagTable {
  int64_t rows = 0;
  void* weight = nullptr;     // read forward; updated, or the gradient that is written, backward
  uint16_t* trail = nullptr;  // the lower halves of f32 weights whose upper halves are `weight`
  void* state = nullptr;      // Adagrad's sums of squares
  const void* indices = nullptr;
  const void* offsets = nullptr;
  int64_t index_count = 0, offset_count = 0, bags = 0;
  void* result = nullptr;  // forward
  int64_t result_stride = 0;
  const void* grad = nullptr;  // backward: [bags, width]
};

struct BagOp {
  int64_t width = 0;
  bool mean = false;
  double lr = 0, weight_decay = 0, eps = 0;
  std::vector<BagTable> tables;
  // Some table whose indices or offsets are out of range; -1 if none was found.
  std::atomic<int64_t> faulty{-1};
};

// A part of a call: bags [begin, end) of a table forward; backward the rows that chosen_part() gives `begin`
// of `end` parts.
struct BagPiece {
  int64_t table, begin, end;
};

enum class BagRule { kGradient, kSgd, kAdagrad };

// The positions of the indices of a bag; {0, -1} if they are out of range.
template <class Index>
std::pair<int64_t, int64_t> bag_range(const BagTable& table, int64_t bag) {
  const auto* offsets = static_cast<const Index*>(table.offsets);
  const int64_t begin = offsets[bag],
                end = bag + 1 < table.offset_count ? offsets[bag + 1] : table.index_count;
  return begin >= 0 && begin <= end && end <= table.index_count ? std::pair(begin, end)
                                                                : std::pair<int64_t, int64_t>(0, -1);
}

// ---- grouping by row ----

// A lookup: the row, and the bag that it is part of.
struct Lookup {
  int64_t row, bag;
};

// Which of `parts` parts updates a row. Neighbouring rows are spread, because some are read more often.
inline int64_t chosen_part(int64_t row, int64_t parts) {
  const uint64_t mixed = (static_cast<uint64_t>(row) * 0x9e3779b97f4a7c15u) >> 32;
  return static_cast<int64_t>((mixed * static_cast<uint64_t>(parts)) >> 32);
}

// Sorts by row; lookups of a row stay in order. `other` has as much memory. Returns where the result is.
inline Lookup* sort_lookups(Lookup* lookups, Lookup* other, int64_t count, int64_t rows) {
  constexpr int kDigitBits = 11;
  constexpr int64_t kDigits = 1 << kDigitBits, kFew = 512;
  if (count <= kFew) {
    std::sort(lookups, lookups + count,
              [](Lookup a, Lookup b) { return a.row != b.row ? a.row < b.row : a.bag < b.bag; });
    return lookups;
  }
  for (int shift = 0; (rows - 1) >> shift > 0; shift += kDigitBits) {
    int64_t starts[kDigits] = {};
    for (int64_t i = 0; i < count; ++i) ++starts[lookups[i].row >> shift & (kDigits - 1)];
    for (int64_t digit = 0, next = 0; digit < kDigits; ++digit) {
      next += starts[digit];
      starts[digit] = next - starts[digit];
    }
    for (int64_t i = 0; i < count; ++i) other[starts[lookups[i].row >> shift & (kDigits - 1)]++] = lookups[i];
    std::swap(lookups, other);
  }
  return lookups;
}

// The lookups of the rows of one part, in the order of their bags. Returns how many; -1 if an index or offset
// is out of range.
template <class Index>
int64_t collect_lookups(const BagTable& table, int64_t part, int64_t parts, Lookup* lookups) {
  const auto* indices = static_cast<const Index*>(table.indices);
  int64_t count = 0;
  for (int64_t bag = 0; bag < table.bags; ++bag) {
    const auto [begin, end] = bag_range<Index>(table, bag);
    if (end < begin) return -1;
    for (int64_t i = begin; i < end; ++i) {
      const int64_t row = indices[i];
      if (row < 0 || row >= table.rows) return -1;
      if (parts == 1 || chosen_part(row, parts) == part) lookups[count++] = {row, bag};
    }
  }
  return count;
}

}  // namespace ipex::torch_ops

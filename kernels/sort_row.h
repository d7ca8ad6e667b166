// Order statistics of one row: sorting, the first k elements, the k-th element, the most frequent element.
//
// An entry is an unsigned integer with a key in its upper half and the position in its lower half. So entries
// compare like (key, position). Where the order of equal keys is unspecified, the algorithms of the standard
// library are applied to keys alone, as in eager, which gives the same order of ties.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <utility>

namespace ipex::kernels {

// kHalf: the number of bits of the key, and of the position.
template <class Entry>
struct SortRow {
  static constexpr int kHalf = sizeof(Entry) * 4;
  static constexpr int kDigits = kHalf / 8;
  static constexpr int64_t kShortRow = 512;  // up to it, a comparison sort is faster than a radix sort
  static constexpr int64_t kHeapRatio =
      64;  // for k <= n / 64, few elements enter a heap, which is then faster

  static Entry make(uint64_t key, int64_t position) {
    return static_cast<Entry>(key) << kHalf | static_cast<Entry>(position);
  }
  static Entry key(Entry e) { return e >> kHalf; }
  static int64_t position(Entry e) { return static_cast<int64_t>(e & ((Entry{1} << kHalf) - 1)); }
  // A function object, so that the standard library's algorithms inline it.
  static constexpr auto key_less = [](Entry a, Entry b) { return key(a) < key(b); };

  // Sorts by key, and equal keys by position. `scratch` has room for n entries.
  static void stable_sort(Entry* row, int64_t n, Entry* scratch) {
    if (n <= kShortRow) return std::sort(row, row + n);
    // Radix sort, least significant digit first. A digit that is equal in all entries is skipped.
    std::array<std::array<int64_t, 256>, kDigits> counts{};
    for (int64_t i = 0; i < n; ++i)
      for (int d = 0; d < kDigits; ++d) ++counts[d][digit(row[i], d)];
    Entry *from = row, *to = scratch;
    for (int d = 0; d < kDigits; ++d) {
      auto& count = counts[d];
      if (count[digit(row[0], d)] == n) continue;
      int64_t begin = 0;
      for (int64_t& c : count) begin += std::exchange(c, begin);
      for (int64_t i = 0; i < n; ++i) to[count[digit(from[i], d)]++] = from[i];
      std::swap(from, to);
    }
    if (from != row) std::copy(from, from + n, row);
  }

  static void sort(Entry* row, int64_t n) { std::sort(row, row + n, key_less); }

  static bool uses_heap(int64_t n, int64_t k) { return k <= n / kHeapRatio; }

  // Moves the first k to the front, in order if `sorted`.
  static void top(Entry* row, int64_t n, int64_t k, bool sorted) {
    if (k == 0) return;
    if (uses_heap(n, k)) return std::partial_sort(row, row + k, row + n, key_less);
    std::nth_element(row, row + k - 1, row + n, key_less);
    if (sorted) std::sort(row, row + k - 1, key_less);
  }

  // The k-th in the order of stable_sort.
  static Entry nth(Entry* row, int64_t n, int64_t k) {
    std::nth_element(row, row + k, row + n);
    return row[k];
  }

  // The k-th by key. Hoare's selection, with the median of three as pivot and scans that stop at equal keys.
  static Entry kth(Entry* row, int64_t n, int64_t k) {
    int64_t low = 0, high = n - 1;
    auto order = [&](int64_t a, int64_t b) {
      if (key_less(row[b], row[a])) std::swap(row[a], row[b]);
    };
    while (high > low + 1) {
      std::swap(row[(low + high) / 2], row[low + 1]);
      order(low + 1, high);
      order(low, high);
      order(low + 1, low);
      const Entry pivot = row[low];
      int64_t i = low + 1, j = high;
      for (;;) {
        do ++i;
        while (key_less(row[i], pivot));
        do --j;
        while (key_less(pivot, row[j]));
        if (j < i) break;
        std::swap(row[i], row[j]);
      }
      std::swap(row[low], row[j]);
      if (j <= k) low = i;
      if (j >= k) high = j - 1;
    }
    if (high == low + 1) order(low, high);
    return row[k];
  }

  // The entry of the most frequent key, the smallest of several.
  static Entry mode(Entry* row, int64_t n) {
    sort(row, n);
    Entry best = row[0];
    int64_t longest = 0, run = 0;
    for (int64_t i = 0; i < n; ++i) {
      ++run;
      if (i + 1 < n && key(row[i]) == key(row[i + 1])) continue;
      if (run > longest) best = row[i];
      longest = std::max(longest, std::exchange(run, 0));
    }
    return best;
  }

 private:
  static size_t digit(Entry e, int d) { return static_cast<size_t>(e >> (kHalf + 8 * d)) & 0xff; }
};

}  // namespace ipex::kernels

// The kinds of the graph op Sort and of its steps.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace ipex::kernels {

// The elements of each row that are returned. NaN is the greatest value.
enum class SortKind : uint8_t {
  kAll,        // all elements, sorted
  kTop,        // the first elements in sorted order, as many as the result has
  kKth,        // the element at position `k` in sorted order
  kMedian,     // the lower one of two medians; the first NaN if there is any
  kNanMedian,  // the median without NaN
  kMode,       // the most frequent element, the smallest of several
};
inline constexpr std::array<std::string_view, 6> kSortKinds = {"all",    "top",       "kth",
                                                               "median", "nanmedian", "mode"};

}  // namespace ipex::kernels

// What graph op Sort and its steps may want of each row of x. NaN is greatest.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace ipex::kernels {

enum class SortKind : uint8_t {
  kAll,        // everything
  kTop,        // the first elements of the order, as many as the result has
  kKth,        // the element that `k` others come before
  kMedian,     // the lower of two; NaN if any is NaN, at its first position
  kNanMedian,  // of what is not NaN
  kMode,       // the most frequent, the smallest of several
};
inline constexpr std::array<std::string_view, 6> kSortKinds = {"all",    "top",       "kth",
                                                               "median", "nanmedian", "mode"};

}  // namespace ipex::kernels

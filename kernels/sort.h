// Sorting and searching along one axis, hand-written: the steps of Graph ops Sort and Search.
#pragma once

#include <memory>
#include <optional>

#include "kernels/sort_kind.h"
#include "runtime/executable.h"
#include "runtime/tensor.h"

namespace ipex::kernels {

// What is wanted of each row of x along `axis`: values and their positions.
struct SortDesc {
  SortKind kind = SortKind::kAll;
  TensorSpec x, values, indices;  // results: x's shape but for the axis; buffer -1: not wanted. indices: i64
  int axis = 0;
  bool descending = false;
  bool ordered = true;  // all: equal values stay in order; top: the result is sorted
  SizeExpr k = 0;
};
std::unique_ptr<Step> make_sort(const SortDesc& desc);

// For each value v the first position p of its row with v <= row[p], or v < row[p] if `right`. `sorted` is
// one row for all, or has values' leading dims; with `sorter`, row[p] is sorted[sorter[p]].
struct SearchDesc {
  TensorSpec sorted, values;
  std::optional<TensorSpec> sorter;  // i64
  TensorSpec dst;                    // i32 or i64
  bool right = false;
};
std::unique_ptr<Step> make_search(const SearchDesc& desc);

}  // namespace ipex::kernels

// Hand-written sorting and searching along one axis: the steps of the Graph ops Sort and Search.
#pragma once

#include <memory>
#include <optional>

#include "kernels/sort_kind.h"
#include "runtime/executable.h"
#include "runtime/tensor.h"

namespace ipex::kernels {

// The elements of each row of x along `axis` that are returned, as values and positions.
struct SortDesc {
  SortKind kind = SortKind::kAll;
  TensorSpec x;
  TensorSpec values, indices;  // of x's shape except along the axis; buffer -1: unused; indices are i64
  int axis = 0;
  bool descending = false;
  bool ordered = true;  // kAll: the sort is stable; kTop: the result is sorted
  SizeExpr k = 0;
};
std::unique_ptr<Step> make_sort(const SortDesc& desc);

// For each value v, the first position p in its row with v <= row[p], or v < row[p] if `right`. `sorted` is
// one row for all values, or has the leading dims of values. With `sorter`, row[p] is sorted[sorter[p]].
struct SearchDesc {
  TensorSpec sorted, values;
  std::optional<TensorSpec> sorter;  // i64
  TensorSpec dst;                    // i32 or i64
  bool right = false;
};
std::unique_ptr<Step> make_search(const SearchDesc& desc);

}  // namespace ipex::kernels

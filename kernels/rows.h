// Parallel iteration over the rows of strided tensors. A row extends along one dimension, the axis.
#pragma once

#include <algorithm>
#include <cstdint>

#include "runtime/parallel.h"
#include "runtime/tensor.h"

namespace ipex::kernels {

inline int64_t row_count(const TensorView& x, int axis) {
  int64_t rows = 1;
  for (size_t d = 0; d < x.sizes.size(); ++d)
    if (static_cast<int>(d) != axis) rows *= x.sizes[d];
  return rows;
}

// The begin of a row in `x`. Rows are numbered in row-major order over the dims of `shape` except `axis`.
inline char* row_begin(const TensorView& x, const TensorView& shape, int axis, int64_t row) {
  int64_t at = 0;
  for (size_t d = shape.sizes.size(); d-- > 0;) {
    if (static_cast<int>(d) == axis) continue;
    at += row % shape.sizes[d] * x.strides[d];
    row /= shape.sizes[d];
  }
  return static_cast<char*>(x.data) + at * itemsize(x.dtype);
}

// Calls body(begin, end, thread) over [0, rows), in chunks of at least about `kWork` elements.
template <class Body>
void parallel_rows(int64_t rows, int64_t elements_per_row, Body body) {
  constexpr int64_t kWork = 4096;
  const int64_t grain = std::max<int64_t>(1, kWork / std::max<int64_t>(1, elements_per_row));
  parallel_for(
      0, rows, grain,
      [](void* closure, int64_t begin, int64_t end, int64_t thread) {
        (*static_cast<Body*>(closure))(begin, end, thread);
      },
      &body);
}

}  // namespace ipex::kernels

// A non-owning view of a tensor: pointer, dtype, sizes and strides.
#pragma once

#include <cstdint>
#include <vector>

#include "runtime/dtype.h"

namespace ipex {

struct TensorView {
  void* data = nullptr;
  Dtype dtype = Dtype::kF32;
  std::vector<int64_t> sizes;
  std::vector<int64_t> strides;  // in elements

  int64_t numel() const {
    int64_t n = 1;
    for (int64_t s : sizes) n *= s;
    return n;
  }
  // The number of elements in memory from the first to the last, both included.
  int64_t extent() const {
    int64_t last = 1;
    for (size_t d = 0; d < sizes.size(); ++d) {
      if (sizes[d] <= 0) return 0;
      last += (sizes[d] - 1) * strides[d];
    }
    return last;
  }
};

}  // namespace ipex

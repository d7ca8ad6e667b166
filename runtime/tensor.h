// A tensor as steps see it: non-owning pointer, sizes and strides in elements.
#pragma once

#include <cstdint>
#include <vector>

#include "runtime/dtype.h"
#include "runtime/size_expr.h"

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
};

// The compile-time description of a TensorView over one buffer of an Executable.
struct TensorSpec {
  int buffer = -1;
  Dtype dtype = Dtype::kF32;
  std::vector<SizeExpr> sizes;
  std::vector<SizeExpr> strides;  // in elements
  SizeExpr offset = 0;            // in elements, from the start of the buffer

  bool is_static() const {
    auto all_const = [](const std::vector<SizeExpr>& v) {
      for (const auto& e : v)
        if (!e.is_const()) return false;
      return true;
    };
    return all_const(sizes) && all_const(strides) && offset.is_const();
  }
};

}  // namespace ipex

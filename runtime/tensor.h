// The compile-time description of a tensor.
#pragma once

#include <vector>

#include "runtime/dtype.h"
#include "runtime/size_expr.h"
#include "runtime/tensor_view.h"

namespace ipex {

// Describes a TensorView of one buffer of an Executable. Its sizes may be symbolic.
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

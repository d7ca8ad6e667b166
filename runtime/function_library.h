// Entry points of compiled kernels by name: the common interface of code that was compiled in this process
// and code that was loaded from an artifact.
#pragma once

#include <string_view>

#include "runtime/abi.h"

namespace ipex {

class FunctionLibrary {
 public:
  virtual ~FunctionLibrary() = default;
  virtual ipex_kernel_fn lookup(std::string_view name) const = 0;  // throws when absent
};

}  // namespace ipex

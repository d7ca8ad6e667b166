// Named entry points of compiled kernels: the one seam between code compiled in the process and code that
// comes from an artifact.
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

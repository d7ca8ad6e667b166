// An index out of range as the eager operator would report it. Kernels hand on which row of index_errors.def
// that is, and the dimension that it names, in one number.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "runtime/error.h"

namespace ipex {

// Of operators for which PyTorch raises a RuntimeError.
struct RuntimeIndexError : IndexError {
  using IndexError::IndexError;
};

// The number that stands for row `name` of index_errors.def and dimension `dim`; nullopt: there is no such
// row.
std::optional<int64_t> index_error_code(std::string_view name, int64_t dim);

[[noreturn]] void raise_index_error(int64_t index, int64_t size, int64_t code);

}  // namespace ipex

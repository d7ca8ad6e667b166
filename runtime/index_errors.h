// Errors for an index out of range, as the eager operator would report it. Kernels pass on one number, which
// encodes the row of index_errors.def and the dimension in the message.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "runtime/error.h"

namespace ipex {

// For operators where PyTorch raises a RuntimeError.
struct RuntimeIndexError : IndexError {
  using IndexError::IndexError;
};

// The number for row `name` of index_errors.def and dimension `dim`; nullopt if there is no such row.
std::optional<int64_t> index_error_code(std::string_view name, int64_t dim);

[[noreturn]] void raise_index_error(int64_t index, int64_t size, int64_t code);

}  // namespace ipex

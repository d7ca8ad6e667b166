// See index_errors.h. The number is dim * (number of rows) + row.
#include "runtime/index_errors.h"

#include <iterator>
#include <string>

namespace ipex {
namespace {

struct Row {
  std::string_view name, python, message;
};
constexpr Row kRows[] = {
#define INDEX_ERROR(name, python, message) {#name, #python, message},
#include "runtime/index_errors.def"
#undef INDEX_ERROR
};
constexpr int64_t kRowCount = std::size(kRows);

void replace(std::string& text, std::string_view what, int64_t by) {
  if (const size_t at = text.find(what); at != std::string::npos)
    text.replace(at, what.size(), std::to_string(by));
}

}  // namespace

std::optional<int64_t> index_error_code(std::string_view name, int64_t dim) {
  for (int64_t row = 0; row < kRowCount; ++row)
    if (kRows[row].name == name) return dim * kRowCount + row;
  return std::nullopt;
}

void raise_index_error(int64_t index, int64_t size, int64_t code) {
  const Row& row = kRows[code % kRowCount];
  std::string message(row.message);
  replace(message, "{index}", index);
  replace(message, "{dim}", code / kRowCount);
  replace(message, "{size}", size);
  replace(message, "{last}", size - 1);
  if (row.python == "RuntimeError") throw RuntimeIndexError(message);
  throw IndexError(message);
}

}  // namespace ipex

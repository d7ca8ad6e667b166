// Test data by dtype, and comparison within each dtype's rounding.
#include "passes_evaluation.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <random>

#include "codegen/loop/eval.h"
#include "codegen/loop/half.h"

namespace ipex::loop::testing {

namespace {

int64_t elements(const Function& f, const Buffer& b, const std::vector<int64_t>& symbols) {
  std::map<std::string, int64_t> binding;
  for (size_t i = 0; i < f.symbols.size(); ++i) binding[f.symbols[i]] = symbols.at(i);
  return eval_int(b.extent, binding);
}

template <typename T>
void put(Bytes& bytes, int64_t i, T value) {
  std::memcpy(bytes.data() + i * static_cast<int64_t>(sizeof(T)), &value, sizeof(T));
}

template <typename T>
T get(const Bytes& bytes, int64_t i) {
  T value;
  std::memcpy(&value, bytes.data() + i * static_cast<int64_t>(sizeof(T)), sizeof(T));
  return value;
}

void put_float(Bytes& bytes, Dtype dtype, int64_t i, double x) {
  switch (dtype) {
    case Dtype::kF64:
      return put(bytes, i, x);
    case Dtype::kF32:
      return put(bytes, i, static_cast<float>(x));
    case Dtype::kF16:
      return put(bytes, i, f32_to_f16(static_cast<float>(x)));
    default:
      return put(bytes, i, f32_to_bf16(static_cast<float>(x)));
  }
}

double get_float(const Bytes& bytes, Dtype dtype, int64_t i) {
  switch (dtype) {
    case Dtype::kF64:
      return get<double>(bytes, i);
    case Dtype::kF32:
      return get<float>(bytes, i);
    case Dtype::kF16:
      return f16_to_f32(get<uint16_t>(bytes, i));
    default:
      return bf16_to_f32(get<uint16_t>(bytes, i));
  }
}

// Sums taken in another order may cancel; a stored half is one rounding away.
double tolerance(Dtype dtype) {
  switch (dtype) {
    case Dtype::kF64:
      return 1e-12;
    case Dtype::kF32:
      return 3e-5;
    case Dtype::kF16:
      return 0x1p-9;
    default:
      return 0x1p-6;
  }
}

std::vector<void*> pointers(Buffers& buffers) {
  std::vector<void*> out;
  for (Bytes& b : buffers) out.push_back(b.data());
  return out;
}

}  // namespace

Buffers random_buffers(const Function& f, const std::vector<int64_t>& symbols, uint64_t seed,
                       int64_t index_limit) {
  std::mt19937_64 random(seed);
  Buffers out;
  for (const Buffer& b : f.buffers) {
    const int64_t n = elements(f, b, symbols);
    Bytes& bytes = out.emplace_back(static_cast<size_t>(n * itemsize(b.dtype)));
    for (int64_t i = 0; i < n; ++i) {
      if (is_float(b.dtype)) {
        put_float(bytes, b.dtype, i, std::normal_distribution<double>(0, 1.5)(random));
        continue;
      }
      const int64_t x =
          std::uniform_int_distribution<int64_t>(0, b.dtype == Dtype::kBool ? 1 : index_limit - 1)(random);
      std::memcpy(bytes.data() + i * itemsize(b.dtype), &x, static_cast<size_t>(itemsize(b.dtype)));
    }
  }
  return out;
}

void run_eval(const Function& f, Buffers& buffers, const std::vector<int64_t>& symbols) {
  const std::vector<void*> data = pointers(buffers);
  eval(f, data, symbols);
}

void run_compiled(const FunctionLibrary& library, const Function& f, Buffers& buffers,
                  const std::vector<int64_t>& symbols) {
  const std::vector<void*> data = pointers(buffers);
  library.lookup(f.name)(data.data(), symbols.data());
}

std::string difference(const Function& f, const Buffers& expected, const Buffers& actual) {
  for (size_t b = 0; b < f.buffers.size(); ++b) {
    const Dtype dtype = f.buffers[b].dtype;
    const int64_t n = static_cast<int64_t>(expected[b].size()) / itemsize(dtype);
    for (int64_t i = 0; i < n; ++i) {
      const std::string where = f.buffers[b].name + "[" + std::to_string(i) + "]: ";
      if (!is_float(dtype)) {
        if (std::memcmp(expected[b].data() + i * itemsize(dtype), actual[b].data() + i * itemsize(dtype),
                        static_cast<size_t>(itemsize(dtype))) != 0)
          return where + "integers differ";
        continue;
      }
      const double x = get_float(expected[b], dtype, i), y = get_float(actual[b], dtype, i);
      if (x == y || (std::isnan(x) && std::isnan(y))) continue;
      const double bound = tolerance(dtype) * std::max({1.0, std::abs(x), std::abs(y)});
      if (!(std::abs(x - y) <= bound)) return where + std::to_string(x) + " became " + std::to_string(y);
    }
  }
  return "";
}

}  // namespace ipex::loop::testing

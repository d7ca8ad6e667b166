#include "tests/cpp/llvm_kernels.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <limits>

#include "codegen/loop/eval.h"
#include "codegen/loop/half.h"
#include "codegen/passes/passes.h"

namespace ipex::loop::testing {
namespace {

// Tests compile what they test, whatever an earlier run left in the user's cache, and check the IR they make.
class TestEnvironment : public ::testing::Environment {
 public:
  void SetUp() override {
    setenv("IPEX_CACHE", "off", 1);
    setenv("IPEX_VERIFY", "1", 1);
  }
};
[[maybe_unused]] const auto* const kTestEnvironment =
    ::testing::AddGlobalTestEnvironment(new TestEnvironment);

constexpr size_t kGuardBytes = 64;
constexpr std::byte kGuard{0xA5};

template <typename T>
T load(const Array& a, int64_t i) {
  T value;
  std::memcpy(&value, a.bytes.data() + i * sizeof(T), sizeof(T));
  return value;
}
template <typename T>
void save(Array& a, int64_t i, T value) {
  std::memcpy(a.bytes.data() + i * sizeof(T), &value, sizeof(T));
}

// Distance in units of the last place of the expected value's own format.
double ulp_distance(double expected, double actual, Dtype dtype) {
  if (std::isnan(expected) && std::isnan(actual)) return 0;
  if (expected == actual) return std::signbit(expected) == std::signbit(actual) ? 0 : 1;
  if (!std::isfinite(expected) || !std::isfinite(actual)) return std::numeric_limits<double>::infinity();
  const bool single = dtype != Dtype::kF64;
  const double unit =
      single ? std::abs(std::nextafter(static_cast<float>(expected), INFINITY) - static_cast<float>(expected))
             : std::abs(std::nextafter(expected, INFINITY) - expected);
  return std::abs(actual - expected) / unit;
}

}  // namespace

Array::Array(Dtype dtype, int64_t size) : dtype(dtype), size(size), bytes(size * itemsize(dtype)) {
  bytes.resize(bytes.size() + kGuardBytes, kGuard);
}

bool Array::guard_is_intact() const {
  return std::all_of(bytes.end() - kGuardBytes, bytes.end(), [](std::byte b) { return b == kGuard; });
}

Array Array::of_ints(Dtype dtype, const std::vector<int64_t>& values) {
  Array a(dtype, static_cast<int64_t>(values.size()));
  for (int64_t i = 0; i < a.size; ++i) a.set_int(i, values[i]);
  return a;
}

Array Array::of_floats(Dtype dtype, const std::vector<double>& values) {
  Array a(dtype, static_cast<int64_t>(values.size()));
  for (int64_t i = 0; i < a.size; ++i) a.set_float(i, values[i]);
  return a;
}

void Array::set_int(int64_t i, int64_t value) {
  switch (itemsize(dtype)) {
    case 1:
      save(*this, i, static_cast<int8_t>(value));
      break;
    case 2:
      save(*this, i, static_cast<int16_t>(value));
      break;
    case 4:
      save(*this, i, static_cast<int32_t>(value));
      break;
    default:
      save(*this, i, value);
  }
}

void Array::set_float(int64_t i, double value) {
  switch (dtype) {
    case Dtype::kF16:
      save(*this, i, f32_to_f16(static_cast<float>(value)));
      break;
    case Dtype::kBF16:
      save(*this, i, f32_to_bf16(static_cast<float>(value)));
      break;
    case Dtype::kF32:
      save(*this, i, static_cast<float>(value));
      break;
    default:
      save(*this, i, value);
  }
}

int64_t Array::get_int(int64_t i) const {
  switch (itemsize(dtype)) {
    case 1:
      return info(dtype).is_signed ? load<int8_t>(*this, i) : load<uint8_t>(*this, i);
    case 2:
      return load<int16_t>(*this, i);
    case 4:
      return load<int32_t>(*this, i);
    default:
      return load<int64_t>(*this, i);
  }
}

double Array::get_float(int64_t i) const {
  switch (dtype) {
    case Dtype::kF16:
      return f16_to_f32(load<uint16_t>(*this, i));
    case Dtype::kBF16:
      return bf16_to_f32(load<uint16_t>(*this, i));
    case Dtype::kF32:
      return load<float>(*this, i);
    default:
      return load<double>(*this, i);
  }
}

std::string difference(const Array& expected, const Array& actual, double ulps) {
  for (int64_t i = 0; i < expected.size; ++i) {
    const std::string at = "element " + std::to_string(i) + ": expected ";
    if (!is_float(expected.dtype)) {
      if (expected.get_int(i) != actual.get_int(i))
        return at + std::to_string(expected.get_int(i)) + ", got " + std::to_string(actual.get_int(i));
      continue;
    }
    const double distance = ulp_distance(expected.get_float(i), actual.get_float(i), expected.dtype);
    if (distance > ulps) {
      char text[128];
      std::snprintf(text, sizeof text, "%.17g, got %.17g (%g ulp)", expected.get_float(i),
                    actual.get_float(i), distance);
      return at + text;
    }
  }
  return "";
}

Function elementwise(const std::string& name, const std::vector<Dtype>& inputs, Dtype output, int64_t n,
                     int lanes, const Body& fn) {
  Function f;
  f.name = name;
  const Expr i = make_var("i");
  const Expr base = i * index_const(lanes);
  const Expr index = lanes == 1 ? base : make_ramp(base, index_const(1), lanes);
  std::vector<Expr> loads;
  for (size_t k = 0; k < inputs.size(); ++k) {
    const std::string buffer = "in" + std::to_string(k);
    f.buffers.push_back({buffer, inputs[k], Access::kIn, index_const(n)});
    loads.push_back(make_load(buffer, inputs[k], index));
  }
  f.buffers.push_back({"out", output, Access::kOut, index_const(n)});
  For loop;
  loop.var = "i";
  loop.begin = index_const(0);
  loop.end = index_const(n / lanes);
  loop.body = make_block({Store{"out", index, fn(loads), nullptr}});
  f.body = make_block({loop});
  return f;
}

Function lowered(const Function& f, const Target& target) { return legalize(lower_math(f, target), target); }

void run(const FunctionLibrary& library, const std::string& name, std::vector<Array*> arrays,
         const std::vector<int64_t>& symbols) {
  std::vector<void*> pointers;
  for (Array* a : arrays) pointers.push_back(a->data());
  library.lookup(name)(pointers.data(), symbols.data());
}

void interpret(const Function& f, std::vector<Array*> arrays, const std::vector<int64_t>& symbols) {
  std::vector<void*> pointers;
  for (Array* a : arrays) pointers.push_back(a->data());
  eval(f, pointers, symbols);
}

void expect_same(const Function& f, const std::vector<Array>& arrays, const std::vector<int64_t>& symbols,
                 double ulps) {
  auto pointers = [](std::vector<Array>& v) {
    std::vector<Array*> result;
    for (Array& a : v) result.push_back(&a);
    return result;
  };
  std::vector<Array> expected = arrays;
  interpret(f, pointers(expected), symbols);
  for (Isa isa : supported_isas()) {
    const Target target = target_for(isa);
    std::vector<Array> actual = arrays;
    run(*jit_compile({lowered(f, target)}, target), f.name, pointers(actual), symbols);
    for (size_t i = 0; i < arrays.size(); ++i) {
      const std::string where =
          f.name + " on " + std::string(ipex::name(isa)) + ", buffer " + f.buffers[i].name;
      EXPECT_EQ(difference(expected[i], actual[i], ulps), "") << where;
      EXPECT_TRUE(actual[i].guard_is_intact()) << where;
    }
  }
}

std::vector<double> float_edges(Dtype dtype) {
  const double inf = std::numeric_limits<double>::infinity(), nan = std::numeric_limits<double>::quiet_NaN();
  std::vector<double> v = {0.0,    -0.0,       1.0,      -1.0,   0.5,  -0.5, 1.5,      -1.5,     2.5,
                           -2.5,   3.0,        -7.0,     0.1,    -0.1, 1e-3, 88.7,     -87.3,    10.25,
                           -103.9, 255.0,      127.5,    -128.5, 1e4,  -1e4, 65504,    1e6,      -1e6,
                           1e-7,   3.14159265, -2.71828, inf,    -inf, nan,  0.999999, 1.000001, 42};
  if (dtype == Dtype::kF32 || dtype == Dtype::kF64)
    v.insert(v.end(), {1e30, -1e30, 1e-30, 0x1p-126, 0x1p-149, -0x1p-140, 3.4028234663852886e38, 0x1p31,
                       -0x1p31, 0x1p63, -0x1p63, 16777217.0});
  if (dtype == Dtype::kF64) v.insert(v.end(), {1e300, -1e300, 1e-300, 5e-324, 0x1p53 + 1});
  return v;
}

std::vector<int64_t> int_edges(Dtype dtype) {
  if (dtype == Dtype::kBool) return {0, 1};
  const int bits = static_cast<int>(itemsize(dtype)) * 8;
  if (!info(dtype).is_signed) return {0, 1, 2, 3, 7, 8, 9, 100, 127, 128, 129, 254, 255};
  const int64_t max = static_cast<int64_t>((uint64_t{1} << (bits - 1)) - 1);
  return {0, 1, -1, 2, -2, 3, -3, 7, -7, 8, -8, 10, 31, 32, 63, 64, 100, -100, max, max - 1, -max, -max - 1};
}

}  // namespace ipex::loop::testing

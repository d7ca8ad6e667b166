// Common parts of tests of library steps: strided tensors with values as doubles, an Executable with one
// step, and all post-ops in double precision.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <numbers>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "kernels/library.h"
#include "runtime/executable.h"

namespace ipex::kernels::testing {

using Sizes = std::vector<int64_t>;

inline Sizes row_major(const Sizes& sizes) {
  Sizes strides(sizes.size());
  int64_t step = 1;
  for (size_t i = sizes.size(); i-- > 0;) {
    strides[i] = step;
    step *= sizes[i];
  }
  return strides;
}

// Strides of a dense tensor with this order of dims in memory, outermost first.
inline Sizes in_order(const Sizes& sizes, const std::vector<int>& order) {
  Sizes strides(sizes.size());
  int64_t step = 1;
  for (size_t i = order.size(); i-- > 0;) {
    strides[order[i]] = step;
    step *= sizes[order[i]];
  }
  return strides;
}

inline Sizes channels_last(const Sizes& sizes) {
  std::vector<int> order = {0};
  for (size_t d = 2; d < sizes.size(); ++d) order.push_back(static_cast<int>(d));
  order.push_back(1);
  return in_order(sizes, order);
}

// Calls visit with a value of the C++ type of dtype, which bf16 does not have.
template <class Visit>
auto with_type(Dtype dtype, Visit visit) {
  switch (dtype) {
    case Dtype::kBool:
    case Dtype::kU8:
      return visit(uint8_t{});
    case Dtype::kI8:
      return visit(int8_t{});
    case Dtype::kI16:
      return visit(int16_t{});
    case Dtype::kI32:
      return visit(int32_t{});
    case Dtype::kI64:
      return visit(int64_t{});
    case Dtype::kF16:
      return visit(_Float16{});
    case Dtype::kF64:
      return visit(double{});
    default:
      return visit(float{});
  }
}

// A tensor with its own memory, which has gaps if the strides do.
class Tensor {
 public:
  Tensor() = default;
  Tensor(Dtype dtype, Sizes sizes, Sizes strides = {}, int64_t offset = 0)
      : dtype_(dtype), sizes_(std::move(sizes)), strides_(std::move(strides)), offset_(offset) {
    if (strides_.empty() && !sizes_.empty()) strides_ = row_major(sizes_);
    int64_t last = offset_;
    for (size_t d = 0; d < sizes_.size(); ++d) last += std::max<int64_t>(sizes_[d] - 1, 0) * strides_[d];
    bytes_.assign(static_cast<size_t>((last + 1) * itemsize(dtype)), std::byte{0x7f});
  }

  static Tensor random(Dtype dtype, Sizes sizes, int seed, Sizes strides = {}, int64_t offset = 0) {
    Tensor tensor(dtype, std::move(sizes), std::move(strides), offset);
    std::mt19937 generator(seed);
    std::uniform_real_distribution<float> uniform(-1, 1);
    tensor.each([&](const Sizes& index) { tensor.set(index, uniform(generator)); });
    return tensor;
  }

  template <class Visit>
  void each(Visit visit) const {
    if (numel() == 0) return;
    Sizes index(sizes_.size(), 0);
    for (;;) {
      visit(index);
      size_t d = sizes_.size();
      while (d > 0 && ++index[d - 1] == sizes_[d - 1]) index[--d] = 0;
      if (d == 0) return;
    }
  }

  double at(const Sizes& index) const {
    const std::byte* p = bytes_.data() + position(index);
    if (dtype_ == Dtype::kBF16) {
      uint16_t half;
      std::memcpy(&half, p, 2);
      return std::bit_cast<float>(static_cast<uint32_t>(half) << 16);
    }
    return with_type(dtype_, [&](auto value) {
      std::memcpy(&value, p, sizeof value);
      return static_cast<double>(value);
    });
  }
  // The element at `index` of a larger shape that the tensor broadcasts to.
  double at_broadcast(const Sizes& index) const {
    Sizes own(sizes_.size());
    for (size_t d = 0; d < own.size(); ++d)
      own[d] = sizes_[d] == 1 ? 0 : index[index.size() - own.size() + d];
    return at(own);
  }
  void set(const Sizes& index, double value) {
    std::byte* p = bytes_.data() + position(index);
    if (dtype_ == Dtype::kBF16) {
      const uint32_t bits = std::bit_cast<uint32_t>(static_cast<float>(value));
      const uint16_t half = static_cast<uint16_t>((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
      std::memcpy(p, &half, 2);
      return;
    }
    with_type(dtype_, [&](auto typed) {
      typed = static_cast<decltype(typed)>(value);
      std::memcpy(p, &typed, sizeof typed);
    });
  }

  TensorSpec spec(int buffer) const {
    TensorSpec spec;
    spec.buffer = buffer;
    spec.dtype = dtype_;
    spec.sizes.assign(sizes_.begin(), sizes_.end());
    spec.strides.assign(strides_.begin(), strides_.end());
    spec.offset = offset_;
    return spec;
  }

  Dtype dtype() const { return dtype_; }
  const Sizes& sizes() const { return sizes_; }
  void* data() { return bytes_.data(); }
  int64_t numel() const {
    return std::accumulate(sizes_.begin(), sizes_.end(), int64_t{1}, std::multiplies<>());
  }
  const std::vector<std::byte>& bytes() const { return bytes_; }

 private:
  size_t position(const Sizes& index) const {
    int64_t at = offset_;
    for (size_t d = 0; d < index.size(); ++d) at += index[d] * strides_[d];
    return static_cast<size_t>(at * itemsize(dtype_));
  }

  Dtype dtype_ = Dtype::kF32;
  Sizes sizes_, strides_;
  int64_t offset_ = 0;
  std::vector<std::byte> bytes_;
};

// The buffers of every test: 0 is the result, 1.. are operands in order, and kPacked is for packed weights.
inline constexpr int kPacked = 15;

// An Executable with a library step. Its inputs are buffers 1..count, and its output is buffer 0.
inline std::unique_ptr<Executable> executable_of(LibrarySteps steps, int inputs, int symbols = 0) {
  Executable::Parts parts;
  parts.buffers.resize(kPacked + 1);
  parts.buffers[0] = {BufferKind::kOutput, 0};
  parts.outputs.resize(1);
  for (int i = 0; i < inputs; ++i) {
    parts.buffers[i + 1] = {BufferKind::kInput, i};
    parts.static_inputs.push_back(i);
  }
  parts.inputs.resize(inputs);
  parts.symbol_count = symbols;
  if (steps.pack) {
    parts.buffers[kPacked] = {BufferKind::kHoisted, -1, steps.packed_bytes};
    parts.steps.push_back(std::move(steps.pack));
    parts.hoisted.push_back(true);
  }
  parts.steps.push_back(std::move(steps.main));
  parts.hoisted.push_back(false);
  return std::make_unique<Executable>(std::move(parts));
}

inline void run(const Executable& executable, Tensor& result, std::vector<Tensor*> operands,
                Sizes symbols = {}, std::span<const InputVersion> versions = {}) {
  std::vector<void*> inputs;
  for (Tensor* operand : operands) inputs.push_back(operand->data());
  void* outputs[] = {result.data()};
  executable.run(inputs, outputs, symbols, versions);
}

// The value of a post-op in double; `operand` is for binary ones.
inline double reference(const PostOp& op, double x, double operand) {
  const double pi = std::numbers::pi;
  if (op.name == "relu") return std::max(x, 0.0);
  if (op.name == "leaky_relu") return x > 0 ? x : x * op.alpha;
  if (op.name == "elu") return x > 0 ? x : op.alpha * std::expm1(x);
  if (op.name == "gelu") return x * 0.5 * std::erfc(-x / std::sqrt(2.0));
  if (op.name == "gelu_tanh")
    return 0.5 * x * (1 + std::tanh(std::sqrt(2 / pi) * (x + 0.044715 * x * x * x)));
  if (op.name == "silu") return x / (1 + std::exp(-x));
  if (op.name == "sigmoid") return 1 / (1 + std::exp(-x));
  if (op.name == "tanh") return std::tanh(x);
  if (op.name == "hardswish") return x * std::clamp(x + 3, 0.0, 6.0) / 6;
  if (op.name == "mish") return x * std::tanh(std::log1p(std::exp(x)));
  if (op.name == "hardtanh" || op.name == "clip")
    return std::clamp(x, static_cast<double>(op.alpha), static_cast<double>(op.beta));
  if (op.name == "square") return x * x;
  if (op.name == "abs") return std::abs(x);
  if (op.name == "sqrt") return std::sqrt(x);
  if (op.name == "add" || op.name == "sum") return x + operand;
  if (op.name == "sub") return x - operand;
  if (op.name == "mul") return x * operand;
  ADD_FAILURE() << "post-op " << op.name << " has no reference here";
  return std::numeric_limits<double>::quiet_NaN();
}

// The tolerance for a result of this type, relative to the magnitude of the summed values.
inline double tolerance(Dtype dtype) { return dtype == Dtype::kF32 ? 2e-6 : 5e-3; }

// Tests over both types of the library; bf16 needs AVX-512.
class ByType : public ::testing::TestWithParam<Dtype> {
 protected:
  void SetUp() override {
    if (GetParam() == Dtype::kBF16 && current_isa() == Isa::kAvx2) GTEST_SKIP() << "no bf16 on this target";
  }
};

}  // namespace ipex::kernels::testing

// How tests write graphs and tensors: text in, vectors of numbers in and out.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "backend/lower/lower.h"
#include "codegen/loop/eval.h"
#include "codegen/loop/half.h"
#include "codegen/loop/text.h"

namespace ipex::test {

using graph::HostTensor;
using Floats = std::vector<float>;
using Longs = std::vector<int64_t>;

template <class T>
HostTensor tensor(const std::vector<T>& values) {
  HostTensor bytes(values.size() * sizeof(T));
  if (!values.empty()) std::memcpy(bytes.data(), values.data(), bytes.size());
  return bytes;
}
inline HostTensor bools(const std::vector<int>& values) {
  HostTensor bytes;
  for (int v : values) bytes.push_back(static_cast<std::byte>(v));
  return bytes;
}
inline HostTensor bf16(const std::vector<float>& values) {
  std::vector<uint16_t> bits;
  for (float v : values) bits.push_back(loop::f32_to_bf16(v));
  return tensor(bits);
}

template <class T>
std::vector<T> values(const HostTensor& bytes) {
  std::vector<T> out(bytes.size() / sizeof(T));
  if (!out.empty()) std::memcpy(out.data(), bytes.data(), bytes.size());
  return out;
}
inline std::vector<float> bf16_values(const HostTensor& bytes) {
  std::vector<float> out;
  for (uint16_t bits : values<uint16_t>(bytes)) out.push_back(loop::bf16_to_f32(bits));
  return out;
}

// Deterministic values around zero, exact in every float type.
inline std::vector<float> ramp(size_t n, float scale = 0.25f) {
  std::vector<float> out(n);
  for (size_t i = 0; i < n; ++i) out[i] = scale * static_cast<float>(static_cast<int>((i * 7 + 3) % 23) - 11);
  return out;
}

template <class T>
void expect_near(const std::vector<T>& actual, const std::vector<T>& expected, double tolerance = 1e-6,
                 const std::string& what = "") {
  ASSERT_EQ(actual.size(), expected.size()) << what;
  for (size_t i = 0; i < actual.size(); ++i) {
    const double a = static_cast<double>(actual[i]), e = static_cast<double>(expected[i]);
    if (std::isnan(e)) {
      EXPECT_TRUE(std::isnan(a)) << what << " at " << i << ": " << a << ", expected NaN";
    } else if (std::isinf(e) || e == 0) {
      EXPECT_TRUE(a == e || (e == 0 && std::fabs(a) <= tolerance))
          << what << " at " << i << ": " << a << ", expected " << e;
    } else {
      EXPECT_NEAR(a, e, tolerance * std::max(1.0, std::fabs(e))) << what << " at " << i;
    }
  }
}

// The graph as one kernel over contiguous memory (or the layouts given), interpreted.
struct Kernel {
  loop::Function function;
  std::vector<HostTensor> outputs;
};
inline Kernel run_fused(const graph::Graph& g, std::vector<HostTensor> inputs,
                        const std::vector<int64_t>& symbols = {},
                        std::vector<graph::OperandLayout> input_layouts = {},
                        std::vector<graph::OperandLayout> output_layouts = {}) {
  std::map<std::string, int64_t> binding;
  for (size_t k = 0; k < symbols.size(); ++k) binding[g.symbols[k]] = symbols[k];
  auto contiguous = [&](const graph::Type& type) {
    return graph::OperandLayout{graph::contiguous_strides(type.shape), loop::index_const(0),
                                graph::numel(type.shape)};
  };
  if (input_layouts.empty())
    for (int32_t n : g.inputs) input_layouts.push_back(contiguous(g.nodes[n].types[0]));
  if (output_layouts.empty())
    for (const auto& output : g.outputs) output_layouts.push_back(contiguous(g.type(output.value)));
  Kernel kernel{graph::lower_group(g, input_layouts, output_layouts, "kernel"), {}};
  loop::verify(kernel.function);
  std::vector<void*> buffers;
  for (HostTensor& input : inputs) buffers.push_back(input.data());
  for (size_t k = 0; k < g.outputs.size(); ++k)
    kernel.outputs.emplace_back(static_cast<size_t>(loop::eval_int(output_layouts[k].extent, binding) *
                                                    itemsize(g.type(g.outputs[k].value).dtype)));
  for (HostTensor& output : kernel.outputs) buffers.push_back(output.data());
  loop::eval(kernel.function, buffers, symbols);
  return kernel;
}

// The first result of such a kernel, of floats.
inline Floats run(const std::string& text, std::vector<HostTensor> inputs, const Longs& symbols = {}) {
  return values<float>(run_fused(graph::parse(text), std::move(inputs), symbols).outputs[0]);
}

}  // namespace ipex::test

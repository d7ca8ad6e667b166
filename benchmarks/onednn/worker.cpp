// Times primitives of the oneDNN that this process loads; bench_onednn.py starts one process per oneDNN and
// lets them run in turns.
//
// Only the library differs between the processes, since all run this program. It reads "<case>
// <milliseconds>" from its input and answers with microseconds per call, the implementation, and two sums
// over the result, by which results are compared.
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <functional>
#include <iostream>
#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "kernels/onednn.h"

namespace {

using dnnl::memory;
using Type = memory::data_type;
using Tag = memory::format_tag;
using Dims = memory::dims;

dnnl::engine& engine() {
  static dnnl::engine cpu(dnnl::engine::kind::cpu, 0);
  return cpu;
}
dnnl::stream& stream() {
  static dnnl::stream in_order(engine());
  return in_order;
}

// A tensor in memory that this program allocates and aligns, whatever the engine is.
struct Tensor {
  explicit Tensor(const memory::desc& desc)
      : bytes(desc.get_size() + 64), memory(desc, engine(), aligned(bytes.data())) {}
  static void* aligned(char* data) { return data + (64 - reinterpret_cast<uintptr_t>(data) % 64) % 64; }
  std::vector<char> bytes;
  dnnl::memory memory;
};

struct Problem {
  std::string implementation;
  dnnl::primitive primitive;
  std::vector<std::unique_ptr<Tensor>> tensors;
  std::unordered_map<int, memory> arguments;
  Tensor* result = nullptr;

  void run() { primitive.execute(stream(), arguments); }

  Tensor& add(const memory::desc& desc) { return *tensors.emplace_back(std::make_unique<Tensor>(desc)); }

  // A tensor in the layout that the primitive wants, with the same values for each oneDNN.
  void input(int argument, const memory::desc& wanted, Type type, Tag plain) {
    Tensor floats(memory::desc(wanted.get_dims(), Type::f32, plain));
    const size_t count = floats.memory.get_desc().get_size() / sizeof(float);
    auto* values = static_cast<float*>(floats.memory.get_data_handle());
    uint32_t state = 12345u + static_cast<uint32_t>(argument);
    for (size_t i = 0; i < count; ++i) {
      state = state * 1664525u + 1013904223u;
      const auto byte = static_cast<int>(state >> 24);
      // Small integers in the 8-bit types, so that sums of pairs of products do not saturate without VNNI.
      values[i] = type == Type::u8   ? static_cast<float>(byte % 64)
                  : type == Type::s8 ? static_cast<float>(byte % 64 - 32)
                                     : static_cast<float>(byte - 128) / 512.0f;
    }
    Tensor& used = add(wanted);
    dnnl::reorder(floats.memory, used.memory).execute(stream(), floats.memory, used.memory);
    stream().wait();
    arguments[argument] = used.memory;
  }
  void output(int argument, const memory::desc& desc) {
    result = &add(desc);
    arguments[argument] = result->memory;
  }
  void scratchpad(const memory::desc& desc) {
    if (desc.get_size() > 0) arguments[DNNL_ARG_SCRATCHPAD] = add(desc).memory;
  }

  // The sums of the values and of their squares.
  std::pair<double, double> sums() {
    const memory::desc desc = result->memory.get_desc();
    const Tag plain = desc.get_ndims() == 2 ? Tag::ab : desc.get_ndims() == 3 ? Tag::abc : Tag::acdb;
    Tensor floats(memory::desc(desc.get_dims(), Type::f32, plain));
    dnnl::reorder(result->memory, floats.memory).execute(stream(), result->memory, floats.memory);
    stream().wait();
    const auto* values = static_cast<const float*>(floats.memory.get_data_handle());
    double sum = 0, squares = 0;
    for (size_t i = 0; i < floats.memory.get_desc().get_size() / sizeof(float); ++i) {
      sum += values[i];
      squares += static_cast<double>(values[i]) * values[i];
    }
    return {sum, squares};
  }
};

struct Types {
  Type source, weights, result;
};
const Types kInt8{Type::u8, Type::s8, Type::s32}, kBf16{Type::bf16, Type::bf16, Type::bf16},
    kF32{Type::f32, Type::f32, Type::f32};

dnnl::primitive_attr attributes() {
  dnnl::primitive_attr attr;
  attr.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  return attr;
}

Problem matmul(const Types& t, int64_t rows, int64_t depth, int64_t columns) {
  const dnnl::matmul::primitive_desc desc(engine(), memory::desc({rows, depth}, t.source, Tag::ab),
                                          memory::desc({depth, columns}, t.weights, Tag::any),
                                          memory::desc({rows, columns}, t.result, Tag::ab), attributes());
  Problem p{desc.impl_info_str(), dnnl::matmul(desc)};
  p.input(DNNL_ARG_SRC, desc.src_desc(), t.source, Tag::ab);
  p.input(DNNL_ARG_WEIGHTS, desc.weights_desc(), t.weights, Tag::ab);
  p.output(DNNL_ARG_DST, desc.dst_desc());
  p.scratchpad(desc.scratchpad_desc());
  return p;
}

Problem convolution(const Types& t, int64_t batch, int64_t in, int64_t out, int64_t size, int64_t window) {
  const int64_t padding = window / 2;
  const dnnl::convolution_forward::primitive_desc desc(
      engine(), dnnl::prop_kind::forward_inference, dnnl::algorithm::convolution_direct,
      memory::desc({batch, in, size, size}, t.source, Tag::nhwc),
      memory::desc({out, in, window, window}, t.weights, Tag::any),
      memory::desc({batch, out, size, size}, t.result, Tag::nhwc), Dims{1, 1}, Dims{padding, padding},
      Dims{padding, padding}, attributes());
  Problem p{desc.impl_info_str(), dnnl::convolution_forward(desc)};
  p.input(DNNL_ARG_SRC, desc.src_desc(), t.source, Tag::nhwc);
  p.input(DNNL_ARG_WEIGHTS, desc.weights_desc(), t.weights, Tag::oihw);
  p.output(DNNL_ARG_DST, desc.dst_desc());
  p.scratchpad(desc.scratchpad_desc());
  return p;
}

Problem lstm(const Types& t, int64_t steps, int64_t batch, int64_t width) {
  constexpr int64_t kGates = 4;
  const memory::desc none;  // the states before the first step: zeros
  const memory::desc sequence({steps, batch, width}, t.source, Tag::tnc);
  const memory::desc weights({1, 1, width, kGates, width}, t.weights, Tag::any);
  const dnnl::lstm_forward::primitive_desc desc(
      engine(), dnnl::prop_kind::forward_inference, dnnl::rnn_direction::unidirectional_left2right, sequence,
      none, none, weights, weights, memory::desc({1, 1, kGates, width}, Type::f32, Tag::ldgo), sequence, none,
      none, attributes());
  Problem p{desc.impl_info_str(), dnnl::lstm_forward(desc)};
  p.input(DNNL_ARG_SRC_LAYER, desc.src_layer_desc(), t.source, Tag::tnc);
  p.input(DNNL_ARG_WEIGHTS_LAYER, desc.weights_layer_desc(), t.weights, Tag::ldigo);
  p.input(DNNL_ARG_WEIGHTS_ITER, desc.weights_iter_desc(), t.weights, Tag::ldigo);
  p.input(DNNL_ARG_BIAS, desc.bias_desc(), Type::f32, Tag::ldgo);
  p.output(DNNL_ARG_DST_LAYER, desc.dst_layer_desc());
  p.scratchpad(desc.scratchpad_desc());
  return p;
}

std::vector<std::pair<std::string, std::function<Problem()>>> cases() {
  std::vector<std::pair<std::string, std::function<Problem()>>> all;
  for (const auto& [name, types] : {std::pair{"int8", kInt8}, {"bf16", kBf16}, {"f32", kF32}}) {
    const std::string prefix = name;
    const Types t = types;
    all.emplace_back(prefix + " matmul 1x4096x4096", [t] { return matmul(t, 1, 4096, 4096); });
    all.emplace_back(prefix + " matmul 128x768x3072", [t] { return matmul(t, 128, 768, 3072); });
    all.emplace_back(prefix + " matmul 1024x1024x1024", [t] { return matmul(t, 1024, 1024, 1024); });
    all.emplace_back(prefix + " conv 1x64->64 56x56 3x3", [t] { return convolution(t, 1, 64, 64, 56, 3); });
    all.emplace_back(prefix + " conv 8x256->256 14x14 3x3",
                     [t] { return convolution(t, 8, 256, 256, 14, 3); });
    all.emplace_back(prefix + " conv 8x512->128 28x28 1x1",
                     [t] { return convolution(t, 8, 512, 128, 28, 1); });
    if (prefix == "int8") continue;  // an int8 LSTM needs scales and other types of states
    all.emplace_back(prefix + " LSTM 64 steps, 32x256", [t] { return lstm(t, 64, 32, 256); });
    all.emplace_back(prefix + " LSTM 64 steps, 1x512", [t] { return lstm(t, 64, 1, 512); });
  }
  return all;
}

// Microseconds per call: the least of several short series.
double time_calls(Problem& problem, double milliseconds) {
  using Clock = std::chrono::steady_clock;
  constexpr int kSeries = 5;
  const auto series = [&](int64_t calls) {
    const auto start = Clock::now();
    for (int64_t i = 0; i < calls; ++i) {
      problem.run();
      stream().wait();
    }
    return std::chrono::duration<double, std::micro>(Clock::now() - start).count() /
           static_cast<double>(calls);
  };
  double best = series(1);
  for (int i = 0; i < 2; ++i) best = std::min(best, series(1));
  const auto calls = std::max<int64_t>(1, static_cast<int64_t>(milliseconds * 1000 / kSeries / best));
  for (int i = 0; i < kSeries; ++i) best = std::min(best, series(calls));
  return best;
}

}  // namespace

int main(int count, char** arguments) {
  if (count > 1 && std::strcmp(arguments[1], "--list") == 0) {
    for (const auto& [name, make] : cases()) std::puts(name.c_str());
    return 0;
  }
  const dnnl::version_t* version = dnnl::version();
  std::printf("%d.%d.%d\n", version->major, version->minor, version->patch);
  std::fflush(stdout);
  const auto all = cases();
  std::map<size_t, Problem> problems;
  size_t which = 0;
  double milliseconds = 0;
  while (std::cin >> which >> milliseconds) {
    auto at = problems.find(which);
    if (at == problems.end()) {
      problems.clear();  // the memory of one case at a time
      at = problems.emplace(which, all.at(which).second()).first;
    }
    const double microseconds = time_calls(at->second, milliseconds);
    const auto [sum, squares] = at->second.sums();
    std::printf("%.17g %.17g %.17g %s\n", microseconds, sum, squares, at->second.implementation.c_str());
    std::fflush(stdout);
  }
}

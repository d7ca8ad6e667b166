// Compiles and runs a workload. Operands have values in [0.1, 0.9), where every op of the tables is defined,
// and integers in 0..3, which are valid indices.
#include "benchmarks/kernels/workload.h"

#include <cstdlib>
#include <map>
#include <new>
#include <random>

#include "backend/compile.h"
#include "backend/graph/constants.h"
#include "backend/ir_text.h"
#include "codegen/loop/eval.h"
#include "codegen/loop/text.h"
#include "runtime/error.h"

namespace ipex::bench {
namespace {

constexpr int64_t kPattern = 4096;  // elements; larger operands repeat them

void fill(std::byte* memory, Dtype dtype, int64_t elements) {
  std::mt19937 random(0);
  std::uniform_real_distribution<double> real(0.1, 0.9);
  std::vector<std::byte> pattern;
  for (int64_t i = 0; i < kPattern; ++i) {
    const double value = real(random);
    const auto integer = static_cast<int64_t>(value * (dtype == Dtype::kBool ? 2 : 4));
    graph::encode_number(is_float(dtype) ? graph::Number(value) : graph::Number(integer), dtype, pattern);
  }
  const auto bytes = elements * itemsize(dtype);
  for (int64_t at = 0; at < bytes; at += static_cast<int64_t>(pattern.size()))
    std::copy_n(pattern.data(), std::min(bytes - at, static_cast<int64_t>(pattern.size())), memory + at);
}

// The number of elements in memory from the first to the last of a tensor, and the number of distinct ones.
struct Extent {
  int64_t span = 1, distinct = 1;
};
Extent extent(const TensorSpec& spec, const std::vector<int64_t>& symbols) {
  Extent e;
  for (size_t d = 0; d < spec.sizes.size(); ++d) {
    const int64_t size = spec.sizes[d].eval(symbols.data()), stride = spec.strides[d].eval(symbols.data());
    if (size == 0) return {0, 0};
    e.span += (size - 1) * stride;
    if (stride != 0) e.distinct *= size;
  }
  e.span += spec.offset.eval(symbols.data());
  return e;
}

}  // namespace

void Workload::Free::operator()(std::byte* memory) const { std::free(memory); }

Workload::Memory Workload::allocate(int64_t bytes) {
  const auto rounded = static_cast<size_t>((bytes + 4095) / 4096 * 4096 + 4096);
  auto* memory = static_cast<std::byte*>(std::aligned_alloc(4096, rounded));
  if (!memory) throw OutOfMemory(rounded, 0);
  return Memory(memory);
}

Workload Workload::compile(const std::string& text) {
  return is_graph(text) ? of_graph(text) : of_functions(text);
}

Workload Workload::of_graph(const std::string& text) {
  const graph::Graph parsed = graph::parse(text);
  CompileOptions options;
  options.target = loop::current_target();
  options.hoist = false;
  options.make_extern = [](const graph::Node& node, auto&&...) -> std::unique_ptr<Step> {
    throw Unsupported("extern call " + node.get<graph::Extern>().overload +
                      " needs PyTorch: time it with ipexc bench-kernels");
  };
  const std::shared_ptr<const Executable> executable = ipex::compile(parsed, options).executable;
  const Executable::Parts& parts = executable->parts();
  const std::vector<int64_t> symbols = parsed.symbol_hints;

  Workload workload;
  std::vector<void*> inputs, outputs;
  for (const TensorSpec& spec : parts.inputs) {
    const Extent e = extent(spec, symbols);
    workload.memory_.push_back(allocate(e.span * itemsize(spec.dtype)));
    fill(workload.memory_.back().get(), spec.dtype, e.span);
    inputs.push_back(workload.memory_.back().get());
    workload.bytes_ += e.distinct * itemsize(spec.dtype);
  }
  for (const OutputSpec& output : parts.outputs) {
    const Extent e = extent(output.spec, symbols);
    workload.memory_.push_back(allocate(e.span * itemsize(output.spec.dtype)));
    outputs.push_back(workload.memory_.back().get());
    workload.bytes_ += e.distinct * itemsize(output.spec.dtype);
  }
  for (const auto& step : parts.steps) workload.flops_ += static_cast<double>(step->info.flops);
  workload.steps_ = static_cast<int>(parts.steps.size());
  workload.run_ = [executable, inputs, outputs, symbols] { executable->run(inputs, outputs, symbols, {}); };
  return workload;
}

Workload Workload::of_functions(const std::string& text) {
  const std::vector<loop::Function> functions = loop::parse_module(text);
  const auto library = loop::schedule_and_compile(functions, loop::current_target());
  Workload workload;
  struct Call {
    ipex_kernel_fn kernel;
    std::vector<void*> buffers;
    std::vector<int64_t> symbols;
  };
  std::vector<Call> calls;
  for (const loop::Function& f : functions) {
    Call call = {library->lookup(f.name), {}, std::vector<int64_t>(f.symbols.size(), kSymbol)};
    std::map<std::string, int64_t> binding;
    for (const std::string& symbol : f.symbols) binding[symbol] = kSymbol;
    for (const loop::Buffer& buffer : f.buffers) {
      const int64_t elements = loop::eval_int(buffer.extent, binding);
      workload.memory_.push_back(allocate(elements * itemsize(buffer.dtype)));
      fill(workload.memory_.back().get(), buffer.dtype, elements);
      call.buffers.push_back(workload.memory_.back().get());
      workload.bytes_ += elements * itemsize(buffer.dtype);
    }
    calls.push_back(std::move(call));
  }
  workload.steps_ = static_cast<int>(calls.size());
  workload.run_ = [library, calls] {
    for (const Call& call : calls) call.kernel(const_cast<void**>(call.buffers.data()), call.symbols.data());
  };
  return workload;
}

}  // namespace ipex::bench

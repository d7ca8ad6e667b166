// ipex-opt: reads a graph or loop functions as text, runs passes by name, and prints the result or any later
// stage down to machine code. `--run` compares compiled code with the interpreter. Bug reports are made and
// reproduced with it.
//
// Exit codes: 0 success, 1 invalid input or compiler error, 2 invalid command line, 3 --run found a
// difference.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <cstring>
#include <iostream>
#include <random>

#include "backend/compile.h"
#include "backend/graph/constants.h"
#include "backend/ir_text.h"
#include "backend/lower/lower.h"
#include "codegen/loop/eval.h"
#include "codegen/loop/text.h"
#include "codegen/passes/passes.h"

namespace {

using namespace ipex;

struct Settings {
  std::string file = "-", target, emit;
  std::vector<std::string> passes;
  bool pipeline = false, lower = false, run = false, list = false, matmul_kernels = false;
};

loop::Target target_of(const Settings& settings) {
  return settings.target.empty() ? loop::current_target() : loop::target_for(parse_isa(settings.target));
}

// Values with signs and fractions that keep sums and products finite, and small integers as indices.
std::vector<std::byte> random_bytes(Dtype dtype, int64_t count, std::mt19937& random) {
  std::vector<std::byte> bytes;
  std::uniform_real_distribution<double> real(-2, 2);
  for (int64_t i = 0; i < count; ++i) {
    const double value = real(random);
    const auto integer = static_cast<int64_t>(dtype == Dtype::kBool ? value > 0 : std::abs(value) * 2);
    graph::encode_number(is_float(dtype) ? graph::Number(value) : graph::Number(integer), dtype, bytes);
  }
  return bytes;
}

double element(const std::byte* data, Dtype dtype, int64_t i) {
  return std::visit([](auto value) { return static_cast<double>(value); },
                    graph::decode_number(data + i * itemsize(dtype), dtype));
}

// The largest |a - b|, relative to the largest |a|. Two NaNs are equal.
double difference(const std::byte* a, const std::byte* b, Dtype dtype, int64_t count) {
  double largest = 1e-30, apart = 0;
  for (int64_t i = 0; i < count; ++i) {
    const double x = element(a, dtype, i), y = element(b, dtype, i);
    if (std::isnan(x) && std::isnan(y)) continue;
    largest = std::max(largest, std::abs(x));
    apart = std::max(apart, std::isnan(x) != std::isnan(y) ? INFINITY : std::abs(x - y));
  }
  return apart / largest;
}

double tolerance(Dtype dtype) {
  return !is_float(dtype) ? 0 : is_half(dtype) ? 2e-2 : dtype == Dtype::kF32 ? 1e-5 : 1e-12;
}

int report(const std::string& what, double apart, Dtype dtype) {
  const bool bad = !(apart <= tolerance(dtype));
  std::cout << what << ": largest relative difference " << apart << (bad ? "  DIFFERS" : "") << "\n";
  return bad ? 3 : 0;
}

// The positions of a tensor's elements in its memory, in row-major order.
std::vector<int64_t> positions(const std::vector<int64_t>& sizes, const std::vector<int64_t>& strides,
                               int64_t offset) {
  std::vector<int64_t> result = {offset};
  for (size_t d = 0; d < sizes.size(); ++d) {
    std::vector<int64_t> next;
    for (int64_t base : result)
      for (int64_t i = 0; i < sizes[d]; ++i) next.push_back(base + i * strides[d]);
    result = std::move(next);
  }
  return result;
}

graph::HostTensor gather(const std::byte* memory, const std::vector<int64_t>& at, Dtype dtype) {
  graph::HostTensor result;
  for (int64_t i : at)
    result.insert(result.end(), memory + i * itemsize(dtype), memory + (i + 1) * itemsize(dtype));
  return result;
}

std::vector<int64_t> values(const std::vector<graph::Dim>& dims, const graph::Graph& g) {
  std::vector<int64_t> result;
  for (const graph::Dim& dim : dims) result.push_back(graph::hint(dim, g));
  return result;
}

std::vector<int64_t> values(const std::vector<SizeExpr>& sizes, const std::vector<int64_t>& symbols) {
  std::vector<int64_t> result;
  for (const SizeExpr& size : sizes) result.push_back(size.eval(symbols.data()));
  return result;
}

std::vector<std::byte> memory_for(const std::vector<int64_t>& at, Dtype dtype) {
  const int64_t last = at.empty() ? 0 : *std::max_element(at.begin(), at.end()) + 1;
  return std::vector<std::byte>(static_cast<size_t>(last * itemsize(dtype)));
}

// Compares compiled code with the interpreter: outputs, and inputs that the graph updates.
int run_graph(graph::Graph g, const CompileOptions& options) {
  std::mt19937 random(0);
  struct Input {
    std::vector<std::byte> memory;
    std::vector<int64_t> at;
    Dtype dtype;
  };
  std::vector<Input> inputs;
  std::vector<graph::HostTensor> logical;
  for (int32_t input : g.inputs) {
    const graph::Type& type = g.nodes[input].types[0];
    const auto at = positions(values(type.shape, g), values(g.layout({input, 0}), g), 0);
    Input& placed = inputs.emplace_back(Input{memory_for(at, type.dtype), at, type.dtype});
    const auto bytes = random_bytes(type.dtype, static_cast<int64_t>(at.size()), random);
    for (size_t i = 0; i < at.size(); ++i)
      std::memcpy(placed.memory.data() + at[i] * itemsize(type.dtype),
                  bytes.data() + static_cast<int64_t>(i) * itemsize(type.dtype),
                  static_cast<size_t>(itemsize(type.dtype)));
    logical.push_back(gather(placed.memory.data(), at, type.dtype));
  }
  const CompiledGraph compiled = compile(g, options);
  const std::vector<graph::InputMutation> mutations = std::move(g.mutations);
  g.mutations.clear();
  for (const graph::InputMutation& m : mutations) g.outputs.push_back({m.value, {}});
  const std::vector<graph::HostTensor> expected = graph::eval(g, logical, g.symbol_hints);

  std::vector<void*> input_pointers, output_pointers;
  for (Input& input : inputs) input_pointers.push_back(input.memory.data());
  const std::vector<OutputSpec>& specs = compiled.executable->parts().outputs;
  std::vector<std::vector<int64_t>> output_at;
  std::vector<std::vector<std::byte>> outputs;
  for (const auto& [spec, alias] : specs) {
    output_at.push_back(positions(values(spec.sizes, g.symbol_hints), values(spec.strides, g.symbol_hints),
                                  spec.offset.eval(g.symbol_hints.data())));
    outputs.push_back(memory_for(output_at.back(), spec.dtype));
  }
  for (size_t i = 0; i < outputs.size(); ++i) output_pointers.push_back(outputs[i].data());
  compiled.executable->run(input_pointers, output_pointers, g.symbol_hints, {});

  int code = 0;
  auto compare = [&](const std::string& what, const graph::HostTensor& want, const graph::HostTensor& have,
                     Dtype dtype) {
    const auto count = static_cast<int64_t>(want.size()) / itemsize(dtype);
    code = std::max(code, report(what, difference(want.data(), have.data(), dtype, count), dtype));
  };
  for (size_t i = 0; i < specs.size(); ++i) {
    const auto& memory =
        specs[i].alias_input < 0 ? outputs[i] : inputs[static_cast<size_t>(specs[i].alias_input)].memory;
    compare("output " + std::to_string(i), expected[i],
            gather(memory.data(), output_at[i], specs[i].spec.dtype), specs[i].spec.dtype);
  }
  for (size_t i = 0; i < mutations.size(); ++i) {
    const Input& input = inputs[static_cast<size_t>(mutations[i].input)];
    compare("input " + std::to_string(mutations[i].input), expected[specs.size() + i],
            gather(input.memory.data(), input.at, input.dtype), input.dtype);
  }
  return code;
}

int run_functions(const std::vector<loop::Function>& functions, const loop::Target& target) {
  const auto library = loop::schedule_and_compile(functions, target);
  int code = 0;
  for (const loop::Function& f : functions) {
    const std::vector<int64_t> symbols(f.symbols.size(), 33);
    std::map<std::string, int64_t> binding;
    for (const std::string& symbol : f.symbols) binding[symbol] = 33;
    std::mt19937 random(0);
    std::vector<std::vector<std::byte>> a, b;
    for (const loop::Buffer& buffer : f.buffers)
      a.push_back(random_bytes(buffer.dtype, loop::eval_int(buffer.extent, binding), random));
    b = a;
    std::vector<void*> pa, pb;
    for (auto& buffer : a) pa.push_back(buffer.data());
    for (auto& buffer : b) pb.push_back(buffer.data());
    loop::eval(f, pa, symbols);
    library->lookup(f.name)(pb.data(), symbols.data());
    for (size_t i = 0; i < a.size(); ++i) {
      const Dtype dtype = f.buffers[i].dtype;
      const auto count = static_cast<int64_t>(a[i].size()) / itemsize(dtype);
      if (f.buffers[i].access == loop::Access::kIn) continue;
      code = std::max(code, report(f.name + " " + f.buffers[i].name,
                                   difference(a[i].data(), b[i].data(), dtype, count), dtype));
    }
  }
  return code;
}

CompileOptions options_of(const Settings& settings) {
  CompileOptions options;
  options.target = target_of(settings);
  if (settings.matmul_kernels) options.matmul = MatmulSelection::kKernel;
  options.make_extern = [](const graph::Node& node, std::vector<TensorSpec>,
                           std::vector<TensorSpec>) -> std::unique_ptr<Step> {
    throw UserError("extern op " + node.get<graph::Extern>().overload +
                    ": ipex-opt has no ATen; run the graph from Python");
  };
  return options;
}

int emit_functions(const std::vector<loop::Function>& functions, const Settings& settings) {
  const loop::Target target = target_of(settings);
  if (settings.emit == "llvm" || settings.emit == "asm") {
    const auto scheduled = loop::run_pipeline(functions, target);
    std::cout << (settings.emit == "llvm" ? loop::emit_llvm(scheduled, target)
                                          : loop::emit_assembly(scheduled, target));
  } else {
    std::cout << loop::print(settings.emit == "loop" ? loop::run_pipeline(functions, target) : functions)
              << "\n";
  }
  return 0;
}

int process_graph(graph::Graph g, const Settings& settings) {
  for (const std::string& pass : settings.passes) {
    g = graph::run_pass(std::move(g), pass, target_of(settings));
    graph::verify(g);
  }
  if (settings.run) return run_graph(std::move(g), options_of(settings));
  if (settings.lower || !settings.emit.empty())
    return emit_functions(loop::parse_module(compile(g, options_of(settings)).report.loop_text), settings);
  if (settings.pipeline) g = graph::run_pipeline(std::move(g), target_of(settings));
  std::cout << graph::print(g);
  return 0;
}

int process_functions(std::vector<loop::Function> functions, const Settings& settings) {
  const loop::Target target = target_of(settings);
  for (const loop::Function& f : functions) loop::verify(f);
  for (const std::string& name : settings.passes) {
    const loop::LoopPass* found = loop::find_pass(name);
    if (!found) throw UserError("unknown loop pass '" + name + "': see ipex-opt --list");
    functions = found->run(std::move(functions), target);
    for (const loop::Function& f : functions) loop::verify(f);
  }
  if (settings.run) return run_functions(functions, target);
  if (settings.pipeline && settings.emit.empty())
    functions = loop::run_pipeline(std::move(functions), target);
  return emit_functions(functions, settings);
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app{"Runs passes over a graph or loop functions and prints the result."};
  Settings settings;
  app.add_option("file", settings.file, "text file, - for standard input")->capture_default_str();
  app.add_option("--pass", settings.passes, "passes to run, in order, comma-separated")
      ->delimiter(',')
      ->allow_extra_args(false);
  app.add_flag("--pipeline", settings.pipeline, "run the whole pipeline of this IR");
  app.add_flag("--lower", settings.lower, "graph only: print the kernels as lowered");
  app.add_option("--emit", settings.emit, "print the kernels scheduled (loop), as LLVM IR or as assembly")
      ->check(CLI::IsMember({"loop", "llvm", "asm"}));
  app.add_option("--target", settings.target, "avx2, avx512 or avx512_bf16; default: this CPU's best");
  app.add_flag("--matmul-kernels", settings.matmul_kernels,
               "compute every matrix product in a generated kernel, none in the library");
  app.add_flag("--run", settings.run, "run with random inputs and compare with the interpreter");
  app.add_flag("--list", settings.list, "print the names of all passes");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  }
  try {
    if (settings.list) {
      for (const graph::GraphPass& pass : graph::pipeline()) std::cout << "graph " << pass.name << "\n";
      for (const loop::LoopPass& pass : loop::pipeline()) std::cout << "loop  " << pass.name << "\n";
      return 0;
    }
    const std::string text = read_text(settings.file);
    return is_graph(text) ? process_graph(graph::parse(text), settings)
                          : process_functions(loop::parse_module(text), settings);
  } catch (const std::exception& error) {
    std::cerr << "ipex-opt: " << (settings.file == "-" ? "<stdin>" : settings.file) << ": " << error.what()
              << "\n";
    return 1;
  }
}

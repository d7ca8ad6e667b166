// ipex-opt: text in, passes by name, text out. Reads a graph or loop functions, whichever the text is, and
// shows any stage of their way to machine code; `--run` checks compiled code against the interpreter. The
// tool of every bug report.
//
// Exit codes: 0 done, 1 the input or the compiler failed, 2 the command line is wrong, 3 --run found a
// difference.
#include <CLI/CLI.hpp>
#include <cmath>
#include <cstring>
#include <fstream>
#include <iostream>
#include <random>
#include <sstream>

#include "backend/compile.h"
#include "backend/lower/lower.h"
#include "codegen/loop/eval.h"
#include "codegen/loop/text.h"
#include "codegen/passes/passes.h"

namespace {

using namespace ipex;

struct Settings {
  std::string file = "-", target, emit;
  std::vector<std::string> passes;
  bool pipeline = false, lower = false, run = false, list = false;
};

std::string read_text(const std::string& file) {
  std::ostringstream text;
  if (file == "-") {
    text << std::cin.rdbuf();
    return text.str();
  }
  std::ifstream stream(file);
  if (!stream) throw UserError("cannot read " + file);
  text << stream.rdbuf();
  return text.str();
}

// The first word that is not in a comment tells a graph from loop functions.
bool is_graph(const std::string& text) {
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    const size_t at = line.find_first_not_of(" \t");
    if (at == std::string::npos || line[at] == '#') continue;
    if (line.compare(at, 5, "graph") == 0) return true;
    if (line.compare(at, 4, "func") == 0) return false;
    break;
  }
  throw UserError("the text starts with neither 'graph' nor 'func'");
}

loop::Target target_of(const Settings& settings) {
  return settings.target.empty() ? loop::current_target() : loop::target_for(parse_isa(settings.target));
}

// Values that exercise signs and fractions but keep sums and products finite.
std::vector<std::byte> random_bytes(Dtype dtype, int64_t count, std::mt19937& random) {
  std::vector<std::byte> bytes(static_cast<size_t>(count * itemsize(dtype)));
  std::uniform_real_distribution<double> real(-2, 2);
  for (int64_t i = 0; i < count; ++i) {
    std::byte* at = bytes.data() + i * itemsize(dtype);
    const double value = real(random);
    switch (dtype) {
      case Dtype::kF32: {
        const float narrow = static_cast<float>(value);
        std::memcpy(at, &narrow, sizeof narrow);
        break;
      }
      case Dtype::kF64:
        std::memcpy(at, &value, sizeof value);
        break;
      case Dtype::kBF16: {  // the upper half of an f32
        const float wide = static_cast<float>(value);
        std::memcpy(at, reinterpret_cast<const char*>(&wide) + 2, 2);
        break;
      }
      case Dtype::kF16: {  // +-[1, 2)
        const uint16_t bits = static_cast<uint16_t>(0x3c00 | (random() & 0x83ff));
        std::memcpy(at, &bits, sizeof bits);
        break;
      }
      default: {
        const int64_t integer =
            dtype == Dtype::kBool ? (value > 0) : static_cast<int64_t>(std::abs(value) * 2);
        std::memcpy(at, &integer, static_cast<size_t>(itemsize(dtype)));
      }
    }
  }
  return bytes;
}

double element(const std::byte* data, Dtype dtype, int64_t i) {
  const std::byte* at = data + i * itemsize(dtype);
  switch (dtype) {
    case Dtype::kF32: {
      float value;
      std::memcpy(&value, at, sizeof value);
      return value;
    }
    case Dtype::kF64: {
      double value;
      std::memcpy(&value, at, sizeof value);
      return value;
    }
    case Dtype::kBF16: {
      const uint32_t bits = uint32_t{reinterpret_cast<const uint16_t*>(at)[0]} << 16;
      float value;
      std::memcpy(&value, &bits, sizeof value);
      return value;
    }
    case Dtype::kF16: {
      uint16_t bits;
      std::memcpy(&bits, at, sizeof bits);
      const double magnitude = (bits & 0x7c00) == 0
                                   ? std::ldexp(bits & 0x3ff, -24)
                                   : std::ldexp((bits & 0x3ff) | 0x400, ((bits >> 10) & 31) - 25);
      return bits & 0x8000 ? -magnitude : magnitude;
    }
    default: {
      int64_t value = 0;
      std::memcpy(&value, at, static_cast<size_t>(itemsize(dtype)));
      return static_cast<double>(value);
    }
  }
}

// Largest |a - b| relative to the largest |a|; NaN against NaN is equal.
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

int64_t elements(const std::vector<SizeExpr>& sizes, const std::vector<int64_t>& symbols) {
  int64_t count = 1;
  for (const SizeExpr& size : sizes) count *= size.eval(symbols.data());
  return count;
}

int run_graph(const graph::Graph& g, const CompileOptions& options) {
  std::mt19937 random(0);
  std::vector<graph::HostTensor> inputs;
  for (int32_t input : g.inputs) {
    const graph::Type& type = g.nodes[input].types[0];
    inputs.push_back(random_bytes(type.dtype, graph::hint(graph::numel(type.shape), g), random));
  }
  const std::vector<graph::HostTensor> expected = graph::eval(g, inputs, g.symbol_hints);
  const CompiledGraph compiled = compile(g, options);
  std::vector<void*> input_pointers, output_pointers;
  for (graph::HostTensor& tensor : inputs) input_pointers.push_back(tensor.data());
  std::vector<graph::HostTensor> outputs;
  for (const OutputSpec& output : compiled.executable->parts().outputs)
    outputs.emplace_back(
        static_cast<size_t>(elements(output.spec.sizes, g.symbol_hints) * itemsize(output.spec.dtype)));
  for (graph::HostTensor& tensor : outputs) output_pointers.push_back(tensor.data());
  compiled.executable->run(input_pointers, output_pointers, g.symbol_hints, {});
  int code = 0;
  for (size_t i = 0; i < outputs.size(); ++i) {
    const Dtype dtype = g.type(g.outputs[i].value).dtype;
    code = std::max(code, report("output " + std::to_string(i),
                                 difference(expected[i].data(), outputs[i].data(), dtype,
                                            static_cast<int64_t>(outputs[i].size()) / itemsize(dtype)),
                                 dtype));
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
  options.make_extern = [](const graph::Node& node, std::vector<TensorSpec>,
                           std::vector<TensorSpec>) -> std::unique_ptr<Step> {
    throw UserError("extern op " + node.name + ": ipex-opt has no ATen; run the graph from Python");
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
    g = graph::run_pass(std::move(g), pass);
    graph::verify(g);
  }
  if (settings.run) return run_graph(g, options_of(settings));
  if (settings.lower || !settings.emit.empty())
    return emit_functions(loop::parse_module(compile(g, options_of(settings)).report.loop_text), settings);
  if (settings.pipeline) g = graph::run_pipeline(std::move(g));
  std::cout << graph::print(g);
  return 0;
}

int process_functions(std::vector<loop::Function> functions, const Settings& settings) {
  const loop::Target target = target_of(settings);
  for (const loop::Function& f : functions) loop::verify(f);
  for (const std::string& name : settings.passes) {
    const loop::LoopPass* found = nullptr;
    for (const loop::LoopPass& pass : loop::pipeline())
      if (pass.name == name) found = &pass;
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
  app.add_option("--pass", settings.passes, "passes to run, in order, comma-separated")->delimiter(',');
  app.add_flag("--pipeline", settings.pipeline, "run the whole pipeline of the text's kind");
  app.add_flag("--lower", settings.lower, "graph: compile it and print the kernels as lowered");
  app.add_option("--emit", settings.emit, "print the kernels scheduled (loop), as LLVM IR or as assembly")
      ->check(CLI::IsMember({"loop", "llvm", "asm"}));
  app.add_option("--target", settings.target, "avx2, avx512 or avx512_bf16; default: this CPU's best");
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

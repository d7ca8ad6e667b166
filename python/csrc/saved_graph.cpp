// See saved_graph.h.
#include "python/csrc/saved_graph.h"

#include <pybind11/stl.h>

#include <chrono>
#include <span>

#include "backend/ahead_of_time.h"
#include "codegen/llvm/cache_text.h"
#include "kernels/extern_call.h"
#include "kernels/step_table.h"
#include "runtime/alignment.h"
#include "runtime/error.h"
#include "runtime/hoisting.h"
#include "runtime/program.h"

namespace ipex::python {
namespace py = pybind11;
using namespace py::literals;
namespace {

constexpr char kStatic[] = "static";  // member name of inputs that are the caller's weights

Interface interface_of(const CompiledGraph& graph) {
  const Executable::Parts& parts = graph.executable().parts();
  Interface interface;
  for (const Interface::Symbol& symbol : graph.signature().symbols)
    interface.symbols.push_back({.name = symbol.name});
  interface.inputs.resize(parts.inputs.size());
  for (size_t i = 0; i < interface.inputs.size(); ++i)
    interface.inputs[i].written = graph.signature().mutated[i];
  for (const int input : parts.static_inputs) interface.inputs[input].member = kStatic;
  return interface;
}

std::shared_ptr<const void> constant_of(const std::map<std::string, std::string>& all,
                                        const std::string& member, int64_t needed) {
  const auto found = all.find(member);
  if (found == all.end() || std::ssize(found->second) < needed)
    throw ParseError("program: no constant " + member + " of " + std::to_string(needed) + " bytes");
  return aligned_copy(std::as_bytes(std::span(found->second)));
}

}  // namespace

py::object save_graph(const CompiledGraph& graph) {
  const Executable::Parts& parts = graph.executable().parts();
  std::vector<ArtifactParts::Data> data;
  const std::vector<std::string> members = name_constants(parts, data);
  std::string program;
  try {
    program = print_program(interface_of(graph), parts, members);
  } catch (const Unsupported&) {
    return py::none();
  }
  py::dict constants;
  for (const auto& [member, bytes] : data)
    constants[py::str(member)] = py::bytes(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  return py::dict("target"_a = py::bytes(graph.report().target), "program"_a = program,
                  "constants"_a = constants, "kernels"_a = graph.report().kernels.keys);
}

std::unique_ptr<CompiledGraph> load_graph(const py::dict& saved, const py::list& arguments,
                                          const py::list& symbols, const py::list& outputs) {
  ipex::CompiledGraph compiled;
  compiled.report.target = loop::target_text(loop::current_target());
  if (saved["target"].cast<std::string>() != compiled.report.target) return nullptr;
  const auto kernels = saved["kernels"].cast<std::map<std::string, std::string>>();
  const auto text = saved["program"].cast<std::string>();
  const auto constants = saved["constants"].cast<std::map<std::string, std::string>>();
  Program program;
  {
    py::gil_scoped_release unlocked;
    Hoisting::release_dead();
    compiled.kernels = loop::load_kernels(kernels, &compiled.report.kernels);
    if (!compiled.kernels) return nullptr;
    const auto start = std::chrono::steady_clock::now();
    program = parse_program(
        text, [](FieldReader& io) { return kernels::read_extern_call(io, kernels::read_step); },
        compiled.kernels);
    const std::chrono::duration<double, std::milli> steps = std::chrono::steady_clock::now() - start;
    compiled.report.times = {{"kernels", compiled.report.kernels.link_ms}, {"steps", steps.count()}};
    for (size_t b = 0; b < program.constants.size(); ++b)
      if (!program.constants[b].empty())
        program.parts.buffers[b].constant =
            constant_of(constants, program.constants[b], program.parts.buffers[b].bytes.constant());
    compiled.executable = std::make_shared<const Executable>(std::move(program.parts));
  }
  std::vector<bool> mutated;
  for (const Interface::Input& input : program.interface.inputs) mutated.push_back(input.written);
  Signature signature =
      make_signature({arguments, symbols, outputs}, program.interface.symbol_names(), std::move(mutated));
  return std::make_unique<CompiledGraph>(std::move(compiled), std::move(signature));
}

}  // namespace ipex::python

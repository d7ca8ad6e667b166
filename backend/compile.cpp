// compile(): runs the graph passes, then three stages: place buffers, make steps, link kernels.
#include "backend/compile.h"

#include "backend/clock.h"
#include "backend/implementations/implementation.h"
#include "backend/placed_buffers.h"
#include "backend/plan_memory.h"
#include "backend/step_info.h"
#include "backend/step_maker.h"
#include "codegen/llvm/cache_text.h"
#include "codegen/loop/text.h"
#include "runtime/hoisting.h"

namespace ipex {
namespace graph {
namespace {

CompileReport report_of(const Graph& g, const CompileOptions& options) {
  CompileReport report;
  report.graph_text = print(g);
  report.target = loop::target_text(options.target);
  Choices choices = choices_of(g);
  report.choices = std::move(choices.all);
  report.measured = std::move(choices.measured);
  for (int32_t input : g.inputs) report.argument_bytes += bytes_hint(g, {input, 0});
  for (const GraphOutput& output : g.outputs) report.argument_bytes += bytes_hint(g, output.value);
  return report;
}

void add_steps(CompileReport& report, MadeSteps& made) {
  report.kernel_steps = made.kernel_steps;
  report.library_steps = made.library_steps;
  report.extern_steps = made.extern_steps;
  report.extern_ops = std::move(made.extern_ops);
  report.loop_text = loop::print(made.kernels.functions);
}

std::shared_ptr<const Executable> executable_of(PlacedBuffers& placed, MadeSteps& made) {
  Executable::Parts parts;
  parts.symbol_count = static_cast<int>(placed.graph.symbols.size());
  parts.lifetimes = lifetimes(placed.buffers, made.steps, placed.in_place);
  parts.buffers = std::move(placed.buffers);
  parts.inputs = std::move(placed.inputs);
  parts.static_inputs = std::move(placed.static_inputs);
  parts.outputs = std::move(placed.outputs);
  parts.steps = std::move(made.steps);
  parts.hoisted = std::move(made.hoisted);
  return std::make_shared<const Executable>(std::move(parts));
}

void add_memory(CompileReport& report, const Executable& executable, const Graph& g) {
  std::vector<int64_t> hints = g.symbol_hints;
  hints.resize(g.symbols.size(), 64);
  const MemoryPlan plan = executable.plan(hints);
  report.arena_bytes = plan.peak_bytes();
  report.naive_bytes = plan.naive_bytes;
}

}  // namespace
}  // namespace graph

CompiledGraph compile(graph::Graph graph, const CompileOptions& options) {
  using namespace graph;
  Hoisting::release_dead();
  std::vector<PassTime> times;
  const PassContext context(options);
  graph = run_pipeline(std::move(graph), context, options.stop_after, &times);
  CompileReport report = report_of(graph, options);
  report.times = std::move(times);

  Clock clock;
  PlacedBuffers placed = place_buffers(std::move(graph), options);
  MadeSteps made = make_steps(placed, options, *context.library);
  report.times.push_back({"lower", clock.lap() - made.primitives_ms});
  report.times.push_back({"primitives", made.primitives_ms});
  add_steps(report, made);
  std::shared_ptr<const FunctionLibrary> library;
  if (options.jit) library = link_kernels(made.kernels, options.target, &report.kernels);
  report.times.push_back({"kernels", clock.lap()});

  auto executable = executable_of(placed, made);
  add_memory(report, *executable, placed.graph);
  return {std::move(executable), std::move(library), std::move(made.kernels.functions), std::move(report)};
}

}  // namespace ipex

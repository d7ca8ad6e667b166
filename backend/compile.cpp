// compile(): runs the graph passes, gives every value that owns memory a buffer, and turns every node that
// computes into a step.
//
// Values are placed so that as little as possible is copied: a result that the caller wants goes straight to
// the caller's memory, an update of an input straight over it where nothing reads the old value any more.
// What is left over (an output that is a view of something else, an update whose old value is still needed)
// is copied by small kernels: an output as soon as it is computed, so that its source need not stay, the rest
// at the end.
#include "backend/compile.h"

#include <algorithm>

#include "backend/clock.h"
#include "backend/compiler.h"
#include "backend/graph/parameters.h"
#include "backend/implementations/implementation.h"
#include "backend/sort_steps.h"
#include "backend/step_info.h"
#include "codegen/llvm/cache_text.h"
#include "codegen/loop/simplify.h"
#include "codegen/loop/text.h"
#include "runtime/alignment.h"
#include "runtime/hoisting.h"
#include "runtime/time_limit.h"

namespace ipex {
namespace graph {

using loop::index_const;

CompiledGraph Compiler::run() {
  Clock clock;
  g_ = run_pipeline(std::move(g_), context_, options_.stop_after, &report_.times);
  report_.graph_text = print(g_);
  Choices choices = choices_of(g_);
  report_.choices = std::move(choices.all);
  report_.measured = std::move(choices.measured);
  report_.target = loop::target_text(options_.target);
  clock.lap();
  find_static();
  make_inputs();
  claim_outputs();
  find_needed();
  for (int32_t n = 0; n < std::ssize(g_.nodes); ++n) {
    check_time("lowering", g_.nodes[n].source);
    emit(n);
    copy_outputs(n);
  }
  copy_outputs(kAtEnd);
  copy_mutations();
  report_.times.push_back({"lower", clock.lap() - primitives_ms_});
  report_.times.push_back({"primitives", primitives_ms_});
  link_kernels();
  report_.times.push_back({"kernels", clock.lap()});
  return finish();
}

// ---- placement ----

void Compiler::find_static() {
  for (const InputMutation& m : g_.mutations) mutated_.insert(g_.inputs[m.input]);
  ParameterAnalysis is_parameter(g_);
  for (int32_t n = 0; n < std::ssize(g_.nodes); ++n)
    static_only_.push_back(options_.hoist && is_parameter({n, 0}));
}

int Compiler::add_buffer(BufferKind kind, int index, SizeExpr bytes) {
  parts_.buffers.push_back({kind, index, std::move(bytes), nullptr});
  in_place_.push_back(-1);
  return static_cast<int>(parts_.buffers.size()) - 1;
}

void Compiler::make_inputs() {
  for (size_t k = 0; k < g_.inputs.size(); ++k) {
    const Value v{g_.inputs[k], 0};
    buffers_[v] = add_buffer(BufferKind::kInput, static_cast<int>(k), 0);
    parts_.inputs.push_back(spec_of(v));
    if (g_.node(v).get<Input>().is_static && !mutated_.count(v.node))
      parts_.static_inputs.push_back(static_cast<int>(k));
  }
}

// Decides for each output whether its root writes the caller's memory, it is an alias of an input, or a
// copy is due.
void Compiler::claim_outputs() {
  parts_.outputs.resize(g_.outputs.size());
  for (size_t k = 0; k < g_.outputs.size(); ++k) {
    const GraphOutput& output = g_.outputs[k];
    const Shape& shape = g_.type(output.value).shape;
    const View view = resolve_view(g_, output.value);
    const bool strides_fit = output.strides.empty() || same_strides(shape, view.strides, output.strides);
    const Op op = g_.node(view.root).op();
    if (options_.alias_outputs && op == Op::kInput && strides_fit && !mutated_.count(view.root.node)) {
      parts_.outputs[k] = {spec_of(output.value), parts_.buffers[buffers_.at(view.root)].index};
      continue;
    }
    const bool whole = loop::as_const_int(view.offset) == 0 && is_dense(shape, view.strides) &&
                       loop::provably_equal(numel(shape), numel(g_.type(view.root).shape));
    const bool computed = op != Op::kInput && op != Op::kConstant && !static_only_[view.root.node];
    if (!computed || buffers_.count(view.root) || !strides_fit || !whole) {
      output_copies_[computed ? view.root.node : kAtEnd].push_back(static_cast<int>(k));
      continue;
    }
    buffers_[view.root] = add_buffer(BufferKind::kOutput, static_cast<int>(k), 0);
    parts_.outputs[k] = {spec_of(output.value)};
  }
}

void Compiler::find_needed() {
  needed_.resize(g_.nodes.size());
  auto need = [&](Value v) { needed_[resolve_view(g_, v).root.node] = true; };
  for (const GraphOutput& output : g_.outputs) need(output.value);
  for (const InputMutation& m : g_.mutations) need(m.value);
  last_reader_.assign(g_.nodes.size(), -1);
  for (int32_t n = static_cast<int32_t>(g_.nodes.size()) - 1; n >= 0; --n) {
    if (g_.nodes[n].op() == Op::kExtern) needed_[n] = true;  // it may have effects
    if (!needed_[n]) continue;
    for (Value v : g_.nodes[n].operands) {
      need(v);
      int32_t& last = last_reader_[resolve_view(g_, v).root.node];
      last = std::max(last, n);
    }
  }
  // A copy reads right behind the node that computes, or after every node.
  auto read_behind = [&](Value v, int32_t n) {
    int32_t& last = last_reader_[resolve_view(g_, v).root.node];
    last = std::max(last, n);
  };
  for (const auto& [after, outputs] : output_copies_)
    for (int k : outputs) read_behind(g_.outputs[k].value, after);
  for (const InputMutation& m : g_.mutations) read_behind(m.value, kAtEnd);
}

// ---- descriptions ----

int Compiler::buffer_of(Value root) {
  auto it = buffers_.find(root);
  if (it != buffers_.end()) return it->second;
  const Node& node = g_.node(root);
  const Type& type = g_.type(root);
  const Dim bytes = span(type.shape, g_.layout(root)) * index_const(itemsize(type.dtype));
  BufferKind kind = static_only_[root.node] ? BufferKind::kHoisted : BufferKind::kTemporary;
  if (node.op() == Op::kExtern) kind = BufferKind::kProvided;
  if (node.op() == Op::kConstant) kind = BufferKind::kConstant;
  const int buffer = add_buffer(kind, -1, size(bytes));
  if (kind == BufferKind::kConstant) parts_.buffers[buffer].constant = constant_data(root.node);
  return buffers_[root] = buffer;
}

std::shared_ptr<const void> Compiler::constant_data(int32_t n) const {
  const Node& node = g_.nodes[n];
  const auto& data = node.get<Constant>().data;
  const HostTensor bytes =
      data ? data->bytes : eval(body_of(g_, n), {}, std::vector<int64_t>(g_.symbols.size()))[0];
  return aligned_copy(bytes);
}

TensorSpec Compiler::spec_of(Value v) { return graph::spec_of(g_, v, buffer_of(resolve_view(g_, v).root)); }

std::vector<TensorSpec> Compiler::specs_of(const std::vector<Value>& values) {
  std::vector<TensorSpec> specs;
  for (Value v : values) specs.push_back(spec_of(v));
  return specs;
}

std::vector<Value> Compiler::results_of(int32_t n) const {
  std::vector<Value> out;
  for (size_t r = 0; r < g_.nodes[n].types.size(); ++r) out.push_back({n, static_cast<int32_t>(r)});
  return out;
}

std::vector<TensorSpec> Compiler::read_results(int32_t n) {
  std::vector<TensorSpec> results = specs_of(results_of(n));
  for (size_t r = 0; r < results.size(); ++r)
    if (!is_read({n, static_cast<int32_t>(r)})) results[r].buffer = -1;
  return results;
}

bool Compiler::is_read(Value v) const {
  for (const Node& node : g_.nodes)
    if (std::find(node.operands.begin(), node.operands.end(), v) != node.operands.end()) return true;
  for (const GraphOutput& output : g_.outputs)
    if (output.value == v) return true;
  return std::any_of(g_.mutations.begin(), g_.mutations.end(), [&](const auto& m) { return m.value == v; });
}

// ---- steps ----

void Compiler::add_step(std::unique_ptr<Step> step, bool hoisted) {
  parts_.steps.push_back(std::move(step));
  parts_.hoisted.push_back(hoisted);
}

void Compiler::emit(int32_t n) {
  const Node& node = g_.nodes[n];
  if (!needed_[n] || node.op() == Op::kInput || node.op() == Op::kConstant || is_empty(n)) return;
  switch (node.op()) {
    case Op::kGroup:
      return node.get<Group>().batch ? emit_batch(n) : emit_kernel(n, *node.get<Group>().body);
    case Op::kMatMul:
    case Op::kConv:
    case Op::kConvBackward:
    case Op::kLstm:
      // Where the pipeline was stopped before choose_implementations, nobody has chosen.
      return choice_of(node).by == Implementation::kLibrary || node.op() == Op::kLstm
                 ? emit_library(n)
                 : emit_kernel(n, body_of(g_, n));
    case Op::kExtern:
      return emit_extern(n);
    case Op::kSort:
    case Op::kSearch:
      return add_library(n, {make_sort_step(node, g_.symbols, specs_of(node.operands), read_results(n))});
    default:
      return emit_kernel(n, body_of(g_, n));
  }
}

bool Compiler::is_empty(int32_t n) const {
  const Node& node = g_.nodes[n];
  return node.op() != Op::kExtern && std::all_of(node.types.begin(), node.types.end(), [](const Type& type) {
           return std::any_of(type.shape.begin(), type.shape.end(),
                              [](const Dim& dim) { return loop::as_const_int(dim) == 0; });
         });
}

// ---- the end ----

void Compiler::link_kernels() {
  report_.loop_text = loop::print(kernels_);
  if (kernels_.empty() || !options_.jit) return;
  library_ = loop::schedule_and_compile(kernels_, options_.target, &report_.kernels);
  for (KernelStep* step : unlinked_) step->link(library_);
}

CompiledGraph Compiler::finish() {
  parts_.symbol_count = static_cast<int>(g_.symbols.size());
  parts_.lifetimes = lifetimes(parts_.buffers, parts_.steps, in_place_);
  auto executable = std::make_shared<const Executable>(std::move(parts_));
  std::vector<int64_t> hints = g_.symbol_hints;
  hints.resize(g_.symbols.size(), 64);
  const MemoryPlan plan = executable->plan(hints);
  report_.arena_bytes = plan.peak_bytes();
  report_.naive_bytes = plan.naive_bytes;
  for (int32_t input : g_.inputs) report_.argument_bytes += bytes_hint(g_, {input, 0});
  for (const GraphOutput& output : g_.outputs) report_.argument_bytes += bytes_hint(g_, output.value);
  return {std::move(executable), std::move(library_), std::move(kernels_), std::move(report_)};
}

}  // namespace graph

CompiledGraph compile(graph::Graph graph, const CompileOptions& options) {
  Hoisting::release_dead();
  return graph::Compiler(std::move(graph), options).run();
}

}  // namespace ipex

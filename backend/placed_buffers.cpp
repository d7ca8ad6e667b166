// See placed_buffers.h.
//
// Values are placed to avoid copies. A result that is an output is written directly to the caller's memory.
// An update of an input is written over it if no later step reads the old value (StepMaker decides that). The
// rest is copied by small kernels: an output that is a view of another value as soon as that is computed, so
// that its memory can be reused, and updates whose old value is still needed at the end.
#include "backend/placed_buffers.h"

#include <algorithm>

#include "backend/graph/parameters.h"
#include "backend/plan_memory.h"
#include "backend/views.h"
#include "codegen/loop/simplify.h"
#include "runtime/alignment.h"

namespace ipex::graph {
namespace {

using loop::index_const;

std::shared_ptr<const void> constant_data(const Graph& graph, int32_t n) {
  const Node& node = graph.nodes[n];
  const auto& data = node.get<Constant>().data;
  const HostTensor bytes =
      data ? data->bytes : eval(body_of(graph, n), {}, std::vector<int64_t>(graph.symbols.size()))[0];
  return aligned_copy(bytes);
}

class Placer {
 public:
  Placer(PlacedBuffers& placed, const CompileOptions& options)
      : placed_(placed), g_(placed.graph), options_(options) {}

  void run() {
    find_static();
    make_inputs();
    claim_outputs();
    find_needed();
  }

 private:
  void find_static();
  void make_inputs();
  void claim_outputs();
  void find_needed();

  PlacedBuffers& placed_;
  const Graph& g_;
  const CompileOptions& options_;
};

void Placer::find_static() {
  for (const InputMutation& m : g_.mutations) placed_.mutated.insert(g_.inputs[m.input]);
  ParameterAnalysis is_parameter(g_);
  for (int32_t n = 0; n < std::ssize(g_.nodes); ++n)
    placed_.is_static.push_back(options_.hoist && is_parameter({n, 0}));
}

void Placer::make_inputs() {
  for (size_t k = 0; k < g_.inputs.size(); ++k) {
    const Value v{g_.inputs[k], 0};
    placed_.owned[v] = placed_.add(BufferKind::kInput, static_cast<int>(k), 0);
    placed_.inputs.push_back(placed_.spec_of(v));
    if (g_.node(v).get<Input>().is_static && !placed_.mutated.count(v.node))
      placed_.static_inputs.push_back(static_cast<int>(k));
  }
}

// Decides for each output: its root writes the caller's memory, it aliases an input, or it is copied.
void Placer::claim_outputs() {
  placed_.outputs.resize(g_.outputs.size());
  for (size_t k = 0; k < g_.outputs.size(); ++k) {
    const GraphOutput& output = g_.outputs[k];
    const Shape& shape = g_.type(output.value).shape;
    const View view = resolve_view(g_, output.value);
    const bool strides_fit = output.strides.empty() || same_strides(shape, view.strides, output.strides);
    const Op op = g_.node(view.root).op();
    if (options_.alias_outputs && op == Op::kInput && strides_fit && !placed_.mutated.count(view.root.node)) {
      placed_.outputs[k] = {placed_.spec_of(output.value),
                            placed_.buffers[placed_.owned.at(view.root)].index};
      continue;
    }
    const bool whole = loop::as_const_int(view.offset) == 0 && is_dense(shape, view.strides) &&
                       loop::provably_equal(numel(shape), numel(g_.type(view.root).shape));
    const bool computed = op != Op::kInput && op != Op::kConstant && !placed_.is_static[view.root.node];
    if (!computed || placed_.owned.count(view.root) || !strides_fit || !whole) {
      placed_.output_copies[computed ? view.root.node : PlacedBuffers::kAtEnd].push_back(static_cast<int>(k));
      continue;
    }
    placed_.owned[view.root] = placed_.add(BufferKind::kOutput, static_cast<int>(k), 0);
    placed_.outputs[k] = {placed_.spec_of(output.value)};
  }
}

void Placer::find_needed() {
  placed_.is_needed.resize(g_.nodes.size());
  auto need = [&](Value v) { placed_.is_needed[resolve_view(g_, v).root.node] = true; };
  for (const GraphOutput& output : g_.outputs) need(output.value);
  for (const InputMutation& m : g_.mutations) need(m.value);
  placed_.last_reader.assign(g_.nodes.size(), -1);
  for (int32_t n = static_cast<int32_t>(g_.nodes.size()) - 1; n >= 0; --n) {
    if (g_.nodes[n].op() == Op::kExtern) placed_.is_needed[n] = true;  // it may have side effects
    if (!placed_.is_needed[n]) continue;
    for (Value v : g_.nodes[n].operands) {
      need(v);
      int32_t& last = placed_.last_reader[resolve_view(g_, v).root.node];
      last = std::max(last, n);
    }
  }
  // A copy reads right after the node that computes the value, or after all nodes.
  auto read_after = [&](Value v, int32_t n) {
    int32_t& last = placed_.last_reader[resolve_view(g_, v).root.node];
    last = std::max(last, n);
  };
  for (const auto& [after, outputs] : placed_.output_copies)
    for (int k : outputs) read_after(g_.outputs[k].value, after);
  for (const InputMutation& m : g_.mutations) read_after(m.value, PlacedBuffers::kAtEnd);
}

}  // namespace

PlacedBuffers place_buffers(Graph graph, const CompileOptions& options) {
  PlacedBuffers placed;
  placed.graph = std::move(graph);
  Placer(placed, options).run();
  return placed;
}

int PlacedBuffers::add(BufferKind kind, int index, SizeExpr bytes) {
  buffers.push_back({kind, index, std::move(bytes), nullptr});
  in_place.push_back(-1);
  return static_cast<int>(buffers.size()) - 1;
}

bool PlacedBuffers::is_hoisted(Value v) const { return is_static[resolve_view(graph, v).root.node]; }

int PlacedBuffers::buffer_of(Value root) {
  auto it = owned.find(root);
  if (it != owned.end()) return it->second;
  const Node& node = graph.node(root);
  const Type& type = graph.type(root);
  const Dim bytes = span(type.shape, graph.layout(root)) * index_const(itemsize(type.dtype));
  BufferKind kind = is_static[root.node] ? BufferKind::kHoisted : BufferKind::kTemporary;
  if (node.op() == Op::kExtern) kind = BufferKind::kProvided;
  if (node.op() == Op::kConstant) kind = BufferKind::kConstant;
  const int buffer = add(kind, -1, to_size_expr(bytes, graph.symbols));
  if (kind == BufferKind::kConstant) buffers[buffer].constant = constant_data(graph, root.node);
  return owned[root] = buffer;
}

TensorSpec PlacedBuffers::spec_of(Value v) {
  return ipex::graph::spec_of(graph, v, buffer_of(resolve_view(graph, v).root));
}

std::vector<TensorSpec> PlacedBuffers::specs_of(const std::vector<Value>& values) {
  std::vector<TensorSpec> specs;
  for (Value v : values) specs.push_back(spec_of(v));
  return specs;
}

std::vector<Value> PlacedBuffers::results_of(int32_t n) const {
  std::vector<Value> out;
  for (size_t r = 0; r < graph.nodes[n].types.size(); ++r) out.push_back({n, static_cast<int32_t>(r)});
  return out;
}

bool PlacedBuffers::is_read(Value v) const {
  for (const Node& node : graph.nodes)
    if (std::find(node.operands.begin(), node.operands.end(), v) != node.operands.end()) return true;
  for (const GraphOutput& output : graph.outputs)
    if (output.value == v) return true;
  return std::any_of(graph.mutations.begin(), graph.mutations.end(),
                     [&](const auto& m) { return m.value == v; });
}

}  // namespace ipex::graph

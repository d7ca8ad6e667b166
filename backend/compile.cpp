// compile(): runs the graph passes, gives every value that owns memory a buffer, and turns every node that
// computes into a step.
//
// Values are placed so that as little as possible is copied: a result that the caller wants goes straight to
// the caller's memory, an update of an input straight over it where nothing reads the old value any more.
// What is left over (an output that is a view of something else, an update whose old value is still needed)
// is copied by small kernels at the end.
#include "backend/compile.h"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <map>
#include <set>

#include "backend/lower/lower.h"
#include "backend/passes/grouping.h"
#include "backend/plan_memory.h"
#include "backend/sort_steps.h"
#include "backend/step_info.h"
#include "backend/views.h"
#include "codegen/loop/simplify.h"
#include "codegen/loop/text.h"
#include "codegen/passes/passes.h"
#include "kernels/library.h"
#include "runtime/hoisting.h"
#include "runtime/kernel_steps.h"

namespace ipex {
namespace {

using graph::Dim;
using graph::Graph;
using graph::Node;
using graph::Op;
using graph::OperandLayout;
using graph::Strides;
using graph::Value;
using graph::View;
using loop::index_const;

class Clock {
 public:
  double lap() {
    const auto now = std::chrono::steady_clock::now();
    const double ms = std::chrono::duration<double, std::milli>(now - last_).count();
    last_ = now;
    return ms;
  }

 private:
  std::chrono::steady_clock::time_point last_ = std::chrono::steady_clock::now();
};

class Compiler {
 public:
  Compiler(Graph graph, const CompileOptions& options) : g_(std::move(graph)), options_(options) {}

  CompiledGraph run() {
    Clock clock;
    g_ = graph::run_pipeline(std::move(g_), options_.stop_after, &report_.times);
    report_.graph_text = graph::print(g_);
    clock.lap();
    place_outputs();
    find_static();
    make_inputs();
    claim_outputs();
    find_needed();
    for (size_t n = 0; n < g_.nodes.size(); ++n) emit(static_cast<int32_t>(n));
    copy_outputs();
    copy_mutations();
    report_.times.push_back({"lower", clock.lap() - primitives_ms_});
    report_.times.push_back({"primitives", primitives_ms_});
    link_kernels();
    report_.times.push_back({"kernels", clock.lap()});
    return finish();
  }

 private:
  // ---- placement ----

  // A kernel or an ATen call writes whatever layout it is asked for, so what the caller wants decides. A
  // convolution's layout was chosen by plan_layouts, and stays.
  void place_outputs() {
    auto set_layout = [&](Value v, const Strides& strides) {
      Node& node = g_.nodes[v.node];
      const graph::Shape& shape = node.types[v.result].shape;
      if (node.op != Op::kGroup && node.op != Op::kMatMul && node.op != Op::kExtern && node.op != Op::kSort &&
          node.op != Op::kSearch)
        return;
      if (!laid_out_.insert(v).second || !graph::is_dense(shape, strides)) return;
      node.layouts.resize(node.types.size());
      node.layouts[v.result] = strides;
    };
    for (const graph::GraphOutput& output : g_.outputs)
      if (!output.strides.empty()) set_layout(output.value, output.strides);
    for (const graph::InputMutation& m : g_.mutations)
      set_layout(m.value, g_.layout({g_.inputs[m.input], 0}));
  }

  void find_static() {
    for (const graph::InputMutation& m : g_.mutations) mutated_.insert(g_.inputs[m.input]);
    static_only_.resize(g_.nodes.size());
    for (size_t n = 0; n < g_.nodes.size(); ++n) {
      const Node& node = g_.nodes[n];
      const int32_t id = static_cast<int32_t>(n);
      bool is_static = options_.hoist && node.op != Op::kExtern && node.op != Op::kRandom;
      if (node.op == Op::kInput)
        is_static = options_.hoist && node.attr_or<bool>("static", false) && !mutated_.count(id);
      // A symbol may change from call to call without any input changing.
      is_static = is_static && names_no_symbol(node);
      for (Value v : node.operands) is_static = is_static && static_only_[v.node];
      static_only_[n] = is_static;
    }
  }

  static bool names_no_symbol(const Node& node) {
    for (const graph::Type& type : node.types)
      if (!graph::is_static(type.shape)) return false;
    for (const auto& [key, attr] : node.attrs) {
      if (const Dim* dim = std::get_if<Dim>(&attr); dim && !loop::as_const_int(*dim)) return false;
      if (const auto* dims = std::get_if<std::vector<Dim>>(&attr); dims && !graph::is_static(*dims))
        return false;
    }
    return !node.body || std::all_of(node.body->nodes.begin(), node.body->nodes.end(), names_no_symbol);
  }

  int add_buffer(BufferKind kind, int index, SizeExpr bytes) {
    parts_.buffers.push_back({kind, index, std::move(bytes), nullptr});
    in_place_.push_back(-1);
    return static_cast<int>(parts_.buffers.size()) - 1;
  }

  void make_inputs() {
    for (size_t k = 0; k < g_.inputs.size(); ++k) {
      const Value v{g_.inputs[k], 0};
      buffers_[v] = add_buffer(BufferKind::kInput, static_cast<int>(k), 0);
      parts_.inputs.push_back(spec_of(v));
      if (g_.node(v).attr_or<bool>("static", false) && !mutated_.count(v.node))
        parts_.static_inputs.push_back(static_cast<int>(k));
    }
  }

  // Decides for each output whether its root writes the caller's memory, it is an alias of an input, or a
  // copy is due.
  void claim_outputs() {
    parts_.outputs.resize(g_.outputs.size());
    for (size_t k = 0; k < g_.outputs.size(); ++k) {
      const graph::GraphOutput& output = g_.outputs[k];
      const graph::Shape& shape = g_.type(output.value).shape;
      const View view = graph::resolve_view(g_, output.value);
      const bool strides_fit =
          output.strides.empty() || graph::same_strides(shape, view.strides, output.strides);
      const Op op = g_.node(view.root).op;
      if (options_.alias_outputs && op == Op::kInput && strides_fit && !mutated_.count(view.root.node)) {
        parts_.outputs[k] = {spec_of(output.value), parts_.buffers[buffers_.at(view.root)].index};
        continue;
      }
      const bool whole = loop::as_const_int(view.offset) == 0 && graph::is_dense(shape, view.strides) &&
                         loop::provably_equal(graph::numel(shape), graph::numel(g_.type(view.root).shape));
      if (op == Op::kInput || op == Op::kConstant || static_only_[view.root.node] ||
          buffers_.count(view.root) || !strides_fit || !whole) {
        output_copies_.push_back(static_cast<int>(k));
        continue;
      }
      buffers_[view.root] = add_buffer(BufferKind::kOutput, static_cast<int>(k), 0);
      parts_.outputs[k] = {spec_of(output.value)};
    }
  }

  void find_needed() {
    needed_.resize(g_.nodes.size());
    auto need = [&](Value v) { needed_[graph::resolve_view(g_, v).root.node] = true; };
    for (const graph::GraphOutput& output : g_.outputs) need(output.value);
    for (const graph::InputMutation& m : g_.mutations) need(m.value);
    last_reader_.assign(g_.nodes.size(), -1);
    for (int32_t n = static_cast<int32_t>(g_.nodes.size()) - 1; n >= 0; --n) {
      if (!needed_[n]) continue;
      for (Value v : g_.nodes[n].operands) {
        need(v);
        int32_t& last = last_reader_[graph::resolve_view(g_, v).root.node];
        last = std::max(last, n);
      }
    }
    // Copies at the end read after every node.
    auto read_at_end = [&](Value v) { last_reader_[graph::resolve_view(g_, v).root.node] = INT32_MAX; };
    for (int k : output_copies_) read_at_end(g_.outputs[k].value);
    for (const graph::InputMutation& m : g_.mutations) read_at_end(m.value);
  }

  // ---- descriptions ----

  SizeExpr size(const Dim& dim) const { return graph::to_size_expr(dim, g_.symbols); }

  // The buffer of a value that owns memory, made on first use.
  int buffer_of(Value root) {
    auto it = buffers_.find(root);
    if (it != buffers_.end()) return it->second;
    const Node& node = g_.node(root);
    const graph::Type& type = g_.type(root);
    const Dim bytes = graph::span(type.shape, g_.layout(root)) * index_const(itemsize(type.dtype));
    BufferKind kind = static_only_[root.node] ? BufferKind::kHoisted : BufferKind::kTemporary;
    if (node.op == Op::kExtern) kind = BufferKind::kProvided;
    if (node.op == Op::kConstant) kind = BufferKind::kConstant;
    const int buffer = add_buffer(kind, -1, size(bytes));
    if (kind == BufferKind::kConstant) parts_.buffers[buffer].constant = constant_data(root.node);
    return buffers_[root] = buffer;
  }

  std::shared_ptr<const void> constant_data(int32_t n) const {
    const Node& node = g_.nodes[n];
    const graph::HostTensor bytes =
        node.constant ? node.constant->bytes
                      : graph::eval(graph::body_of(g_, n), {}, std::vector<int64_t>(g_.symbols.size()))[0];
    const size_t aligned = (std::max<size_t>(bytes.size(), 1) + 63) / 64 * 64;
    std::shared_ptr<void> data(std::aligned_alloc(64, aligned), std::free);
    std::memcpy(data.get(), bytes.data(), bytes.size());
    return data;
  }

  TensorSpec spec_of(Value v) {
    const View view = graph::resolve_view(g_, v);
    TensorSpec spec;
    spec.buffer = buffer_of(view.root);
    spec.dtype = g_.type(v).dtype;
    for (const Dim& dim : g_.type(v).shape) spec.sizes.push_back(size(dim));
    for (const Dim& stride : view.strides) spec.strides.push_back(size(stride));
    spec.offset = size(view.offset);
    return spec;
  }

  OperandLayout layout_of(Value v) const {
    const View view = graph::resolve_view(g_, v);
    return {view.strides, view.offset, graph::span(g_.type(view.root).shape, g_.layout(view.root))};
  }

  std::vector<TensorSpec> specs_of(const std::vector<Value>& values) {
    std::vector<TensorSpec> specs;
    for (Value v : values) specs.push_back(spec_of(v));
    return specs;
  }

  std::vector<Value> results_of(int32_t n) const {
    std::vector<Value> out;
    for (size_t r = 0; r < g_.nodes[n].types.size(); ++r) out.push_back({n, static_cast<int32_t>(r)});
    return out;
  }

  // A result that nobody reads has no buffer: ATen may shape such leftovers as it likes.
  std::vector<TensorSpec> read_results(int32_t n) {
    std::vector<TensorSpec> results = specs_of(results_of(n));
    for (size_t r = 0; r < results.size(); ++r)
      if (!is_read({n, static_cast<int32_t>(r)})) results[r].buffer = -1;
    return results;
  }

  bool is_read(Value v) const {
    for (const Node& node : g_.nodes)
      if (std::find(node.operands.begin(), node.operands.end(), v) != node.operands.end()) return true;
    for (const graph::GraphOutput& output : g_.outputs)
      if (output.value == v) return true;
    return std::any_of(g_.mutations.begin(), g_.mutations.end(), [&](const auto& m) { return m.value == v; });
  }

  // ---- steps ----

  void add_step(std::unique_ptr<Step> step, bool hoisted) {
    parts_.steps.push_back(std::move(step));
    parts_.hoisted.push_back(hoisted);
  }

  void emit(int32_t n) {
    const Node& node = g_.nodes[n];
    if (!needed_[n] || node.op == Op::kInput || node.op == Op::kConstant || is_empty(n)) return;
    switch (node.op) {
      case Op::kGroup:
        return node.has_attr("batch") ? emit_batch(n) : emit_kernel(n, *node.body);
      case Op::kMatMul:
      case Op::kConv:
      case Op::kConvBackward: {
        Clock clock;
        bool done = false;
        try {
          emit_library(n);
          done = true;
        } catch (const Unsupported&) {
          // The library has nothing better than its own reference; so do we.
        }
        primitives_ms_ += clock.lap();
        if (!done) emit_kernel(n, graph::body_of(g_, n));
        return;
      }
      case Op::kExtern:
        return emit_extern(n);
      case Op::kSort:
      case Op::kSearch:
        return add_library(
            n, {graph::make_sort_step(node, g_.symbols, specs_of(node.operands), read_results(n))});
      case Op::kRandom:
      case Op::kAttention:
      case Op::kPrepacked:
      case Op::kCopyInto:
        throw Unsupported(std::string(graph::info(node.op).name) +
                          " has no lowering; import it as an extern call");
      default:
        return emit_kernel(n, graph::body_of(g_, n));
    }
  }

  // Every result has no elements: nothing to compute (an extern call still runs, for its checks).
  bool is_empty(int32_t n) const {
    const Node& node = g_.nodes[n];
    return node.op != Op::kExtern &&
           std::all_of(node.types.begin(), node.types.end(), [](const graph::Type& type) {
             return std::any_of(type.shape.begin(), type.shape.end(),
                                [](const Dim& dim) { return loop::as_const_int(dim) == 0; });
           });
  }

  std::string next_kernel_name(const Graph& body) const {
    return "k" + std::to_string(kernels_.size()) + graph::kernel_suffix(body);
  }

  void emit_kernel(int32_t n, const Graph& body) {
    const Node& node = g_.nodes[n];
    std::vector<OperandLayout> inputs, outputs;
    std::vector<int> buffers;
    for (Value v : node.operands) {
      inputs.push_back(layout_of(v));
      buffers.push_back(buffer_of(graph::resolve_view(g_, v).root));
    }
    for (Value v : results_of(n)) outputs.push_back(layout_of(v));
    loop::Function f = loop::simplify(graph::lower_group(body, inputs, outputs, next_kernel_name(body)));
    std::set<int> taken;  // operands' buffers that a result already replaces
    for (Value v : results_of(n)) {
      const std::string out = "out" + std::to_string(v.result);
      if (!buffers_.count(v)) {
        if (int input = mutation_target(v, f, out, buffers); input >= 0)
          buffers_[v] = input;
        else
          share_operand(v, f, out, buffers, taken);
      }
      buffers.push_back(buffer_of(v));
    }
    const auto results = buffers.begin() + static_cast<int64_t>(node.operands.size());
    auto step = std::make_unique<CallStep>(f.name, std::vector<int>(buffers.begin(), results),
                                           std::vector<int>(results, buffers.end()));
    if (static_only_[n]) step->recipe = recipe_of(f);
    graph::describe(*step, g_, n);
    ++report_.kernel_steps;
    add_kernel(std::move(f), std::move(step), static_only_[n]);
  }

  // ---- batches ----

  // Emitted with the first member that is; those whose memory is no plain run of elements have kernels of
  // their own.
  void emit_batch(int32_t n) {
    const int64_t number = g_.nodes[n].attr<int64_t>("batch");
    auto is_member = [&](int32_t m) {
      return g_.nodes[m].op == Op::kGroup && g_.nodes[m].attr_or<int64_t>("batch", -1) == number;
    };
    if (!emitted_batches_.insert(number).second) return;
    std::vector<int32_t> members;
    for (int32_t m = n; m < static_cast<int32_t>(g_.nodes.size()) && is_member(m); ++m) {
      if (!needed_[m] || is_empty(m)) continue;
      is_run_of_elements(m) ? members.push_back(m) : emit_kernel(m, *g_.nodes[m].body);
    }
    if (members.empty()) return;
    const Graph body = *graph::flat_body(*g_.nodes[n].body);
    auto layouts = [&](size_t count, auto type_of) {
      std::vector<OperandLayout> result;
      for (size_t k = 0; k < count; ++k) {
        const graph::Shape& shape = type_of(k).shape;
        result.push_back({graph::contiguous_strides(shape), index_const(0), graph::numel(shape)});
      }
      return result;
    };
    loop::Function f = loop::simplify(graph::lower_group(
        body, layouts(body.inputs.size(), [&](size_t k) { return body.nodes[body.inputs[k]].types[0]; }),
        layouts(body.outputs.size(), [&](size_t k) { return body.type(body.outputs[k].value); }),
        next_kernel_name(body)));
    std::vector<int64_t> strides;
    for (const loop::Buffer& buffer : f.buffers)
      strides.push_back(loop::as_const_int(buffer.extent) ? 0 : itemsize(buffer.dtype));
    auto step = std::make_unique<BatchStep>(f.name, std::move(strides));
    add_entries(*step, members, f);
    step->info.detail = "over " + std::to_string(members.size()) + " tensors";
    ++report_.kernel_steps;
    f = loop::apply_schedule(f, loop::choose_schedule(f, options_.target, /*parallel=*/false));
    add_kernel(std::move(f), std::move(step), false);
  }

  // May the group run over its memory as one dim: operands and results dense, in one order of dims?
  bool is_run_of_elements(int32_t n) const {
    if (static_only_[n]) return false;
    const Node& node = g_.nodes[n];
    const graph::Shape& space = node.types[0].shape;
    const Strides strides = g_.layout({n, 0});
    if (!graph::is_dense(space, strides)) return false;
    auto fits = [&](Value v) {
      const View view = graph::resolve_view(g_, v);
      if (!loop::as_const_int(view.offset)) return false;
      return !graph::equal(g_.type(v).shape, space) || graph::same_strides(space, view.strides, strides);
    };
    const std::vector<Value> results = results_of(n);
    return std::all_of(node.operands.begin(), node.operands.end(), fits) &&
           std::all_of(results.begin(), results.end(), fits);
  }

  void add_entries(BatchStep& step, const std::vector<int32_t>& members, const loop::Function& f) {
    std::map<int, int> readers;  // of each buffer: members run at the same time
    for (int32_t m : members) {
      std::set<int> read;
      for (Value v : g_.nodes[m].operands) read.insert(buffer_of(graph::resolve_view(g_, v).root));
      for (int buffer : read) ++readers[buffer];
    }
    for (int32_t m : members) {
      const Node& node = g_.nodes[m];
      BatchStep::Entry entry;
      entry.count = *loop::as_const_int(loop::simplify(graph::numel(node.types[0].shape)));
      for (Value v : node.operands) {
        const View view = graph::resolve_view(g_, v);
        entry.buffers.push_back(buffer_of(view.root));
        entry.offsets.push_back(*loop::as_const_int(view.offset) * itemsize(g_.type(v).dtype));
      }
      step.reads.insert(step.reads.end(), entry.buffers.begin(), entry.buffers.end());
      const std::set<int> own(entry.buffers.begin(), entry.buffers.end());
      auto free_to_write = [&](int input) { return readers[input] <= static_cast<int>(own.count(input)); };
      for (Value v : results_of(m)) {
        const std::string out = "out" + std::to_string(v.result);
        if (!buffers_.count(v))
          if (int input = mutation_target(v, f, out, entry.buffers, free_to_write); input >= 0)
            buffers_[v] = input;
        entry.buffers.push_back(buffer_of(v));
        entry.offsets.push_back(0);
        step.writes.push_back(entry.buffers.back());
      }
      graph::describe(step, g_, m);
      if (entry.count > 0) step.add(std::move(entry));
    }
  }

  // The kernel's text under a name that does not depend on its place in the graph.
  std::string recipe_of(loop::Function f) const {
    f.name = "hoisted";
    return loop::print(f);
  }

  // Layers repeat: kernels that differ in name only are compiled once.
  void add_kernel(loop::Function f, std::unique_ptr<KernelStep> step, bool hoisted) {
    const auto [same, is_new] = kernel_names_.try_emplace(recipe_of(f), f.name);
    step->rename(same->second);
    if (is_new) kernels_.push_back(std::move(f));
    unlinked_.push_back(step.get());
    add_step(std::move(step), hoisted);
  }

  // `out` of kernel f and every operand in `buffer` agree element by element, so they may be one memory.
  bool shares(const loop::Function& f, const std::string& out, const std::vector<int>& buffers,
              int buffer) const {
    for (size_t k = 0; k < f.buffers.size() && f.buffers[k].access == loop::Access::kIn; ++k)
      if (buffers[k] == buffer && !graph::may_share(f, f.buffers[k].name, out)) return false;
    return true;
  }

  // The input that this value updates, when it may be written right now: nothing reads the old value later,
  // and this kernel reads each element only where it replaces it.
  int mutation_target(Value v, const loop::Function& f, const std::string& out,
                      const std::vector<int>& buffers,
                      const std::function<bool(int buffer)>& allowed = nullptr) {
    if (static_only_[v.node]) return -1;
    for (const graph::InputMutation& m : g_.mutations) {
      if (m.value != v || written_.count(m.input)) continue;
      const Value input{g_.inputs[m.input], 0};
      const graph::Shape& shape = g_.type(v).shape;
      if (last_reader_[input.node] > v.node || !graph::same_strides(shape, g_.layout(v), g_.layout(input)))
        return -1;
      if (!shares(f, out, buffers, buffers_.at(input))) return -1;
      if (allowed && !allowed(buffers_.at(input))) return -1;
      written_.insert(m.input);
      return buffers_.at(input);
    }
    return -1;
  }

  // A temporary that dies here and has the result's size can lend its memory to the result.
  void share_operand(Value v, const loop::Function& f, const std::string& out,
                     const std::vector<int>& buffers, std::set<int>& taken) {
    if (static_only_[v.node]) return;
    const int result = buffer_of(v);
    const Node& node = g_.nodes[v.node];
    for (Value operand : node.operands) {
      const Value root = graph::resolve_view(g_, operand).root;
      const int source = buffers_.at(root);
      if (parts_.buffers[source].kind != BufferKind::kTemporary || last_reader_[root.node] != v.node)
        continue;
      const graph::Type &from = g_.type(root), &to = g_.type(v);
      if (itemsize(from.dtype) != itemsize(to.dtype) || taken.count(source) ||
          !loop::provably_equal(graph::span(from.shape, g_.layout(root)),
                                graph::span(to.shape, g_.layout(v))) ||
          !shares(f, out, buffers, source))
        continue;
      in_place_[result] = source;
      taken.insert(source);
      return;
    }
  }

  // How library steps are planned; Unsupported for types that not every CPU of the target's ISA multiplies.
  kernels::Planning planning(const Node& node) const {
    if (options_.jit) return kernels::Planning::kJudge;
    const Isa isa = options_.target.isa;
    for (Value v : node.operands)
      if (!kernels::runs_on(isa, g_.type(v).dtype))
        throw Unsupported("a library step of type " + std::string(name(g_.type(v).dtype)) + " on " +
                          std::string(name(isa)));
    return isa <= current_isa() ? kernels::Planning::kJudge : kernels::Planning::kLater;
  }

  void emit_library(int32_t n) {
    const Node& node = g_.nodes[n];
    using Ints = std::vector<int64_t>;
    if (node.op == Op::kConvBackward) {
      kernels::ConvBackwardDesc desc{spec_of(node.operands[0]), spec_of(node.operands[1]),
                                     spec_of(node.operands[2]), spec_of({n, 0})};
      desc.weights = node.attr<std::string>("which") == "weights";
      desc.stride = node.attr<Ints>("stride");
      desc.padding = node.attr<Ints>("padding");
      desc.dilation = node.attr<Ints>("dilation");
      desc.output_padding = node.attr_or<Ints>("output_padding", {});
      desc.groups = node.attr_or<int64_t>("groups", 1);
      desc.transposed = node.attr_or<bool>("transposed", false);
      desc.planning = planning(node);
      return add_library(n, {kernels::make_conv_backward(desc), nullptr, 0});
    }
    size_t next = 2;
    std::optional<TensorSpec> bias;
    if (node.attr_or<bool>("bias", false)) bias = spec_of(node.operands[next++]);
    std::vector<kernels::PostOp> post;
    for (const std::string& text : node.attr_or<std::vector<std::string>>("post", {})) {
      kernels::PostOp op = kernels::parse_post_op(text);
      const auto rows = kernels::post_op_rows();
      const auto row =
          std::find_if(rows.begin(), rows.end(), [&](const auto& r) { return r.name == op.name; });
      if (row->takes_operand) op.operand = spec_of(node.operands[next++]);
      post.push_back(std::move(op));
    }
    const bool pack = static_only_[graph::resolve_view(g_, node.operands[1]).root.node];
    const TensorSpec a = spec_of(node.operands[0]), b = spec_of(node.operands[1]), dst = spec_of({n, 0});
    const int packed_buffer = add_buffer(BufferKind::kHoisted, -1, 0);
    if (node.op == Op::kMatMul)
      return add_library(
          n, kernels::make_matmul({a, b, dst, bias, std::move(post), pack, planning(node)}, packed_buffer),
          packed_buffer);
    kernels::ConvDesc desc{a, b, dst, bias};
    desc.stride = node.attr<Ints>("stride");
    desc.padding = node.attr<Ints>("padding");
    desc.dilation = node.attr<Ints>("dilation");
    desc.output_padding = node.attr_or<Ints>("output_padding", {});
    desc.groups = node.attr_or<int64_t>("groups", 1);
    desc.transposed = node.attr_or<bool>("transposed", false);
    desc.post = std::move(post);
    desc.pack_w = pack;
    desc.planning = planning(node);
    add_library(n, kernels::make_conv(desc, packed_buffer), packed_buffer);
  }

  void add_library(int32_t n, kernels::LibrarySteps steps, int packed_buffer = -1) {
    if (steps.pack) {
      parts_.buffers[packed_buffer].bytes = steps.packed_bytes;
      if (!g_.nodes[n].source.empty()) steps.pack->info.sources.push_back(g_.nodes[n].source);
      add_step(std::move(steps.pack), true);
    }
    graph::describe(*steps.main, g_, n);
    ++report_.library_steps;
    add_step(std::move(steps.main), static_only_[n]);
  }

  void emit_extern(int32_t n) {
    const Node& node = g_.nodes[n];
    if (!options_.make_extern)
      throw Unsupported(node.name + ": an ATen call in a graph compiled without libtorch");
    std::unique_ptr<Step> step = options_.make_extern(node, specs_of(node.operands), read_results(n));
    graph::describe(*step, g_, n);
    ++report_.extern_steps;
    report_.extern_ops.push_back(node.name + (step->info.detail.empty() ? "" : ": " + step->info.detail));
    add_step(std::move(step), false);
  }

  // ---- what is left to copy ----

  void add_copy(Value v, const OperandLayout& to, int buffer) {
    const graph::Type& type = g_.type(v);
    if (std::any_of(type.shape.begin(), type.shape.end(),
                    [](const Dim& d) { return loop::as_const_int(d) == 0; }))
      return;
    Graph body;
    body.symbols = g_.symbols;
    body.symbol_hints = g_.symbol_hints;
    body.symbol_lows = g_.symbol_lows;
    Node input;
    input.op = Op::kInput;
    input.name = "x";
    input.types = {type};
    const Value x = body.add(std::move(input));
    body.inputs = {x.node};
    body.outputs = {{x, {}}};
    const int from = buffer_of(graph::resolve_view(g_, v).root);
    loop::Function f = loop::simplify(graph::lower_group(body, {layout_of(v)}, {to}, next_kernel_name(body)));
    auto step = std::make_unique<CallStep>(f.name, std::vector<int>{from}, std::vector<int>{buffer});
    step->info.kind = StepKind::kCopy;
    step->info.bytes = 2 * graph::bytes_hint(g_, v);
    ++report_.kernel_steps;
    add_kernel(std::move(f), std::move(step), false);
  }

  OperandLayout whole(const graph::Shape& shape, const Strides& strides) const {
    return {strides, index_const(0), graph::span(shape, strides)};
  }

  void copy_outputs() {
    for (int k : output_copies_) {
      const graph::GraphOutput& output = g_.outputs[k];
      const graph::Shape& shape = g_.type(output.value).shape;
      const Strides strides = output.strides.empty() ? graph::contiguous_strides(shape) : output.strides;
      const int buffer = add_buffer(BufferKind::kOutput, k, 0);
      add_copy(output.value, whole(shape, strides), buffer);
      TensorSpec spec{buffer, g_.type(output.value).dtype};
      for (const Dim& dim : shape) spec.sizes.push_back(size(dim));
      for (const Dim& stride : strides) spec.strides.push_back(size(stride));
      parts_.outputs[k] = {std::move(spec)};
    }
  }

  // All old values are read before the first new one is written: what would read an input that is updated
  // here goes through memory of its own.
  void copy_mutations() {
    struct Update {
      int input;
      Value value;
      int staged = -1;  // temporary buffer
    };
    std::vector<Update> updates;
    for (const graph::InputMutation& m : g_.mutations) {
      if (written_.count(m.input)) continue;
      const View view = graph::resolve_view(g_, m.value);
      const Value input{g_.inputs[m.input], 0};
      const graph::Shape& shape = g_.type(m.value).shape;
      if (view.root == input && graph::same_strides(shape, view.strides, g_.layout(input)) &&
          loop::as_const_int(view.offset) == 0)
        continue;  // its own value
      updates.push_back({m.input, m.value});
    }
    for (Update& update : updates) {
      const View view = graph::resolve_view(g_, update.value);
      if (!mutated_.count(view.root.node)) continue;
      const graph::Type& type = g_.type(update.value);
      update.staged = add_buffer(BufferKind::kTemporary, -1,
                                 size(graph::numel(type.shape) * index_const(itemsize(type.dtype))));
      add_copy(update.value, whole(type.shape, graph::contiguous_strides(type.shape)), update.staged);
    }
    for (const Update& update : updates) {
      const Value input{g_.inputs[update.input], 0};
      const graph::Shape& shape = g_.type(input).shape;
      Value from = update.value;
      if (update.staged >= 0) {
        // A contiguous value of its own, known to nobody else.
        Node staged;
        staged.op = Op::kReorder;
        staged.types = {g_.type(update.value)};
        staged.operands = {update.value};
        from = g_.add(std::move(staged));
        static_only_.push_back(false);
        buffers_[from] = update.staged;
      }
      add_copy(from, whole(shape, g_.layout(input)), buffers_.at(input));
    }
  }

  // ---- the end ----

  void link_kernels() {
    report_.loop_text = loop::print(kernels_);
    if (kernels_.empty() || !options_.jit) return;
    library_ = loop::schedule_and_compile(kernels_, options_.target, &report_.kernels);
    for (KernelStep* step : unlinked_) step->link(library_);
  }

  CompiledGraph finish() {
    parts_.symbol_count = static_cast<int>(g_.symbols.size());
    parts_.lifetimes = lifetimes(parts_.buffers, parts_.steps, in_place_);
    auto executable = std::make_shared<const Executable>(std::move(parts_));
    std::vector<int64_t> hints = g_.symbol_hints;
    hints.resize(g_.symbols.size(), 64);
    const MemoryPlan plan = executable->plan(hints);
    report_.arena_bytes = plan.arena_bytes;
    report_.naive_bytes = plan.naive_bytes;
    return {std::move(executable), std::move(library_), std::move(kernels_), std::move(report_)};
  }

  Graph g_;
  const CompileOptions& options_;
  CompileReport report_;
  Executable::Parts parts_;
  std::map<Value, int> buffers_;  // of values that own memory
  std::vector<int> in_place_;     // by buffer
  std::set<Value> laid_out_;
  std::set<int32_t> mutated_;               // input nodes
  std::set<int> written_;                   // mutated inputs (positions) that a step already wrote
  std::vector<bool> static_only_, needed_;  // by node
  std::vector<int32_t> last_reader_;        // by node that owns memory: last node that reads it
  std::vector<int> output_copies_;
  std::vector<loop::Function> kernels_;
  std::map<std::string, std::string> kernel_names_;  // recipe: name of the kernel that has it
  std::vector<KernelStep*> unlinked_;
  std::shared_ptr<const FunctionLibrary> library_;
  std::set<int64_t> emitted_batches_;
  double primitives_ms_ = 0;
};

}  // namespace

CompiledGraph compile(graph::Graph graph, const CompileOptions& options) {
  Hoisting::release_dead();
  return Compiler(std::move(graph), options).run();
}

}  // namespace ipex

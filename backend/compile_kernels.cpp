// Steps of groups: lowers the kernels and chooses the memory of their results.
#include <algorithm>

#include "backend/step_info.h"
#include "backend/step_maker.h"
#include "codegen/llvm/object_cache.h"
#include "codegen/loop/rewrite.h"
#include "codegen/loop/simplify.h"
#include "codegen/loop/text.h"

namespace ipex::graph {
namespace {

// Bytes of all buffers; 0 if a size is unknown.
int64_t footprint(const loop::Function& f) {
  int64_t bytes = 0;
  for (const loop::Buffer& b : f.buffers) {
    const auto extent = loop::as_const_int(b.extent);
    if (!extent) return 0;
    bytes += *extent * itemsize(b.dtype);
  }
  return bytes;
}

bool reads(const loop::Function& f, const std::string& buffer) {
  bool found = false;
  loop::visit(
      f.body, [](const loop::Stmt&) {},
      [&](const loop::ExprNode& e) { found |= e.is(loop::ExprKind::kLoad) && e.name == buffer; });
  return found;
}

}  // namespace

void StepMaker::emit_kernel(int32_t n, const Graph& body) {
  const Node& node = g_.nodes[n];
  std::vector<OperandLayout> inputs, outputs;
  std::vector<int> buffers;
  for (Value v : node.operands) {
    inputs.push_back(layout_of(v));
    buffers.push_back(placed_.buffer_of(resolve_view(g_, v).root));
  }
  for (Value v : placed_.results_of(n)) outputs.push_back(layout_of(v));
  loop::Function f = made_.kernels.lower(body, inputs, outputs, options_.target);
  std::set<int> taken;  // buffers of operands that a result already reuses
  for (Value v : placed_.results_of(n)) {
    const std::string out = "out" + std::to_string(v.result);
    if (!placed_.owned.count(v)) {
      if (int input = mutation_target(v, f, out, buffers); input >= 0)
        placed_.owned[v] = input;
      else
        share_operand(v, f, out, buffers, taken);
    }
    buffers.push_back(placed_.buffer_of(v));
  }
  if (placed_.last_reader[n] < 0 && footprint(f) >= options_.target.l3_bytes) stream_results(f, n);
  const auto results = buffers.begin() + static_cast<int64_t>(node.operands.size());
  auto step = std::make_unique<CallStep>(
      f.name, std::vector<int>(buffers.begin(), results), std::vector<int>(results, buffers.end()),
      placed_.is_static[n] && options_.jit ? loop::cache_key(recipe_of(f)) : "");
  describe(*step, g_, n);
  ++made_.kernel_steps;
  add_kernel(std::move(f), std::move(step), placed_.is_static[n]);
}

// A non-temporal store avoids the read of the line that it overwrites. It speeds up memory-bound kernels
// by 1.1 to 1.5, but a consumer that follows immediately loses the gain again. The CPU combines such stores
// in a few line buffers. Results that are stored alternately in smaller parts evict each other's buffers (Zen
// 3, 16M elements: three results of Adam in parts of 32 bytes 33 ms, 14 ms with plain stores; in parts of 16
// bytes 101 and 10 ms; two results in parts of 32 bytes 7.0 and 9.3 ms).
void StepMaker::stream_results(loop::Function& f, int32_t n) {
  constexpr int64_t kMaxParts = 4;
  std::vector<loop::Buffer*> streamed;
  int64_t parts = 0;
  for (Value v : placed_.results_of(n)) {
    const int buffer = placed_.buffer_of(v);
    const std::string out = "out" + std::to_string(v.result);
    if (placed_.buffers[buffer].kind != BufferKind::kOutput || placed_.in_place[buffer] >= 0 || reads(f, out))
      continue;
    for (loop::Buffer& b : f.buffers) {
      const int64_t item = itemsize(b.dtype);
      if (b.name != out || *loop::as_const_int(b.extent) * item < options_.target.l3_bytes / 4) continue;
      const int64_t stored = options_.target.vector_bytes * item / std::max<int64_t>(item, 4);
      parts += std::max<int64_t>(loop::kCacheLine / stored, 1);
      streamed.push_back(&b);
    }
  }
  if (parts <= kMaxParts)
    for (loop::Buffer* b : streamed) b->streamed = true;
}

void StepMaker::add_kernel(loop::Function f, std::unique_ptr<KernelStep> step, bool hoisted) {
  made_.kernels.add(std::move(f), *step);
  add_step(std::move(step), hoisted);
}

bool StepMaker::shares(const loop::Function& f, const std::string& out, const std::vector<int>& buffers,
                       int buffer) const {
  for (size_t k = 0; k < f.buffers.size() && f.buffers[k].access == loop::Access::kIn; ++k)
    if (buffers[k] == buffer && !may_share(f, f.buffers[k].name, out)) return false;
  return true;
}

int StepMaker::mutation_target(Value v, const loop::Function& f, const std::string& out,
                               const std::vector<int>& buffers,
                               const std::function<bool(int buffer)>& allowed) {
  if (placed_.is_static[v.node]) return -1;
  for (const InputMutation& m : g_.mutations) {
    if (m.value != v || written_.count(m.input)) continue;
    const Value input{g_.inputs[m.input], 0};
    const Shape& shape = g_.type(v).shape;
    if (placed_.last_reader[input.node] > v.node || !same_strides(shape, g_.layout(v), g_.layout(input)))
      return -1;
    if (!shares(f, out, buffers, placed_.owned.at(input))) return -1;
    if (allowed && !allowed(placed_.owned.at(input))) return -1;
    written_.insert(m.input);
    return placed_.owned.at(input);
  }
  return -1;
}

void StepMaker::share_operand(Value v, const loop::Function& f, const std::string& out,
                              const std::vector<int>& buffers, std::set<int>& taken) {
  if (placed_.is_static[v.node]) return;
  const int result = placed_.buffer_of(v);
  const Node& node = g_.nodes[v.node];
  for (Value operand : node.operands) {
    const Value root = resolve_view(g_, operand).root;
    const int source = placed_.owned.at(root);
    if (placed_.buffers[source].kind != BufferKind::kTemporary || placed_.last_reader[root.node] != v.node)
      continue;
    const Type &from = g_.type(root), &to = g_.type(v);
    if (itemsize(from.dtype) != itemsize(to.dtype) || taken.count(source) ||
        !loop::provably_equal(span(from.shape, g_.layout(root)), span(to.shape, g_.layout(v))) ||
        !shares(f, out, buffers, source))
      continue;
    placed_.in_place[result] = source;
    taken.insert(source);
    return;
  }
}

}  // namespace ipex::graph

// Kernels, products and ATen calls can write any layout, so they use the layout that the caller requires.
// Convolutions keep the layout that plan_layouts chose.
#include <set>

#include "backend/passes/passes.h"
#include "backend/plan_memory.h"
#include "backend/views.h"

namespace ipex::graph {
namespace {

class OutputPlacer {
 public:
  explicit OutputPlacer(Graph graph) : g_(std::move(graph)) {}

  Graph run() {
    for (const GraphOutput& output : g_.outputs)
      if (!output.strides.empty()) set_layout(output.value, output.strides);
    for (const InputMutation& m : g_.mutations) set_layout(m.value, g_.layout({g_.inputs[m.input], 0}));
    // Values that the caller sees through permutes and reshapes, unless their layout is already set.
    for (const GraphOutput& output : g_.outputs) {
      Value v = output.value;
      Strides strides = output.strides;
      for (std::optional<Strides> below;
           !strides.empty() && (below = operand_strides(g_, g_.node(v), strides)); v = g_.node(v).operands[0])
        strides = *below;
      const Node& node = g_.node(v);
      const bool is_free = node.layouts.empty() || node.layouts[v.result].empty();
      if (v != output.value && is_free) set_layout(v, strides);
    }
    return std::move(g_);
  }

 private:
  void set_layout(Value v, const Strides& strides) {
    Node& node = g_.nodes[v.node];
    const Shape& shape = node.types[v.result].shape;
    if (node.op() != Op::kGroup && node.op() != Op::kMatMul && node.op() != Op::kExtern &&
        node.op() != Op::kSort && node.op() != Op::kSearch && !is_attention(node.op()))
      return;
    if (!placed_.insert(v).second || !is_dense(shape, strides)) return;
    node.layouts.resize(node.types.size());
    node.layouts[v.result] = equal(strides, contiguous_strides(shape)) ? Strides{} : strides;
  }

  Graph g_;
  std::set<Value> placed_;
};

}  // namespace

Graph place_outputs(Graph graph) { return OutputPlacer(std::move(graph)).run(); }

}  // namespace ipex::graph

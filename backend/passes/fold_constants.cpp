// Constant folding. eval, the reference semantics of a graph, computes the nodes. Only small results are
// folded, so that no large computation becomes data.
#include "backend/graph/constants.h"
#include "backend/lower/lower.h"
#include "backend/passes/passes.h"
#include "codegen/loop/ir.h"

namespace ipex::graph {
namespace {

constexpr int64_t kMaxElements = 1024;

int64_t element_count(const Shape& shape) {
  int64_t count = 1;
  for (int64_t size : static_shape(shape)) count *= size;
  return count;
}

// A 0-d result is a literal, anything else a tensor.
void set_constant(Node& node, HostTensor bytes) {
  node.operands.clear();
  const Type& type = node.types[0];
  if (type.shape.empty()) {
    node.operation = Constant{decode_number(bytes.data(), type.dtype), nullptr};
    return;
  }
  node.operation = Constant{std::nullopt, std::make_shared<ConstantData>(std::move(bytes))};
}

}  // namespace

Graph fold_constants(Graph graph) {
  for (Node& node : graph.nodes) {
    if (!info(node.op()).has(kFoldable) || node.operands.empty() || node.types.size() != 1 ||
        !is_static(node.types[0].shape))
      continue;
    if (element_count(node.types[0].shape) > kMaxElements) continue;
    bool constant = true;
    for (Value v : node.operands) constant &= graph.node(v).op() == Op::kConstant;
    if (!constant) continue;
    Graph single;
    Node copy = node;
    for (Value& v : copy.operands) v = single.add(graph.node(v));
    single.outputs.push_back({single.add(std::move(copy)), {}});
    set_constant(node, eval(single, {}).at(0));
  }
  return graph;
}

}  // namespace ipex::graph

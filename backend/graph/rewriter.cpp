// See rewriter.h.
#include "backend/graph/rewriter.h"

#include "runtime/error.h"

namespace ipex::graph {

GraphRewriter::GraphRewriter(Graph old) : old_(std::move(old)), new_(old_.without_nodes()) {
  new_.nodes.reserve(old_.nodes.size());
  size_t results = 0;
  for (const Node& node : old_.nodes) {
    first_.push_back(static_cast<int32_t>(results));
    results += node.types.size();
  }
  first_.push_back(static_cast<int32_t>(results));
  mapped_.resize(results);
}

Value GraphRewriter::mapped(Value old) const {
  const Value value = at(old);
  IPEX_CHECK(value.node >= 0, "the node of a value that is read was erased or comes later");
  return value;
}

Node GraphRewriter::with_mapped_operands(int32_t n) const {
  Node node = old_.nodes[n];
  for (Value& v : node.operands) v = mapped(v);
  return node;
}

Node GraphRewriter::take_with_mapped_operands(int32_t n) {
  Node node = std::move(old_.nodes[n]);
  for (Value& v : node.operands) v = mapped(v);
  return node;
}

void GraphRewriter::replace(int32_t n, Value first) {
  for (int32_t r = 0; r < first_[n + 1] - first_[n]; ++r) replace({n, r}, {first.node, first.result + r});
}

Value GraphRewriter::pointwise(PointwiseOp fn, std::vector<Value> operands, Dtype dtype,
                               const std::string& source) {
  const Type type{dtype, new_.type(operands[0]).shape};
  return add({Pointwise{fn}, std::move(operands), {type}, {}, source});
}

Value GraphRewriter::cast(Value v, Dtype dtype, const std::string& source) {
  return new_.type(v).dtype == dtype ? v : pointwise(PointwiseOp::cast_, {v}, dtype, source);
}

Value GraphRewriter::reshape(Value v, const Shape& shape, const std::string& source) {
  if (equal(new_.type(v).shape, shape)) return v;
  return add({Reshape{}, {v}, {{new_.type(v).dtype, shape}}, {}, source});
}

Graph GraphRewriter::finish() {
  for (int32_t input : old_.inputs) new_.inputs.push_back(mapped({input, 0}).node);
  for (const GraphOutput& output : old_.outputs)
    new_.outputs.push_back({mapped(output.value), output.strides});
  for (const InputMutation& m : old_.mutations) new_.mutations.push_back({m.input, mapped(m.value)});
  return std::move(new_);
}

}  // namespace ipex::graph

// Rebuilds a graph: the base of passes that replace, insert or erase nodes.
#pragma once

#include <string>
#include <vector>

#include "backend/graph/ir.h"

namespace ipex::graph {

// A pass derives from it and decides for each node of `old_`, in order:
//
//   return rebuild([&](int32_t n) {
//     if (is_dead(n)) return;                                 // erased: must have no reader
//     Node node = with_mapped_operands(n);
//     if (is_identity(node)) return replace(n, node.operands[0]);
//     node.operands[0] = cast(node.operands[0], Dtype::kF32);  // inserts a node
//     keep(n, std::move(node));
//   });
class GraphRewriter {
 public:
  explicit GraphRewriter(Graph old);

  const Graph& old() const { return old_; }
  // The new value for a value of the old graph. Throws InternalError if its node was erased or not visited
  // yet.
  Value mapped(Value old) const;
  bool is_mapped(Value old) const { return at(old).node >= 0; }
  Node with_mapped_operands(int32_t n) const;
  Node take_with_mapped_operands(int32_t n);  // moves node n out of the old graph

  // The results of node n are replaced by the results of a new node, or by the results from `first` on.
  void keep(int32_t n, Node node) { replace(n, add(std::move(node))); }
  void keep(int32_t n) { keep(n, with_mapped_operands(n)); }
  void replace(int32_t n, Value first);
  void replace(Value old, Value now) { mapped_[first_[old.node] + old.result] = now; }

  // Insert nodes. A cast or reshape that changes nothing inserts none.
  Value add(Node node) { return new_.add(std::move(node)); }
  Value pointwise(PointwiseOp fn, std::vector<Value> operands, Dtype dtype, const std::string& source = {});
  Value cast(Value v, Dtype dtype, const std::string& source = {});
  Value reshape(Value v, const Shape& shape, const std::string& source = {});

  template <class Visit>
  Graph rebuild(const Visit& visit) {
    for (int32_t n = 0; n < std::ssize(old_.nodes); ++n) visit(n);
    return finish();
  }
  // The new graph with the inputs, outputs and mutations of the old one.
  Graph finish();

 protected:
  Graph old_, new_;

 private:
  const Value& at(Value old) const { return mapped_[first_[old.node] + old.result]; }

  std::vector<Value> mapped_;   // for all results of the old graph, in order
  std::vector<int32_t> first_;  // by node of the old graph: the position of its first result; the last entry
                                // is the number of results
};

}  // namespace ipex::graph

// A group of nodes and the memory of its operands and results: what every stage of lower_group reads.
//
// The stages, each a file:
//   reduction_analysis.h  which loops each reduction runs over
//   nest_plan.h           what is stored where, by which loops, and what is kept between loops
//   values.h              the value of a node at an index, as an expression
//   nests.cpp             the loops and stores; it asks for the values to store, and has lower_group
// The first two only compute structs. The last two write the loop nest.
#pragma once

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "backend/lower/axes.h"
#include "backend/lower/lower.h"

namespace ipex::graph {

// A tensor inside a buffer of the kernel.
struct BufferView {
  std::string buffer;
  OperandLayout layout;

  // The offset of an element from the start of the buffer, in elements.
  loop::Expr position(const Index& index) const {
    loop::Expr at = layout.offset ? layout.offset : loop::index_const(0);
    for (size_t d = 0; d < index.size(); ++d) at = at + index[d] * layout.strides[d];
    return at;
  }
};

struct PlacedGroup {
  const Graph& body;
  Axes axes;
  std::map<Value, BufferView> inputs{};
  std::vector<BufferView> outputs{};  // in the order of body.outputs

  int64_t hint(const Dim& dim) const { return graph::hint(dim, body); }
  // The type in which arithmetic on the value is done.
  Dtype compute_dtype(Value v) const { return opmath(body.type(v).dtype); }
  // Does a node of the group read it, or is it a result of the group?
  bool is_read(Value v) const {
    const auto reads = [&](const Node& node) { return std::ranges::count(node.operands, v) != 0; };
    return std::ranges::any_of(body.nodes, reads) ||
           std::ranges::any_of(body.outputs, [&](const GraphOutput& out) { return out.value == v; });
  }
};

}  // namespace ipex::graph

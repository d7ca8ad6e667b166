// Index relations between the values of a graph, on which form_groups bases its decisions.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <vector>

#include "backend/graph/ir.h"

namespace ipex::graph {

// The iteration space of a computing node. With trailing reduced axes only the numbers of rows and elements
// matter, otherwise the exact shape.
struct Space {
  Shape shape;
  std::vector<int64_t> axes;  // reduced axes, ascending; empty for a pointwise node
  bool trailing = true;       // whether the axes are the last dims
  Dim total, rows;            // elements of the shape; of the shape without the axes
};
Space make_space(Shape shape, std::vector<int64_t> axes);
bool same_reduction(const Space& a, const Space& b);  // may reductions over both share one row loop?

// How the index of a consumer maps to the element of its producer that it reads.
enum class Relation {
  kIdentity,   // same row-major position
  kBroadcast,  // the consumer's dims `dropped` are ignored; the others give the same row-major position
  kOther       // permuted, sliced, gathered...
};
struct Edge {
  Value producer;  // the first value below the operand that is not free
  Relation relation = Relation::kIdentity;
  Shape consumer_shape;
  std::vector<int64_t> dropped;
};

// Nodes that every consumer may recompute at no cost: views, literals, positions and integer arithmetic on
// them, widening casts.
bool is_free(const Graph& graph, const Node& node);
// A pointwise op that may be computed twice to save a load.
bool is_cheap(const Node& node);
// The edge from an operand to the value it is computed from through free nodes; nullopt if there are only
// literals.
std::optional<Edge> trace_edge(const Graph& graph, Value operand);

// Copies nodes: each key of `chains` reads copies of the nodes in its set, and of the free nodes between.
Graph repeat_chains(Graph graph, const std::map<int32_t, std::set<int32_t>>& chains);

// The assignment of nodes to kernels. Live nodes that are not in a group and are neither steps nor inputs are
// free.
struct Partition {
  std::vector<std::vector<int32_t>> groups;  // ascending nodes; empty groups are ignored
  std::vector<bool> is_step;                 // by node: it is a library or ATen call
};
Graph extract_groups(Graph graph, const Partition& partition);

// The body of a pointwise group flattened to one dim of symbolic extent `n`; 0-d operands stay 0-d. Groups
// that differ only in shape have equal flat bodies. nullopt if the group is not pointwise or has several
// shapes.
std::optional<Graph> flat_body(const Graph& body);

}  // namespace ipex::graph

// How the values of a graph relate as index spaces: what form_groups decides with.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <vector>

#include "backend/graph/ir.h"

namespace ipex::graph {

// The iteration space of a computing node: `rows` x `reduced` when the reduced axes are the trailing ones,
// else the exact shape.
struct Space {
  Shape shape;
  std::vector<int64_t> axes;  // reduced axes, ascending; empty: a pointwise space
  bool trailing = true;       // axes are the last dims
  Dim total, rows;            // elements of shape; of shape less its axes
};
Space make_space(Shape shape, std::vector<int64_t> axes);
bool same_reduction(const Space& a, const Space& b);  // reductions of both may share one row loop

// How a consumer's index reaches a producer's element.
enum class Relation {
  kIdentity,   // same row-major position
  kBroadcast,  // the consumer's dims `dropped` do not matter, the others are the same row-major position
  kOther       // permuted, sliced, gathered...
};
struct Edge {
  Value producer;  // first value below the operand that is not free
  Relation relation = Relation::kIdentity;
  Shape consumer_shape;
  std::vector<int64_t> dropped;
};

// Nodes that cost nothing to repeat in every kernel that reads them: views, literals, positions and integer
// arithmetic on them, widening casts.
bool is_free(const Graph& graph, const Node& node);
// A pointwise op that is not too slow to compute twice where a load would do.
bool is_cheap(const Node& node);
// The edge from an operand as `shape` to the value it is computed from, through free nodes; nullopt: only
// literals below.
std::optional<Edge> trace_edge(const Graph& graph, Value operand);

// The graph with copies of nodes: each key of `chains` reads its own of the nodes behind it, and of the free
// ones between.
Graph repeat_chains(Graph graph, const std::map<int32_t, std::set<int32_t>>& chains);

// Which kernel computes what. Live nodes that are neither in a group nor steps nor inputs are free.
struct Partition {
  std::vector<std::vector<int32_t>> groups;  // ascending nodes; empty ones count for nothing
  std::vector<bool> is_step;                 // by node: a library or ATen call of its own
};
Graph extract_groups(Graph graph, const Partition& partition);

// The body of a pointwise group over one dim of extent `n`, a symbol; 0-d operands stay 0-d. Groups that
// differ in shape only have the same. nullopt: not pointwise, or over more than one shape.
std::optional<Graph> flat_body(const Graph& body);

}  // namespace ipex::graph

// Graph IR: a DAG of tensor operations, strictly typed. There is no implicit broadcast, no implicit
// promotion, no in-place operation, and no scalar attribute in place of an operand. The importer checks each
// result against the type and shape that tracing recorded.
//
// A Dim is an i64 expression of the loop IR over the graph's symbols, so one simplifier serves shapes,
// strides and indices.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "backend/graph/attributes.h"
#include "backend/graph/operations.h"
#include "runtime/dtype.h"

namespace ipex::graph {

using Shape = std::vector<Dim>;
using Strides = std::vector<Dim>;  // in elements

struct Type {
  Dtype dtype = Dtype::kF32;
  Shape shape;
};
bool equal(const Type& a, const Type& b);
bool equal(const Shape& a, const Shape& b);

struct Value {
  int32_t node = -1;
  int32_t result = 0;
  auto operator<=>(const Value&) const = default;
};

struct Node {
  Operation operation;
  std::vector<Value> operands{};
  std::vector<Type> types{};       // one for each result
  std::vector<Strides> layouts{};  // one for each result, or none; an empty entry means row-major contiguous
  std::string source{};            // "model.py:12 linear"

  Op op() const { return op_of(operation); }
  // The attributes of op T. Throws InternalError if the node is another op.
  template <class T>
  const T& get() const;
  template <class T>
  T& get() {
    return const_cast<T&>(std::as_const(*this).get<T>());
  }
  template <class T>
  const T* get_if() const {
    return std::get_if<T>(&operation);
  }
  bool is(PointwiseOp fn) const {
    const auto* pointwise = get_if<Pointwise>();
    return pointwise && pointwise->fn == fn;
  }
  bool is(ReductionOp fn) const {
    const auto* reduce = get_if<Reduce>();
    return reduce && reduce->fn == fn;
  }
};

// The sources of a node that replaces several, "model.py:12 linear; model.py:13 gelu", without duplicates.
std::vector<std::string> split_sources(std::string_view sources);
void add_sources(std::string& sources, std::string_view more);

struct GraphOutput {
  Value value;
  Strides strides;  // layout that the caller requires; empty: any (a saved activation)
};

// Writes `value` into input `input` at the end of a run. There is no other mutation.
struct InputMutation {
  int input = 0;  // position in inputs
  Value value;
};

class Graph {
 public:
  std::string name = "main";
  std::vector<std::string> symbols;   // i64; each run gives their values
  std::vector<int64_t> symbol_hints;  // one for each symbol, for cost models only
  // Lower bounds of symbols that may be below 1: sizes that may be 0, and integers that are not sizes.
  std::map<std::string, int64_t> symbol_lows;
  std::vector<Node> nodes;      // in topological order; a node is identified by its index
  std::vector<int32_t> inputs;  // node indices of Op::kInput, in order
  std::vector<GraphOutput> outputs;
  std::vector<InputMutation> mutations;

  // A graph without nodes over the same symbols.
  Graph without_nodes() const;
  Value add(Node node) {
    nodes.push_back(std::move(node));
    return {static_cast<int32_t>(nodes.size()) - 1, 0};
  }
  const Node& node(Value v) const { return nodes[v.node]; }
  const Type& type(Value v) const { return nodes[v.node].types[v.result]; }
  Strides layout(Value v) const;  // the node's entry, or contiguous strides
};

Strides contiguous_strides(const Shape& shape);
Dim numel(const Shape& shape);
std::vector<int64_t> static_shape(const Shape& shape);  // InternalError when a dim is symbolic
bool is_static(const Shape& shape);
int64_t hint(const Dim& dim, const Graph& graph);  // value at the symbol hints

// ---- properties that several ops share ----

// For matmul, conv and winograd: whether the operand after the weights is a bias, and the post-ops, whose
// operands follow. Other ops have none.
bool has_bias(const Node& node);
const Strings& post_ops(const Node& node);

// The implementation of a matmul, convolution or LSTM that choose_implementations selected, and the reason. A
// winograd or weight_gradient is always a kernel and stores only the reason.
struct Choice {
  std::optional<Implementation> by;
  std::string why;
};
Choice choice_of(const Node& node);
void set_choice(Node& node, Choice choice);

struct ConvWindow {
  Ints stride, padding, dilation, output_padding;
  int64_t groups = 1;
  bool transposed = false;
};
ConvWindow conv_window(const Node& node);  // of a conv or conv_backward

// The index attributes of a gather or scatter.
struct Indexing {
  const Ints& map;
  bool wrap = true;
  IndexFault error = IndexFault::index;
  Ints error_dims;  // the number of each dim in error messages
  Ints proved;      // index operands, from 1, that are never out of range
};
Indexing indexing_of(const Node& node);

// ---- the text form ----
//
//   graph main(%x: f32[8,s0]{s0,1}, %w: f32[16,8] static) symbols(s0=128, u0=8 >= 0) {
//     %0 = matmul(%w, %x) : f32[16,s0]
//     %1 = constant value=0.5 : f32[]             # value=[1,2,3], or data="<base 64>", for a tensor
//     %2 = expand(%1) dims=[] : f32[16,s0]
//     %3 = pointwise.mul(%0, %2) : f32[16,s0]                          # model.py:12 linear
//     %4, %5 = reduce.max_with_index(%3) axes=[1] keepdim=false : f32[16], i64[16]
//     %6 = group(%3) { ... nested graph ... } : f32[16,s0]
//     return %3{s0,1}, %4
//     mutate %x = %3
//   }
std::string print(const Graph& graph);
Graph parse(std::string_view text);  // verifies; throws ParseError with line:column
// Checks operand counts, types and shapes of each op, and the topological order. Throws an InternalError that
// names the node and the rule.
void verify(const Graph& graph);

template <class T>
const T& Node::get() const {
  const T* attributes = get_if<T>();
  if (!attributes)
    throw InternalError(name_of(operation) + " does not have the attributes of the requested op");
  return *attributes;
}

}  // namespace ipex::graph

// Graph IR: a DAG of tensor operations, strictly typed. No implicit broadcast, no implicit promotion, no
// in-place operation, no scalar attribute standing for an operand. What the importer asserted against eager's
// metadata is what the types say.
//
// A Dim is an i64 expression of the loop IR over the graph's symbols, so one simplifier serves shapes,
// strides and indices.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "codegen/loop/ir.h"
#include "runtime/dtype.h"

namespace ipex::graph {

using Dim = loop::Expr;
using Shape = std::vector<Dim>;
using Strides = std::vector<Dim>;  // in elements

struct Type {
  Dtype dtype = Dtype::kF32;
  Shape shape;
};
bool equal(const Type& a, const Type& b);
bool equal(const Shape& a, const Shape& b);

// OP(enum, text, summary): the closed list, in backend/ops/structural.def.
enum class Op : uint8_t {
#define OP(name, text, operands, attributes, summary) k##name,
#include "backend/ops/structural.def"
#undef OP
};
struct OpInfo {
  std::string_view name;
  std::string_view operands, attributes, summary;
};
const OpInfo& info(Op op);
inline bool is_attention(Op op) { return op == Op::kAttention || op == Op::kAttentionBackward; }

struct Value {
  int32_t node = -1;
  int32_t result = 0;
  auto operator<=>(const Value&) const = default;
};

struct ConstantData {  // row-major payload of a Constant
  std::vector<std::byte> bytes;
};

using Attr = std::variant<bool, int64_t, double, std::string, std::vector<int64_t>, std::vector<Dim>, Dim,
                          Dtype, std::vector<std::string>>;
using Attrs = std::map<std::string, Attr, std::less<>>;

class Graph;

struct Node {
  Op op{};
  std::string name;  // row of an op table (pointwise, reduce, scan), ATen overload (extern), input's name
  std::vector<Value> operands;
  std::vector<Type> types;  // one a result
  Attrs attrs;
  std::vector<Strides> layouts;  // per result; an empty entry (or vector): row-major contiguous
  std::shared_ptr<const ConstantData> constant;  // Constant
  std::shared_ptr<const Graph> body;             // Group: inputs match operands, outputs match results
  std::string source;                            // "model.py:12 linear"

  template <class T>
  const T& attr(std::string_view key) const;  // InternalError when absent or of another type
  template <class T>
  T attr_or(std::string_view key, T fallback) const;
  bool has_attr(std::string_view key) const { return attrs.find(key) != attrs.end(); }
};

// Of a node that stands for several, "model.py:12 linear; model.py:13 gelu": each once.
std::vector<std::string> split_sources(std::string_view sources);
void add_sources(std::string& sources, std::string_view more);

struct GraphOutput {
  Value value;
  Strides strides;  // layout the caller wants; empty: free to choose (a saved activation)
};

// Writes `value` into input `input` at the end of a run (the only mutation there is).
struct InputMutation {
  int input = 0;  // position in inputs
  Value value;
};

class Graph {
 public:
  std::string name = "main";
  std::vector<std::string> symbols;   // i64, values given per run
  std::vector<int64_t> symbol_hints;  // one each, for cost decisions only
  // Least values of symbols that may be below 1: a size that may be 0, an integer that is no size.
  std::map<std::string, int64_t> symbol_lows;
  std::vector<Node> nodes;      // topological order; an index is a node's identity
  std::vector<int32_t> inputs;  // node indices of Op::kInput, in order
  std::vector<GraphOutput> outputs;
  std::vector<InputMutation> mutations;

  // No nodes, over the same symbols.
  Graph without_nodes() const;
  // Ends a copy of `old`: its inputs, outputs and mutations, of values that `mapped` finds here.
  void end_like(const Graph& old, const std::function<Value(Value)>& mapped);
  Value add(Node node) {
    nodes.push_back(std::move(node));
    return {static_cast<int32_t>(nodes.size()) - 1, 0};
  }
  const Node& node(Value v) const { return nodes[v.node]; }
  const Type& type(Value v) const { return nodes[v.node].types[v.result]; }
  Strides layout(Value v) const;  // the entry, or contiguous strides
};

Strides contiguous_strides(const Shape& shape);
Dim numel(const Shape& shape);
std::vector<int64_t> static_shape(const Shape& shape);  // InternalError when a dim is symbolic
bool is_static(const Shape& shape);
double correction_of(const Node& variance);        // what its count is lessened by: 1 when it does not say
int64_t hint(const Dim& dim, const Graph& graph);  // value at the symbol hints

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
Graph parse(std::string_view text);  // ParseError with line:column; verifies
// Operand counts and types by op, rows known, shapes consistent, order topological. InternalError naming node
// and rule.
void verify(const Graph& graph);

template <class T>
const T& Node::attr(std::string_view key) const {
  auto it = attrs.find(key);
  if (it == attrs.end() || !std::holds_alternative<T>(it->second))
    throw InternalError(std::string(info(op).name) + (name.empty() ? "" : "." + name) +
                        " needs an attribute '" + std::string(key) + "', which is " +
                        (it == attrs.end() ? "missing" : "of another type"));
  return std::get<T>(it->second);
}
template <class T>
T Node::attr_or(std::string_view key, T fallback) const {
  auto it = attrs.find(key);
  return it != attrs.end() && std::holds_alternative<T>(it->second) ? std::get<T>(it->second) : fallback;
}

}  // namespace ipex::graph

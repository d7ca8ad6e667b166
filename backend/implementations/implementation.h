// Selects the implementation of a matrix product, a convolution, its gradients or an LSTM. Each op has an
// ordered table, like oneDNN's implementation lists. The first row that accepts the node is used.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "backend/graph/parameters.h"
#include "backend/implementations/measured_products.h"
#include "backend/lower/lower.h"
#include "backend/passes/context.h"
#include "codegen/loop/simplify.h"

namespace ipex::graph {

// Properties of the whole graph that rows use. Layouts are already planned.
struct GraphFacts {
  GraphFacts(const Graph& graph, const PassContext& context);

  // Does the value depend only on parameters, and is hoisting enabled?
  bool is_hoisted(Value v);

  const Graph& graph;
  const PassContext& context;
  int64_t weight_bytes = 0;  // bytes of all parameters that are the right operand of a product

 private:
  ParameterAnalysis is_parameter_;
};

// One node, with the queries that rows use.
class Problem {
 public:
  Problem(GraphFacts& facts, int32_t n)
      : graph(facts.graph), node(facts.graph.nodes[n]), context(facts.context), facts_(facts), n_(n) {}

  const Type& operand(int k) const { return graph.type(node.operands[k]); }
  const Type& result() const { return node.types[0]; }
  OperandLayout layout(int k) const;
  Strides result_strides() const { return graph.layout({n_, 0}); }
  bool is_hoisted(int k) const { return facts_.is_hoisted(node.operands[k]); }
  int64_t weight_bytes() const { return facts_.weight_bytes; }
  // Does the library support the first operand's type on this ISA?
  bool library_has_type() const;
  // Does the library have an implementation other than its reference one? Plans the step and keeps the plan.
  bool library_plans() const;
  // The times of kernel and library, if products are to be measured and this one can be.
  const std::optional<MeasuredProduct>& measured() const;

  const Graph& graph;
  const Node& node;
  const PassContext& context;

 private:
  std::optional<MeasuredProduct> measure() const;
  Graph alone() const;  // the product as a graph of its own, with inputs of the same layouts

  GraphFacts& facts_;
  int32_t n_;
  mutable std::optional<std::optional<MeasuredProduct>> measured_;
};

inline int64_t known(const Dim& dim) { return loop::as_const_int(dim).value_or(0); }  // 0: unknown

// How the node is computed.
enum class Method : uint8_t {
  kKernel,   // a generated loop nest
  kLibrary,  // a oneDNN step
  kWiden,    // in f32 between casts; the table is then searched again
  kWinograd,
  kWinogradOfData,
  kWeightsByTaps,
  kWeightsByWinograd
};

// The basis of a row's decision. For kMeasured, the two times are given as the reason.
enum class Basis : uint8_t { kRule, kMeasured, kModel };

struct ImplementationRow {
  std::string_view name;  // as in IPEX_DISABLE_IMPLEMENTATIONS
  bool (*accepts)(const Problem&);
  Method method;
  std::string_view why;
  Basis basis = Basis::kRule;
};

// Empty for ops with only one implementation. The last row accepts every node.
std::span<const ImplementationRow> implementations(Op op);
// Predicates that several tables use.
bool lacks_half_type(const Problem& problem);  // a half type; the library could compute in f32
bool lacks_type(const Problem& problem);
bool is_planned_by_library(const Problem& problem);
bool always(const Problem& problem);

// Rows that several tables use.
inline constexpr ImplementationRow kWidened = {
    "widened", lacks_half_type, Method::kWiden,
    "in f32 between casts, as the library does not support the type"};
inline constexpr ImplementationRow kOtherType = {"other_type", lacks_type, Method::kKernel,
                                                 "the library does not support the type"};
inline constexpr ImplementationRow kByLibrary = {"library", is_planned_by_library, Method::kLibrary,
                                                 "the library has an implementation"};
inline constexpr ImplementationRow kByKernel = {"kernel", always, Method::kKernel,
                                                "the library has only its reference implementation"};

std::span<const ImplementationRow> matmul_implementations();
std::span<const ImplementationRow> conv_implementations();
std::span<const ImplementationRow> conv_backward_implementations();
std::span<const ImplementationRow> lstm_implementations();

// The first row that is not disabled and accepts the problem.
const ImplementationRow& first_accepting(const Problem& problem);

// The two times as text, the reason for a choice.
std::string measured_text(const MeasuredProduct& measured);

// The choices in a graph, for reports. Equal lines are listed once.
struct Choices {
  std::vector<std::string> all;       // "matmul 4x4 f32 by 4x4 f32 +gelu - kernel: few numbers"
  std::vector<std::string> measured;  // "4x4 f32 by 4x4 f32 +gelu - kernel 0.1 us, library 0.9 us, kernel"
};
Choices choices_of(const Graph& graph);

}  // namespace ipex::graph

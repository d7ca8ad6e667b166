// Who computes a matrix product, a convolution, its gradients or an LSTM: one ordered table an op, like the
// implementation lists of oneDNN. The first row that accepts the node wins.
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

// What rows may ask about the graph as a whole. Layouts are planned.
struct GraphFacts {
  GraphFacts(const Graph& graph, const PassContext& context);

  // Does the value depend on parameters only, in a compilation that computes such values once?
  bool is_hoisted(Value v);

  const Graph& graph;
  const PassContext& context;
  int64_t weight_bytes = 0;  // that products multiply by, of parameters

 private:
  ParameterAnalysis is_parameter_;
};

// One node, and what rows ask about it.
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
  // Does the library compute in the type of the first operand on this ISA?
  bool library_has_type() const;
  // Has the library an implementation better than its reference one? It plans the step now, and keeps it.
  bool library_plans() const;
  // Both ways timed, where products are to be measured and this one can be.
  const std::optional<MeasuredProduct>& measured() const;

  const Graph& graph;
  const Node& node;
  const PassContext& context;

 private:
  std::optional<MeasuredProduct> measure() const;
  Graph alone() const;  // its operands as inputs of the same layouts

  GraphFacts& facts_;
  int32_t n_;
  mutable std::optional<std::optional<MeasuredProduct>> measured_;
};

inline int64_t known(const Dim& dim) { return loop::as_const_int(dim).value_or(0); }  // 0: it is not

// What becomes of the node.
enum class Method : uint8_t {
  kKernel,   // a loop nest of ours
  kLibrary,  // a step of oneDNN
  kWiden,    // in f32 between casts; then its table is asked again
  kWinograd,
  kWinogradOfData,
  kWeightsByTaps,
  kWeightsByWinograd
};

// What a row goes by. Of what is measured, the two times are the reason.
enum class Basis : uint8_t { kRule, kMeasured, kModel };

struct ImplementationRow {
  std::string_view name;  // what IPEX_DISABLE_IMPLEMENTATIONS calls it
  bool (*accepts)(const Problem&);
  Method method;
  std::string_view why;
  Basis basis = Basis::kRule;
};

// Empty for an op of which there is one implementation. The last row accepts everything.
std::span<const ImplementationRow> implementations(Op op);
// Predicates of several tables.
bool lacks_half_type(const Problem& problem);  // that the library could compute with in f32
bool lacks_type(const Problem& problem);
bool is_planned_by_library(const Problem& problem);
bool always(const Problem& problem);

// Rows of several tables.
inline constexpr ImplementationRow kWidened = {"widened", lacks_half_type, Method::kWiden,
                                               "in f32 between casts, as the library lacks the type"};
inline constexpr ImplementationRow kOtherType = {"other_type", lacks_type, Method::kKernel,
                                                 "the library lacks the type"};
inline constexpr ImplementationRow kByLibrary = {"library", is_planned_by_library, Method::kLibrary,
                                                 "the library has an implementation"};
inline constexpr ImplementationRow kByKernel = {"kernel", always, Method::kKernel,
                                                "the library has only its reference implementation"};

std::span<const ImplementationRow> matmul_implementations();
std::span<const ImplementationRow> conv_implementations();
std::span<const ImplementationRow> conv_backward_implementations();
std::span<const ImplementationRow> lstm_implementations();

// The first row that accepts and is not disabled.
const ImplementationRow& first_accepting(const Problem& problem);

// The two times, as the reason of a choice.
std::string measured_text(const MeasuredProduct& measured);

// What was chosen in a graph, for reports. Nodes that are alike have one line.
struct Choices {
  std::vector<std::string> all;       // "matmul 4x4 f32 by 4x4 f32 +gelu - kernel: few numbers"
  std::vector<std::string> measured;  // "4x4 f32 by 4x4 f32 +gelu - kernel 0.1 us, library 0.9 us, kernel"
};
Choices choices_of(const Graph& graph);

}  // namespace ipex::graph

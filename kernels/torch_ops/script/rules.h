// Import rules: each writes the nodes of a Graph for one operator of a TorchScript graph.
//
// The importer runs each operator once by ATen before it calls the rule. So a rule knows the sizes and the
// type of the result, and the values of all numbers.
#pragma once

#include <ATen/core/ivalue.h>

#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "kernels/torch_ops/script/graph_text.h"
#include "runtime/error.h"

namespace torch::jit {
struct Node;
}

namespace ipex::torch_ops::script {

struct Argument {
  c10::IValue value;      // undefined for a tensor that differs between calls
  std::vector<Ref> refs;  // a tensor, or the tensors of a list, where one without a name is None
};

// One call of an operator. Positions are those of the operator's schema.
class Call {
 public:
  Call(GraphText& text, std::vector<Argument> arguments, std::vector<at::Tensor> eager)
      : text(text), arguments_(std::move(arguments)), eager_(std::move(eager)) {}

  GraphText& text;

  size_t size() const { return arguments_.size(); }
  bool is_tensor(size_t i) const { return arguments_.at(i).refs.size() == 1; }
  bool is_given(size_t i) const { return i < size() && (is_tensor(i) || !arguments_[i].value.isNone()); }
  const Ref& tensor(size_t i) const {
    if (!is_tensor(i)) throw Unsupported("an operand that is not a tensor");
    return arguments_[i].refs[0];
  }
  const std::vector<Ref>& tensors(size_t i) const { return arguments_.at(i).refs; }
  const c10::IValue& value(size_t i) const { return arguments_.at(i).value; }
  // A tensor or a number.
  Operand operand(size_t i) const {
    if (is_tensor(i)) return arguments_[i].refs[0];
    if (!value(i).isScalar()) throw Unsupported("an operand that is neither a tensor nor a number");
    return value(i).toScalar();
  }
  int64_t integer(size_t i) const { return value(i).toInt(); }
  bool flag(size_t i) const { return value(i).toBool(); }
  double real(size_t i) const { return value(i).toScalar().to<double>(); }
  // A list of `rank` integers; one integer stands for all.
  Shape ints(size_t i, size_t rank = 0) const {
    Shape result = value(i).isInt() ? Shape{value(i).toInt()} : value(i).toIntVector();
    if (result.size() == 1 && rank > 1) result.assign(rank, result[0]);
    return result;
  }
  // A dimension of a tensor of that rank.
  int64_t dim(size_t i, int64_t rank) const { return integer(i) < 0 ? integer(i) + rank : integer(i); }

  // What eager computes: its type and its sizes.
  size_t results() const { return eager_.size(); }
  c10::ScalarType dtype(size_t result = 0) const { return eager_.at(result).scalar_type(); }
  Shape shape(size_t result = 0) const { return eager_.at(result).sizes().vec(); }

 private:
  std::vector<Argument> arguments_;
  std::vector<at::Tensor> eager_;
};

// The results in order; those of an operator that returns a list are the elements of the list. Results at the
// end may be left out if nothing reads them.
using Rule = std::vector<Ref> (*)(Call& call);

struct NamedRule {
  std::string_view names;  // qualified names, separated by spaces
  Rule rule;
  bool computes = true;  // false: moves no data, or next to none
};
std::span<const NamedRule> pointwise_rules();
std::span<const NamedRule> view_rules();
std::span<const NamedRule> layer_rules();

// What is known of a node without its operands' types.
bool has_rule(const torch::jit::Node* node);
bool computes(const torch::jit::Node* node);
std::vector<Ref> apply_rule(const torch::jit::Node* node, Call& call);

}  // namespace ipex::torch_ops::script

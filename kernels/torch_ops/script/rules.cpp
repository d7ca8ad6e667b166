#include "kernels/torch_ops/script/rules.h"

#include <torch/csrc/jit/ir/ir.h>

#include <optional>
#include <unordered_map>

namespace ipex::torch_ops::script {
namespace {

using torch::jit::Node;

template <class Fn>
void each_word(std::string_view words, const Fn& fn) {
  for (size_t at = 0; at < words.size();) {
    const size_t end = std::min(words.find(' ', at), words.size());
    fn(words.substr(at, end - at));
    at = end + 1;
  }
}

const NamedRule* named_rule(const Node* node) {
  static const auto* table = [] {
    auto* rules = new std::unordered_map<c10::Symbol, const NamedRule*>;
    for (const auto& part : {pointwise_rules(), view_rules(), layer_rules()})
      for (const NamedRule& rule : part)
        each_word(rule.names, [&](std::string_view name) {
          rules->emplace(c10::Symbol::fromQualString(std::string(name)), &rule);
        });
    return rules;
  }();
  const auto found = table->find(node->kind());
  return found == table->end() ? nullptr : found->second;
}

// The row of pointwise.def whose operands are the op's arguments in order.
const ops::PointwiseRow* row_of(const Node* node) {
  static const auto* table = [] {
    auto* rows = new std::unordered_map<c10::Symbol, const ops::PointwiseRow*>;
    for (const ops::PointwiseRow& row : ops::pointwise_rows())
      each_word(row.aten, [&](std::string_view name) {
        rows->emplace(c10::Symbol::fromQualString("aten::" + std::string(name)), &row);
      });
    return rows;
  }();
  const auto found = table->find(node->kind());
  const c10::FunctionSchema* schema = node->maybeSchema();
  if (found == table->end() || !schema ||
      schema->arguments().size() != static_cast<size_t>(found->second->arity))
    return nullptr;
  for (const c10::Argument& argument : schema->arguments())
    if (argument.type()->kind() != c10::TypeKind::TensorType &&
        !argument.type()->isSubtypeOf(*c10::NumberType::get()))
      return nullptr;
  return found->second;
}

}  // namespace

bool has_rule(const Node* node) { return named_rule(node) || row_of(node); }

bool computes(const Node* node) {
  const NamedRule* rule = named_rule(node);
  return rule ? rule->computes : row_of(node) != nullptr;
}

std::vector<Ref> apply_rule(const Node* node, Call& call) {
  const auto refused = [&](const std::string& why) {
    return Unsupported(std::string(node->kind().toQualString()) + ": " + why);
  };
  std::vector<Ref> results;
  try {
    if (const NamedRule* rule = named_rule(node)) {
      results = rule->rule(call);
    } else {
      std::vector<Operand> operands;
      for (size_t i = 0; i < call.size(); ++i) operands.push_back(call.operand(i));
      const ops::PointwiseRow* row = row_of(node);
      if (!row) throw Unsupported("no rule");
      results = {call.text.pointwise(*row, operands)};
    }
  } catch (const Unsupported& error) {
    throw refused(error.what());
  } catch (const c10::Error& error) {  // an argument of another type than the rule reads
    throw refused(error.what_without_backtrace());
  }
  // Autocast may compute in another type than the operator itself.
  for (size_t i = 0; i < results.size(); ++i)
    if (results[i].dtype != call.dtype(i) || results[i].shape != call.shape(i))
      throw refused("the result is " + std::string(c10::toString(call.dtype(i))) + ints(call.shape(i)) +
                    ", the rule gives " + c10::toString(results[i].dtype) + ints(results[i].shape));
  return results;
}

}  // namespace ipex::torch_ops::script

#include "kernels/torch_ops/script/importer.h"

#include <ATen/core/grad_mode.h>
#include <c10/core/InferenceMode.h>
#include <torch/csrc/jit/ir/constants.h>
#include <torch/csrc/jit/ir/ir.h>
#include <torch/csrc/jit/runtime/operator.h>

#include <algorithm>
#include <unordered_map>

#include "kernels/torch_ops/script/rules.h"
#include "kernels/torch_ops/tensor_kinds.h"

namespace ipex::torch_ops::script {
namespace {

using torch::jit::Node;
using torch::jit::Value;

// The tensors in a tensor or a list of tensors.
std::vector<at::Tensor> tensors_in(const c10::IValue& value) {
  if (value.isTensor()) return {value.toTensor()};
  std::vector<at::Tensor> result;
  if (value.isList())
    for (const c10::IValue& element : value.toListRef())
      if (element.isTensor()) result.push_back(element.toTensor());
  return result;
}

class Importer {
 public:
  Imported run(const torch::jit::Graph& graph, c10::ArrayRef<c10::IValue> arguments) {
    for (size_t i = 0; i < arguments.size(); ++i) {
      Entry& entry = entries_[graph.inputs()[i]];
      entry.value = arguments[i];
      entry.argument = static_cast<int>(i);
      entry.is_known = !arguments[i].isTensor();
      if (entry.is_known && !tensors_in(arguments[i]).empty())
        throw Unsupported("a list of tensors as argument");
    }
    for (const Node* node : graph.nodes()) {
      import(node);
      release_operands(node);
    }
    std::vector<Ref> outputs;
    std::vector<Shape> strides;
    for (const Value* output : graph.outputs()) {
      outputs.push_back(refs_of(output).at(0));
      strides.push_back(entries_.at(output).value.toTensor().strides().vec());
    }
    return {text_.finish(outputs, strides), std::move(inputs_)};
  }

 private:
  struct Entry {
    c10::IValue value;  // as ATen computed it; released after the last use
    bool is_known = false;
    int argument = -1;
    std::vector<Ref> refs;  // of a tensor of the graph, or of a list with such tensors
  };

  void import(const Node* node) {
    if (node->kind() == c10::prim::Constant) {
      entries_[node->output()] = {torch::jit::toIValue(node->output()).value(), true};
      return;
    }
    const bool known = is_query(node) || std::all_of(node->inputs().begin(), node->inputs().end(),
                                                     [&](const Value* v) { return entries_.at(v).is_known; });
    std::vector<c10::IValue> results = evaluate(node);
    if (!known && node->kind() == c10::prim::ListConstruct) {
      Entry& entry = entries_[node->output()] = {results[0]};
      for (const Value* element : node->inputs()) {
        const std::vector<Ref> refs = refs_of(element);
        const bool is_absent = entries_.at(element).value.isNone() && refs.empty();
        if (refs.size() != 1 && !is_absent) throw Unsupported("a list of tensors and other values");
        entry.refs.push_back(is_absent ? Ref() : refs[0]);
      }
      return;
    }
    std::vector<Ref> refs;
    if (!known) refs = apply(node, results);
    const bool is_list = results.size() == 1 && results[0].isList();
    for (size_t i = 0; i < results.size(); ++i) {
      Entry entry{std::move(results[i]), known};
      if (!known && is_list) entry.refs = refs;
      if (!known && !is_list && i < refs.size()) entry.refs = {refs[i]};
      entries_[node->outputs()[i]] = std::move(entry);
    }
  }

  std::vector<c10::IValue> evaluate(const Node* node) {
    torch::jit::Stack stack;
    for (const Value* input : node->inputs()) stack.push_back(entries_.at(input).value);
    if (node->kind() == c10::prim::ListConstruct) {
      c10::impl::GenericList list(node->output()->type()->expectRef<c10::ListType>().getElementType());
      for (c10::IValue& element : stack) list.push_back(std::move(element));
      return {list};
    }
    if (node->kind() == c10::prim::ListUnpack) {
      const c10::List<c10::IValue> list = stack[0].toList();
      return {list.begin(), list.end()};
    }
    node->getOperation()(stack);
    return {stack.begin(), stack.end()};
  }

  std::vector<Ref> apply(const Node* node, const std::vector<c10::IValue>& results) {
    std::vector<Argument> arguments;
    for (const Value* input : node->inputs()) {
      Argument argument{{}, refs_of(input)};
      const Entry& entry = entries_.at(input);
      if (argument.refs.empty() || entry.is_known) argument.value = entry.value;
      arguments.push_back(std::move(argument));
    }
    std::vector<at::Tensor> eager;
    for (const c10::IValue& result : results)
      for (const at::Tensor& tensor : tensors_in(result)) eager.push_back(tensor);
    for (const at::Tensor& tensor : eager) require_plain(tensor);
    Call call(text_, std::move(arguments), std::move(eager));
    return apply_rule(node, call);
  }

  // The tensor, or the tensors of the list; none for another value.
  std::vector<Ref> refs_of(const Value* value) {
    Entry& entry = entries_.at(value);
    if (!entry.refs.empty()) return entry.refs;
    if (entry.argument >= 0 && entry.value.isTensor()) {
      const at::Tensor& tensor = entry.value.toTensor();
      require_plain(tensor);
      entry.refs = {text_.input(tensor, false)};
      inputs_.push_back({entry.argument, {}});
    } else {
      if (entry.value.isTensor()) entry.refs = {constant(entry.value.toTensor())};
      if (!tensors_in(entry.value).empty() && entry.value.isList())
        for (const c10::IValue& element : entry.value.toListRef())
          entry.refs.push_back(element.isTensor() ? constant(element.toTensor()) : Ref());
    }
    return entry.refs;
  }

  Ref constant(const at::Tensor& tensor) {
    require_plain(tensor);
    if (tensor.dim() == 0) return text_.scalar(tensor.item(), tensor.scalar_type());
    const Ref ref = text_.input(tensor, true);
    inputs_.push_back({-1, tensor});
    return ref;
  }

  static void require_plain(const at::Tensor& tensor) {
    if (!tensor.defined() || !tensor.device().is_cpu() || tensor.layout() != c10::kStrided ||
        is_wrapper(tensor) || has_lazy_values(tensor))
      throw Unsupported("a tensor that is not dense memory of the CPU");
    if (c10::isComplexType(tensor.scalar_type())) throw Unsupported("complex numbers");
    if (tensor.requires_grad()) throw Unsupported("a constant that requires a gradient");
  }

  void release_operands(const Node* node) {
    for (const Value* input : node->inputs()) {
      Entry& entry = entries_.at(input);
      const bool is_last = ++uses_[input] == input->uses().size();
      if (is_last && !entry.refs.empty()) entry.value = c10::IValue();
    }
  }

  GraphText text_;
  std::vector<GraphInput> inputs_;
  std::unordered_map<const Value*, Entry> entries_;
  std::unordered_map<const Value*, size_t> uses_;
};

}  // namespace

bool is_query(const Node* node) {
  switch (node->kind()) {
    case c10::aten::size:
    case c10::aten::dim:
    case c10::aten::numel:
    case c10::aten::is_floating_point:
    case c10::prim::dtype:
    case c10::prim::device:
      return true;
    default:
      return false;
  }
}

bool is_pure(const Node* node) {
  if (node->kind() == c10::prim::ListConstruct) return true;
  const c10::FunctionSchema* schema = node->maybeSchema();
  return schema && !schema->is_mutable() && !schema->is_vararg() && !node->isNondeterministic() &&
         node->blocks().empty() && !node->hasSideEffects() &&
         (node->kind().is_aten() || node->kind() == c10::prim::NumToTensor);
}

Imported import_graph(const torch::jit::Graph& graph, c10::ArrayRef<c10::IValue> arguments) {
  // Constants outlive this call, also one in inference mode.
  const c10::InferenceMode normal(false);
  const at::NoGradGuard no_gradients;
  return Importer().run(graph, arguments);
}

}  // namespace ipex::torch_ops::script

#include "kernels/torch_ops/script/fused_graph.h"

#include <ATen/autocast_mode.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <torch/csrc/jit/ir/ir.h>
#include <torch/csrc/jit/runtime/custom_operator.h>
#include <torch/csrc/jit/runtime/interpreter.h>
#include <torch/csrc/jit/runtime/operator.h>
#include <torch/library.h>

#include <atomic>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <unordered_map>
#include <unordered_set>

#include "kernels/torch_ops/graph_program.h"
#include "kernels/torch_ops/script/importer.h"
#include "kernels/torch_ops/tensor_kinds.h"
#include "runtime/env.h"
#include "runtime/error.h"

namespace ipex::torch_ops::script {
namespace {

using torch::jit::Stack;

// Programs that one node keeps. The one that was not used for the longest time goes first.
constexpr size_t kPrograms = 64;
// A node that has so many programs compiles for further sizes at their second call: sizes that grow with each
// call would never pay for their compilation.
constexpr size_t kImmediatePrograms = 8;
constexpr size_t kRemembered = 4096;  // sizes that came once

struct Counts {
  std::atomic<int64_t> compiled = 0, native_calls = 0, interpreted_calls = 0;
};
Counts& counts() {
  static Counts all;
  return all;
}

// Types, sizes and strides of tensors, all other arguments, and autocast. None for an argument that a program
// cannot depend on.
std::optional<ProgramKey> key_of(c10::ArrayRef<c10::IValue> arguments) {
  ProgramKey key{at::autocast::is_autocast_enabled(at::kCPU),
                 static_cast<int64_t>(at::autocast::get_autocast_dtype(at::kCPU))};
  for (const c10::IValue& argument : arguments) {
    if (argument.isTensor()) {
      const at::Tensor& tensor = argument.toTensor();
      if (!tensor.defined() || !tensor.device().is_cpu() || tensor.layout() != c10::kStrided ||
          is_wrapper(tensor) || has_lazy_values(tensor))
        return std::nullopt;
      key.append({static_cast<int64_t>(tensor.scalar_type()), tensor.dim()});
      key.append(tensor.sizes().begin(), tensor.sizes().end());
      key.append(tensor.strides().begin(), tensor.strides().end());
    } else if (argument.isInt() || argument.isBool()) {
      key.append({-1, argument.isInt() ? argument.toInt() : argument.toBool()});
    } else if (argument.isDouble()) {
      key.append({-2, c10::bit_cast<int64_t>(argument.toDouble())});
    } else if (argument.isIntList()) {
      const auto list = argument.toIntVector();
      key.append({-3, static_cast<int64_t>(list.size())});
      key.append(list.begin(), list.end());
    } else if (argument.isNone()) {
      key.push_back(-4);
    } else {
      return std::nullopt;
    }
  }
  return key;
}

struct Program {
  TensorProgram program;
  std::vector<GraphInput> inputs;

  void run(c10::ArrayRef<c10::IValue> arguments, std::vector<at::Tensor>& results) const {
    const at::AutoDispatchBelowADInplaceOrView below;
    TensorProgram::Call call(program, {});
    for (size_t i = 0; i < inputs.size(); ++i)
      call.add_input(inputs[i].argument < 0 ? inputs[i].constant : arguments[inputs[i].argument].toTensor(),
                     static_cast<int>(i));
    call.run();
    for (size_t i = 0; i < program.executable().parts().outputs.size(); ++i)
      results.push_back(call.result(static_cast<int>(i)));
  }
};

class FusedGraph {
 public:
  explicit FusedGraph(std::shared_ptr<torch::jit::Graph> graph) : graph_(std::move(graph)) {}

  void run(Stack& stack) {
    const size_t count = graph_->inputs().size();
    const c10::ArrayRef<c10::IValue> arguments = torch::jit::last(stack, count);
    const std::shared_ptr<const Program> program =
        needs_gradient(arguments) ? nullptr : program_for(arguments);
    if (!program) return interpret(stack);
    std::vector<at::Tensor> results;
    program->run(arguments, results);
    torch::jit::drop(stack, count);
    for (at::Tensor& result : results) stack.emplace_back(std::move(result));
    ++counts().native_calls;
  }

 private:
  static bool needs_gradient(c10::ArrayRef<c10::IValue> arguments) {
    if (!at::GradMode::is_enabled()) return false;
    return std::any_of(arguments.begin(), arguments.end(),
                       [](const c10::IValue& v) { return v.isTensor() && v.toTensor().requires_grad(); });
  }

  // Null if the interpreter runs these types and sizes.
  std::shared_ptr<const Program> program_for(c10::ArrayRef<c10::IValue> arguments) {
    const std::optional<ProgramKey> key = key_of(arguments);
    if (!key) return nullptr;
    if (auto found = find(*key)) return *found;
    std::lock_guard compiling(compiling_);
    if (auto found = find(*key)) return *found;  // another thread compiled it
    if (programs_.size() >= kImmediatePrograms && is_first_call(*key)) return nullptr;
    auto program = compile_for(arguments);
    std::lock_guard lock(mutex_);
    recent_.emplace_front(*key, program);
    programs_[*key] = recent_.begin();
    if (recent_.size() > kPrograms) {
      programs_.erase(recent_.back().first);
      recent_.pop_back();
    }
    return program;
  }

  bool is_first_call(const ProgramKey& key) {
    if (once_.size() >= kRemembered) once_.clear();
    return once_.insert(key).second;
  }

  std::optional<std::shared_ptr<const Program>> find(const ProgramKey& key) {
    std::lock_guard lock(mutex_);
    const auto found = programs_.find(key);
    if (found == programs_.end()) return std::nullopt;
    recent_.splice(recent_.begin(), recent_, found->second);
    return found->second->second;
  }

  std::shared_ptr<const Program> compile_for(c10::ArrayRef<c10::IValue> arguments) {
    try {
      Imported imported = import_graph(*graph_, arguments);
      return compiled(std::move(imported));
    } catch (const Unsupported& error) {
      refuse(error.what());
    }
    return nullptr;
  }

  std::shared_ptr<const Program> compiled(Imported imported) {
    try {
      // Without aliases: a copy is a copy, and no op of the graph writes to a view.
      auto program = std::make_shared<const Program>(
          Program{compile_graph(imported.text, false), std::move(imported.inputs)});
      ++counts().compiled;
      return program;
    } catch (const OutOfMemory&) {
      throw;
    } catch (const std::exception& error) {
      refuse(error.what());
    }
    return nullptr;
  }

  void refuse(const std::string& why) {
    if (env::flag("IPEX_STRICT"))
      throw UserError("a part of a TorchScript graph has no native code (" + why +
                      "), and IPEX_STRICT=1 is set");
    if (!std::exchange(warned_, true)) {
      TORCH_WARN("The interpreter runs a part of a TorchScript graph: ", why);
    }
  }

  void interpret(Stack& stack) {
    std::call_once(code_once_, [&] { code_.emplace(graph_, "ipex::CompiledGraph"); });
    torch::jit::InterpreterState(*code_).run(stack);
    ++counts().interpreted_calls;
  }

  const std::shared_ptr<torch::jit::Graph> graph_;
  using Recent = std::list<std::pair<ProgramKey, std::shared_ptr<const Program>>>;
  std::mutex mutex_, compiling_;
  Recent recent_;
  std::unordered_map<ProgramKey, Recent::iterator, ProgramKeyHash> programs_;
  std::unordered_set<ProgramKey, ProgramKeyHash> once_;
  std::once_flag code_once_;
  std::optional<torch::jit::Code> code_;
  bool warned_ = false;
};

const torch::jit::RegisterOperators registered({torch::jit::Operator(
    compiled_graph(),
    [](const torch::jit::Node* node) -> torch::jit::Operation {
      auto fused = std::make_shared<FusedGraph>(node->g(c10::attr::Subgraph));
      return [fused](Stack& stack) { fused->run(stack); };
    },
    c10::AliasAnalysisKind::PURE_FUNCTION)});

std::tuple<int64_t, int64_t, int64_t> compiled_graph_counts() {
  return {counts().compiled, counts().native_calls, counts().interpreted_calls};
}

}  // namespace

c10::Symbol compiled_graph() {
  static const c10::Symbol symbol = c10::Symbol::fromQualString("ipex::CompiledGraph");
  return symbol;
}

}  // namespace ipex::torch_ops::script

TORCH_LIBRARY_FRAGMENT(torch_ipex, m) {
  // Programs compiled, runs of programs, and runs by the interpreter, of all nodes of TorchScript graphs.
  m.def("compiled_graph_counts() -> (int, int, int)", &ipex::torch_ops::script::compiled_graph_counts);
}

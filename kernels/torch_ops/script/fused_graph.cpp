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
#include <stdexcept>
#include <unordered_map>
#include <unordered_set>

#include "kernels/torch_ops/compiled_ops.h"
#include "kernels/torch_ops/graph_program.h"
#include "kernels/torch_ops/script/importer.h"
#include "kernels/torch_ops/script/size_template.h"
#include "kernels/torch_ops/tensor_kinds.h"
#include "runtime/env.h"
#include "runtime/error.h"

namespace ipex::torch_ops::script {
namespace {

using torch::jit::Stack;

// Sizes that one node keeps a program for: each its own, and those of a program with symbols, which keep
// constants that depend on the sizes. Those that were not used for the longest time go first.
constexpr size_t kPrograms = 64;
constexpr size_t kSizes = 256;
// A node that has programs for so many sizes, and none with symbols, compiles for further sizes at their
// second call: sizes that grow with each call would never pay for their compilation.
constexpr size_t kImmediatePrograms = 8;
constexpr size_t kRemembered = 4096;  // sizes that came once
constexpr size_t kFamilies = 64;      // of types, ranks and numbers
// How often a node tries to compile a program with symbols, in each case after kExactPrograms more sizes.
constexpr int kAttempts = 4;

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
          is_wrapper(tensor) || has_lazy_values(tensor) || has_tangent(tensor))
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

// What the programs with symbols of a call have in common: all but the sizes and strides. Writes the sizes.
ProgramKey family_of(c10::ArrayRef<c10::IValue> arguments, std::vector<int64_t>& sizes) {
  std::vector<c10::IValue> rest;
  ProgramKey key;
  for (const c10::IValue& argument : arguments) {
    if (!argument.isTensor()) {
      rest.push_back(argument);
      continue;
    }
    const at::Tensor& tensor = argument.toTensor();
    key.append({static_cast<int64_t>(tensor.scalar_type()), tensor.dim()});
    sizes.insert(sizes.end(), tensor.sizes().begin(), tensor.sizes().end());
  }
  const std::optional<ProgramKey> others = key_of(rest);
  key.append(others->begin(), others->end());
  return key;
}

struct Program {
  std::shared_ptr<const TensorProgram> program;
  std::vector<GraphInput> inputs;
  Sizes symbols;

  void run(c10::ArrayRef<c10::IValue> arguments, std::vector<at::Tensor>& results) const {
    const at::AutoDispatchBelowADInplaceOrView below;
    TensorProgram::Call call(*program, symbols);
    for (size_t i = 0; i < inputs.size(); ++i)
      call.add_input(inputs[i].argument < 0 ? inputs[i].constant : arguments[inputs[i].argument].toTensor(),
                     static_cast<int>(i));
    call.run();
    for (size_t i = 0; i < program->executable().parts().outputs.size(); ++i)
      results.push_back(call.result(static_cast<int>(i)));
  }
};

// Sizes that a node was called with, for arguments of the same types and ranks. After programs for some exact
// sizes, one with symbols serves all sizes for which it is the same program.
struct Family {
  std::vector<SizedText> samples;
  std::optional<SizeTemplate> sizes;
  std::shared_ptr<const TensorProgram> program;  // with symbols
  size_t next_attempt = kExactPrograms;          // the number of samples
  int attempts = 0;
};

// The programs of one node that were used last.
class RecentPrograms {
 public:
  explicit RecentPrograms(size_t most) : most_(most) {}
  size_t size() const { return recent_.size(); }
  // None if there is no entry; null if the interpreter runs these types and sizes.
  std::optional<std::shared_ptr<const Program>> find(const ProgramKey& key) {
    const auto found = programs_.find(key);
    if (found == programs_.end()) return std::nullopt;
    recent_.splice(recent_.begin(), recent_, found->second);
    return found->second->second;
  }
  void add(const ProgramKey& key, std::shared_ptr<const Program> program) {
    recent_.emplace_front(key, std::move(program));
    programs_[key] = recent_.begin();
    if (recent_.size() <= most_) return;
    programs_.erase(recent_.back().first);
    recent_.pop_back();
  }

 private:
  using Recent = std::list<std::pair<ProgramKey, std::shared_ptr<const Program>>>;
  const size_t most_;
  Recent recent_;
  std::unordered_map<ProgramKey, Recent::iterator, ProgramKeyHash> programs_;
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
    if (families_.size() >= kFamilies) families_.clear();
    std::vector<int64_t> sizes;
    Family& family = families_[family_of(arguments, sizes)];
    const bool waits = exact_.size() >= kImmediatePrograms && is_first_call(*key);
    if (waits && !family.program) return nullptr;
    std::shared_ptr<const Program> program;
    try {
      Imported imported = import_graph(*graph_, arguments);
      SizedText sample{std::move(imported.text), std::move(sizes)};
      program = for_all_sizes(family, sample, imported.inputs);
      if (program) {
        std::lock_guard lock(mutex_);
        with_symbols_.add(*key, program);
        return program;
      }
      if (waits) return nullptr;
      program = std::make_shared<const Program>(Program{compiled(sample.text), std::move(imported.inputs)});
      add_sample(family, std::move(sample));
    } catch (const OutOfMemory&) {
      throw;
    } catch (const Unsupported& error) {
      refuse(error.what());
    } catch (const NotCompiled& error) {
      refuse(error.what());
    }
    std::lock_guard lock(mutex_);
    exact_.add(*key, program);
    return program;
  }

  bool is_first_call(const ProgramKey& key) {
    if (once_.size() >= kRemembered) once_.clear();
    return once_.insert(key).second;
  }

  std::optional<std::shared_ptr<const Program>> find(const ProgramKey& key) {
    std::lock_guard lock(mutex_);
    auto found = exact_.find(key);
    return found ? found : with_symbols_.find(key);
  }

  // The program with symbols for these sizes. Null if there is none yet, or if it is another program for
  // them.
  static std::shared_ptr<const Program> for_all_sizes(Family& family, const SizedText& sample,
                                                      const std::vector<GraphInput>& inputs) {
    std::optional<std::vector<int64_t>> symbols = family.sizes ? family.sizes->match(sample) : std::nullopt;
    if (!symbols && family.samples.size() >= family.next_attempt && family.attempts < kAttempts) {
      ++family.attempts;
      family.next_attempt = family.samples.size() + kExactPrograms;
      std::vector<SizedText> samples = family.samples;
      samples.push_back(sample);
      std::optional<SizeTemplate> sizes = SizeTemplate::fit(samples, kExactPrograms);
      symbols = sizes ? sizes->match(sample) : std::nullopt;
      if (!symbols) return nullptr;
      try {
        family.program = compiled(sizes->text());
      } catch (const NotCompiled&) {  // such as a number that must be constant
        return nullptr;
      }
      family.sizes = std::move(sizes);
    }
    if (!symbols) return nullptr;
    return std::make_shared<const Program>(
        Program{family.program, inputs, Sizes(symbols->begin(), symbols->end())});
  }

  static void add_sample(Family& family, SizedText sample) {
    constexpr size_t kSamples = kExactPrograms * kAttempts;
    const bool small =
        std::any_of(sample.sizes.begin(), sample.sizes.end(), [](int64_t size) { return size == 0; });
    if (!small && family.samples.size() < kSamples && family.attempts < kAttempts)
      family.samples.push_back(std::move(sample));
    else if (family.attempts == kAttempts)
      family.samples.clear();
  }

  struct NotCompiled : std::runtime_error {
    using std::runtime_error::runtime_error;
  };

  static std::shared_ptr<const TensorProgram> compiled(const std::string& text) {
    try {
      // Without aliases: a copy is a copy, and no op of the graph writes to a view.
      auto program = std::make_shared<const TensorProgram>(compile_graph(text, false));
      ++counts().compiled;
      return program;
    } catch (const OutOfMemory&) {
      throw;
    } catch (const std::exception& error) {
      throw NotCompiled(error.what());
    }
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
  std::mutex mutex_, compiling_;
  RecentPrograms exact_{kPrograms}, with_symbols_{kSizes};
  std::unordered_map<ProgramKey, Family, ProgramKeyHash> families_;
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

// Implements ipex/model.h with a LoadedModel, and writes results to the caller's memory.
#include "ipex/model.h"

#include <algorithm>
#include <limits>

#include "kernels/model_torch.h"
#include "kernels/step_table.h"
#include "runtime/loaded_model.h"
#include "runtime/parallel.h"

namespace ipex {
namespace {

using Result = Interface::Result;

bool is_tensor(const Result& result) { return result.kind >= Result::Kind::kArgument; }

Dim describe(const SizeExpr& size, const Interface& interface) {
  if (size.is_const()) return {"", size.constant(), size.constant()};
  if (size.program().size() > 1)
    return {size.text(interface.symbol_names()), 0, std::numeric_limits<int64_t>::max()};
  const Interface::Symbol& symbol = interface.symbols[size.program()[0].value];
  return {symbol.name, symbol.low, symbol.high};
}

TensorInfo describe(const std::string& name, const TensorSpec& spec, const std::vector<SizeExpr>& sizes,
                    const Interface& interface) {
  TensorInfo info{name, spec.dtype, {}};
  for (const SizeExpr& size : sizes) info.sizes.push_back(describe(size, interface));
  return info;
}

void check_output(const TensorInfo& info, const TensorView& given, const TensorView& made) {
  if (given.dtype != made.dtype)
    throw UserError("output " + info.name + " has dtype " + std::string(name(made.dtype)) + ", not " +
                    std::string(name(given.dtype)));
  if (given.sizes != made.sizes || given.strides.size() != given.sizes.size())
    throw UserError("output " + info.name + " has sizes " + text(made.sizes) + ", not " + text(given.sizes));
  if (!given.data && made.numel() > 0) throw UserError("output " + info.name + " has no memory");
}

}  // namespace

Tensor::Tensor(Dtype dtype, std::vector<int64_t> sizes)
    : view_(row_major_view(nullptr, dtype, std::move(sizes))) {
  const auto bytes = static_cast<size_t>(view_.numel() * itemsize(dtype));
  memory_ = std::shared_ptr<void>(allocate_block(std::max<size_t>(bytes, 1)));
  view_.data = memory_.get();
}

struct Model::Impl {
  Impl(const std::string& path, const ModelOptions& options)
      : model(path,
              {.weights = options.weights,
               .verify_weights = options.verify_weights,
               .torch = [this] { return open_torch(); }},
              kernels::read_step, options.prepare),
        isa(name(model.artifact().isa)),
        threads(options.threads) {
    const Interface& interface = model.interface();
    for (size_t i = 0; i < model.arguments().size(); ++i) {
      const TensorSpec& spec = model.parts().inputs[model.arguments()[i]];
      inputs.push_back(describe(model.argument_name(i), spec, spec.sizes, interface));
    }
    for (const Result& named : interface.results) {
      if (!is_tensor(named)) continue;
      const Result& result = named.kind == Result::Kind::kSame ? interface.results[named.index] : named;
      const bool is_argument = result.kind == Result::Kind::kArgument;
      const TensorSpec& spec =
          is_argument ? model.parts().inputs[result.index] : model.parts().outputs[result.index].spec;
      results.push_back(&result);
      outputs.push_back(describe(named.name, spec, result.sizes ? *result.sizes : spec.sizes, interface));
      outputs.back().dtype = result.dtype.value_or(spec.dtype);
    }
  }

  TorchSteps open_torch() {
    torch = &kernels::open_torch_library();
    torch->enter_thread();
    return {torch->torch_version,
            [this](FieldReader& io) { return torch->read_step(io, kernels::read_step); }};
  }

  // The layout of a result. Its data is in `memory` or, for a result that is an argument, the caller's.
  TensorView made(const Result& result, std::span<const TensorView> arguments,
                  std::span<const int64_t> symbols, std::span<void* const> memory) const {
    if (result.kind == Result::Kind::kTensor) {
      TensorView view = model.result_view(result, symbols);
      if (!memory.empty())
        view.data =
            static_cast<char*>(memory[result.index]) + result.dim.eval(symbols.data()) * itemsize(view.dtype);
      return view;
    }
    const auto at = std::ranges::find(model.arguments(), result.index);
    if (at == model.arguments().end())
      throw UserError("output " + result.name + " is a weight: compile the model again");
    return arguments[at - model.arguments().begin()];
  }

  // Results are written directly to the caller's memory if it has the model's layout, else they are copied.
  void run(std::span<const TensorView> arguments, std::span<const int64_t> symbols,
           std::span<TensorView> given) const {
    if (torch) torch->enter_thread();
    const ThreadLimit limit(threads);
    if (given.size() != results.size())
      throw UserError("called with " + std::to_string(given.size()) + " outputs, but the model has " +
                      std::to_string(results.size()));
    std::vector<void*> memory(model.parts().outputs.size());
    std::vector<const TensorView*> direct(memory.size());
    for (size_t r = 0; r < results.size(); ++r) {
      const TensorView view = made(*results[r], arguments, symbols, {});
      check_output(outputs[r], given[r], view);
      if (results[r]->kind != Result::Kind::kTensor || results[r]->sizes || memory[results[r]->index] ||
          given[r].strides != view.strides)
        continue;
      memory[results[r]->index] = given[r].data;
      direct[results[r]->index] = &given[r];
    }
    std::vector<CachedBlock> blocks;
    for (size_t k = 0; k < memory.size(); ++k) {
      if (memory[k]) continue;
      const TensorView view = model.output_view(model.parts().outputs[k], symbols);
      blocks.push_back(
          allocate_block(static_cast<size_t>(std::max<int64_t>(1, view.extent() * itemsize(view.dtype)))));
      memory[k] = blocks.back().get();
    }
    model.run(arguments, symbols, memory);
    for (size_t r = 0; r < results.size(); ++r)
      if (results[r]->kind != Result::Kind::kTensor || direct[results[r]->index] != &given[r])
        copy_elements(made(*results[r], arguments, symbols, memory), given[r]);
  }

  const kernels::TorchLibrary* torch = nullptr;  // set for a model that calls ATen
  LoadedModel model;
  std::string isa;
  int threads;
  std::vector<TensorInfo> inputs, outputs;
  std::vector<const Result*> results;
};

Model Model::load(const std::string& path, const ModelOptions& options) {
  const ThreadLimit limit(options.threads);
  return Model(std::make_shared<const Impl>(path, options));
}

const std::vector<TensorInfo>& Model::inputs() const { return impl_->inputs; }
const std::vector<TensorInfo>& Model::outputs() const { return impl_->outputs; }
const std::string& Model::isa() const { return impl_->isa; }

std::map<std::string, TensorView> Model::state() const {
  std::map<std::string, TensorView> views;
  for (const int input : impl_->model.state())
    views.emplace(impl_->model.interface().inputs[input].name, impl_->model.state_view(input));
  return views;
}

std::vector<std::vector<int64_t>> Model::output_sizes(std::span<const TensorView> inputs) const {
  const std::vector<int64_t> symbols = impl_->model.bind(inputs);
  std::vector<std::vector<int64_t>> sizes;
  for (const Result* result : impl_->results)
    sizes.push_back(impl_->made(*result, inputs, symbols, {}).sizes);
  return sizes;
}

void Model::run(std::span<const TensorView> inputs, std::span<TensorView> outputs) const {
  impl_->run(inputs, impl_->model.bind(inputs), outputs);
}

std::vector<Tensor> Model::run(std::span<const TensorView> inputs) const {
  const std::vector<int64_t> symbols = impl_->model.bind(inputs);
  std::vector<Tensor> tensors;
  std::vector<TensorView> views;
  for (const Result* result : impl_->results) {
    const TensorView made = impl_->made(*result, inputs, symbols, {});
    views.push_back(tensors.emplace_back(made.dtype, made.sizes).view());
  }
  impl_->run(inputs, symbols, views);
  return tensors;
}

std::map<std::string, Tensor> Model::run(const std::map<std::string, TensorView>& inputs) const {
  std::vector<TensorView> ordered;
  for (const TensorInfo& info : impl_->inputs) {
    const auto it = inputs.find(info.name);
    if (it == inputs.end()) throw UserError("input " + info.name + " is missing");
    ordered.push_back(it->second);
  }
  if (inputs.size() != ordered.size())
    for (const auto& [name, view] : inputs)
      if (std::ranges::find(impl_->inputs, name, &TensorInfo::name) == impl_->inputs.end())
        throw UserError("the model has no input named " + name);
  std::vector<Tensor> tensors = run(ordered);
  std::map<std::string, Tensor> named;
  for (size_t r = 0; r < tensors.size(); ++r) named.emplace(impl_->outputs[r].name, std::move(tensors[r]));
  return named;
}

}  // namespace ipex

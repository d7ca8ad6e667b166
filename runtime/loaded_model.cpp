// Checks of arguments, copies between layouts, and calls; see loaded_model.h.
#include "runtime/loaded_model.h"

#include <algorithm>
#include <cstring>

#include "runtime/error.h"

namespace ipex {
namespace {

std::vector<int64_t> evaluate(const std::vector<SizeExpr>& exprs, std::span<const int64_t> symbols) {
  std::vector<int64_t> values;
  for (const SizeExpr& expr : exprs) values.push_back(expr.eval(symbols.data()));
  return values;
}

// Strides of dimensions with fewer than two elements do not matter.
bool same_layout(const TensorView& view, const std::vector<int64_t>& strides) {
  for (size_t d = 0; d < strides.size(); ++d)
    if (view.sizes[d] > 1 && view.strides[d] != strides[d]) return view.numel() == 0;
  return true;
}

void copy_dim(const char* from, char* to, const TensorView& source, const TensorView& target, size_t dim,
              int64_t item) {
  if (dim == source.sizes.size()) {
    std::memcpy(to, from, static_cast<size_t>(item));
    return;
  }
  const int64_t from_step = source.strides[dim] * item, to_step = target.strides[dim] * item;
  if (dim + 1 == source.sizes.size() && from_step == item && to_step == item) {
    std::memcpy(to, from, static_cast<size_t>(source.sizes[dim] * item));
    return;
  }
  for (int64_t i = 0; i < source.sizes[dim]; ++i)
    copy_dim(from + i * from_step, to + i * to_step, source, target, dim + 1, item);
}

}  // namespace

void copy_elements(const TensorView& from, const TensorView& to) {
  if (from.numel() == 0) return;
  copy_dim(static_cast<const char*>(from.data), static_cast<char*>(to.data), from, to, 0,
           itemsize(from.dtype));
}

std::string text(std::span<const int64_t> sizes) {
  std::string result = "[";
  for (size_t i = 0; i < sizes.size(); ++i) result += (i ? ", " : "") + std::to_string(sizes[i]);
  return result + "]";
}

LoadedModel::LoadedModel(const std::string& path, const LoadOptions& options, const StepReader& read_step,
                         bool prepare)
    : artifact_(load_artifact(path, options, read_step)) {
  for (size_t i = 0; i < interface().inputs.size(); ++i)
    if (interface().inputs[i].member.empty()) arguments_.push_back(static_cast<int>(i));
  for (const OutputSpec& output : parts().outputs)
    if (output.alias_input >= 0) throw UserError(path + " has outputs that alias inputs: compile it again");
  data_ = artifact_.weight_data;
  for (size_t i = 0; i < data_.size(); ++i) {
    if (!data_[i] || !interface().inputs[i].written) continue;
    state_.push_back(static_cast<int>(i));
    const auto bytes =
        static_cast<size_t>(state_view(state_.back()).extent() * itemsize(parts().inputs[i].dtype));
    state_memory_.push_back(allocate_block(std::max<size_t>(bytes, 1)));
    std::memcpy(state_memory_.back().get(), data_[i], bytes);
    data_[i] = state_memory_.back().get();
  }
  if (prepare && options.link) artifact_.executable->prepare(data_, artifact_.versions);
}

TensorView LoadedModel::state_view(int input) const {
  const TensorSpec& spec = parts().inputs[input];
  return {data_[input], spec.dtype, evaluate(spec.sizes, {}), evaluate(spec.strides, {})};
}

std::vector<int64_t> LoadedModel::bind(std::span<const TensorView> arguments) const {
  if (arguments.size() != arguments_.size())
    throw UserError("called with " + std::to_string(arguments.size()) + " tensors, but the model takes " +
                    std::to_string(arguments_.size()));
  std::vector<int> argument_of(parts().inputs.size(), -1);
  for (size_t i = 0; i < arguments.size(); ++i) {
    const TensorSpec& spec = parts().inputs[arguments_[i]];
    const TensorView& view = arguments[i];
    argument_of[arguments_[i]] = static_cast<int>(i);
    if (view.dtype != spec.dtype)
      throw UserError("input " + argument_name(i) + " has dtype " + std::string(name(view.dtype)) +
                      ", but the model is compiled for " + std::string(name(spec.dtype)));
    if (view.sizes.size() != spec.sizes.size() || view.strides.size() != view.sizes.size())
      throw UserError("input " + argument_name(i) + " has " + std::to_string(view.sizes.size()) +
                      " dimensions, but the model is compiled for " + std::to_string(spec.sizes.size()));
  }
  std::vector<int64_t> symbols;
  for (const Interface::Symbol& symbol : interface().symbols) {
    const int argument = argument_of[symbol.input];
    if (argument < 0)
      throw UserError("size " + symbol.name + " is the size of a weight: compile the model again");
    const TensorView& view = arguments[argument];
    const int64_t size = symbol.is_stride ? view.strides[symbol.dim] : view.sizes[symbol.dim];
    const int64_t value = symbol.value(size);
    if (value < symbol.low || value > symbol.high || (size - symbol.offset) % symbol.divisor != 0) {
      const bool open = symbol.high > (std::numeric_limits<int64_t>::max() >> 1) / symbol.divisor;
      const auto size_for = [&](int64_t v) { return std::to_string(v * symbol.divisor + symbol.offset); };
      throw UserError("input " + argument_name(argument) + ": " + (symbol.is_stride ? "stride" : "size") +
                      " of dimension " + std::to_string(symbol.dim) + " (" + symbol.name + ") is " +
                      std::to_string(size) + ", but the model is compiled for " +
                      (open ? "at least " + size_for(symbol.low)
                            : size_for(symbol.low) + " to " + size_for(symbol.high)) +
                      (symbol.divisor > 1
                           ? ", multiples of " + std::to_string(symbol.divisor) +
                                 (symbol.offset ? " plus " + std::to_string(symbol.offset) : "")
                           : ""));
    }
    symbols.push_back(value);
  }
  for (size_t i = 0; i < arguments.size(); ++i) {
    const std::vector<int64_t> sizes = evaluate(parts().inputs[arguments_[i]].sizes, symbols);
    for (size_t d = 0; d < sizes.size(); ++d)
      if (arguments[i].sizes[d] != sizes[d])
        throw UserError("input " + argument_name(i) + ": size of dimension " + std::to_string(d) + " is " +
                        std::to_string(arguments[i].sizes[d]) + ", but the model is compiled for " +
                        std::to_string(sizes[d]) + " (sizes " + text(arguments[i].sizes) + ", expected " +
                        text(sizes) + ")");
  }
  for (const Interface::Condition& condition : interface().conditions)
    if (condition.nonnegative.eval(symbols.data()) < 0) {
      std::string given;
      for (size_t i = 0; i < arguments.size(); ++i)
        given += (given.empty() ? "" : ", ") + argument_name(i) + " " + text(arguments[i].sizes);
      throw UserError("the model is compiled for sizes with " + condition.text + ", called with " + given);
    }
  return symbols;
}

TensorView LoadedModel::result_view(const Interface::Result& result, std::span<const int64_t> symbols) const {
  const TensorSpec& spec = parts().outputs[result.index].spec;
  return {nullptr, result.dtype.value_or(spec.dtype),
          evaluate(result.sizes ? *result.sizes : spec.sizes, symbols),
          evaluate(result.strides ? *result.strides : spec.strides, symbols)};
}

TensorView LoadedModel::output_view(const OutputSpec& output, std::span<const int64_t> symbols) const {
  return {nullptr, output.spec.dtype, evaluate(output.spec.sizes, symbols),
          evaluate(output.spec.strides, symbols)};
}

void LoadedModel::run(std::span<const TensorView> arguments, std::span<const int64_t> symbols,
                      std::span<void* const> outputs) const {
  std::vector<void*> inputs = data_;
  std::vector<CachedBlock> copies;
  std::vector<std::pair<TensorView, TensorView>>
      changed;  // copies that the model writes to: (copy, argument)
  for (size_t i = 0; i < arguments.size(); ++i) {
    const TensorSpec& spec = parts().inputs[arguments_[i]];
    void*& data = inputs[arguments_[i]];
    data = arguments[i].data;
    const std::vector<int64_t> strides = evaluate(spec.strides, symbols);
    if (same_layout(arguments[i], strides)) continue;
    TensorView copy{nullptr, spec.dtype, arguments[i].sizes, strides};
    copies.push_back(allocate_block(static_cast<size_t>(copy.extent() * itemsize(spec.dtype))));
    data = copy.data = copies.back().get();
    copy_elements(arguments[i], copy);
    if (interface().inputs[arguments_[i]].written) changed.emplace_back(copy, arguments[i]);
  }
  {
    std::unique_lock turn(turn_, std::defer_lock);
    if (!state_.empty()) turn.lock();
    artifact_.executable->run(inputs, outputs, symbols, artifact_.versions);
  }
  for (const auto& [from, to] : changed) copy_elements(from, to);
}

}  // namespace ipex

// The call path between the caller's guards and the first kernel. The cheap checks here only keep a wrong
// call from reading invalid memory.
#include "kernels/torch_ops/tensor_program.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/record_function.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <optional>
#include <string>

#include "kernels/extern_call.h"
#include "kernels/torch_ops/disk_memory.h"
#include "kernels/torch_ops/input_version.h"
#include "kernels/torch_ops/output_memory.h"
#include "kernels/torch_ops/tensor_kinds.h"
#include "runtime/error.h"

namespace ipex::torch_ops {
namespace {

std::string text(c10::IntArrayRef sizes) {
  std::string result = "[";
  for (size_t i = 0; i < sizes.size(); ++i) result += (i ? ", " : "") + std::to_string(sizes[i]);
  return result + "]";
}

// Strides of dimensions with fewer than two elements are ignored.
bool same_layout(const at::Tensor& tensor, const TensorSpec& spec, const int64_t* symbols) {
  for (size_t d = 0; d < spec.strides.size(); ++d)
    if (tensor.size(d) > 1 && tensor.stride(d) != spec.strides[d].eval(symbols)) return tensor.numel() == 0;
  return true;
}

// The memory from the tensor's first to its last element, as a 1-d tensor.
at::Tensor in_order_of_memory(const at::Tensor& tensor) {
  int64_t places = tensor.numel() != 0;
  for (int64_t d = 0; places && d < tensor.dim(); ++d) places += (tensor.size(d) - 1) * tensor.stride(d);
  return tensor.as_strided({places}, {1}, tensor.storage_offset());
}

// Reports steps to torch.profiler like ops. ATen calls are nested in their steps.
class RecordedSteps final : public StepObserver {
 public:
  void begin(const StepInfo& step, int) override {
    record_.emplace(at::RecordScope::FUNCTION);
    if (record_->isActive()) record_->before("ipex::" + step.name);
  }
  void end() override { record_.reset(); }

 private:
  std::optional<at::RecordFunction> record_;
};

}  // namespace

Sizes evaluate(const std::vector<SizeExpr>& exprs, const int64_t* symbols) {
  Sizes result;
  for (const SizeExpr& expr : exprs) result.push_back(expr.eval(symbols));
  return result;
}

TensorProgram::TensorProgram(std::shared_ptr<const Executable> executable, std::vector<bool> written,
                             const std::vector<bool>& kept)
    : executable_(std::move(executable)), written_(std::move(written)) {
  const Executable::Parts& parts = executable_->parts();
  is_static_.assign(parts.inputs.size(), false);
  for (int input : parts.static_inputs) is_static_[input] = true;
  for (size_t i = 0; i < parts.inputs.size(); ++i) may_go_.push_back(!is_static_[i] && !kept[i]);
  for (const OutputSpec& output : parts.outputs)
    if (output.alias_input >= 0) may_go_[output.alias_input] = false;
}

TensorProgram::Call::Call(const TensorProgram& program, Sizes symbols)
    : program_(program), parts_(program.executable().parts()), symbols_(std::move(symbols)) {}

void* TensorProgram::Call::output(int index) {
  outputs_[index] = make_output(index);
  return outputs_[index].mutable_data_ptr();
}

at::Tensor TensorProgram::Call::make_output(int index) const {
  const OutputSpec& output = parts_.outputs[index];
  const Sizes sizes = evaluate(output.spec.sizes, symbols()),
              strides = evaluate(output.spec.strides, symbols());
  const c10::ScalarType dtype = kernels::scalar_type(output.spec.dtype);
  return output.alias_input < 0 ? make_tensor(dtype, sizes, strides)
                                : make_alias(inputs_[output.alias_input], dtype, sizes, strides,
                                             output.spec.offset.eval(symbols()));
}

at::Tensor TensorProgram::Call::take(const at::Tensor& tensor, int input, int position) {
  const TensorSpec& spec = parts_.inputs[input];
  const std::string where = "argument " + std::to_string(position);
  require_dense(tensor, where);
  if (tensor.scalar_type() != kernels::scalar_type(spec.dtype))
    throw UserError(where + " has dtype " + std::string(c10::toString(tensor.scalar_type())) +
                    ", compiled for " + std::string(name(spec.dtype)));
  bool fits = tensor.dim() == static_cast<int64_t>(spec.sizes.size());
  for (size_t d = 0; fits && d < spec.sizes.size(); ++d)
    fits = tensor.size(d) == spec.sizes[d].eval(symbols());
  if (!fits)
    throw UserError(where + " has sizes " + text(tensor.sizes()) + ", compiled for " +
                    text(evaluate(spec.sizes, symbols())));
  if (program_.writes(input)) require_writable(tensor);
  const bool fits_in_place = same_layout(tensor, spec, symbols());
  if (!has_lazy_values(tensor) && fits_in_place) return tensor;
  at::AutoDispatchBelowADInplaceOrView below_autograd;
  at::Tensor copy = make_tensor(tensor.scalar_type(), tensor.sizes(), evaluate(spec.strides, symbols()));
  if (tensor._is_zerotensor())
    in_order_of_memory(copy).zero_();
  else if (fits_in_place)  // elements of expanded tensors share memory and must be copied once
    in_order_of_memory(copy).copy_(in_order_of_memory(tensor).resolve_neg());
  else
    copy.copy_(materialized(tensor));
  if (program_.writes(input)) written_copies_.emplace_back(tensor, copy);
  return copy;
}

void TensorProgram::Call::add_input(const at::Tensor& argument, int position) {
  const auto input = static_cast<int>(input_data_.size());
  at::Tensor tensor = take(argument, input, position);
  // mutable_data_ptr() gives a lazy clone its own memory before it is written.
  void* data =
      program_.writes(input) ? tensor.mutable_data_ptr() : const_cast<void*>(tensor.const_data_ptr());
  if (!data) require_memory(data, tensor, "argument " + std::to_string(position));
  input_data_.push_back(data);
  if (!parts_.static_inputs.empty())
    versions_.push_back(program_.is_static_[input] ? version_of(tensor) : InputVersion{});
  const bool may_go = program_.may_go(input);
  storages_.push_back(may_go ? tensor.storage() : c10::Storage());
  inputs_.push_back(may_go ? at::Tensor() : std::move(tensor));
}

void TensorProgram::Call::run(StepObserver* observer) {
  outputs_.resize(parts_.outputs.size());
  std::optional<RecordedSteps> recorded;
  if (!observer && at::hasCallbacks()) observer = &recorded.emplace();
  program_.executable().run(input_data_, *this, symbols_, versions_, observer);
  if (!versions_.empty()) drop_read_pages();
  if (!written_copies_.empty()) {
    at::AutoDispatchBelowADInplaceOrView below_autograd;  // the caller counts the write
    for (const auto& [argument, copy] : written_copies_) argument.copy_(copy);
  }
  for (size_t i = 0; i < outputs_.size(); ++i)
    if (!outputs_[i].defined()) outputs_[i] = make_output(static_cast<int>(i));
}

}  // namespace ipex::torch_ops

// The call path between Dynamo's guards and the first kernel. Guards have checked the arguments. The cheap
// checks here only keep a wrong call from reading invalid memory. An argument with another layout than
// compiled is copied.
#include "python/csrc/compiled_graph.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/record_function.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <c10/util/SmallVector.h>
#include <pybind11/stl.h>

#include "kernels/extern_call.h"
#include "python/csrc/input_version.h"
#include "python/csrc/output_memory.h"
#include "python/csrc/tensor_kinds.h"
#include "python/csrc/tensor_objects.h"
#include "runtime/error.h"

namespace ipex::python {
namespace py = pybind11;
namespace {

using Kind = Interface::Result::Kind;
using Sizes = c10::SmallVector<int64_t, 6>;

Sizes evaluate(const std::vector<SizeExpr>& exprs, const int64_t* symbols) {
  Sizes result;
  for (const SizeExpr& expr : exprs) result.push_back(expr.eval(symbols));
  return result;
}

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

// The data of one call, without heap allocations for usual numbers of tensors. A result is allocated when a
// step first writes it. An argument is released after its last reader, so that a backward pass frees its
// activations layer by layer if the caller holds no references.
struct CompiledGraph::Call final : RunMemory {
  explicit Call(const Executable::Parts& parts) : parts(parts) {}

  void* output(int index) override {
    outputs[index] = make_output(index);
    return outputs[index].mutable_data_ptr();
  }
  void release_input(int index) override { storages[index] = c10::Storage(); }

  at::Tensor make_output(int index) const {
    const OutputSpec& output = parts.outputs[index];
    const Sizes sizes = evaluate(output.spec.sizes, symbols.data()),
                strides = evaluate(output.spec.strides, symbols.data());
    const c10::ScalarType dtype = kernels::scalar_type(output.spec.dtype);
    return output.alias_input < 0 ? make_tensor(dtype, sizes, strides)
                                  : make_alias(inputs[output.alias_input], dtype, sizes, strides,
                                               output.spec.offset.eval(symbols.data()));
  }

  const Executable::Parts& parts;
  c10::SmallVector<py::object, 16> arguments;   // null: its memory may be freed during the call
  c10::SmallVector<at::Tensor, 16> inputs;      // undefined: only its storage is held
  c10::SmallVector<c10::Storage, 16> storages;  // of inputs that may be freed during the call
  c10::SmallVector<void*, 16> input_data;
  c10::SmallVector<InputVersion, 16> versions;
  c10::SmallVector<at::Tensor, 8> outputs;
  std::vector<std::pair<at::Tensor, at::Tensor>>
      written_copies;  // an argument, and the copy that steps write
  Sizes symbols;
};

CompiledGraph::CompiledGraph(ipex::CompiledGraph compiled, Signature signature)
    : compiled_(std::move(compiled)), signature_(std::move(signature)) {
  const Executable::Parts& parts = executable().parts();
  for (size_t i = 0; i < signature_.arguments.size(); ++i)
    if (signature_.arguments[i] == Signature::Argument::kTensor)
      input_argument_.push_back(static_cast<int>(i));
  IPEX_CHECK(input_argument_.size() == parts.inputs.size(),
             "one tensor argument for each input of the graph");
  is_static_.assign(parts.inputs.size(), false);
  for (int input : parts.static_inputs) is_static_[input] = true;
  std::vector<bool> returned(signature_.arguments.size(),
                             false);  // by argument: it or a view of it is a result
  for (const Interface::Result& result : signature_.results)
    if (result.kind == Kind::kArgument) returned[result.index] = true;
  for (size_t i = 0; i < is_static_.size(); ++i)
    may_go_.push_back(!is_static_[i] && !returned[input_argument_[i]]);
  for (const OutputSpec& output : parts.outputs)
    if (output.alias_input >= 0) may_go_[output.alias_input] = false;
}

at::Tensor CompiledGraph::take_argument(const at::Tensor& tensor, int input, Call& call) const {
  const TensorSpec& spec = executable().parts().inputs[input];
  const int64_t* symbols = call.symbols.data();
  const std::string where = "argument " + std::to_string(input_argument_[input]);
  require_dense(tensor, where);
  if (tensor.scalar_type() != kernels::scalar_type(spec.dtype))
    throw UserError(where + " has dtype " + std::string(c10::toString(tensor.scalar_type())) +
                    ", compiled for " + std::string(name(spec.dtype)));
  bool fits = tensor.dim() == static_cast<int64_t>(spec.sizes.size());
  for (size_t d = 0; fits && d < spec.sizes.size(); ++d) fits = tensor.size(d) == spec.sizes[d].eval(symbols);
  if (!fits)
    throw UserError(where + " has sizes " + text(tensor.sizes()) + ", compiled for " +
                    text(evaluate(spec.sizes, symbols)));
  if (signature_.mutated[input]) require_writable(tensor);
  const bool fits_in_place = same_layout(tensor, spec, symbols);
  if (!has_lazy_values(tensor) && fits_in_place) return tensor;
  at::AutoDispatchBelowADInplaceOrView below_autograd;
  at::Tensor copy = make_tensor(tensor.scalar_type(), tensor.sizes(), evaluate(spec.strides, symbols));
  if (tensor._is_zerotensor())
    in_order_of_memory(copy).zero_();
  else if (fits_in_place)  // elements of expanded tensors share memory and must be copied once
    in_order_of_memory(copy).copy_(in_order_of_memory(tensor).resolve_neg());
  else
    copy.copy_(materialized(tensor));
  if (signature_.mutated[input]) call.written_copies.emplace_back(tensor, copy);
  return copy;
}

void CompiledGraph::execute(Call& call) const {
  const auto run = [&](StepObserver* observer) {
    executable().run(call.input_data, call, call.symbols, call.versions, observer);
  };
  if (profiling_.load(std::memory_order_relaxed)) {
    StepTimes times;
    run(&times);
    std::lock_guard lock(profile_mutex_);
    profile_.insert(profile_.end(), times.events().begin(), times.events().end());
  } else if (at::hasCallbacks()) {
    RecordedSteps recorded;
    run(&recorded);
  } else {
    run(nullptr);
  }
}

std::vector<StepTimes::Event> CompiledGraph::take_profile() {
  profiling_ = false;
  std::lock_guard lock(profile_mutex_);
  return std::exchange(profile_, {});
}

py::list CompiledGraph::run_wrapped(const Call& call) const {
  py::list arguments(call.arguments.size());
  for (size_t i = 0; i < call.arguments.size(); ++i) arguments[i] = call.arguments[i];
  return py::module_::import("intel_extension_for_pytorch.compiler.wrapped_tensors")
      .attr("run")(this, arguments);
}

py::list CompiledGraph::run(py::list list) const {
  const Executable::Parts& parts = executable().parts();
  const size_t count = signature_.arguments.size();
  if (list.size() != count)
    throw UserError("called with " + std::to_string(list.size()) + " arguments, compiled for " +
                    std::to_string(count));
  Call call(parts);
  for (size_t i = 0; i < count; ++i) call.arguments.push_back(py::reinterpret_borrow<py::object>(list[i]));
  PyList_SetSlice(list.ptr(), 0, static_cast<Py_ssize_t>(count), nullptr);

  auto tensor_at = [&](int position) -> const at::Tensor& {
    const py::object& object = call.arguments[position];
    if (!is_tensor(object)) throw UserError("argument " + std::to_string(position) + " is not a tensor");
    return tensor_of(object);
  };
  for (const int position : input_argument_)
    if (is_wrapper(tensor_at(position))) return run_wrapped(call);
  for (const Interface::Symbol& symbol : signature_.symbols) {
    if (symbol.dim < 0) {
      call.symbols.push_back(symbol.value(call.arguments[symbol.input].cast<int64_t>()));
      continue;
    }
    const at::Tensor& tensor = tensor_at(symbol.input);
    if (symbol.dim >= tensor.dim())
      throw UserError("argument " + std::to_string(symbol.input) + " has too few dimensions");
    call.symbols.push_back(
        symbol.value(symbol.is_stride ? tensor.stride(symbol.dim) : tensor.size(symbol.dim)));
  }
  for (size_t i = 0; i < input_argument_.size(); ++i) {
    at::Tensor tensor = take_argument(tensor_at(input_argument_[i]), static_cast<int>(i), call);
    // mutable_data_ptr() gives a lazy clone its own memory before it is written.
    void* data =
        signature_.mutated[i] ? tensor.mutable_data_ptr() : const_cast<void*>(tensor.const_data_ptr());
    if (!data) require_memory(data, tensor, "argument " + std::to_string(input_argument_[i]));
    call.input_data.push_back(data);
    if (!parts.static_inputs.empty())
      call.versions.push_back(is_static_[i] ? version_of(tensor) : InputVersion{});
    call.storages.push_back(may_go_[i] ? tensor.storage() : c10::Storage());
    call.inputs.push_back(may_go_[i] ? at::Tensor() : std::move(tensor));
  }
  for (size_t i = 0; i < input_argument_.size(); ++i)
    if (may_go_[i]) call.arguments[input_argument_[i]] = {};
  call.outputs.resize(parts.outputs.size());
  {
    py::gil_scoped_release unlocked;
    execute(call);
    at::AutoDispatchBelowADInplaceOrView below_autograd;  // the caller counts the write
    for (const auto& [argument, copy] : call.written_copies) argument.copy_(copy);
  }
  for (size_t i = 0; i < call.outputs.size(); ++i)
    if (!call.outputs[i].defined()) call.outputs[i] = call.make_output(static_cast<int>(i));

  const int64_t* symbols = call.symbols.data();
  py::list results(signature_.results.size());
  for (size_t i = 0; i < signature_.results.size(); ++i) {
    const Interface::Result& result = signature_.results[i];
    switch (result.kind) {
      case Kind::kNone:
        results[i] = py::none();
        break;
      case Kind::kConstant:
        results[i] = signature_.constants[i];
        break;
      case Kind::kDim:
        results[i] = py::int_(result.dim.eval(symbols));
        break;
      case Kind::kSame:
        results[i] = results[result.index];
        break;
      case Kind::kArgument:
      case Kind::kTensor: {
        const bool is_argument = result.kind == Kind::kArgument;
        if (is_argument && !result.sizes) {
          results[i] = call.arguments[result.index];
          break;
        }
        at::Tensor tensor = is_argument ? tensor_at(result.index) : call.outputs[result.index];
        if (result.dtype)
          tensor = make_alias(tensor, kernels::scalar_type(*result.dtype), evaluate(*result.sizes, symbols),
                              evaluate(*result.strides, symbols), result.dim.eval(symbols));
        else if (result.sizes)
          tensor.unsafeGetTensorImpl()->set_sizes_and_strides(evaluate(*result.sizes, symbols),
                                                              evaluate(*result.strides, symbols));
        results[i] = object_of(std::move(tensor));
        break;
      }
    }
  }
  return results;
}

py::list CompiledGraph::output_strides() const {
  py::list all;
  for (const Interface::Result& each : signature_.results) {
    const Interface::Result& result = each.kind == Kind::kSame ? signature_.results[each.index] : each;
    py::object entry = py::none();
    if (result.strides || result.kind == Kind::kTensor) {
      const auto& strides =
          result.strides ? *result.strides : executable().parts().outputs[result.index].spec.strides;
      bool known = true;
      for (const SizeExpr& stride : strides) known &= stride.is_const();
      if (known) {
        py::tuple values(strides.size());
        for (size_t d = 0; d < strides.size(); ++d) values[d] = py::int_(strides[d].constant());
        entry = values;
      }
    }
    all.append(entry);
  }
  return all;
}

}  // namespace ipex::python

// The arguments and results of a call as Python objects.
#include "python/csrc/compiled_graph.h"

#include <c10/util/SmallVector.h>
#include <pybind11/stl.h>

#include "kernels/extern_call.h"
#include "kernels/torch_ops/output_memory.h"
#include "kernels/torch_ops/tensor_kinds.h"
#include "python/csrc/tensor_objects.h"
#include "runtime/error.h"

namespace ipex::python {
namespace py = pybind11;
namespace {

using Kind = Interface::Result::Kind;
using torch_ops::evaluate, torch_ops::make_alias, torch_ops::Sizes, torch_ops::TensorProgram;

std::vector<int> tensor_arguments(const Signature& signature) {
  std::vector<int> positions;
  for (size_t i = 0; i < signature.arguments.size(); ++i)
    if (signature.arguments[i] == Signature::Argument::kTensor) positions.push_back(static_cast<int>(i));
  return positions;
}

// By graph input: whether it or a view of it is a result.
std::vector<bool> returned_inputs(const Signature& signature) {
  std::vector<bool> returned(signature.arguments.size(), false), by_input;
  for (const Interface::Result& result : signature.results)
    if (result.kind == Kind::kArgument) returned[result.index] = true;
  for (const int position : tensor_arguments(signature)) by_input.push_back(returned[position]);
  return by_input;
}

}  // namespace

CompiledGraph::CompiledGraph(ipex::CompiledGraph compiled, Signature signature)
    : compiled_(std::move(compiled)),
      signature_(std::move(signature)),
      program_(compiled_.executable, signature_.mutated, returned_inputs(signature_)),
      input_argument_(tensor_arguments(signature_)) {
  IPEX_CHECK(input_argument_.size() == executable().parts().inputs.size(),
             "one tensor argument for each input of the graph");
}

void CompiledGraph::execute(TensorProgram::Call& call) const {
  if (!profiling_.load(std::memory_order_relaxed)) return call.run();
  StepTimes times;
  call.run(&times);
  std::lock_guard lock(profile_mutex_);
  profile_.insert(profile_.end(), times.events().begin(), times.events().end());
}

std::vector<StepTimes::Event> CompiledGraph::take_profile() {
  profiling_ = false;
  std::lock_guard lock(profile_mutex_);
  return std::exchange(profile_, {});
}

py::list CompiledGraph::run_wrapped(py::list arguments) const {
  return py::module_::import("intel_extension_for_pytorch.compiler.wrapped_tensors")
      .attr("run")(this, arguments);
}

py::list CompiledGraph::run(py::list list) const {
  const size_t count = signature_.arguments.size();
  if (list.size() != count)
    throw UserError("called with " + std::to_string(list.size()) + " arguments, compiled for " +
                    std::to_string(count));
  c10::SmallVector<py::object, 16> arguments;  // null: its memory may be freed during the call
  for (size_t i = 0; i < count; ++i) arguments.push_back(py::reinterpret_borrow<py::object>(list[i]));
  PyList_SetSlice(list.ptr(), 0, static_cast<Py_ssize_t>(count), nullptr);

  auto tensor_at = [&](int position) -> const at::Tensor& {
    const py::object& object = arguments[position];
    if (!is_tensor(object)) throw UserError("argument " + std::to_string(position) + " is not a tensor");
    return tensor_of(object);
  };
  for (const int position : input_argument_)
    if (torch_ops::is_wrapper(tensor_at(position))) {
      py::list all(count);
      for (size_t i = 0; i < count; ++i) all[i] = arguments[i];
      return run_wrapped(all);
    }
  Sizes values;
  for (const Interface::Symbol& symbol : signature_.symbols) {
    if (symbol.dim < 0) {
      values.push_back(symbol.value(arguments[symbol.input].cast<int64_t>()));
      continue;
    }
    const at::Tensor& tensor = tensor_at(symbol.input);
    if (symbol.dim >= tensor.dim())
      throw UserError("argument " + std::to_string(symbol.input) + " has too few dimensions");
    values.push_back(symbol.value(symbol.is_stride ? tensor.stride(symbol.dim) : tensor.size(symbol.dim)));
  }
  TensorProgram::Call call(program_, std::move(values));
  for (const int position : input_argument_) call.add_input(tensor_at(position), position);
  for (size_t i = 0; i < input_argument_.size(); ++i)
    if (program_.may_go(static_cast<int>(i))) arguments[input_argument_[i]] = {};
  {
    py::gil_scoped_release unlocked;
    execute(call);
  }

  const int64_t* symbols = call.symbols();
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
          results[i] = arguments[result.index];
          break;
        }
        at::Tensor tensor = is_argument ? tensor_at(result.index) : call.result(result.index);
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

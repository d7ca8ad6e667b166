// See ahead_of_time.h and aot/compilation.py.
#include "python/csrc/ahead_of_time.h"

#include <ATen/ops/from_blob.h>
#include <c10/util/SmallVector.h>
#include <pybind11/stl.h>

#include "backend/ahead_of_time.h"
#include "backend/plan_memory.h"
#include "codegen/loop/text.h"
#include "kernels/extern_call.h"
#include "kernels/step_table.h"
#include "kernels/torch_ops/output_memory.h"
#include "kernels/torch_ops/tensor_kinds.h"
#include "python/csrc/graph_builder.h"
#include "python/csrc/signature.h"
#include "python/csrc/tensor_objects.h"
#include "runtime/error.h"
#include "runtime/loaded_model.h"
#include "runtime/packed_values.h"

namespace ipex::python {
namespace {

namespace py = pybind11;
using namespace py::literals;
using Result = Interface::Result;
using torch_ops::has_lazy_values, torch_ops::make_alias, torch_ops::make_tensor, torch_ops::materialized;
using torch_ops::require_dense, torch_ops::require_memory, torch_ops::require_writable;

// Names, weights and ranges, which aot/compilation.py adds to the imported graph.
struct Names {
  std::vector<std::tuple<std::string, std::string, bool>> inputs;  // by graph input, as in Interface::Input
  std::vector<std::string> results;
  std::vector<std::tuple<std::string, int64_t, int64_t>> sizes;  // by symbol: name, range
  std::vector<std::pair<std::string, std::string>>
      conditions;  // readable text, and a dim that must be at least 0
};

Interface make_interface(const Signature& signature, const Names& names) {
  Interface interface;
  for (const auto& [name, member, written] : names.inputs)
    interface.inputs.push_back({name, member, written});
  std::vector<int> input_of;  // by argument of the FX graph
  int tensors = 0;
  for (const auto kind : signature.arguments)
    input_of.push_back(kind == Signature::Argument::kTensor ? tensors++ : -1);
  interface.symbols = signature.symbols;
  for (size_t s = 0; s < interface.symbols.size(); ++s) {
    Interface::Symbol& symbol = interface.symbols[s];
    if (symbol.dim < 0)
      throw Unsupported("size " + symbol.name +
                        " is an integer argument: an artifact takes sizes from tensors only");
    symbol.input = input_of[symbol.input];
    std::tie(symbol.name, symbol.low, symbol.high) = names.sizes[s];
  }
  interface.results = signature.results;
  for (size_t r = 0; r < interface.results.size(); ++r) {
    Result& result = interface.results[r];
    result.name = names.results[r];
    if (result.kind == Result::Kind::kConstant)
      result.constant = py::module_::import("json").attr("dumps")(signature.constants[r]).cast<std::string>();
    if (result.kind != Result::Kind::kArgument) continue;
    if (result.sizes) throw Unsupported("a result is a view of an input that the model writes");
    result.index = input_of[result.index];
  }
  return interface;
}

std::vector<Isa> parse_isas(const std::vector<std::string>& names) {
  std::vector<Isa> isas;
  for (const std::string& name : names) isas.push_back(parse_isa(name));
  return isas;
}

// An imported graph, compiled for some ISAs, to be written as an artifact or printed.
class Compilation {
 public:
  Compilation(const GraphBuilder& builder, const py::list& arguments, const py::list& symbols,
              const py::list& outputs, Names names, const std::vector<std::string>& isas) {
    const graph::Graph& graph = builder.graph();
    Interface interface = make_interface(make_signature({arguments, symbols, outputs}, graph), names);
    for (const auto& [text, dim] : names.conditions)
      interface.conditions.push_back({text, graph::to_size_expr(loop::parse_expr(dim), graph.symbols)});
    py::gil_scoped_release unlocked;
    compiled_ = compile_ahead_of_time(graph, interface, parse_isas(isas), extern_factory(graph));
  }

  const std::vector<std::string>& extern_ops() const { return compiled_.extern_ops; }
  py::list steps() const { return step_dicts(*compiled_.compiled.back().executable); }

  // weights: (member, address, bytes)
  void write(const std::string& path, const std::vector<std::tuple<std::string, uintptr_t, size_t>>& weights,
             bool embed, const std::map<std::string, std::string>& structures) const {
    ArtifactParts parts;
    parts.variants = compiled_.variants;
    parts.constants = compiled_.constants;
    for (const auto& [member, address, bytes] : weights)
      parts.weights.push_back({member, {reinterpret_cast<const std::byte*>(address), bytes}});
    parts.embed_weights = embed;
    parts.ipex_version = IPEX_VERSION;
    if (!compiled_.extern_ops.empty()) parts.torch_version = kernels::torch_version();
    parts.extern_ops = compiled_.extern_ops;
    parts.structures = structures;
    py::gil_scoped_release unlocked;
    write_artifact(path, parts);
  }

  // All kernels as text in one form, by ISA.
  std::map<std::string, std::string> kernels(const std::string& form) const {
    const KernelForm which = form == "cpp"    ? KernelForm::kCpp
                             : form == "loop" ? KernelForm::kLoop
                             : form == "llvm" ? KernelForm::kLlvm
                             : form == "asm"  ? KernelForm::kAssembly
                                              : throw UserError("unknown form '" + form + "'");
    std::map<std::string, std::string> texts;
    py::gil_scoped_release unlocked;
    for (size_t v = 0; v < compiled_.variants.size(); ++v) {
      const Isa isa = compiled_.variants[v].isa;
      texts[std::string(name(isa))] = kernels_as_text(compiled_.compiled[v], isa, which);
    }
    return texts;
  }

 private:
  AheadOfTime compiled_;
};

TensorView view_of(const at::Tensor& tensor, const std::string& what) {
  TensorView view{const_cast<void*>(tensor.const_data_ptr())};
  require_memory(view.data, tensor, "input " + what);
  bool known = false;
  for (size_t d = 0; d < kDtypes.size(); ++d) {
    if (kernels::scalar_type(static_cast<Dtype>(d)) != tensor.scalar_type()) continue;
    view.dtype = static_cast<Dtype>(d);
    known = true;
  }
  if (!known)
    throw UserError("input " + what + " has dtype " + c10::toString(tensor.scalar_type()) +
                    ", which compiled models do not support");
  view.sizes = tensor.sizes().vec();
  view.strides = tensor.strides().vec();
  return view;
}

TorchSteps torch_steps() {
  return {kernels::torch_version(),
          [](FieldReader& io) { return kernels::read_extern_call(io, kernels::read_step); }};
}

class PythonModel {
 public:
  PythonModel(const std::string& path, const std::string& weights, bool verify, bool link)
      : model_(path, {.weights = weights, .verify_weights = verify, .link = link, .torch = torch_steps},
               kernels::read_step) {}

  py::list run(const py::list& list) const {
    std::vector<at::Tensor> tensors;
    std::vector<TensorView> views;
    for (py::handle item : list) {
      const std::string what =
          views.size() < model_.arguments().size() ? model_.argument_name(views.size()) : "after the last";
      if (!is_tensor(item)) throw UserError("input " + what + " is not a tensor");
      const at::Tensor& tensor = tensor_of(item);
      require_dense(tensor, "input " + what);
      if (torch_ops::has_tangent(tensor))
        throw UserError("input " + what + " has a tangent; an artifact computes no derivatives");
      tensors.push_back(materialized(tensor));
      views.push_back(view_of(tensors.back(), what));
    }
    const std::vector<int64_t> symbols = model_.bind(views);
    for (size_t i = 0; i < views.size(); ++i) {
      if (!model_.interface().inputs[model_.arguments()[i]].written) continue;
      const at::Tensor& tensor = tensor_of(list[i]);
      require_writable(tensor);
      if (has_lazy_values(tensor))
        throw UserError("input " + model_.argument_name(i) +
                        ", which the model writes, is a negated view: call resolve_neg() on it");
      views[i].data = tensor.mutable_data_ptr();
      if (!tensor.is_inference()) tensor.unsafeGetTensorImpl()->bump_version();
    }
    std::vector<at::Tensor> outputs;
    std::vector<void*> memory;
    for (const OutputSpec& output : model_.parts().outputs) {
      const TensorView view = model_.output_view(output, symbols);
      outputs.push_back(make_tensor(kernels::scalar_type(view.dtype), view.sizes, view.strides));
      memory.push_back(const_cast<void*>(outputs.back().const_data_ptr()));
    }
    {
      py::gil_scoped_release unlocked;
      model_.run(views, symbols, memory);
    }
    py::list results;
    for (const Result& result : model_.interface().results)
      results.append(result.kind == Result::Kind::kSame ? py::object(results[result.index])
                                                        : this->result(result, list, outputs, symbols));
    return results;
  }

  // The buffers that calls update, by name: tensors over the model's memory, which keep `self` alive.
  static py::dict state(const std::shared_ptr<PythonModel>& self) {
    py::dict tensors;
    for (const int input : self->model_.state()) {
      const TensorView view = self->model_.state_view(input);
      const auto options = at::TensorOptions().dtype(kernels::scalar_type(view.dtype));
      at::Tensor tensor = at::from_blob(view.data, view.sizes, view.strides, [self](void*) {}, options);
      tensors[py::str(self->model_.interface().inputs[input].name)] = object_of(std::move(tensor));
    }
    return tensors;
  }

  // The sizes of each input for these values of symbols, in the order of description()["dims"].
  std::vector<std::vector<int64_t>> input_sizes(const std::vector<int64_t>& symbols) const {
    if (symbols.size() != model_.interface().symbols.size())
      throw UserError("input_sizes takes " + std::to_string(model_.interface().symbols.size()) + " values");
    std::vector<std::vector<int64_t>> sizes;
    for (const int input : model_.arguments()) {
      std::vector<int64_t>& of_input = sizes.emplace_back();
      for (const SizeExpr& size : model_.parts().inputs[input].sizes)
        of_input.push_back(size.eval(symbols.data()));
    }
    return sizes;
  }

  const std::string& manifest() const { return model_.artifact().manifest; }

  py::dict description() const {
    const Executable& executable = *model_.artifact().executable;
    py::list inputs, outputs, state, results, isas, dims;
    for (size_t i = 0; i < model_.arguments().size(); ++i)
      inputs.append(tensor_dict(model_.argument_name(i), model_.parts().inputs[model_.arguments()[i]].sizes,
                                model_.parts().inputs[model_.arguments()[i]].dtype));
    for (const Result& result : model_.interface().results) {
      results.append(result.name);
      if (result.kind != Result::Kind::kTensor) continue;
      const TensorSpec& spec = model_.parts().outputs[result.index].spec;
      outputs.append(tensor_dict(result.name, result.sizes ? *result.sizes : spec.sizes,
                                 result.dtype.value_or(spec.dtype)));
    }
    for (const int input : model_.state())
      state.append(tensor_dict(model_.interface().inputs[input].name, model_.parts().inputs[input].sizes,
                               model_.parts().inputs[input].dtype));
    for (const Isa isa : model_.artifact().isas) isas.append(name(isa));
    std::vector<int64_t> symbols;
    for (const Interface::Symbol& symbol : model_.interface().symbols) {
      dims.append(py::dict("name"_a = symbol.name, "input"_a = model_.interface().inputs[symbol.input].name,
                           "dim"_a = symbol.dim, "low"_a = symbol.low, "high"_a = symbol.high));
      symbols.push_back(std::min<int64_t>(symbol.high, std::max<int64_t>(symbol.low, 64)));
    }
    const MemoryPlan plan = executable.plan(symbols);
    py::list members;
    for (const Archive::Member& member : model_.artifact().archive->members())
      members.append(py::make_tuple(member.name, member.data.size()));
    return py::dict("inputs"_a = inputs, "outputs"_a = outputs, "state"_a = state, "results"_a = results,
                    "dims"_a = dims, "isas"_a = isas, "isa"_a = name(model_.artifact().isa),
                    "steps"_a = step_dicts(executable), "arena_bytes"_a = plan.peak_bytes(),
                    "naive_bytes"_a = plan.naive_bytes, "members"_a = members);
  }

 private:
  py::object result(const Result& result, const py::list& arguments, const std::vector<at::Tensor>& outputs,
                    const std::vector<int64_t>& symbols) const {
    switch (result.kind) {
      case Result::Kind::kNone:
      case Result::Kind::kSame:
        break;
      case Result::Kind::kConstant:
        return py::module_::import("json").attr("loads")(result.constant);
      case Result::Kind::kDim:
        return py::int_(result.dim.eval(symbols.data()));
      case Result::Kind::kArgument:
        for (size_t i = 0; i < model_.arguments().size(); ++i)
          if (model_.arguments()[i] == result.index) return arguments[i];
        break;
      case Result::Kind::kTensor: {
        at::Tensor tensor = outputs[result.index];
        if (result.sizes) {
          const TensorView view = model_.result_view(result, symbols);
          tensor = make_alias(tensor, kernels::scalar_type(view.dtype), view.sizes, view.strides,
                              result.dim.eval(symbols.data()));
        }
        return object_of(std::move(tensor));
      }
    }
    return py::none();
  }

  // A size is an integer, or the text of an expression over symbols.
  py::dict tensor_dict(const std::string& tensor, const std::vector<SizeExpr>& sizes, Dtype dtype) const {
    py::list shape;
    for (const SizeExpr& size : sizes)
      shape.append(size.is_const() ? py::object(py::int_(size.constant()))
                                   : py::str(size.text(model_.interface().symbol_names())));
    return py::dict("name"_a = tensor, "dtype"_a = name(dtype), "shape"_a = shape);
  }

  LoadedModel model_;
};

void pack(const std::string& path, const std::string& weights) {
  const LoadedModel model(path, {.weights = weights, .packed = false, .torch = torch_steps},
                          kernels::read_step);
  PackedValues::write(model.artifact());
}

}  // namespace

py::list step_dicts(const Executable& executable) {
  const Executable::Parts& parts = executable.parts();
  py::list steps;
  for (size_t i = 0; i < parts.steps.size(); ++i) {
    const StepInfo& info = parts.steps[i]->info;
    steps.append(py::dict("kind"_a = name(info.kind), "name"_a = info.name, "detail"_a = info.detail,
                          "sources"_a = info.sources, "bytes"_a = info.bytes, "flops"_a = info.flops,
                          "multiplies"_a = name(info.multiplies), "hoisted"_a = bool(parts.hoisted[i])));
  }
  return steps;
}

void bind_ahead_of_time(py::module_& m) {
  py::class_<Compilation>(m, "Compilation",
                          "A graph compiled ahead of time; see python/csrc/ahead_of_time.cpp.")
      .def(py::init(
          [](const GraphBuilder& builder, const py::list& arguments, const py::list& symbols,
             const py::list& outputs, std::vector<std::tuple<std::string, std::string, bool>> inputs,
             std::vector<std::string> results, std::vector<std::tuple<std::string, int64_t, int64_t>> sizes,
             std::vector<std::pair<std::string, std::string>> conditions,
             const std::vector<std::string>& isas) {
            return Compilation(
                builder, arguments, symbols, outputs,
                {std::move(inputs), std::move(results), std::move(sizes), std::move(conditions)}, isas);
          }))
      .def("extern_ops", &Compilation::extern_ops)
      .def("steps", &Compilation::steps)
      .def("write", &Compilation::write)
      .def("kernels", &Compilation::kernels);
  py::class_<PythonModel, std::shared_ptr<PythonModel>>(m, "LoadedModel",
                                                        "A loaded artifact; see runtime/loaded_model.h.")
      .def(py::init<const std::string&, const std::string&, bool, bool>(), "path"_a, "weights"_a, "verify"_a,
           "link"_a, py::call_guard<py::gil_scoped_release>())
      .def("run", &PythonModel::run)
      .def("state", &PythonModel::state)
      .def("manifest", &PythonModel::manifest)
      .def("input_sizes", &PythonModel::input_sizes)
      .def("description", &PythonModel::description);
  m.def("pack_artifact", &pack, "path"_a, "weights"_a, py::call_guard<py::gil_scoped_release>());
}

}  // namespace ipex::python

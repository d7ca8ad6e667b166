// See signature.h.
#include "python/csrc/signature.h"

#include <pybind11/stl.h>

#include <numeric>

#include "backend/plan_memory.h"
#include "codegen/loop/text.h"
#include "kernels/extern_call.h"

namespace ipex::python {
namespace py = pybind11;

Signature make_signature(const ImportedSignature& imported, const std::vector<std::string>& symbol_names,
                         std::vector<bool> mutated) {
  using Kind = Interface::Result::Kind;
  Signature signature;
  signature.mutated = std::move(mutated);
  const auto program = [&](py::handle dim) {
    return py::isinstance<py::str>(dim)
               ? graph::to_size_expr(loop::parse_expr(dim.cast<std::string>()), symbol_names)
               : SizeExpr(dim.cast<int64_t>());
  };
  const auto programs = [&](py::handle dims) {
    std::vector<SizeExpr> result;
    for (py::handle dim : dims) result.push_back(program(dim));
    return result;
  };
  for (py::handle item : imported.arguments) {
    const auto kind = item.cast<py::tuple>()[0].cast<std::string>();
    signature.arguments.push_back(kind == "tensor"    ? Signature::Argument::kTensor
                                  : kind == "integer" ? Signature::Argument::kInteger
                                                      : Signature::Argument::kIgnored);
  }
  for (py::handle item : imported.symbols) {
    const auto [argument, what, dim, divisor, offset] =
        item.cast<std::tuple<int, std::string, int, int64_t, int64_t>>();
    signature.symbols.push_back({.name = symbol_names[signature.symbols.size()],
                                 .input = argument,
                                 .is_stride = what == "stride",
                                 .dim = what == "value" ? -1 : dim,
                                 .divisor = divisor,
                                 .offset = offset});
  }
  for (py::handle item : imported.outputs) {
    const auto tuple = item.cast<py::tuple>();
    const auto kind = tuple[0].cast<std::string>();
    Interface::Result& result = signature.results.emplace_back();
    py::object& constant = signature.constants.emplace_back();
    if (kind == "none") {
      result.kind = Kind::kNone;
    } else if (kind == "constant") {
      result.kind = Kind::kConstant;
      constant = tuple[1];
    } else if (kind == "dim") {
      result.kind = Kind::kDim;
      result.dim = program(tuple[1]);
    } else {
      result.kind = kind == "same"                                  ? Kind::kSame
                    : kind == "argument" || kind == "argument_view" ? Kind::kArgument
                                                                    : Kind::kTensor;
      result.index = tuple[1].cast<int>();
      const bool is_view = kind == "alias" || kind == "argument_view";
      const size_t geometry = is_view ? 3 : 2;
      if (tuple.size() > geometry && !tuple[geometry].is_none()) {
        result.sizes = programs(tuple[geometry]);
        result.strides = programs(tuple[geometry + 1]);
      }
      if (is_view) {
        result.dtype = parse_dtype(tuple[2].cast<std::string>());
        result.dim = program(tuple[5]);
      }
    }
  }
  return signature;
}

Signature make_signature(const ImportedSignature& imported, const graph::Graph& graph) {
  std::vector<bool> mutated(graph.inputs.size(), false);
  for (const graph::InputMutation& mutation : graph.mutations) mutated[mutation.input] = true;
  return make_signature(imported, graph.symbols, std::move(mutated));
}

ExternFactory extern_factory(const graph::Graph& graph) {
  return
      [&graph](const graph::Node& node, std::vector<TensorSpec> operands, std::vector<TensorSpec> results) {
        std::vector<int64_t> returns(results.size());
        std::iota(returns.begin(), returns.end(), 0);
        std::vector<std::vector<SizeExpr>> strides;
        const auto& call = node.get<graph::Extern>();
        if (call.strides) {
          auto next = call.strides->begin();
          for (const TensorSpec& operand : operands) {
            std::vector<SizeExpr>& exact = strides.emplace_back();
            while (exact.size() < operand.sizes.size())
              exact.push_back(graph::to_size_expr(*next++, graph.symbols));
          }
        }
        auto step = kernels::make_extern_call(
            {call.overload, call.args, call.why.value_or(""), std::move(operands), std::move(results),
             call.returns.value_or(std::move(returns)), std::move(strides), [&graph](const std::string& dim) {
               return graph::to_size_expr(loop::parse_expr(dim), graph.symbols);
             }});
        if (!node.source.empty()) step->info.sources.push_back(node.source);
        return step;
      };
}

}  // namespace ipex::python

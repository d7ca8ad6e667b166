// See signature.h.
#include "python/csrc/signature.h"

#include <pybind11/stl.h>

#include <numeric>

#include "backend/plan_memory.h"
#include "codegen/loop/text.h"
#include "kernels/extern_call.h"

namespace ipex::python {
namespace py = pybind11;

Signature make_signature(const ImportedSignature& imported, std::vector<std::string> symbol_names,
                         std::vector<bool> mutated) {
  Signature signature;
  signature.symbol_names = std::move(symbol_names);
  signature.mutated = std::move(mutated);
  auto program = [&](const std::string& dim) {
    return graph::to_size_expr(loop::parse_expr(dim), signature.symbol_names);
  };
  auto programs = [&](py::handle dims) {
    std::vector<SizeExpr> result;
    for (py::handle dim : dims)
      result.push_back(py::isinstance<py::str>(dim) ? program(dim.cast<std::string>())
                                                    : SizeExpr(dim.cast<int64_t>()));
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
    signature.symbols.push_back({argument,
                                 what == "value"  ? Signature::SymbolSource::kValue
                                 : what == "size" ? Signature::SymbolSource::kSize
                                                  : Signature::SymbolSource::kStride,
                                 dim, divisor, offset});
  }
  for (py::handle item : imported.outputs) {
    const auto tuple = item.cast<py::tuple>();
    const auto kind = tuple[0].cast<std::string>();
    Signature::Result result;
    if (kind == "constant") {
      result.kind = Signature::Result::kConstant;
      result.constant = tuple[1];
    } else if (kind == "dim") {
      result.kind = Signature::Result::kDim;
      result.dim = program(tuple[1].cast<std::string>());
    } else if (kind == "argument") {
      result.kind = Signature::Result::kArgument;
      result.index = tuple[1].cast<int>();
    } else if (kind == "tensor") {
      result.kind = Signature::Result::kTensor;
      result.index = tuple[1].cast<int>();
      if (!tuple[2].is_none()) {
        result.restrided = true;
        result.sizes = programs(tuple[2]);
        result.strides = programs(tuple[3]);
      }
    } else if (kind == "same") {
      result.kind = Signature::Result::kSame;
      result.index = tuple[1].cast<int>();
    } else if (kind == "alias" || kind == "argument_view") {
      result.kind = kind == "alias" ? Signature::Result::kAlias : Signature::Result::kArgumentView;
      result.index = tuple[1].cast<int>();
      result.dtype = *parse_dtype(tuple[2].cast<std::string>());
      result.sizes = programs(tuple[3]);
      result.strides = programs(tuple[4]);
      result.dim = programs(py::make_tuple(tuple[5]))[0];
    }
    signature.results.push_back(std::move(result));
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

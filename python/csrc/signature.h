// How a call's arguments and results map to a graph: what the importer (compiler/importer.py, class Imported) tells.
#pragma once

#include <pybind11/pybind11.h>

#include <string>
#include <vector>

#include "backend/compile.h"
#include "runtime/size_expr.h"

namespace ipex::python {

// What the importer knows of the call beside the graph (compiler/importer.py, class Imported).
struct Signature {
  enum class Argument : uint8_t { kTensor, kInteger, kIgnored };
  struct SymbolSource {
    int64_t symbol(int64_t size) const { return (size - offset) / divisor; }
    int argument = 0;
    enum { kValue, kSize, kStride } what = kValue;
    int dim = 0;
    int64_t divisor = 1, offset = 0;  // the size is divisor * the symbol + offset
  };
  struct Result {
    enum { kNone, kConstant, kDim, kArgument, kSame, kTensor, kAlias, kArgumentView } kind = kNone;
    pybind11::object constant;  // kConstant
    SizeExpr dim = 0;           // kDim; views: offset in elements
    int index = 0;  // kArgument(View): position; kSame: earlier result; kTensor, kAlias: output of the graph
    Dtype dtype = Dtype::kF32;  // views
    std::vector<SizeExpr> sizes,
        strides;  // views, and kTensor if restrided: the view of what the graph stores
    bool restrided = false;
  };
  std::vector<Argument> arguments;
  std::vector<std::string> symbol_names;  // the graph's
  std::vector<SymbolSource> symbols;      // by symbol
  std::vector<Result> results;
  std::vector<bool> mutated;  // by graph input
};

// What the importer writes of a signature: lists of tuples.
struct ImportedSignature {
  pybind11::list arguments, symbols, outputs;
};
Signature make_signature(const ImportedSignature& imported, std::vector<std::string> symbol_names,
                         std::vector<bool> mutated);
Signature make_signature(const ImportedSignature& imported, const graph::Graph& graph);

// Makes the ATen calls of this graph, which must outlive the result.
ExternFactory extern_factory(const graph::Graph& graph);

}  // namespace ipex::python

// How a call's arguments and results map to a graph: what the importer (compiler/importer.py, class Imported)
// tells.
#pragma once

#include <pybind11/pybind11.h>

#include <string>
#include <vector>

#include "backend/compile.h"
#include "runtime/program.h"

namespace ipex::python {

// What the importer knows of a call beside the graph. Sizes and results are described as in an artifact's
// interface, but positions are those of arguments.
struct Signature {
  enum class Argument : uint8_t { kTensor, kInteger, kIgnored };
  std::vector<Argument> arguments;
  std::vector<Interface::Symbol> symbols;
  std::vector<Interface::Result> results;
  std::vector<pybind11::object> constants;  // by result
  std::vector<bool> mutated;                // by graph input
};

// What the importer writes of a signature: lists of tuples.
struct ImportedSignature {
  pybind11::list arguments, symbols, outputs;
};
Signature make_signature(const ImportedSignature& imported, const std::vector<std::string>& symbol_names,
                         std::vector<bool> mutated);
Signature make_signature(const ImportedSignature& imported, const graph::Graph& graph);

// Makes the ATen calls of this graph, which must outlive the result.
ExternFactory extern_factory(const graph::Graph& graph);

}  // namespace ipex::python

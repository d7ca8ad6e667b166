// Maps the arguments and results of a call to the inputs and outputs of a graph. The data comes from the
// importer (compiler/importer.py, class Imported).
#pragma once

#include <pybind11/pybind11.h>

#include <string>
#include <vector>

#include "backend/compile.h"
#include "runtime/program.h"

namespace ipex::python {

// Symbols and results are described as in the interface of an artifact, but positions are positions of
// arguments.
struct Signature {
  enum class Argument : uint8_t { kTensor, kInteger, kIgnored };
  std::vector<Argument> arguments;
  std::vector<Interface::Symbol> symbols;
  std::vector<Interface::Result> results;
  std::vector<pybind11::object> constants;  // by result
  std::vector<bool> mutated;                // by graph input
};

// The signature as the importer gives it: lists of tuples.
struct ImportedSignature {
  pybind11::list arguments, symbols, outputs;
};
Signature make_signature(const ImportedSignature& imported, const std::vector<std::string>& symbol_names,
                         std::vector<bool> mutated);
Signature make_signature(const ImportedSignature& imported, const graph::Graph& graph);

// Makes the steps of ATen calls. `graph` must outlive the factory.
ExternFactory extern_factory(const graph::Graph& graph);

}  // namespace ipex::python

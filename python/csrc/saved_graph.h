// Saves a compiled graph as plain data for warm_start.py: the program of its steps (runtime/program.h), its
// constants, and the keys of its kernels in the object cache. Loading runs no passes: it only makes the
// primitives of library steps and links kernels.
#pragma once

#include <memory>

#include "python/csrc/compiled_graph.h"

namespace ipex::python {

// {"target", "program", "constants": {member: bytes}, "kernels": {name: key}}; None if a step cannot be
// saved.
pybind11::object save_graph(const CompiledGraph& graph);

// Null if the graph was saved on another machine or a kernel is not in the object cache. Throws ParseError
// for a damaged program. The lists come from the importer. The report has only times and kernel counts.
std::unique_ptr<CompiledGraph> load_graph(const pybind11::dict& saved, const pybind11::list& arguments,
                                          const pybind11::list& symbols, const pybind11::list& outputs);

}  // namespace ipex::python

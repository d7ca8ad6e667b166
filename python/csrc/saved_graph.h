// A compiled graph as plain data, which warm_start.py keeps: the program of its steps (runtime/program.h),
// its constants, the keys of its kernels in the object cache. Loading runs no pass: library steps make their
// primitives, kernels are linked.
#pragma once

#include <memory>

#include "python/csrc/compiled_graph.h"

namespace ipex::python {

// {"target", "program", "constants": {member: bytes}, "kernels": {name: key}}; None where a step has no text.
pybind11::object save_graph(const CompiledGraph& graph);

// Null where it was saved on another machine or a kernel is not in the object cache; ParseError for a damaged
// program. The lists are those of the importer. Its report has only times and counts of kernels.
std::unique_ptr<CompiledGraph> load_graph(const pybind11::dict& saved, const pybind11::list& arguments,
                                          const pybind11::list& symbols, const pybind11::list& outputs);

}  // namespace ipex::python

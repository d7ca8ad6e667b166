// Who multiplies a matrix product sooner on this machine, our kernel or the library: both are tried.
#pragma once

#include <optional>

#include "backend/compile.h"

namespace ipex::graph {

struct MeasuredProduct {
  double kernel_us = 0, library_us = 0;  // a call of ours, and of the library's
};

// `product` is a graph of one matmul whose inputs have the layouts that its operands have. `streams`: its
// weights come from memory at every call, as those of a model that no cache holds do. The answer is kept in
// the object cache, for this machine, this compiler and this number of threads. nullopt: the library has no
// kernel for it.
std::optional<MeasuredProduct> measure_product(const Graph& product, const CompileOptions& options,
                                               bool streams);

}  // namespace ipex::graph

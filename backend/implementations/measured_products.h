// Times a matrix product on this machine in a generated kernel and in the library.
#pragma once

#include <optional>

#include "backend/compile.h"

namespace ipex::graph {

struct MeasuredProduct {
  double kernel_us = 0, library_us = 0;  // per call
};

// `product` is a graph of one matmul; its inputs have the layouts of the matmul's operands. `streams`: the
// weights are read from memory in every call, as in a model that does not fit into the caches. The result is
// kept in the object cache for this machine, this compiler and this number of threads. nullopt if the library
// has no kernel for the product.
std::optional<MeasuredProduct> measure_product(const Graph& product, const CompileOptions& options,
                                               bool streams);

}  // namespace ipex::graph

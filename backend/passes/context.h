// What graph passes know about a compilation beside the graph.
#pragma once

#include <memory>

#include "codegen/target.h"
#include "kernels/library_plans.h"

namespace ipex {

// Who multiplies matrices: the one that cost models expect to be faster, the one that is, timed once on a
// machine, or always one of them.
enum class MatmulSelection { kCostModel, kMeasured, kKernel, kLibrary };

struct PassOptions {
  loop::Target target;
  MatmulSelection matmul = MatmulSelection::kCostModel;
  bool hoist = true;  // keep values that depend only on static inputs (inference)
  bool jit = true;    // false: for any CPU of the target's ISA; kernels stay Loop IR, and nothing can be run
};

namespace graph {

struct PassContext : PassOptions {
  PassContext(const loop::Target& machine) { target = machine; }
  explicit PassContext(const PassOptions& options) : PassOptions(options) {}

  // Steps of the library that passes have planned, for the compiler to take.
  std::shared_ptr<kernels::LibraryPlans> library = std::make_shared<kernels::LibraryPlans>();
};

}  // namespace graph
}  // namespace ipex

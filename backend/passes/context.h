// Options and context of graph passes.
#pragma once

#include <memory>

#include "codegen/target.h"
#include "kernels/library_plans.h"

namespace ipex {

// How the implementation of a matrix product is selected: by cost models, by timing kernel and library once
// per machine, or always the same one.
enum class MatmulSelection { kCostModel, kMeasured, kKernel, kLibrary };

struct PassOptions {
  loop::Target target;
  MatmulSelection matmul = MatmulSelection::kCostModel;
  bool hoist = true;  // compute values that depend only on static inputs once (inference)
  bool jit = true;    // false: compile for any CPU of the target ISA; kernels stay Loop IR and cannot be run
};

namespace graph {

struct PassContext : PassOptions {
  PassContext(const loop::Target& machine) { target = machine; }
  explicit PassContext(const PassOptions& options) : PassOptions(options) {}

  // Library steps that passes have planned; compile() uses them.
  std::shared_ptr<kernels::LibraryPlans> library = std::make_shared<kernels::LibraryPlans>();
};

}  // namespace graph
}  // namespace ipex

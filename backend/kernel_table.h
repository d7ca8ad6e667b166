// The kernels of a graph on their way to machine code.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "backend/lower/lower.h"
#include "codegen/llvm/jit.h"
#include "runtime/kernel_steps.h"

namespace ipex::graph {

// Layers repeat: equal bodies of equal layouts are lowered once, kernels that differ in name only compiled
// once.
struct KernelTable {
  std::vector<loop::Function> functions;
  std::map<std::string, loop::Function> lowered;  // by body and layouts
  std::map<std::string, std::string> names;       // recipe: name of the kernel that has it
  std::vector<KernelStep*> unlinked;

  std::string next_name(const Graph& body) const;
  // `body` as a loop nest.
  loop::Function lower(const Graph& body, const std::vector<OperandLayout>& inputs,
                       const std::vector<OperandLayout>& outputs, const loop::Target& target);
  void add(loop::Function f, KernelStep& step);
};

// The kernel's text under a name that does not depend on its place in the graph.
std::string recipe_of(loop::Function f);

// The last stage of compile(): machine code of all kernels, which their steps then call. Null: there are
// none.
std::shared_ptr<const FunctionLibrary> link_kernels(const KernelTable& kernels, const loop::Target& target,
                                                    loop::CompileStats* stats);

}  // namespace ipex::graph

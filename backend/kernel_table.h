// Collects the kernels of a graph and compiles them.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "backend/lower/lower.h"
#include "codegen/llvm/jit.h"
#include "runtime/kernel_steps.h"

namespace ipex::graph {

// Layers of a model repeat. Equal bodies with equal layouts are lowered once, and kernels that differ only in
// their names are compiled once.
struct KernelTable {
  std::vector<loop::Function> functions;
  std::map<std::string, loop::Function> lowered;  // by body and layouts
  std::map<std::string, std::string> names;       // by recipe: the name of its kernel
  std::vector<KernelStep*> unlinked;

  std::string next_name(const Graph& body) const;
  // Lowers `body` to a loop nest.
  loop::Function lower(const Graph& body, const std::vector<OperandLayout>& inputs,
                       const std::vector<OperandLayout>& outputs, const loop::Target& target);
  void add(loop::Function f, KernelStep& step);
};

// The kernel's text under a fixed name, independent of its position in the graph.
std::string recipe_of(loop::Function f);

// The last stage of compile(): compiles all kernels and links their steps. Null if there are none.
std::shared_ptr<const FunctionLibrary> link_kernels(const KernelTable& kernels, const loop::Target& target,
                                                    loop::CompileStats* stats);

}  // namespace ipex::graph

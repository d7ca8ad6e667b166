// Compiles a graph to the parts of an artifact: a program and a shared object for each ISA, on any host.
#pragma once

#include <string>
#include <vector>

#include "backend/compile.h"
#include "runtime/artifact.h"

namespace ipex {

struct AheadOfTime {
  std::vector<ArtifactParts::Variant> variants;
  std::vector<ArtifactParts::Data> constants;
  std::vector<CompiledGraph> compiled;  // by variant; holds the constants' memory
  std::vector<std::string> extern_ops;  // sorted names
};

// The artifact member of each buffer that holds a constant. New constants are added to `all`. A constant has
// the same member in every program, because constants come from the graph and do not depend on the ISA.
std::vector<std::string> name_constants(const Executable::Parts& parts,
                                        std::vector<ArtifactParts::Data>& all);

// Compiles once for each ISA, because oneDNN's support, and with it fusion and layouts, depends on the ISA.
// Inputs that have a member in `interface` and are not written are static in the graph. Throws Unsupported,
// with the op and source line, for a step that cannot be saved.
AheadOfTime compile_ahead_of_time(const graph::Graph& graph, const Interface& interface,
                                  std::vector<Isa> isas, const ExternFactory& make_extern);

enum class KernelForm { kCpp, kLoop, kLlvm, kAssembly };
// All kernels of a compilation as text, scheduled for `isa`, each after the source lines of the model that it
// computes.
std::string kernels_as_text(const CompiledGraph& compiled, Isa isa, KernelForm form);

struct KernelTexts {
  std::string name, lowered, scheduled, llvm;
};
std::vector<KernelTexts> texts_of_kernels(const CompiledGraph& compiled, Isa isa);

}  // namespace ipex

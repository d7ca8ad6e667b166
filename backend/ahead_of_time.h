// Graph in, the parts of an artifact out: a program and a shared object for each ISA, whatever this machine
// is.
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
  std::vector<std::string> extern_ops;  // names, sorted
};

// The member of each buffer that holds a constant; `all` takes in what it does not have yet. Constants have
// the same members in every program: they come from the graph, before any choice of ISA.
std::vector<std::string> name_constants(const Executable::Parts& parts,
                                        std::vector<ArtifactParts::Data>& all);

// One compilation an ISA: what oneDNN does, and so what fuses and in which layout, depends on it. Inputs with
// a member in `interface` that are not written are static in the graph. Unsupported, naming op and source
// line, for a step that cannot be saved.
AheadOfTime compile_ahead_of_time(const graph::Graph& graph, const Interface& interface,
                                  std::vector<Isa> isas, const ExternFactory& make_extern);

enum class KernelForm { kCpp, kLoop, kLlvm, kAssembly };
// Every kernel of a compilation, scheduled for `isa`, in one text form, after the model's source lines in it.
std::string kernels_as_text(const CompiledGraph& compiled, Isa isa, KernelForm form);

struct KernelTexts {
  std::string name, lowered, scheduled, llvm;
};
std::vector<KernelTexts> texts_of_kernels(const CompiledGraph& compiled, Isa isa);

}  // namespace ipex

// Programs that are compiled from the text of a graph, and what they are found again by.
#pragma once

#include <c10/util/SmallVector.h>
#include <c10/util/hash.h>

#include <cstdint>
#include <string>

#include "kernels/torch_ops/tensor_program.h"

namespace ipex::torch_ops {

// Everything that a program depends on, as numbers.
using ProgramKey = c10::SmallVector<int64_t, 48>;

struct ProgramKeyHash {
  size_t operator()(const ProgramKey& key) const {
    size_t hash = key.size();
    for (const int64_t value : key) hash = c10::hash_combine(hash, static_cast<size_t>(value));
    return hash;
  }
};

// Compiles a graph (backend/graph/ir.h) for this CPU. The caller keeps all inputs during a call.
// alias_outputs: a result may be (a view of) the memory of an input. Throws what the compiler throws.
TensorProgram compile_graph(const std::string& text, bool alias_outputs = true);

}  // namespace ipex::torch_ops

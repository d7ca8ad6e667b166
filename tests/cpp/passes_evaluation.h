// Running a Loop IR function on made-up data, by the interpreter or as machine code, and comparing two runs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "codegen/llvm/jit.h"
#include "codegen/loop/ir.h"

namespace ipex::loop::testing {

using Bytes = std::vector<std::byte>;
using Buffers = std::vector<Bytes>;  // in parameter order

// Random contents for every parameter (outputs too, so that an element left unwritten shows); integers in [0,
// index_limit).
Buffers random_buffers(const Function& f, const std::vector<int64_t>& symbols, uint64_t seed,
                       int64_t index_limit = 8);

void run_eval(const Function& f, Buffers& buffers, const std::vector<int64_t>& symbols);
void run_compiled(const FunctionLibrary& library, const Function& f, Buffers& buffers,
                  const std::vector<int64_t>& symbols);

// "" when alike: integers exactly, floats within their dtype's tolerance relative to the larger magnitude of
// the two or to 1; otherwise the first element that differs.
std::string difference(const Function& f, const Buffers& expected, const Buffers& actual);

}  // namespace ipex::loop::testing

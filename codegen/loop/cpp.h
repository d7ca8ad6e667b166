// Prints Loop IR as C++, for reading and for other compilers. It shows the loops of the schedule before
// vectorization, one function per kernel with the signature of runtime/abi.h.
#pragma once

#include <string>
#include <string_view>

#include "codegen/loop/ir.h"

namespace ipex::loop {

// The beginning of every file of kernels: element types, and the scalar operations that C++ lacks. The file
// includes only the standard library. -fopenmp makes parallel loops parallel.
std::string_view cpp_prelude();

//   pre: scalar (stop the pipeline after tile_reduction)
std::string print_cpp(const Function& f);

}  // namespace ipex::loop

// Loop IR as C++ for people, and for a compiler of their choice: the loops of the schedule before they become
// vectors, one function a kernel with the signature of runtime/abi.h.
#pragma once

#include <string>
#include <string_view>

#include "codegen/loop/ir.h"

namespace ipex::loop {

// What every file of kernels begins with: element types and the scalar operations that C++ lacks. The file
// includes nothing but the standard library; -fopenmp makes parallel loops parallel.
std::string_view cpp_prelude();

//   pre: scalar (stop the pipeline after tile_reduction)
std::string print_cpp(const Function& f);

}  // namespace ipex::loop

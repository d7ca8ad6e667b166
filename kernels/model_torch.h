// The door between libipex_runtime.so and libipex_runtime_torch.so, which calls ATen operators for it.
//
// The former opens the latter, which lies beside it, for the first artifact that has such calls: programs
// that load no such artifact need no libtorch.
#pragma once

#include "runtime/program.h"

namespace ipex::kernels {

struct TorchLibrary {
  const char* ipex_version;  // first and plain, so that it can be read whatever else a version changes
  const char* torch_version;
  MadeSteps (*read_step)(FieldReader& io, const StepReader& others);
  // Before a thread's runs: the first parallel region of ATen on a thread sets the thread's number of OpenMP
  // threads. After this it has done so, and the number is as before.
  void (*enter_thread)();
};

// What the library exports: a function `const TorchLibrary* ()`.
inline constexpr char kTorchLibraryEntry[] = "ipex_torch_library";

// UserError, saying what to install, when it or libtorch is missing.
const TorchLibrary& open_torch_library();

}  // namespace ipex::kernels

// The interface between libipex_runtime.so and libipex_runtime_torch.so, which calls ATen operators for it.
//
// libipex_runtime.so loads the other library, from its own directory, for the first artifact with ATen calls.
// So programs without such artifacts need no libtorch.
#pragma once

#include "runtime/program.h"

namespace ipex::kernels {

struct TorchLibrary {
  const char* ipex_version;  // the first member, so that it can be read from any version of this struct
  const char* torch_version;
  MadeSteps (*read_step)(FieldReader& io, const StepReader& others);
  // Call it before runs on a thread. ATen's first parallel region on a thread changes the thread's number of
  // OpenMP threads; this triggers that and restores the number.
  void (*enter_thread)();
};

// The function that the library exports: `const TorchLibrary* ()`.
inline constexpr char kTorchLibraryEntry[] = "ipex_torch_library";

// UserError, with what to install, if the library or libtorch is missing.
const TorchLibrary& open_torch_library();

}  // namespace ipex::kernels

// The entry point of libipex_runtime_torch.so, which calls ATen for programs without Python (model_torch.h).
#include <ATen/Parallel.h>

#include "kernels/extern_call.h"
#include "kernels/model_torch.h"
#include "runtime/parallel.h"

namespace ipex::kernels {
namespace {

void enter_thread() {
  const ThreadLimit as_before(num_threads());
  at::get_num_threads();
}

}  // namespace
}  // namespace ipex::kernels

extern "C" [[gnu::visibility("default")]] const ipex::kernels::TorchLibrary* ipex_torch_library() {
  using namespace ipex::kernels;
  static const std::string torch = torch_version();
  static const TorchLibrary library = {IPEX_VERSION, torch.c_str(), read_extern_call, enter_thread};
  return &library;
}

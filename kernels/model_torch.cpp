// Loads libipex_runtime_torch.so; see model_torch.h. This file is part of libipex_runtime.so.
#include "kernels/model_torch.h"

#include <dlfcn.h>

#include <string_view>

#include "runtime/error.h"

namespace ipex::kernels {
namespace {

constexpr char kFile[] = "libipex_runtime_torch.so";

std::string path_beside_this_library() {
  Dl_info own{};
  if (!dladdr(reinterpret_cast<const void*>(&open_torch_library), &own) || !own.dli_fname) return kFile;
  const std::string path = own.dli_fname;
  return path.substr(0, path.rfind('/') + 1) + kFile;
}

const TorchLibrary* open() {
  const std::string path = path_beside_this_library();
  void* const library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!library)
    throw UserError(
        "cannot load " + path + ": " + dlerror() +
        "; it must be in the directory of libipex_runtime.so, and finds libtorch by its run path or "
        "LD_LIBRARY_PATH. Without it, compile the model with --no-extern-ops");
  using Entry = const TorchLibrary* (*)();
  const auto entry = reinterpret_cast<Entry>(dlsym(library, kTorchLibraryEntry));
  if (!entry || std::string_view(entry()->ipex_version) != IPEX_VERSION) {
    const std::string other = entry ? entry()->ipex_version : "unknown";
    dlclose(library);
    throw UserError(path + " is of version " + other +
                    ", but libipex_runtime.so is of " IPEX_VERSION ": install both from one build");
  }
  return entry();
}

}  // namespace

const TorchLibrary& open_torch_library() {
  static const TorchLibrary* const library = open();  // retried after a failure; never closed
  return *library;
}

}  // namespace ipex::kernels

// Finds a library that exports Sleef. libtorch_cpu does, so if it is loaded, kernels use the same functions
// as eager. Python loads it with RTLD_LOCAL, so its path is taken from the list of loaded objects. A program
// without torch can set IPEX_SLEEF, have libsleef installed, or have torch in the Python environment that
// also contains its oneDNN (<env>/lib/python3*/site-packages/torch/lib).
#include "runtime/sleef.h"

#include <dlfcn.h>
#include <link.h>

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/env.h"
#include "runtime/error.h"

namespace ipex {
namespace {

constexpr std::string_view kTorch = "libtorch_cpu.so";

std::vector<std::string> loaded_objects() {
  std::vector<std::string> paths;
  dl_iterate_phdr(
      [](dl_phdr_info* object, size_t, void* out) {
        if (object->dlpi_name && *object->dlpi_name)
          static_cast<std::vector<std::string>*>(out)->emplace_back(object->dlpi_name);
        return 0;
      },
      &paths);
  return paths;
}

std::string torch_beside(const std::string& object) {
  namespace fs = std::filesystem;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(fs::path(object).parent_path(), error)) {
    if (!entry.path().filename().string().starts_with("python3")) continue;
    const fs::path torch = entry.path() / "site-packages" / "torch" / "lib" / kTorch;
    if (fs::exists(torch, error)) return torch.string();
  }
  return {};
}

// The path of the library, or "" if none is found.
std::string library_path() {
  if (std::string path = env::get("IPEX_SLEEF"); !path.empty()) return path;
  const std::vector<std::string> objects = loaded_objects();
  for (const std::string& path : objects)
    if (path.ends_with(kTorch)) return path;
  // oneTBB and oneDNN are in the lib/ directory of the environment that has torch in its site-packages.
  for (const std::string& path : objects)
    if (std::string torch = torch_beside(path); !torch.empty()) return torch;
  return {};
}

void* open_library() {
  if (const std::string path = library_path(); !path.empty()) {
    if (void* library = dlopen(path.c_str(), RTLD_LAZY | RTLD_LOCAL)) return library;
    throw UserError("cannot load " + path + " for Sleef's functions: " + dlerror());
  }
  if (void* library = dlopen("libsleef.so.3", RTLD_LAZY | RTLD_LOCAL)) return library;
  throw UserError(
      "no library with Sleef's vector math functions: install libsleef3, or set IPEX_SLEEF to the path of "
      "libsleef.so or libtorch_cpu.so");
}

}  // namespace

void* find_sleef_function(const char* name) {
  static void* const library = open_library();
  return dlsym(library, name);
}

}  // namespace ipex

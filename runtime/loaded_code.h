// Loads the kernels of an artifact.
//
// The dynamic linker loads their shared object (codegen/llvm/shared_object.h) from an anonymous file in
// memory, so that no other process can change it between the check and the load. The object imports nothing
// by name: the loader fills its table of imports. So it works however this library itself is loaded
// (RTLD_LOCAL or RTLD_GLOBAL).
#pragma once

#include <memory>
#include <span>
#include <string_view>

#include "runtime/function_library.h"

namespace ipex {

class LoadedCode final : public FunctionLibrary {
 public:
  // UserError when the object cannot be loaded, or imports a function that this library does not have.
  explicit LoadedCode(std::span<const std::byte> shared_object);
  ~LoadedCode() override;
  LoadedCode(const LoadedCode&) = delete;
  LoadedCode& operator=(const LoadedCode&) = delete;

  ipex_kernel_fn lookup(std::string_view name) const override;  // UserError when absent

 private:
  class MemoryFile;
  std::unique_ptr<const MemoryFile> file_;
  void* handle_ = nullptr;
};

}  // namespace ipex

// The kernels of an artifact as callable code.
//
// Their shared object (codegen/llvm/shared_object.h) goes into an anonymous file in memory and is loaded from
// there by the dynamic linker, so that nothing of it lies on a disk where another process could change it
// between the check and the load. It imports nothing by name: its table of imports is filled here, so it
// works the same wherever this library is loaded, with whatever visibility.
#pragma once

#include <memory>
#include <span>
#include <string_view>

#include "runtime/function_library.h"

namespace ipex {

class LoadedCode final : public FunctionLibrary {
 public:
  // UserError when the object cannot be loaded or imports what this library does not have.
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

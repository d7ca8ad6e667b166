// Links objects into callable memory, with ORC's session and JITLink: what LLJIT consists of, without its IR
// layers. Private to codegen/llvm.
#pragma once

#include <memory>
#include <string>

namespace ipex::loop {

// Code that is loaded together and freed together. Several threads may add objects at once.
class LoadedCode {
 public:
  LoadedCode();
  ~LoadedCode();
  LoadedCode(const LoadedCode&) = delete;
  LoadedCode& operator=(const LoadedCode&) = delete;

  // Links an ELF object that defines `symbol`, and returns its address.
  void* add(const std::string& object, const std::string& symbol);

 private:
  struct Dylib;
  std::unique_ptr<Dylib> dylib_;
};

}  // namespace ipex::loop

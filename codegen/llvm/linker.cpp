// One session for the whole process, which is never destroyed, because kernels may be freed as late as at
// interpreter exit. Each LoadedCode is a JITDylib on top of one that holds what kernels import: the functions
// of runtime/abi.h, the few functions of libc that code generation may call, and Sleef. They are looked up by
// name when first needed.
#include "codegen/llvm/linker.h"

#include <llvm/ExecutionEngine/JITEventListener.h>
#include <llvm/ExecutionEngine/Orc/AbsoluteSymbols.h>
#include <llvm/ExecutionEngine/Orc/ObjectLinkingLayer.h>
#include <llvm/ExecutionEngine/Orc/RTDyldObjectLinkingLayer.h>
#include <llvm/ExecutionEngine/Orc/SelfExecutorProcessControl.h>
#include <llvm/ExecutionEngine/SectionMemoryManager.h>

#include <atomic>
#include <cstring>

#include "runtime/abi.h"
#include "runtime/env.h"
#include "runtime/error.h"
#include "runtime/sleef.h"

namespace ipex::loop {
namespace {

namespace orc = llvm::orc;

[[noreturn]] void fail(llvm::Error error) {
  throw InternalError("linking a compiled kernel: " + llvm::toString(std::move(error)));
}
template <typename T>
T check(llvm::Expected<T> value) {
  if (!value) fail(value.takeError());
  return std::move(*value);
}

class SleefGenerator : public orc::DefinitionGenerator {
 public:
  llvm::Error tryToGenerate(orc::LookupState&, orc::LookupKind, orc::JITDylib& dylib,
                            orc::JITDylibLookupFlags, const orc::SymbolLookupSet& wanted) override {
    orc::SymbolMap found;
    for (const auto& [name, flags] : wanted) {
      if (!(*name).starts_with("Sleef_")) continue;
      if (void* address = find_sleef_function((*name).str().c_str()))
        found[name] = {orc::ExecutorAddr::fromPtr(address), llvm::JITSymbolFlags::Exported};
    }
    return found.empty() ? llvm::Error::success() : dylib.define(orc::absoluteSymbols(std::move(found)));
  }
};

class Session {
 public:
  static Session& instance() {
    static Session& session = *new Session;
    return session;
  }

  orc::JITDylib& create() {
    orc::JITDylib& dylib = session_.createBareJITDylib("kernels" + std::to_string(next_++));
    dylib.addToLinkOrder(*imports_);
    return dylib;
  }

  void remove(orc::JITDylib& dylib) {
    // If code cannot be unloaded, nothing can be done about it; destructors do not throw.
    llvm::consumeError(session_.removeJITDylib(dylib));
  }

  void* add(orc::JITDylib& dylib, const std::string& object, const std::string& symbol) {
    auto buffer = llvm::MemoryBuffer::getMemBufferCopy(object, symbol);
    if (llvm::Error error = layer_->add(dylib, std::move(buffer))) fail(std::move(error));
    return check(session_.lookup({&dylib}, symbol)).getAddress().toPtr<void*>();
  }

 private:
  Session()
      : session_(check(orc::SelfExecutorProcessControl::Create(
            nullptr, std::make_unique<orc::InPlaceTaskDispatcher>()))),
        imports_(&session_.createBareJITDylib("imports")) {
    make_layer();
    orc::SymbolMap functions;
    auto import = [&](const char* name, auto* function) {
      functions[session_.intern(name)] = {orc::ExecutorAddr::fromPtr(function),
                                          llvm::JITSymbolFlags::Exported | llvm::JITSymbolFlags::Callable};
    };
    import("ipex_parallel_for", &ipex_parallel_for);
    import("ipex_num_threads", &ipex_num_threads);
    import("ipex_scratch_acquire", &ipex_scratch_acquire);
    import("ipex_scratch_release", &ipex_scratch_release);
    import("ipex_report_index", &ipex_report_index);
    import("memcpy", &std::memcpy);
    import("memmove", &std::memmove);
    import("memset", &std::memset);
    if (llvm::Error error = imports_->define(orc::absoluteSymbols(std::move(functions))))
      fail(std::move(error));
    imports_->addGenerator(std::make_unique<SleefGenerator>());
  }

  // Profilers and debuggers work with the older linker only, which is used for nothing else.
  void make_layer() {
    const std::string listeners = env::get("IPEX_PROFILE_JIT");
    if (listeners.empty()) {
      layer_ = std::make_unique<orc::ObjectLinkingLayer>(session_);
      return;
    }
    auto layer = std::make_unique<orc::RTDyldObjectLinkingLayer>(
        session_, [](const llvm::MemoryBuffer&) { return std::make_unique<llvm::SectionMemoryManager>(); });
    auto listen = [&](const char* name, llvm::JITEventListener* listener) {
      if (listeners.find(name) == std::string::npos) return;
      if (!listener)
        throw UserError(std::string("IPEX_PROFILE_JIT: this build of LLVM has no listener for ") + name);
      layer->registerJITEventListener(*listener);
    };
    if (listeners.find("perf") == std::string::npos && listeners.find("gdb") == std::string::npos)
      throw UserError("IPEX_PROFILE_JIT is '" + listeners +
                      "'; expected perf, gdb or both, separated by commas");
    listen("perf", llvm::JITEventListener::createPerfJITEventListener());
    listen("gdb", llvm::JITEventListener::createGDBRegistrationListener());
    layer_ = std::move(layer);
  }

  orc::ExecutionSession session_;
  orc::JITDylib* imports_;
  std::unique_ptr<orc::ObjectLayer> layer_;
  std::atomic<int> next_{0};
};

}  // namespace

struct LoadedCode::Dylib {
  orc::JITDylib& handle;
};

LoadedCode::LoadedCode() : dylib_(new Dylib{Session::instance().create()}) {}
LoadedCode::~LoadedCode() { Session::instance().remove(dylib_->handle); }

void* LoadedCode::add(const std::string& object, const std::string& symbol) {
  return Session::instance().add(dylib_->handle, object, symbol);
}

}  // namespace ipex::loop

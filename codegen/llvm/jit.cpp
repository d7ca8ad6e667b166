// Compiles kernels to callable code: key, cache lookup, pipeline, LLVM, link. Each kernel is a task of its
// own with its own LLVM context.
#include "codegen/llvm/jit.h"

#include <llvm/Config/llvm-config.h>
#include <llvm/IR/Verifier.h>
#include <llvm/Support/raw_ostream.h>
#include <llvm/Transforms/Utils/Cloning.h>

#include <chrono>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <map>
#include <mutex>

#include "codegen/llvm/cache_text.h"
#include "codegen/llvm/emit.h"
#include "codegen/llvm/linker.h"
#include "codegen/llvm/machine.h"
#include "codegen/llvm/object_cache.h"
#include "codegen/passes/passes.h"
#include "runtime/env.h"
#include "runtime/error.h"
#include "runtime/parallel.h"
#include "runtime/time_limit.h"

namespace ipex::loop {
namespace {

class Stopwatch {
 public:
  double lap_ms() {
    const auto now = std::chrono::steady_clock::now();
    const double ms = std::chrono::duration<double, std::milli>(now - start_).count();
    start_ = now;
    return ms;
  }

 private:
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

std::unique_ptr<llvm::Module> optimized_module(llvm::LLVMContext& context,
                                               const std::vector<Function>& functions, const Target& target) {
  auto module = emit_module(context, functions, target);
  // The module is always verified: LLVM crashes on invalid IR, or generates wrong code from it.
  std::string problem;
  llvm::raw_string_ostream stream(problem);
  if (llvm::verifyModule(*module, &stream))
    throw InternalError("invalid LLVM IR: " + problem + "\n" + module_text(*module));
  optimize(*module, target);
  return module;
}

// IPEX_DUMP: writes LLVM's input and output, beside the files <kernel>.NN.<pass>.loop of the loop pipeline.
void dump(const std::string& directory, const std::string& kernel, const llvm::Module& module,
          const Target& target) {
  std::filesystem::create_directories(directory);
  const std::string stem = directory + "/" + kernel;
  std::ofstream(stem + ".ll") << module_text(module);
  auto copy = llvm::CloneModule(module);
  std::ofstream(stem + ".s") << generate(*copy, machine_for(target), llvm::CodeGenFileType::AssemblyFile);
}

// Everything besides the function that determines the generated code.
std::string environment_text(const Target& target, bool scheduled) {
  return target_text(target) +
         (scheduled ? "\nscheduled" : "\nunscheduled, without " + env::get("IPEX_DISABLE_PASS")) + "\n";
}

// A profile shows the kernels' own names, so the name is then part of the key.
bool keeps_names() { return !env::get("IPEX_PROFILE_JIT").empty(); }

std::string symbol_of(const std::string& key) { return "kernel_" + key.substr(0, 16); }

class Library : public FunctionLibrary {
 public:
  ipex_kernel_fn lookup(std::string_view name) const override {
    auto it = functions.find(name);
    if (it == functions.end()) throw InternalError("no compiled kernel named " + std::string(name));
    return it->second;
  }
  LoadedCode code;
  std::map<std::string, ipex_kernel_fn, std::less<>> functions;
};

// One distinct kernel, which all functions with the same canonical text share.
struct Unit {
  const Function* source = nullptr;
  std::string key, symbol;
  ipex_kernel_fn address = nullptr;
};

struct Stopwatches {
  std::mutex mutex;
  CompileStats total;
  void add(double passes, double llvm, double link, bool hit) {
    std::lock_guard lock(mutex);
    total.passes_ms += passes;
    total.llvm_ms += llvm;
    total.link_ms += link;
    total.cache_hits += hit;
  }
};

void compile_unit(Unit& unit, const Target& target, bool scheduled, const ObjectCache& cache,
                  LoadedCode& code, Stopwatches& times) {
  if (env::get("IPEX_INJECT_FAULT") == "compile")
    throw InternalError("compiling kernel " + unit.source->name + ": injected by IPEX_INJECT_FAULT=compile");
  const std::string dump_directory = env::get("IPEX_DUMP");
  double passes_ms = 0, llvm_ms = 0;
  Stopwatch watch;
  std::optional<std::string> object;
  if (dump_directory.empty()) object = cache.load(unit.key);  // a dump must show all of the work
  const bool hit = object.has_value();
  if (!hit) {
    watch.lap_ms();
    std::vector<Function> functions = {*unit.source};
    if (!scheduled) functions = run_pipeline(std::move(functions), target);
    IPEX_CHECK(functions.size() == 1,
               "the loop pipeline returned several functions for kernel " + unit.source->name);
    passes_ms = watch.lap_ms();
    check_time("LLVM's passes over kernel", unit.source->name);
    functions[0].name = unit.symbol;
    llvm::LLVMContext context;
    auto module = optimized_module(context, functions, target);
    if (!dump_directory.empty()) dump(dump_directory, unit.source->name, *module, target);
    object = generate(*module, machine_for(target), llvm::CodeGenFileType::ObjectFile);
    llvm_ms = watch.lap_ms();
    cache.store(unit.key, *object);
  }
  watch.lap_ms();
  unit.address = reinterpret_cast<ipex_kernel_fn>(code.add(*object, unit.symbol));
  const double link_ms = watch.lap_ms();
  times.add(passes_ms, llvm_ms, link_ms, hit);
  if (env::flag("IPEX_TIME_PASSES"))
    std::fprintf(stderr, "ipex: %8.3f ms  llvm, %.3f ms link%s  %s\n", llvm_ms, link_ms,
                 hit ? " (cached)" : "", unit.source->name.c_str());
}

std::shared_ptr<FunctionLibrary> compile(const std::vector<Function>& kernels, const Target& target,
                                         bool scheduled, CompileStats* stats) {
  const int64_t count = static_cast<int64_t>(kernels.size());
  const std::string environment = environment_text(target, scheduled);
  const bool keep_names = keeps_names();
  std::vector<std::string> keys(count);
  parallel_tasks(count, [&](int64_t i) {
    std::string text = environment + canonical_text(kernels[i]);
    if (keep_names) text += kernels[i].name;
    keys[i] = cache_key(text);
  });

  std::map<std::string, size_t> by_key;
  std::vector<Unit> units;
  for (int64_t i = 0; i < count; ++i) {
    auto [it, inserted] = by_key.emplace(keys[i], units.size());
    if (!inserted) continue;
    units.push_back({&kernels[i], keys[i], keep_names ? kernels[i].name : symbol_of(keys[i])});
  }

  auto library = std::make_shared<Library>();
  const ObjectCache cache(env::cache_directory());
  Stopwatches times;
  parallel_tasks(static_cast<int64_t>(units.size()),
                 [&](int64_t i) { compile_unit(units[i], target, scheduled, cache, library->code, times); });
  for (int64_t i = 0; i < count; ++i) {
    const bool fresh = library->functions.emplace(kernels[i].name, units[by_key[keys[i]]].address).second;
    IPEX_CHECK(fresh, "two kernels of one library have the name " + kernels[i].name);
  }
  if (stats) {
    *stats = times.total;
    stats->kernels = static_cast<int>(units.size());
    for (int64_t i = 0; i < count; ++i) stats->keys.emplace(kernels[i].name, keys[i]);
  }
  return library;
}

}  // namespace

std::shared_ptr<FunctionLibrary> jit_compile(const std::vector<Function>& kernels, const Target& target,
                                             CompileStats* stats) {
  return compile(kernels, target, /*scheduled=*/true, stats);
}

std::shared_ptr<FunctionLibrary> schedule_and_compile(const std::vector<Function>& kernels,
                                                      const Target& target, CompileStats* stats) {
  return compile(kernels, target, /*scheduled=*/false, stats);
}

std::shared_ptr<FunctionLibrary> load_kernels(const std::map<std::string, std::string>& keys,
                                              CompileStats* stats) {
  if (keeps_names()) return nullptr;  // the cache stores them under symbols derived from their keys
  Stopwatch watch;
  std::map<std::string, ipex_kernel_fn> addresses;  // by key
  for (const auto& [kernel, key] : keys) addresses.emplace(key, nullptr);
  std::vector<std::pair<const std::string, ipex_kernel_fn>*> units;
  for (auto& unit : addresses) units.push_back(&unit);
  auto library = std::make_shared<Library>();
  const ObjectCache cache(env::cache_directory());
  parallel_tasks(std::ssize(units), [&](int64_t i) {
    auto& [key, address] = *units[i];
    if (const auto object = cache.load(key))
      address = reinterpret_cast<ipex_kernel_fn>(library->code.add(*object, symbol_of(key)));
  });
  for (const auto& [kernel, key] : keys) {
    if (!addresses[key]) return nullptr;
    library->functions.emplace(kernel, addresses[key]);
  }
  if (stats) {
    stats->kernels = stats->cache_hits = static_cast<int>(std::ssize(units));
    stats->link_ms = watch.lap_ms();
    stats->keys = keys;
  }
  return library;
}

std::string emit_llvm(const std::vector<Function>& module, const Target& target) {
  llvm::LLVMContext context;
  return module_text(*optimized_module(context, module, target));
}

std::string emit_assembly(const std::vector<Function>& module, const Target& target) {
  llvm::LLVMContext context;
  return generate(*optimized_module(context, module, target), machine_for(target),
                  llvm::CodeGenFileType::AssemblyFile);
}

std::string emit_object(const std::vector<Function>& module, const Target& target) {
  llvm::LLVMContext context;
  return generate(*optimized_module(context, module, target), machine_for(target),
                  llvm::CodeGenFileType::ObjectFile);
}

std::string llvm_version() { return LLVM_VERSION_STRING; }

}  // namespace ipex::loop

// The subset of O2 that a kernel needs. Vector width, unrolling and tiling were decided in Loop IR, so no
// loop vectorizer, SLP vectorizer or unroller runs here. What remains are a few cheap passes, chosen for a
// short time to the first call.
#include "codegen/llvm/machine.h"

#include <llvm/Analysis/CGSCCPassManager.h>
#include <llvm/IR/LegacyPassManager.h>
#include <llvm/IR/OptBisect.h>
#include <llvm/IR/PassManager.h>
#include <llvm/MC/TargetRegistry.h>
#include <llvm/Passes/PassBuilder.h>
#include <llvm/Support/TargetSelect.h>
#include <llvm/Support/raw_ostream.h>
#include <llvm/Transforms/InstCombine/InstCombine.h>
#include <llvm/Transforms/Scalar/EarlyCSE.h>
#include <llvm/Transforms/Scalar/LICM.h>
#include <llvm/Transforms/Scalar/LoopPassManager.h>
#include <llvm/Transforms/Scalar/SimplifyCFG.h>

#include <map>
#include <memory>
#include <mutex>

#include "codegen/llvm/masked_accesses.h"
#include "runtime/error.h"

namespace ipex::loop {
namespace {

constexpr const char* kTriple = "x86_64-unknown-linux-gnu";

void initialize_once() {
  static std::once_flag once;
  std::call_once(once, [] {
    LLVMInitializeX86TargetInfo();
    LLVMInitializeX86Target();
    LLVMInitializeX86TargetMC();
    LLVMInitializeX86AsmPrinter();
    LLVMInitializeX86AsmParser();
  });
}

std::unique_ptr<llvm::TargetMachine> make_machine(const Target& target) {
  initialize_once();
  std::string error;
  const llvm::Triple triple(kTriple);
  const llvm::Target* x86 = llvm::TargetRegistry::lookupTarget(triple, error);
  if (!x86) throw InternalError("LLVM has no x86-64 target: " + error);
  llvm::TargetOptions options;
  options.AllowFPOpFusion = llvm::FPOpFusion::Strict;  // a * b + c rounds twice unless Loop IR says fma
  return std::unique_ptr<llvm::TargetMachine>(
      x86->createTargetMachine(triple, target.cpu, target.features, options, llvm::Reloc::PIC_,
                               llvm::CodeModel::Small, llvm::CodeGenOptLevel::Default));
}

// Disables loop strength reduction, which turns addresses into induction variables and takes a quarter of the
// compile time. An x86 address adds two registers and a constant, and no kernel is slower without the pass.
// LLVM's option -disable-lsr is not used, because it is global to the process and LLD resets all options.
struct WithoutStrengthReduction : llvm::OptPassGate {
  bool shouldRunPass(llvm::StringRef pass, llvm::StringRef) const override {
    return pass != "Loop Strength Reduction";
  }
  bool isEnabled() const override { return true; }
};

}  // namespace

llvm::TargetMachine& machine_for(const Target& target) {
  thread_local std::map<Isa, std::unique_ptr<llvm::TargetMachine>> machines;
  auto& machine = machines[target.isa];
  if (!machine) machine = make_machine(target);
  return *machine;
}

void optimize(llvm::Module& module, const Target& target) {
  llvm::TargetMachine& machine = machine_for(target);
  module.setTargetTriple(machine.getTargetTriple());
  module.setDataLayout(machine.createDataLayout());

  llvm::LoopAnalysisManager loops;
  llvm::FunctionAnalysisManager functions;
  llvm::CGSCCAnalysisManager cgscc;
  llvm::ModuleAnalysisManager modules;
  llvm::PassBuilder builder(&machine);
  builder.registerModuleAnalyses(modules);
  builder.registerCGSCCAnalyses(cgscc);
  builder.registerFunctionAnalyses(functions);
  builder.registerLoopAnalyses(loops);
  builder.crossRegisterProxies(loops, functions, cgscc, modules);

  llvm::FunctionPassManager passes;
  passes.addPass(llvm::EarlyCSEPass(/*UseMemorySSA=*/true));
  passes.addPass(llvm::SimplifyCFGPass());
  passes.addPass(llvm::InstCombinePass());
  passes.addPass(
      llvm::createFunctionToLoopPassAdaptor(llvm::LICMPass(llvm::LICMOptions()), /*UseMemorySSA=*/true));
  passes.addPass(llvm::EarlyCSEPass(/*UseMemorySSA=*/true));
  llvm::ModulePassManager pipeline;
  pipeline.addPass(llvm::createModuleToFunctionPassAdaptor(std::move(passes)));
  pipeline.run(module, modules);
  for (llvm::Function& function : module) {
    store_single_lanes(function);
    if (!target.masked_memory) split_masked_loads(function, static_cast<unsigned>(target.vector_bytes));
  }
}

std::string generate(llvm::Module& module, llvm::TargetMachine& machine, llvm::CodeGenFileType type) {
  static WithoutStrengthReduction gate;
  module.getContext().setOptPassGate(gate);
  llvm::SmallVector<char, 0> bytes;
  llvm::raw_svector_ostream stream(bytes);
  llvm::legacy::PassManager passes;
  if (machine.addPassesToEmitFile(passes, stream, nullptr, type))
    throw InternalError("LLVM's x86 target cannot write this kind of file");
  passes.run(module);
  return std::string(bytes.data(), bytes.size());
}

std::string module_text(const llvm::Module& module) {
  std::string text;
  llvm::raw_string_ostream stream(text);
  module.print(stream, nullptr);
  return text;
}

}  // namespace ipex::loop

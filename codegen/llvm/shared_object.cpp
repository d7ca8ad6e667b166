// Links kernels with LLD. LLD works on files, so objects are written to a new directory below the system's
// temporary directory, which is removed before returning.
#include "codegen/llvm/shared_object.h"

#include <lld/Common/Driver.h>
#include <llvm/Object/ELFObjectFile.h>
#include <llvm/Support/raw_ostream.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <mutex>
#include <set>

#include "codegen/llvm/emit.h"
#include "codegen/llvm/jit.h"
#include "codegen/llvm/machine.h"
#include "codegen/passes/passes.h"
#include "runtime/error.h"
#include "runtime/parallel.h"

LLD_HAS_DRIVER(elf)

namespace ipex::loop {
namespace {

namespace fs = std::filesystem;

class TemporaryDirectory {
 public:
  TemporaryDirectory() {
    std::string name = fs::temp_directory_path() / "ipex-link-XXXXXX";
    if (!mkdtemp(name.data()))
      throw UserError("cannot make a directory in " + fs::temp_directory_path().string() +
                      " to link kernels in: set TMPDIR to one that can be written");
    path_ = name;
  }
  ~TemporaryDirectory() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  std::string file(const std::string& name) const { return path_ / name; }

 private:
  fs::path path_;
};

void write_file(const std::string& path, const std::string& bytes) {
  std::ofstream file(path, std::ios::binary);
  file.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  file.close();
  if (!file) throw UserError("cannot write " + path + ": is the disk full?");
}

std::string read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw InternalError("the linker did not write " + path);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

void add_undefined_symbols(const std::string& object, std::set<std::string>& names) {
  auto parsed = llvm::object::ObjectFile::createObjectFile(llvm::MemoryBufferRef(object, "kernel"));
  if (!parsed) throw InternalError("reading a compiled kernel: " + llvm::toString(parsed.takeError()));
  for (const llvm::object::SymbolRef& symbol : (*parsed)->symbols()) {
    const auto flags = llvm::cantFail(symbol.getFlags());
    const auto name = llvm::cantFail(symbol.getName());
    if (flags & llvm::object::SymbolRef::SF_Undefined && !name.empty()) names.insert(name.str());
  }
}

// One jump through the table for each import.
std::string import_object(const std::set<std::string>& names, const Target& target) {
  std::string text, strings;
  int slot = 0;
  for (const std::string& name : names) {
    text += ".globl " + name + "\n.hidden " + name + "\n.type " + name + ",@function\n" + name +
            ": jmpq *ipex_imports+" + std::to_string(8 * slot++) + "(%rip)\n";
    strings += ".asciz \"" + name + "\"\n";
  }
  llvm::LLVMContext context;
  llvm::Module module("imports", context);
  llvm::TargetMachine& machine = machine_for(target);
  module.setTargetTriple(machine.getTargetTriple());
  module.setDataLayout(machine.createDataLayout());
  module.setModuleInlineAsm(".text\n" + text +
                            ".section .rodata\n.globl ipex_import_names\n.protected ipex_import_names\n"
                            "ipex_import_names:\n" +
                            strings +
                            ".byte 0\n"
                            ".bss\n.p2align 3\n.globl ipex_imports\n.protected ipex_imports\n"
                            "ipex_imports: .zero " +
                            std::to_string(8 * (slot + 1)) +
                            "\n"
                            ".section .note.GNU-stack,\"\",@progbits\n");
  return generate(module, machine, llvm::CodeGenFileType::ObjectFile);
}

void link(const std::vector<std::string>& objects, const std::string& output) {
  std::vector<const char*> arguments = {"ld.lld",
                                        "-shared",
                                        "--no-undefined",
                                        "--strip-all",
                                        "--build-id=none",
                                        "-z",
                                        "noexecstack",
                                        "-z",
                                        "now",
                                        "--hash-style=gnu",
                                        "--threads=1",
                                        "-o",
                                        output.c_str()};
  for (const std::string& object : objects) arguments.push_back(object.c_str());
  std::string said;
  llvm::raw_string_ostream stream(said);
  static std::mutex one_at_a_time;  // LLD keeps state in global variables
  const std::lock_guard lock(one_at_a_time);
  const lld::Result result = lld::lldMain(arguments, stream, stream, {{lld::Gnu, &lld::elf::link}});
  if (result.retCode != 0) throw InternalError("linking kernels: " + said);
}

}  // namespace

std::string make_shared_object(const std::vector<Function>& kernels, const Target& target) {
  const TemporaryDirectory directory;
  std::vector<std::string> files(kernels.size() + 1);
  std::vector<std::set<std::string>> undefined(kernels.size());
  parallel_tasks(static_cast<int64_t>(kernels.size()), [&](int64_t i) {
    const std::string object = emit_object(run_pipeline({kernels[i]}, target), target);
    add_undefined_symbols(object, undefined[i]);
    write_file(files[i] = directory.file("kernel" + std::to_string(i) + ".o"), object);
  });
  std::set<std::string> imports;
  for (const auto& names : undefined) imports.insert(names.begin(), names.end());
  write_file(files.back() = directory.file("imports.o"), import_object(imports, target));
  const std::string output = directory.file("kernels.so");
  link(files, output);
  return read_file(output);
}

}  // namespace ipex::loop

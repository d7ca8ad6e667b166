// dlopen of a memfd, and the table of imports; see loaded_code.h.
#include "runtime/loaded_code.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>

#include "runtime/error.h"
#include "runtime/sleef.h"

namespace ipex {
namespace {

// The functions that kernels may call.
void* find_import(std::string_view name) {
  struct Row {
    std::string_view name;
    void* address;
  };
  const Row rows[] = {
      {"ipex_parallel_for", reinterpret_cast<void*>(&ipex_parallel_for)},
      {"ipex_num_threads", reinterpret_cast<void*>(&ipex_num_threads)},
      {"ipex_scratch_acquire", reinterpret_cast<void*>(&ipex_scratch_acquire)},
      {"ipex_scratch_release", reinterpret_cast<void*>(&ipex_scratch_release)},
      {"ipex_report_index", reinterpret_cast<void*>(&ipex_report_index)},
      {"memcpy", reinterpret_cast<void*>(static_cast<void* (*)(void*, const void*, size_t)>(&std::memcpy))},
      {"memmove", reinterpret_cast<void*>(static_cast<void* (*)(void*, const void*, size_t)>(&std::memmove))},
      {"memset", reinterpret_cast<void*>(static_cast<void* (*)(void*, int, size_t)>(&std::memset))},
  };
  for (const Row& row : rows)
    if (row.name == name) return row.address;
  return name.starts_with("Sleef_") ? find_sleef_function(std::string(name).c_str()) : nullptr;
}

std::string path_of(int file) { return "/proc/self/fd/" + std::to_string(file); }

bool is_loaded(int file) {
  void* const other = dlopen(path_of(file).c_str(), RTLD_NOLOAD | RTLD_LAZY);
  if (other) dlclose(other);
  return other != nullptr;
}

}  // namespace

// The dynamic linker identifies loaded objects by path, here "/proc/self/fd/<number>". So each of our files
// stays open, and keeps its number, as long as its object is loaded. Numbers of objects that others loaded in
// this way are skipped.
class LoadedCode::MemoryFile {
 public:
  explicit MemoryFile(std::span<const std::byte> bytes) : file_(memfd_create("ipex-kernels", MFD_CLOEXEC)) {
    while (file_ >= 0 && is_loaded(file_)) {
      const int next = fcntl(file_, F_DUPFD_CLOEXEC, file_ + 1);
      close(file_);
      file_ = next;
    }
    while (file_ >= 0 && !bytes.empty()) {
      const ssize_t written = write(file_, bytes.data(), bytes.size());
      if (written < 0 && errno == EINTR) continue;
      if (written <= 0) break;
      bytes = bytes.subspan(static_cast<size_t>(written));
    }
    if (file_ >= 0 && bytes.empty()) return;
    const std::string why = std::strerror(errno);
    if (file_ >= 0) close(file_);
    throw UserError("cannot load kernels: cannot create an anonymous file: " + why);
  }
  ~MemoryFile() { close(file_); }
  std::string path() const { return path_of(file_); }

 private:
  int file_;
};

LoadedCode::LoadedCode(std::span<const std::byte> shared_object)
    : file_(std::make_unique<MemoryFile>(shared_object)) {
  handle_ = dlopen(file_->path().c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!handle_) throw UserError(std::string("cannot load kernels: ") + dlerror());
  const auto* name = static_cast<const char*>(dlsym(handle_, "ipex_import_names"));
  auto* slot = static_cast<void**>(dlsym(handle_, "ipex_imports"));
  try {
    if (!name || !slot) throw UserError("cannot load kernels: they have no table of imports");
    for (; *name; name += std::strlen(name) + 1)
      if (!(*slot++ = find_import(name)))
        throw UserError(std::string("cannot load kernels: they call ") + name +
                        ", which this library does not have: use the version of ipex that compiled them");
  } catch (...) {
    dlclose(handle_);
    throw;
  }
}

LoadedCode::~LoadedCode() { dlclose(handle_); }

ipex_kernel_fn LoadedCode::lookup(std::string_view name) const {
  void* address = dlsym(handle_, std::string(name).c_str());
  if (!address) throw UserError("the artifact has no kernel named " + std::string(name));
  return reinterpret_cast<ipex_kernel_fn>(address);
}

}  // namespace ipex

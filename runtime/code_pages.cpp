// See code_pages.h. dl_iterate_phdr finds the segments of the loaded object.
#include "runtime/code_pages.h"

#include <link.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>

namespace ipex {
namespace {

// Callback of dl_iterate_phdr: stops at the object that contains the address.
int release_if_inside(dl_phdr_info* object, size_t, void* wanted) {
  const auto address = reinterpret_cast<uintptr_t>(wanted);
  bool inside = false;
  for (int i = 0; i < object->dlpi_phnum; ++i) {
    const ElfW(Phdr) & segment = object->dlpi_phdr[i];
    const uintptr_t begin = object->dlpi_addr + segment.p_vaddr;
    inside |= segment.p_type == PT_LOAD && address - begin < segment.p_memsz;
  }
  if (!inside) return 0;
  const auto page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  for (int i = 0; i < object->dlpi_phnum; ++i) {
    const ElfW(Phdr) & segment = object->dlpi_phdr[i];
    if (segment.p_type != PT_LOAD || segment.p_flags & PF_W) continue;
    // Only whole pages: two segments may share a page.
    const uintptr_t begin = (object->dlpi_addr + segment.p_vaddr + page - 1) / page * page;
    const uintptr_t end = (object->dlpi_addr + segment.p_vaddr + segment.p_filesz) / page * page;
    // On failure (pages locked in memory) they stay resident, which is harmless.
    if (begin < end) madvise(reinterpret_cast<void*>(begin), end - begin, MADV_DONTNEED);
  }
  return 1;
}

}  // namespace

void release_code_pages(const void* address) {
  dl_iterate_phdr(release_if_inside, const_cast<void*>(address));
}

}  // namespace ipex

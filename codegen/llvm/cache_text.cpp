// Renames the names of a function token by token. A bound name that is also a word of the grammar stays as it
// is, so that functions get the same text only if they differ in nothing but names.
#include "codegen/llvm/cache_text.h"

#include <dlfcn.h>
#include <elf.h>
#include <link.h>
#include <sys/stat.h>

#include <cctype>
#include <map>
#include <set>

#include "codegen/llvm/jit.h"
#include "codegen/loop/rewrite.h"
#include "codegen/loop/text.h"

namespace ipex::loop {
namespace {

std::set<std::string> bound_names(const Function& f) {
  std::set<std::string> names = {f.name};
  for (const Buffer& b : f.buffers) names.insert(b.name);
  names.insert(f.symbols.begin(), f.symbols.end());
  visit(
      f.body,
      [&](const Stmt& stmt) {
        if (const auto* loop = std::get_if<For>(&stmt)) {
          names.insert(loop->var);
          if (loop->reduction)
            for (const State& state : loop->reduction->states) names.insert(state.name);
        } else if (const auto* let = std::get_if<Let>(&stmt)) {
          names.insert(let->name);
        } else if (const auto* alloc = std::get_if<Alloc>(&stmt)) {
          names.insert(alloc->buffer);
        }
      },
      [](const ExprNode&) {});
  return names;
}

// Words that have a meaning for the parser wherever they appear, including dtypes and vector types (f32x16).
bool is_grammar_word(const std::string& word) {
  static const std::set<std::string> kWords = {
      "func",    "in",     "out",    "inout",    "symbols",  "for",       "parallel", "vector",
      "grain",   "lanes",  "unroll", "reduce",   "identity", "yield",     "merge",    "let",
      "if",      "else",   "alloc",  "call",     "ramp",     "broadcast", "cast",     "reduce_lanes",
      "shuffle", "true",   "false",  "inf",      "nan",      "inff",      "infd",     "nanf",
      "nand",    "serial", "other",  "in_place", "streamed"};
  if (kWords.count(word) || parse_scalar_op(word)) return true;
  size_t letters = word.size();
  while (letters > 0 && std::isdigit(static_cast<unsigned char>(word[letters - 1]))) --letters;
  if (letters > 0 && letters < word.size() && word[letters - 1] == 'x' &&
      parse_dtype(word.substr(0, letters - 1)))
    return true;
  return parse_dtype(word).has_value();
}

bool starts_word(char c) { return std::isalpha(static_cast<unsigned char>(c)) || c == '_'; }
bool continues_word(char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_'; }

}  // namespace

std::string canonical_text(const Function& f) {
  const std::set<std::string> bound = bound_names(f);
  const std::string text = print(f);
  std::map<std::string, std::string> renamed;
  std::string result;
  for (size_t i = 0; i < text.size();) {
    if (std::isdigit(static_cast<unsigned char>(text[i]))) {  // a number with its suffix is not a name
      while (i < text.size() && continues_word(text[i])) result += text[i++];
      continue;
    }
    if (!starts_word(text[i])) {
      result += text[i++];
      continue;
    }
    size_t end = i;
    while (end < text.size() && continues_word(text[end])) ++end;
    const std::string word = text.substr(i, end - i);
    i = end;
    if (!bound.count(word) || is_grammar_word(word)) {
      result += word;
      continue;
    }
    // No name of the grammar starts with '%', so a new name cannot equal an old one.
    auto [it, inserted] = renamed.emplace(word, "%" + std::to_string(renamed.size()));
    result += it->second;
  }
  return result;
}

std::string binary_identity(const void* address) {
  struct Search {
    uintptr_t address;
    std::string id;
  } search{reinterpret_cast<uintptr_t>(address), {}};
  dl_iterate_phdr(
      [](dl_phdr_info* object, size_t, void* out) {
        auto& search = *static_cast<Search*>(out);
        bool ours = false;
        for (int i = 0; i < object->dlpi_phnum; ++i) {
          const auto& segment = object->dlpi_phdr[i];
          const uintptr_t begin = object->dlpi_addr + segment.p_vaddr;
          ours |= segment.p_type == PT_LOAD && search.address >= begin &&
                  search.address < begin + segment.p_memsz;
        }
        if (!ours) return 0;
        for (int i = 0; i < object->dlpi_phnum; ++i) {
          const auto& segment = object->dlpi_phdr[i];
          if (segment.p_type != PT_NOTE) continue;
          const char* at = reinterpret_cast<const char*>(object->dlpi_addr + segment.p_vaddr);
          const char* end = at + segment.p_memsz;
          while (at + sizeof(ElfW(Nhdr)) <= end) {
            const auto* note = reinterpret_cast<const ElfW(Nhdr)*>(at);
            const char* payload = at + sizeof(*note) + (note->n_namesz + 3) / 4 * 4;
            if (note->n_type == NT_GNU_BUILD_ID) search.id.assign(payload, note->n_descsz);
            at = payload + (note->n_descsz + 3) / 4 * 4;
          }
        }
        return 1;
      },
      &search);
  if (!search.id.empty()) return search.id;
  Dl_info info{};
  struct stat file{};
  if (dladdr(reinterpret_cast<void*>(search.address), &info) && stat(info.dli_fname, &file) == 0)
    return std::to_string(file.st_size) + "/" + std::to_string(file.st_mtim.tv_sec) + "." +
           std::to_string(file.st_mtim.tv_nsec);
  return std::string("unknown");
}

const std::string& build_identity() {
  static const std::string identity = binary_identity(reinterpret_cast<const void*>(&build_identity));
  return identity;
}

std::string target_text(const Target& target) {
  std::string text = "llvm " + llvm_version() + "\nbuild " + build_identity() + "\ntarget " +
                     std::string(name(target.isa)) + " " + target.cpu + " " + target.features +
                     (target.matrix_tiles ? " +tiles" : "");
  for (int64_t v :
       {int64_t{target.vector_bytes}, int64_t{target.vector_registers}, int64_t{target.vector_multiplies},
        target.l1_bytes, target.l2_bytes, target.l3_bytes, int64_t{target.threads}})
    text += " " + std::to_string(v);
  return text;
}

}  // namespace ipex::loop

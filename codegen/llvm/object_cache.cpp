// File format: a header (magic, format version, key, payload length and checksum), then the ELF object. Files
// appear by rename, so a reader sees a whole one or none; two processes writing one key write the same bytes.
#include "codegen/llvm/object_cache.h"

#include <llvm/ADT/StringExtras.h>
#include <llvm/Support/SHA256.h>
#include <llvm/Support/xxhash.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <mutex>
#include <set>

#include "runtime/env.h"
#include "runtime/log.h"

namespace ipex::loop {
namespace {

constexpr char kMagic[8] = {'i', 'p', 'e', 'x', 'o', 'b', 'j', '\n'};
constexpr uint32_t kFormat = 1;

struct Header {
  char magic[8];
  uint32_t format;
  uint32_t reserved;
  uint64_t bytes;
  uint64_t checksum;
  char key[64];
};
static_assert(sizeof(Header) == 96);

uint64_t checksum(std::string_view object) { return llvm::xxh3_64bits(llvm::StringRef(object)); }

// A broken directory would otherwise be reported once a kernel.
void warn_once(const std::string& subject, const std::string& message) {
  static std::mutex mutex;
  static std::set<std::string> warned;
  {
    std::lock_guard lock(mutex);
    if (!warned.insert(subject).second) return;
  }
  log(LogLevel::kWarning, message);  // its sink may wait for another lock: Python's
}

// mkdir -p where only the last component is ours to protect.
bool make_private_directory(const std::string& directory) {
  std::error_code error;
  const auto parent = std::filesystem::path(directory).parent_path();
  if (!parent.empty()) std::filesystem::create_directories(parent, error);
  return mkdir(directory.c_str(), 0700) == 0 || errno == EEXIST;
}

bool write_all(int file, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t written = write(file, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return false;
    bytes.remove_prefix(written);
  }
  return true;
}

}  // namespace

std::string cache_key(std::string_view content) {
  const auto digest = llvm::SHA256::hash(llvm::arrayRefFromStringRef(llvm::StringRef(content)));
  return llvm::toHex(digest, /*LowerCase=*/true);
}

ObjectCache::ObjectCache(std::string directory) : directory_(std::move(directory)) {}

std::string ObjectCache::path(const std::string& key) const { return directory_ + "/" + key + ".o"; }

std::optional<std::string> ObjectCache::load(const std::string& key) const {
  if (directory_.empty()) return std::nullopt;
  std::ifstream file(path(key), std::ios::binary);
  if (!file) return std::nullopt;
  std::string content((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  auto rejected = [&](const char* why) {
    log(LogLevel::kWarning, "object cache: " + path(key) + " " + why + "; it is ignored and rewritten");
    return std::nullopt;
  };
  Header header;
  if (content.size() < sizeof(header)) return rejected("is cut short");
  std::memcpy(&header, content.data(), sizeof(header));
  if (std::memcmp(header.magic, kMagic, sizeof(kMagic)) != 0)
    return rejected("is not a kernel of this library");
  if (header.format != kFormat) return rejected("has another format version");
  if (std::string_view(header.key, sizeof(header.key)) != key) return rejected("belongs to another kernel");
  content.erase(0, sizeof(header));
  if (content.size() != header.bytes || checksum(content) != header.checksum) return rejected("is damaged");
  return content;
}

void ObjectCache::store(const std::string& key, std::string_view object) const {
  if (directory_.empty()) return;
  auto failed = [&](const std::string& doing, int error) {
    warn_once(directory_, "object cache: cannot " + doing + " in " + directory_ + " (" +
                              std::strerror(error) +
                              "); kernels are compiled anew in each process. Set IPEX_CACHE to a writable "
                              "directory, or to 'off'");
  };
  if (env::get("IPEX_INJECT_FAULT") == "cache_write") return failed("write (injected)", EIO);
  if (!make_private_directory(directory_)) return failed("create the directory", errno);

  Header header{};
  std::memcpy(header.magic, kMagic, sizeof(kMagic));
  header.format = kFormat;
  header.bytes = object.size();
  header.checksum = checksum(object);
  std::memcpy(header.key, key.data(), std::min(key.size(), sizeof(header.key)));

  std::string temporary = directory_ + "/.new-XXXXXX";
  const int file = mkstemp(temporary.data());
  if (file < 0) return failed("create a file", errno);
  bool written =
      write_all(file, {reinterpret_cast<const char*>(&header), sizeof(header)}) && write_all(file, object);
  int error = errno;
  if (close(file) != 0 && written) {
    written = false;
    error = errno;
  }
  if (written && rename(temporary.c_str(), path(key).c_str()) == 0) return;
  if (written) error = errno;
  unlink(temporary.c_str());
  failed("write", error);
}

}  // namespace ipex::loop

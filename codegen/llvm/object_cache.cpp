// The file format is a header (magic, format version, key, length and checksum of the payload), followed by
// the ELF object. Files are created by rename, so a reader sees a whole file or none. Two processes that
// write the same key write the same bytes.
#include "codegen/llvm/object_cache.h"

#include <fcntl.h>
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
#include <ctime>
#include <fstream>
#include <iterator>
#include <mutex>
#include <set>

#include "codegen/llvm/cache_directory.h"
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

// A broken directory would otherwise be reported for each kernel.
void warn_once(const std::string& subject, const std::string& message) {
  static std::mutex mutex;
  static std::set<std::string> warned;
  {
    std::lock_guard lock(mutex);
    if (!warned.insert(subject).second) return;
  }
  log(LogLevel::kWarning, message);  // outside the lock, because the sink may wait for another one: Python's
}

// Why the content of a file is not a valid entry for `key`; null if it is.
const char* damage(std::string_view key, std::string_view entry) {
  Header header;
  if (entry.size() < sizeof(header)) return "is cut short";
  std::memcpy(&header, entry.data(), sizeof(header));
  if (std::memcmp(header.magic, kMagic, sizeof(kMagic)) != 0) return "is not a kernel of this library";
  if (header.format != kFormat) return "has another format version";
  if (std::string_view(header.key, sizeof(header.key)) != key) return "belongs to another kernel";
  const std::string_view object = entry.substr(sizeof(header));
  if (object.size() != header.bytes || checksum(object) != header.checksum) return "is damaged";
  return nullptr;
}

// The modification time says when an entry was last used, to the hour. Writing it at every load would be too
// often.
void renew(const std::string& path) {
  struct stat info{};
  if (stat(path.c_str(), &info) == 0 && info.st_mtime + 3600 < std::time(nullptr))
    utimensat(AT_FDCWD, path.c_str(), nullptr, 0);
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

uint64_t checksum(std::string_view bytes) { return llvm::xxh3_64bits(llvm::StringRef(bytes)); }

ObjectCache::ObjectCache(std::string directory)
    : directory_(std::move(directory)), limit_(directory_.empty() ? 0 : cache_size_limit()) {
  if (directory_.empty()) return;
  const std::string why = distrust_reason(directory_);
  if (why.empty()) return;
  warn_once(directory_, "object cache: " + directory_ + " is not used: " + why +
                            "; each process compiles its kernels again. Set IPEX_CACHE to a directory of "
                            "your own, or to 'off'");
  directory_.clear();
}

std::string ObjectCache::path(const std::string& key) const { return directory_ + "/" + key + ".o"; }

std::optional<std::string> ObjectCache::load(const std::string& key) const {
  const auto entry = load_entry(key);
  if (!entry) return std::nullopt;
  return entry->substr(sizeof(Header));
}

std::optional<std::string> ObjectCache::load_entry(const std::string& key) const {
  if (directory_.empty()) return std::nullopt;
  std::ifstream file(path(key), std::ios::binary);
  if (!file) return std::nullopt;
  std::string entry((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  if (const char* why = damage(key, entry)) {
    log(LogLevel::kWarning, "object cache: " + path(key) + " " + why + "; it is ignored and rewritten");
    return std::nullopt;
  }
  renew(path(key));
  return entry;
}

void ObjectCache::store(const std::string& key, std::string_view object) const {
  if (directory_.empty()) return;
  Header header{};
  std::memcpy(header.magic, kMagic, sizeof(kMagic));
  header.format = kFormat;
  header.bytes = object.size();
  header.checksum = checksum(object);
  std::memcpy(header.key, key.data(), std::min(key.size(), sizeof(header.key)));
  write({reinterpret_cast<const char*>(&header), sizeof(header)}, key, object);
}

bool ObjectCache::store_entry(const std::string& key, std::string_view entry) const {
  if (key.size() != sizeof(Header::key) || key.find_first_not_of("0123456789abcdef") != std::string::npos)
    return false;
  if (damage(key, entry)) return false;
  if (directory_.empty() || access(path(key).c_str(), F_OK) == 0) return true;
  write(entry.substr(0, sizeof(Header)), key, entry.substr(sizeof(Header)));
  return true;
}

void ObjectCache::write(std::string_view header, const std::string& key, std::string_view object) const {
  auto failed = [&](const std::string& doing, int error) {
    warn_once(directory_, "object cache: cannot " + doing + " in " + directory_ + " (" +
                              std::strerror(error) +
                              "); each process compiles its kernels again. Set IPEX_CACHE to a writable "
                              "directory, or to 'off'");
  };
  if (env::get("IPEX_INJECT_FAULT") == "cache_write") return failed("write (injected)", EIO);
  if (!make_private_directory(directory_)) return failed("create the directory", errno);

  std::string temporary = directory_ + "/.new-XXXXXX";
  const int file = mkstemp(temporary.data());
  if (file < 0) return failed("create a file", errno);
  bool written = write_all(file, header) && write_all(file, object);
  int error = errno;
  if (close(file) != 0 && written) {
    written = false;
    error = errno;
  }
  if (written && rename(temporary.c_str(), path(key).c_str()) == 0) {
    const auto bytes = static_cast<int64_t>(header.size() + object.size());
    if (eviction_due(directory_, bytes, limit_)) evict(directory_, limit_);
    return;
  }
  if (written) error = errno;
  unlink(temporary.c_str());
  failed("write", error);
}

}  // namespace ipex::loop

// Limits the size of the object cache by removing what was used least recently. The modification time of a
// file records its last use (ObjectCache::load renews it), because many machines do not record access times.
#include "codegen/llvm/cache_directory.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <filesystem>
#include <map>
#include <mutex>
#include <vector>

#include "runtime/env.h"
#include "runtime/error.h"

namespace ipex::loop {

namespace fs = std::filesystem;

std::string distrust_reason(const std::string& directory) {
  struct stat info{};
  if (stat(directory.c_str(), &info) != 0 || !S_ISDIR(info.st_mode)) return "";
  if (info.st_uid != geteuid() && info.st_uid != 0) return "it belongs to another user";
  if (info.st_mode & (S_IWGRP | S_IWOTH)) return "other users can write to it (run chmod go-w on it)";
  return "";
}

bool make_private_directory(const std::string& directory) {
  std::error_code error;
  const auto parent = fs::path(directory).parent_path();
  if (!parent.empty()) fs::create_directories(parent, error);
  return mkdir(directory.c_str(), 0700) == 0 || errno == EEXIST;
}

int64_t cache_size_limit() {
  const std::string text = env::get("IPEX_CACHE_SIZE");
  int64_t megabytes = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), megabytes);
  if (error != std::errc{} || end != text.data() + text.size() || megabytes < 0 || megabytes > (1 << 30))
    throw UserError("IPEX_CACHE_SIZE is '" + text + "'; expected a number of megabytes, 0 for no limit");
  return megabytes << 20;
}

void evict(const std::string& directory, int64_t limit) {
  struct Object {
    fs::file_time_type used;
    int64_t bytes;
    fs::path path;
  };
  std::vector<Object> objects;
  int64_t total = 0;
  std::error_code error;
  const auto stale = fs::file_time_type::clock::now() - std::chrono::hours(1);
  for (fs::directory_iterator it(directory, error), end; !error && it != end; it.increment(error)) {
    // If the entry is gone by now, another process has removed it.
    std::error_code gone;
    const auto used = it->last_write_time(gone);
    const auto bytes = gone ? 0 : static_cast<int64_t>(it->file_size(gone));
    if (gone) continue;
    const std::string name = it->path().filename().string();
    if (name.starts_with(".new-")) {
      if (used < stale) fs::remove(it->path(), gone);
    } else if (it->path().extension() == ".o") {
      objects.push_back({used, bytes, it->path()});
      total += bytes;
    }
  }
  if (limit == 0 || total <= limit) return;
  std::sort(objects.begin(), objects.end(), [](const Object& a, const Object& b) { return a.used < b.used; });
  for (const Object& object : objects) {
    if (total <= limit - limit / 4) break;
    fs::remove(object.path, error);
    total -= object.bytes;
  }
}

bool eviction_due(const std::string& directory, int64_t bytes, int64_t limit) {
  static std::mutex mutex;
  static std::map<std::string, int64_t> unchecked;  // bytes written since the last check
  std::lock_guard lock(mutex);
  const auto [it, first] = unchecked.emplace(directory, 0);
  it->second += bytes;
  if (!first && (limit == 0 || it->second < limit / 8)) return false;
  it->second = 0;
  return true;
}

}  // namespace ipex::loop

// Compiled kernels on disk, one file a key. Never an obstacle: whatever is wrong with a file or the directory
// is one warning and a compile.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace ipex::loop {

// SHA-256 of what determines an object, as hexadecimal.
std::string cache_key(std::string_view content);

// XXH3 of 64 bits: tells damage and change, not malice.
uint64_t checksum(std::string_view bytes);

class ObjectCache {
 public:
  // "" and a directory that others can write to: every load misses, every store is dropped.
  explicit ObjectCache(std::string directory);

  std::optional<std::string> load(const std::string& key) const;
  void store(const std::string& key, std::string_view object) const;

  // An entry as it lies on disk, header included, to be carried to another machine's cache. What does not
  // hold as the entry of `key` is not stored (false).
  std::optional<std::string> load_entry(const std::string& key) const;
  bool store_entry(const std::string& key, std::string_view entry) const;

 private:
  std::string path(const std::string& key) const;
  void write(std::string_view header, const std::string& key, std::string_view object) const;
  std::string directory_;
  int64_t limit_;  // bytes, 0: none
};

}  // namespace ipex::loop

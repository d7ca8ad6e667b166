// Compiled kernels on disk, one file per key. The cache never stops a compilation: if anything is wrong with
// a file or the directory, there is one warning, and the kernel is compiled.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace ipex::loop {

// SHA-256 of everything that determines an object, in hexadecimal.
std::string cache_key(std::string_view content);

// 64-bit XXH3: detects damage, but not malicious changes.
uint64_t checksum(std::string_view bytes);

class ObjectCache {
 public:
  // If the directory is "" or writable by others, every load misses and every store is dropped.
  explicit ObjectCache(std::string directory);

  std::optional<std::string> load(const std::string& key) const;
  void store(const std::string& key, std::string_view object) const;

  // An entry as it is on disk, including its header, which can be copied to the cache of another machine. An
  // entry that is not valid for `key` is not stored; the result is then false.
  std::optional<std::string> load_entry(const std::string& key) const;
  bool store_entry(const std::string& key, std::string_view entry) const;

 private:
  std::string path(const std::string& key) const;
  void write(std::string_view header, const std::string& key, std::string_view object) const;
  std::string directory_;
  int64_t limit_;  // bytes; 0: no limit
};

}  // namespace ipex::loop

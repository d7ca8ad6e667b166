// Compiled kernels on disk, one file a key. Never an obstacle: whatever is wrong with a file or the directory
// is one warning and a compile.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace ipex::loop {

// SHA-256 of what determines an object, as hexadecimal.
std::string cache_key(std::string_view content);

class ObjectCache {
 public:
  explicit ObjectCache(std::string directory);  // "": every load misses, every store is dropped

  std::optional<std::string> load(const std::string& key) const;
  void store(const std::string& key, std::string_view object) const;

 private:
  std::string path(const std::string& key) const;
  std::string directory_;
};

}  // namespace ipex::loop

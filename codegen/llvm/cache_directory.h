// The directory of the object cache: whom it belongs to, and how large it may grow. Code is mapped from it,
// so nobody else may be able to write there.
#pragma once

#include <cstdint>
#include <string>

namespace ipex::loop {

// Why the directory's contents cannot be trusted: it belongs to somebody else, or others can write to it.
// Empty when they can be, and when there is no such directory.
std::string distrust_reason(const std::string& directory);

// mkdir -p with mode 0700 for the last component; false with errno set when there is no directory afterwards.
bool make_private_directory(const std::string& directory);

// IPEX_CACHE_SIZE in bytes, 0 for no limit; UserError when it is no number of megabytes.
int64_t cache_size_limit();

// Removes the least recently used objects until the directory holds at most three quarters of `limit` bytes,
// if it holds more than `limit`; and what writers that died left behind. Other processes may do the same
// meanwhile.
void evict(const std::string& directory, int64_t limit);

// Counts `bytes` as written to the directory by this process; true when it is time to look at its size: at
// the first write, then every eighth of `limit`.
bool eviction_due(const std::string& directory, int64_t bytes, int64_t limit);

}  // namespace ipex::loop

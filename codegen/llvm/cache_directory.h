// The directory of the object cache: who owns it, and how large it may grow. Code is mapped from it, so
// nobody else may be able to write there.
#pragma once

#include <cstdint>
#include <string>

namespace ipex::loop {

// The reason why the contents of the directory cannot be trusted: it belongs to another user, or others can
// write to it. Empty if they can be trusted, and if there is no such directory.
std::string distrust_reason(const std::string& directory);

// mkdir -p, with mode 0700 for the last component. Returns false, with errno set, if the directory does not
// exist afterwards.
bool make_private_directory(const std::string& directory);

// IPEX_CACHE_SIZE in bytes, 0 for no limit. Throws UserError if it is not a number of megabytes.
int64_t cache_size_limit();

// If the directory holds more than `limit` bytes, removes the least recently used objects until it holds at
// most three quarters of `limit`. Also removes what crashed writers left behind. Other processes may do the
// same at the same time.
void evict(const std::string& directory, int64_t limit);

// Adds `bytes` to what this process has written to the directory. Returns true if its size should be checked:
// at the first write, and then after every eighth of `limit`.
bool eviction_due(const std::string& directory, int64_t bytes, int64_t limit);

}  // namespace ipex::loop

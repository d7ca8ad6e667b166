// Writes to tensors that PyTorch's counters do not count, but that pass by where the process can see them:
// `.data` taken, from Python or C++; collectives; fused optimizers; running statistics of batch norm in eager
// mode.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <unordered_map>

namespace ipex::python {

// Storages that kept values were made from, and when they were, or may have been, written to uncounted.
class WatchedStorages {
 public:
  static WatchedStorages& instance();
  void add(const void* storage);
  void remove(const void* storage);
  void note_written(const void* storage);
  // Another number after each of these writes, which none before has had; 0 if there was none.
  uint32_t written(const void* storage);

 private:
  struct Watched {
    int values = 0;
    uint32_t written = 0;
  };
  std::mutex mutex_;
  std::unordered_map<const void*, Watched> storages_;
  uint32_t writes_ = 0;
  std::atomic<bool> any_ = false, any_written_ = false;
};

// Whether this process notes such writes. The first call starts that: it replaces PyTorch's hook for `.data` and adds
// kernels to the ops. False if IPEX_WATCH_WRITES=0 or if this PyTorch does not call the hook: then contents must be
// compared in each call.
bool watches_writes();

}  // namespace ipex::python

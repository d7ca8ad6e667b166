// Records possible writes to tensors that PyTorch's write counters miss but that the process can observe:
// uses of `.data` from Python or C++, collectives, fused optimizers, and running statistics of batch norm in
// eager mode.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <unordered_map>

namespace ipex::torch_ops {

// The storages from which kept values were computed, and their last possible uncounted writes.
class WatchedStorages {
 public:
  static WatchedStorages& instance();
  void add(const void* storage);
  void remove(const void* storage);
  void note_written(const void* storage);
  // A number that is new after each recorded write; 0 if there was none.
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

// Whether this process notes such writes. The first call starts that: it replaces PyTorch's hook for `.data`
// and adds kernels to the ops. False if IPEX_WATCH_WRITES=0 or if this PyTorch does not call the hook: then
// contents must be compared in each call.
bool watches_writes();

}  // namespace ipex::torch_ops

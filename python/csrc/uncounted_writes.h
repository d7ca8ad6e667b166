// Records possible writes to tensors that PyTorch's write counters miss but that the process can observe:
// uses of `.data` from Python or C++, collectives, fused optimizers, and running statistics of batch norm in
// eager mode.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <unordered_map>

namespace ipex::python {

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

// Starts to record uses of `.data`. Called once when the module loads. Ops are watched from loading on
// without a call.
void watch_data_aliases();

}  // namespace ipex::python

#include "kernels/torch_ops/input_version.h"

#include <ATen/MapAllocator.h>
#include <ATen/record_function.h>
#include <c10/core/Allocator.h>

#include <algorithm>
#include <atomic>
#include <string_view>
#include <vector>

#include "codegen/llvm/object_cache.h"
#include "kernels/rows.h"
#include "kernels/torch_ops/disk_memory.h"
#include "kernels/torch_ops/uncounted_writes.h"

namespace ipex::torch_ops {
namespace {

std::atomic<PythonReferences> python_references = nullptr;

// The deleter of memory that PyTorch did not allocate (of a numpy array, of an importer's buffer).
c10::DeleterFnPtr foreign_deleter() {
  static const c10::DeleterFnPtr deleter =
      c10::InefficientStdFunctionContext::makeDataPtr(nullptr, [](void*) {}, c10::kCPU).get_deleter();
  return deleter;
}

// Memory that code outside of PyTorch can write: numpy arrays, and memory shared between processes.
bool is_foreign(const c10::StorageImpl& storage) {
  return storage.data_ptr().get_deleter() == foreign_deleter() ||
         at::MapAllocator::fromDataPtr(storage.data_ptr());
}

class WeakStorage final : public StoragePin {
 public:
  explicit WeakStorage(const void* storage)
      : weak_(c10::intrusive_ptr<c10::StorageImpl>::reclaim_copy(
            static_cast<c10::StorageImpl*>(const_cast<void*>(storage)))) {
    WatchedStorages::instance().add(storage);
    if (watches_writes()) make_resizable(*weak_._unsafe_get_target());
  }
  ~WeakStorage() override { WatchedStorages::instance().remove(weak_._unsafe_get_target()); }
  bool alive() const override { return !weak_.expired(); }

 private:
  // numpy() marks a storage as not resizable, which is_exposed() checks. Storages from torch.load and
  // safetensors are not resizable from the start. They get an allocator here and become resizable, so that
  // the mark works for them too.
  static void make_resizable(c10::StorageImpl& storage) {
    if (storage.allocator() || storage.resizable() || is_foreign(storage)) return;
    storage.set_allocator(c10::GetAllocator(c10::kCPU));
    storage.set_resizable(true);
  }

  c10::weak_intrusive_ptr<c10::StorageImpl> weak_;
};

// The number of tensors that share a write counter.
#if IPEX_READS_VERSION_COUNTER
// The counter is a private member of PyTorch's class; an explicit instantiation may name private members
// ([temp.spec.general], 6).
template <auto kCounter>
struct CounterAccess {
  friend size_t sharers(const c10::VariableVersion& version) { return (version.*kCounter).use_count(); }
};
size_t sharers(const c10::VariableVersion& version);
template struct CounterAccess<&c10::VariableVersion::version_counter_>;
#else
// Not known: every other tensor over the memory may have a counter of its own.
size_t sharers(const c10::VariableVersion&) { return 1; }
#endif

bool is_exposed(const at::Tensor& tensor) {
  if (tensor.is_inference()) return true;
  const c10::StorageImpl& memory = *tensor.storage().unsafeGetStorageImpl();
  size_t holders = tensor.storage().use_count();
  // The Python object of a storage, once created, lives as long as the storage and holds a reference to it.
  const PyObject* object = memory.pyobj_slot()->load_pyobj();
  const PythonReferences references = python_references.load(std::memory_order_relaxed);
  if (object && references && references(object) == 1) --holders;
  if (holders > sharers(tensor.unsafeGetTensorImpl()->version_counter())) return true;
  return is_foreign(memory) || (memory.allocator() && !memory.resizable());
}

class TensorMemory final : public InputMemory {
 public:
  std::shared_ptr<const StoragePin> pin(const void* storage) const override {
    note_reader(*static_cast<const c10::StorageImpl*>(storage));  // values are about to be computed from it
    return std::make_shared<WeakStorage>(storage);
  }
  uint64_t checksum(const void* data, size_t bytes) const override {
    at::RecordFunction record(at::RecordScope::FUNCTION);
    if (record.isActive()) record.before("ipex::checksum");
    const std::string_view all(static_cast<const char*>(data), bytes);
    constexpr size_t kChunk = size_t{1} << 18;
    std::vector<uint64_t> sums((bytes + kChunk - 1) / kChunk);
    kernels::parallel_rows(static_cast<int64_t>(sums.size()), kChunk,
                           [&](int64_t begin, int64_t end, int64_t) {
                             for (int64_t i = begin; i < end; ++i)
                               sums[i] = loop::checksum(all.substr(i * kChunk, kChunk));
                           });
    return std::max<uint64_t>(
        1, loop::checksum({reinterpret_cast<const char*>(sums.data()), sums.size() * sizeof(sums[0])}));
  }
  uint32_t written(const void* storage) const override {
    return WatchedStorages::instance().written(storage);
  }
};
const TensorMemory kTensorMemory;

}  // namespace

void set_python_references(PythonReferences references) { python_references = references; }

InputVersion version_of(const at::Tensor& tensor) {
  InputVersion version;
  version.storage = tensor.storage().unsafeGetStorageImpl();
  version.data = tensor.const_data_ptr();
  version.memory = &kTensorMemory;
  version.trackable = true;
  if (!tensor.is_inference())
    version.version = tensor.unsafeGetTensorImpl()->version_counter().current_version();
  version.written = kTensorMemory.written(version.storage);
  version.exposed = !watches_writes() || is_exposed(tensor);
  return version;
}

}  // namespace ipex::torch_ops

#include "python/input_version.h"

#include <ATen/MapAllocator.h>
#include <ATen/core/VariableHooksInterface.h>
#include <c10/core/Allocator.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <mutex>
#include <span>
#include <unordered_map>
#include <vector>

#include "kernels/rows.h"
#include "runtime/crc32.h"

namespace ipex::python {
namespace {

// How often `.data` was taken of the storages that kept values were made from.
class WatchedStorages {
 public:
  static WatchedStorages& instance() {
    static WatchedStorages* watched = new WatchedStorages;  // outlives values that die at exit
    return *watched;
  }
  void add(const void* storage) {
    std::lock_guard lock(mutex_);
    ++storages_[storage].values;
    any_ = true;
  }
  void remove(const void* storage) {
    std::lock_guard lock(mutex_);
    const auto it = storages_.find(storage);
    if (--it->second.values == 0) storages_.erase(it);
    any_ = !storages_.empty();
  }
  void note_taken(const void* storage) {
    if (!any_.load(std::memory_order_relaxed)) return;
    std::lock_guard lock(mutex_);
    const auto it = storages_.find(storage);
    if (it == storages_.end()) return;
    ++it->second.taken;
    any_taken_ = true;
  }
  uint32_t taken(const void* storage) {
    if (!any_taken_.load(std::memory_order_acquire)) return 0;
    std::lock_guard lock(mutex_);
    const auto it = storages_.find(storage);
    return it == storages_.end() ? 0 : it->second.taken;
  }

 private:
  struct Watched {
    int values = 0;
    uint32_t taken = 0;
  };
  std::mutex mutex_;
  std::unordered_map<const void*, Watched> storages_;
  std::atomic<bool> any_ = false, any_taken_ = false;
};

class WeakStorage final : public StoragePin {
 public:
  explicit WeakStorage(const void* storage)
      : weak_(c10::intrusive_ptr<c10::StorageImpl>::reclaim_copy(
            static_cast<c10::StorageImpl*>(const_cast<void*>(storage)))) {
    WatchedStorages::instance().add(storage);
  }
  ~WeakStorage() override { WatchedStorages::instance().remove(weak_._unsafe_get_target()); }
  bool alive() const override { return !weak_.expired(); }

 private:
  c10::weak_intrusive_ptr<c10::StorageImpl> weak_;
};

std::shared_ptr<const StoragePin> pin_storage(const void* storage) {
  return std::make_shared<WeakStorage>(storage);
}

// PyTorch's own hooks, with an eye on `.data`.
class DataAliasHooks final : public at::impl::VariableHooksInterface {
 public:
  explicit DataAliasHooks(const VariableHooksInterface& next) : next_(next) {}

  at::TensorBase variable_data(const at::TensorBase& self) const override {
    // Unsafe: wrappers of other tensors forbid asking for theirs.
    if (self.defined())
      WatchedStorages::instance().note_taken(
          self.unsafeGetTensorImpl()->unsafe_storage().unsafeGetStorageImpl());
    return next_.variable_data(self);
  }

  at::TensorBase tensor_data(const at::TensorBase& self) const override { return next_.tensor_data(self); }
  const c10::intrusive_ptr<torch::autograd::Node>& grad_fn(const at::TensorBase& self) const override {
    return next_.grad_fn(self);
  }
  unsigned _register_hook(const at::TensorBase& self,
                          std::function<at::TensorBase(const at::TensorBase&)> hook) const override {
    return next_._register_hook(self, std::move(hook));
  }
  void remove_hook(const at::TensorBase& self, unsigned position) const override {
    next_.remove_hook(self, position);
  }
  bool is_view(const at::TensorBase& self) const override { return next_.is_view(self); }
  const at::TensorBase& base(const at::TensorBase& self) const override { return next_.base(self); }
  const std::string& name(const at::TensorBase& self) const override { return next_.name(self); }
  bool is_leaf(const at::TensorBase& self) const override { return next_.is_leaf(self); }
  int64_t output_nr(const at::TensorBase& self) const override { return next_.output_nr(self); }
  void set_data(const at::TensorBase& self, const at::TensorBase& data) const override {
    next_.set_data(self, data);
  }
  at::TensorBase data(const at::TensorBase& self) const override { return next_.data(self); }
  int64_t _version(const at::TensorBase& self) const override { return next_._version(self); }
  void retain_grad(const at::TensorBase& self) const override { next_.retain_grad(self); }
  bool retains_grad(const at::TensorBase& self) const override { return next_.retains_grad(self); }
  void _backward(const at::Tensor& self, at::TensorList inputs, const std::optional<at::Tensor>& gradient,
                 std::optional<bool> keep_graph, bool create_graph) const override {
    next_._backward(self, inputs, gradient, keep_graph, create_graph);
  }
  void requires_grad_(const at::TensorBase& self, bool value) const override {
    next_.requires_grad_(self, value);
  }
  void basic_autograd_not_implemented_fallback(const c10::OperatorHandle& op, c10::DispatchKeySet keys,
                                               torch::jit::Stack* stack) const override {
    next_.basic_autograd_not_implemented_fallback(op, keys, stack);
  }
  std::optional<c10::ScalarType> grad_dtype(const at::TensorBase& self) const override {
    return next_.grad_dtype(self);
  }
  void set_grad_dtype(const at::TensorBase& self,
                      const std::optional<c10::ScalarType>& dtype) const override {
    next_.set_grad_dtype(self, dtype);
  }

 private:
  const VariableHooksInterface& next_;
};

// Memory that PyTorch took from elsewhere (a numpy array, an importer's buffer) is freed by this.
c10::DeleterFnPtr foreign_deleter() {
  static const c10::DeleterFnPtr deleter =
      c10::InefficientStdFunctionContext::makeDataPtr(nullptr, [](void*) {}, c10::kCPU).get_deleter();
  return deleter;
}

bool written_uncounted(const at::Tensor& tensor, uint32_t taken) {
  if (tensor.is_inference()) return true;
  const c10::Storage& storage = tensor.storage();
  // Another holder of the memory, and a counter that it does not share.
  if (storage.use_count() > 1 && (taken != 0 || tensor.unsafeGetTensorImpl()->version_counter().unique()))
    return true;
  if (storage.resizable()) return false;
  // numpy() makes memory that PyTorch allocated one that may not be resized, for good.
  return storage.allocator() || storage.data_ptr().get_deleter() == foreign_deleter() ||
         at::MapAllocator::fromDataPtr(storage.data_ptr());
}

// Of the memory from the tensor's first element to its last.
uint64_t checksum(const at::Tensor& tensor) {
  if (tensor.numel() == 0) return 0;
  int64_t elements = 1;
  for (int64_t d = 0; d < tensor.dim(); ++d) elements += (tensor.size(d) - 1) * tensor.stride(d);
  const std::span<const std::byte> bytes(static_cast<const std::byte*>(tensor.const_data_ptr()),
                                         elements * tensor.element_size());
  constexpr size_t kChunk = size_t{1} << 18;
  std::vector<uint32_t> sums((bytes.size() + kChunk - 1) / kChunk);
  kernels::parallel_rows(static_cast<int64_t>(sums.size()), kChunk, [&](int64_t begin, int64_t end, int64_t) {
    for (int64_t i = begin; i < end; ++i)
      sums[i] = crc32(bytes.subspan(i * kChunk, std::min(kChunk, bytes.size() - i * kChunk)));
  });
  uint64_t all = 0;
  for (uint32_t sum : sums) all = (all ^ sum) * 0x100000001b3;  // FNV-1a, by words
  return all;
}

}  // namespace

InputVersion version_of(const at::Tensor& tensor) {
  InputVersion version;
  version.storage = tensor.storage().unsafeGetStorageImpl();
  version.data = tensor.const_data_ptr();
  version.pin = &pin_storage;
  version.trackable = true;
  const uint32_t taken = WatchedStorages::instance().taken(version.storage);
  const uint32_t counted =
      tensor.is_inference() ? 0 : tensor.unsafeGetTensorImpl()->version_counter().current_version();
  version.version = uint64_t{taken} << 32 | counted;
  if (written_uncounted(tensor, taken)) version.contents = checksum(tensor);
  return version;
}

void watch_data_aliases() {
  at::impl::SetVariableHooks(new DataAliasHooks(*at::impl::GetVariableHooks()));  // the process keeps it
}

}  // namespace ipex::python

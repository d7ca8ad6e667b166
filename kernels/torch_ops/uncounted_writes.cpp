#include "kernels/torch_ops/uncounted_writes.h"

#include <ATen/EmptyTensor.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/VariableHooksInterface.h>
#include <ATen/core/stack.h>
#include <torch/library.h>

#include <optional>
#include <string>
#include <vector>

#include "kernels/extern_call.h"
#include "runtime/env.h"

namespace ipex::torch_ops {

WatchedStorages& WatchedStorages::instance() {
  static WatchedStorages* watched = new WatchedStorages;  // never destroyed: values may be freed at exit
  return *watched;
}

void WatchedStorages::add(const void* storage) {
  std::lock_guard lock(mutex_);
  ++storages_[storage].values;
  any_ = true;
}

void WatchedStorages::remove(const void* storage) {
  std::lock_guard lock(mutex_);
  const auto it = storages_.find(storage);
  if (--it->second.values == 0) storages_.erase(it);
  any_ = !storages_.empty();
}

void WatchedStorages::note_written(const void* storage) {
  if (!any_.load(std::memory_order_relaxed)) return;
  std::lock_guard lock(mutex_);
  const auto it = storages_.find(storage);
  if (it == storages_.end()) return;
  it->second.written = ++writes_;
  any_written_ = true;
}

uint32_t WatchedStorages::written(const void* storage) {
  if (!any_written_.load(std::memory_order_acquire)) return 0;
  std::lock_guard lock(mutex_);
  const auto it = storages_.find(storage);
  return it == storages_.end() ? 0 : it->second.written;
}

namespace {

// unsafe_storage(), because storage() throws for wrapper tensors.
void note_written(const at::TensorBase& tensor) {
  if (tensor.defined())
    WatchedStorages::instance().note_written(
        tensor.unsafeGetTensorImpl()->unsafe_storage().unsafeGetStorageImpl());
}

void note_written(const c10::IValue& tensors) {
  if (tensors.isTensor())
    note_written(tensors.toTensor());
  else if (tensors.isList())
    for (const c10::IValue& each : tensors.toListRef()) note_written(each);
}

// Forwards to PyTorch's hooks and records uses of `.data`. Also reads of the write counter: who reads it may
// write and set it back, as FSDP2 does when it gathers a parameter
// (torch.autograd._unsafe_preserve_version_counter).
class DataAliasHooks final : public at::impl::VariableHooksInterface {
 public:
  explicit DataAliasHooks(const VariableHooksInterface& next) : next_(next) {}

  at::TensorBase variable_data(const at::TensorBase& self) const override {
    note_written(self);
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
  int64_t _version(const at::TensorBase& self) const override {
    note_written(self);
    return next_._version(self);
  }
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

// Runs an op that writes to the arguments that its schema marks, and to arguments kWritten, and records the
// writes. An op with a `training` argument writes only if that is true.
template <size_t... kWritten>
void run_noted(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack) {
  const std::vector<c10::Argument>& arguments = op.schema().arguments();
  const std::optional<int> training = op.schema().argumentIndexWithName("training");
  const bool writes = !training || torch::jit::peek(*stack, *training, arguments.size()).toBool();
  std::vector<c10::IValue> written;
  for (size_t i = 0; writes && i < arguments.size(); ++i) {
    const c10::AliasInfo* alias = arguments[i].alias_info();
    if ((alias && alias->isWrite()) || (... || (i == kWritten)))
      written.push_back(torch::jit::peek(*stack, i, arguments.size()));
  }
  {
    at::AutoDispatchBelowADInplaceOrView below;
    op.redispatchBoxed(keys & c10::after_ADInplaceOrView_keyset, stack);
  }
  for (const c10::IValue& value : written) note_written(value);
}

struct WrittenOps {
  const char* library;
  torch::CppFunction (*kernel)();
  std::vector<const char*> ops;
};

template <size_t... kWritten>
torch::CppFunction noted() {
  return torch::CppFunction::makeFromBoxedFunction<&run_noted<kWritten...>>();
}

// Eager ops whose writes PyTorch does not count.
const WrittenOps kUncounted[] = {
    {"aten",
     noted<>,
     {"_fused_adagrad_", "_fused_adagrad_.tensor_lr", "_fused_adam_", "_fused_adam_.tensor_lr",
      "_fused_adamw_", "_fused_adamw_.tensor_lr", "_fused_sgd_", "_fused_sgd_.tensor_lr",
      "_batch_norm_with_update", "_native_batch_norm_legit", "_fused_moving_avg_obs_fq_helper"}},
    {"aten", noted<3, 4>, {"native_batch_norm"}},  // the running statistics
    {"c10d",
     noted<0>,
     {"_allgather_base_", "_reduce_scatter_base_", "allgather_", "allgather_coalesced_",
      "allgather_into_tensor_coalesced_", "allreduce_", "allreduce_coalesced_", "alltoall_", "alltoall_base_",
      "broadcast_", "gather_", "recv_", "recv_any_source_", "reduce_", "reduce_scatter_",
      "reduce_scatter_tensor_coalesced_", "scatter_"}},
};

// Skips ops that this PyTorch does not have, and ops for which it has such a kernel, which then counts.
void watch_ops() {
  for (const WrittenOps& written : kUncounted) {
    // The process keeps it: destroying it would remove the kernels.
    auto* library = new torch::Library(torch::Library::IMPL, written.library,
                                       c10::DispatchKey::ADInplaceOrView, __FILE__, __LINE__);
    for (const char* op : written.ops) {
      const auto found = kernels::find_operator(std::string(written.library) + "::" + op);
      if (found && !found->hasKernelForDispatchKey(c10::DispatchKey::ADInplaceOrView))
        library->impl(op, written.kernel());
    }
  }
}

// Whether the hooks work: this PyTorch may take `.data` without them.
bool notes_data_aliases() {
  const at::TensorBase tensor = at::detail::empty_cpu({1}, at::kFloat);  // without the dispatcher
  const void* storage = tensor.unsafeGetTensorImpl()->unsafe_storage().unsafeGetStorageImpl();
  WatchedStorages& watched = WatchedStorages::instance();
  watched.add(storage);
  const at::TensorBase alias = tensor.variable_data();
  const bool noted = watched.written(storage) != 0;
  watched.remove(storage);
  return noted;
}

bool install() {
  if (!env::flag("IPEX_WATCH_WRITES")) return false;
  at::impl::VariableHooksInterface* const before = at::impl::GetVariableHooks();
  at::impl::SetVariableHooks(new DataAliasHooks(*before));  // never deleted
  if (!notes_data_aliases()) {
    at::impl::SetVariableHooks(before);
    return false;
  }
  watch_ops();
  return true;
}

}  // namespace

bool watches_writes() {
  static const bool watches = install();
  return watches;
}

}  // namespace ipex::torch_ops

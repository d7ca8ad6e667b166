#include "kernels/torch_ops/tensor_kinds.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/zeros.h>

#include "runtime/error.h"

namespace ipex::torch_ops {
namespace {

std::string kind_of(const at::Tensor& tensor) {
  const c10::DispatchKeySet keys = tensor.key_set();
  const auto has = [&](auto... key) { return keys.has_any(c10::DispatchKeySet{key...}); };
  if (has(c10::DispatchKey::Python, c10::DispatchKey::Fake))
    return "a fake tensor or a subclass with __torch_dispatch__";
  if (has(c10::DispatchKey::FuncTorchBatched, c10::DispatchKey::Batched,
          c10::DispatchKey::BatchedNestedTensor))
    return "a batched tensor of vmap";
  if (has(c10::DispatchKey::FuncTorchGradWrapper)) return "a tensor that torch.func differentiates";
  if (has(c10::DispatchKey::Functionalize)) return "a functional tensor";
  return "a nested tensor";
}

}  // namespace

void require_dense(const at::Tensor& tensor, const std::string& what) {
  if (is_wrapper(tensor))
    throw UserError(
        what + " is " + kind_of(tensor) +
        ", which has no memory that compiled code could read; call the model without torch.compile");
  if (!tensor.device().is_cpu() || tensor.layout() != c10::kStrided)
    throw UserError(what + " is not a dense CPU tensor; compile the model for the device it runs on");
}

void require_memory(const void* data, const at::Tensor& tensor, const std::string& what) {
  if (!data && tensor.numel() != 0)
    throw UserError(what + " has no memory: its storage was resized to 0 bytes");
}

void require_writable(const at::Tensor& tensor) {
  TORCH_CHECK(!tensor._is_zerotensor(), "ZeroTensors are immutable. Please use the materialized zero tensor ",
              "obtained using .clone() if you want a mutable tensor.");
}

at::Tensor materialized(const at::Tensor& tensor) {
  if (!has_lazy_values(tensor)) return tensor;
  at::AutoDispatchBelowADInplaceOrView below_autograd;
  if (tensor._is_zerotensor()) return at::zeros(tensor.sizes(), tensor.options());
  return tensor.resolve_conj().resolve_neg();
}

}  // namespace ipex::torch_ops

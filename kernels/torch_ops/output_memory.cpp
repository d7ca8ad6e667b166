// Builds tensors without the dispatcher: an output costs one allocation from a free list and one TensorImpl.
#include "kernels/torch_ops/output_memory.h"

#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>
#include <c10/core/StorageImpl.h>
#include <c10/core/TensorImpl.h>

#include <cstring>

#include "runtime/arena.h"

namespace ipex::torch_ops {
namespace {

void release(void* pointer) { CachingAllocator::instance().deallocate(pointer); }

class OutputAllocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t bytes) override {
    void* data = bytes ? CachingAllocator::instance().allocate(bytes) : nullptr;
    return {data, data, &release, c10::Device(c10::kCPU)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &release; }
  void copy_data(void* dst, const void* src, size_t bytes) const override { std::memcpy(dst, src, bytes); }
};

at::Tensor over(c10::Storage storage, c10::ScalarType dtype, c10::IntArrayRef sizes, c10::IntArrayRef strides,
                int64_t offset) {
  at::Tensor tensor = at::detail::make_tensor<c10::TensorImpl>(
      std::move(storage), c10::DispatchKeySet(c10::DispatchKey::CPU), c10::scalarTypeToTypeMeta(dtype));
  tensor.unsafeGetTensorImpl()->set_sizes_and_strides(sizes, strides, offset);
  return tensor;
}

}  // namespace

c10::Allocator* output_allocator() {
  static auto* allocator = new OutputAllocator;  // never destroyed: tensors may be freed at exit
  return allocator;
}

at::Tensor make_tensor(c10::ScalarType dtype, c10::IntArrayRef sizes, c10::IntArrayRef strides) {
  int64_t extent = 1;
  for (size_t i = 0; i < sizes.size(); ++i) {
    if (sizes[i] == 0) {
      extent = 0;
      break;
    }
    extent += (sizes[i] - 1) * strides[i];
  }
  const auto bytes = static_cast<size_t>(extent) * c10::elementSize(dtype);
  c10::Storage storage(c10::make_intrusive<c10::StorageImpl>(c10::StorageImpl::use_byte_size_t(), bytes,
                                                             output_allocator(), /*resizable=*/true));
  return over(std::move(storage), dtype, sizes, strides, 0);
}

at::Tensor make_alias(const at::Tensor& base, c10::ScalarType dtype, c10::IntArrayRef sizes,
                      c10::IntArrayRef strides, int64_t offset) {
  at::Tensor alias = over(base.storage(), dtype, sizes, strides, base.storage_offset() + offset);
  if (!base.is_inference() && !alias.is_inference())
    alias.unsafeGetTensorImpl()->set_version_counter(base.unsafeGetTensorImpl()->version_counter());
  return alias;
}

}  // namespace ipex::torch_ops

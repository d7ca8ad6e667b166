// The sum of a tensor over the ranks of one machine, in shared memory.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <vector>

#include "kernels/torch_ops/shared_segment.h"

namespace ipex::torch_ops {

class SharedAllReduce {
 public:
  explicit SharedAllReduce(std::shared_ptr<SharedSegment> segment);

  static bool takes(c10::ScalarType type);  // f32, f64, bf16, f16

  // Replaces the elements of a contiguous CPU tensor by their sums over all ranks. Each rank must call it
  // with as many elements of the same type. 16-bit floats are added in f32, in the order of the ranks, and
  // rounded once. Every rank gets the same bits, which depend on nothing but the tensors.
  //
  // Throws c10::DistBackendError, on all ranks, if they differ, if one has ended, and after `deadline`. The
  // tensor is undefined then, and so is every later call an error.
  void run(const at::Tensor& tensor, SharedSegment::Clock::time_point deadline);

 private:
  template <class T>
  void run_as(T* data, int64_t elements, SharedSegment::Clock::time_point deadline);
  void check_calls() const;

  std::shared_ptr<SharedSegment> segment_;
  uint32_t pieces_ = 0;  // so far; wraps around, as the counters do
  std::vector<const void*> sources_;
};

}  // namespace ipex::torch_ops

// A backend of torch.distributed for ranks on one machine: sums of floating-point tensors in shared memory,
// and everything else by another backend, which is gloo.
#pragma once

#include <torch/csrc/distributed/c10d/Backend.hpp>

#include <atomic>
#include <chrono>
#include <memory>
#include <vector>

#include "kernels/torch_ops/shared_all_reduce.h"

namespace ipex::torch_ops {

class CclBackend : public c10d::Backend {
 public:
  using Work = c10::intrusive_ptr<c10d::Work>;
  using Tensors = std::vector<at::Tensor>;

  // Without a segment, gloo adds too. `timeout` is that of calls that name none.
  CclBackend(c10::intrusive_ptr<c10d::Backend> gloo, std::shared_ptr<SharedSegment> segment,
             std::chrono::milliseconds timeout);
  ~CclBackend() override;  // finishes what is under way

  bool has_shared_memory() const { return segment_ != nullptr; }

  // In shared memory if it is the sum of a dense tensor of floating-point numbers on the CPU. The ranks must
  // pass tensors of the same type and number of elements; their strides may differ.
  Work allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) override;
  // Comes after sums in shared memory that were started before it.
  Work barrier(const c10d::BarrierOptions& options) override;

  const std::string getBackendName() const override { return "ccl"; }
  void setTimeout(std::chrono::milliseconds timeout) override {
    timeout_ = timeout;
    gloo_->setTimeout(timeout);
  }
  void abort() override;
  void shutdown() override;

  // gloo's.
  c10::intrusive_ptr<Options> getBackendOptions() override { return gloo_->getBackendOptions(); }
  Work broadcast(Tensors& tensors, const c10d::BroadcastOptions& options) override;
  Work allreduce_sparse(Tensors& tensors, const c10d::AllreduceOptions& options) override;
  Work allreduce_coalesced(Tensors& tensors, const c10d::AllreduceCoalescedOptions& options) override;
  Work reduce(Tensors& tensors, const c10d::ReduceOptions& options) override;
  Work allgather(std::vector<Tensors>& outputs, Tensors& inputs,
                 const c10d::AllgatherOptions& options) override;
  // The next two take tensors of any shape with as many elements as needed, as NCCL and oneCCL do; gloo alone
  // wants an output of the input's shape with one more dimension. Accelerate calls them so.
  Work _allgather_base(at::Tensor& output, at::Tensor& input, const c10d::AllgatherOptions& options) override;
  Work _reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                            const c10d::ReduceScatterOptions& options) override;
  Work allgather_coalesced(std::vector<Tensors>& outputs, Tensors& inputs,
                           const c10d::AllgatherOptions& options) override;
  Work allgather_into_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                       const c10d::AllgatherOptions& options) override;
  Work gather(std::vector<Tensors>& outputs, Tensors& inputs, const c10d::GatherOptions& options) override;
  Work scatter(Tensors& outputs, std::vector<Tensors>& inputs, const c10d::ScatterOptions& options) override;
  Work reduce_scatter(Tensors& outputs, std::vector<Tensors>& inputs,
                      const c10d::ReduceScatterOptions& options) override;
  Work reduce_scatter_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                       const c10d::ReduceScatterOptions& options) override;
  Work alltoall_base(at::Tensor& output, at::Tensor& input, std::vector<int64_t>& output_sizes,
                     std::vector<int64_t>& input_sizes, const c10d::AllToAllOptions& options) override;
  Work alltoall(Tensors& outputs, Tensors& inputs, const c10d::AllToAllOptions& options) override;
  Work send(Tensors& tensors, int rank, int tag) override;
  Work recv(Tensors& tensors, int rank, int tag) override;
  Work recvAnysource(Tensors& tensors, int tag) override;
  void monitoredBarrier(const c10d::BarrierOptions& options, bool wait_all) override;
  void setSequenceNumberForGroup() override { gloo_->setSequenceNumberForGroup(); }
  uint64_t getSequenceNumberForGroup() override { return gloo_->getSequenceNumberForGroup(); }

 private:
  class Pending;
  class Queue;

  c10::intrusive_ptr<c10d::Backend> gloo_;
  std::shared_ptr<SharedSegment> segment_;
  std::shared_ptr<SharedAllReduce> all_reduce_;
  std::atomic<std::chrono::milliseconds> timeout_;
  std::shared_ptr<Queue> queue_;
};

}  // namespace ipex::torch_ops

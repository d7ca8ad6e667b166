// See the header.
#include "kernels/torch_ops/ccl_backend.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/ivalue.h>
#include <c10/util/thread_name.h>

#include <condition_variable>
#include <exception>
#include <functional>
#include <mutex>
#include <queue>
#include <thread>

#include "kernels/torch_ops/operators.h"

namespace ipex::torch_ops {

using Work = CclBackend::Work;

class CclBackend::Pending : public c10d::Work {
 public:
  Pending(int rank, c10d::OpType type, const char* title, Tensors tensors, std::function<void()> run)
      : c10d::Work(rank, type, title, tensors),
        tensors_(std::move(tensors)),
        run_(std::move(run)),
        future_(c10::make_intrusive<c10::ivalue::Future>(c10::ListType::create(c10::TensorType::get()))) {}

  void execute() {
    std::exception_ptr error;
    try {
      run_();
    } catch (...) {
      error = std::current_exception();
    }
    run_ = nullptr;
    // Those who wait for the work may drop it at once, so the future comes first, as in gloo.
    if (error)
      future_->setError(error);
    else
      future_->markCompleted(c10::IValue(tensors_));
    finish(error);
  }

  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override { return future_; }
  std::vector<at::Tensor> result() override { return tensors_; }

 private:
  Tensors tensors_;
  std::function<void()> run_;
  c10::intrusive_ptr<c10::ivalue::Future> future_;
};

// One thread that does what is enqueued, in this order. It owns the queue too, because a callback may drop
// the last reference to the backend there.
class CclBackend::Queue {
 public:
  static std::shared_ptr<Queue> start() {
    auto queue = std::make_shared<Queue>();
    queue->thread_ = std::thread([queue] { queue->work(); });
    return queue;
  }

  void push(c10::intrusive_ptr<Pending> pending) {
    {
      const std::lock_guard lock(mutex_);
      pending_.push(std::move(pending));
    }
    changed_.notify_one();
  }

  // Finishes what is enqueued.
  void close() {
    {
      const std::lock_guard lock(mutex_);
      is_closed_ = true;
    }
    changed_.notify_one();
    if (std::this_thread::get_id() == thread_.get_id())
      thread_.detach();
    else
      thread_.join();
  }

 private:
  void work() {
    c10::setThreadName("ipex_ccl");
    std::unique_lock lock(mutex_);
    while (true) {
      changed_.wait(lock, [&] { return is_closed_ || !pending_.empty(); });
      if (pending_.empty()) return;
      auto pending = std::move(pending_.front());
      pending_.pop();
      lock.unlock();
      pending->execute();
      pending.reset();
      lock.lock();
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::queue<c10::intrusive_ptr<Pending>> pending_;
  bool is_closed_ = false;
  std::thread thread_;
};

CclBackend::CclBackend(c10::intrusive_ptr<c10d::Backend> gloo, std::shared_ptr<SharedSegment> segment,
                       std::chrono::milliseconds timeout)
    : Backend(gloo->getRank(), gloo->getSize()),
      gloo_(std::move(gloo)),
      segment_(std::move(segment)),
      timeout_(timeout) {
  if (segment_) {
    all_reduce_ = std::make_shared<SharedAllReduce>(segment_);
    queue_ = Queue::start();
  }
  init();
}

CclBackend::~CclBackend() {
  if (queue_) queue_->close();
}

Work CclBackend::allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) {
  // Whether this is a sum in shared memory must follow from what is the same on all ranks.
  if (!segment_ || tensors.size() != 1 || options.reduceOp != c10d::ReduceOp::SUM || !all_dense(tensors[0]) ||
      !SharedAllReduce::takes(tensors[0].scalar_type()))
    return gloo_->allreduce(tensors, options);
  const auto timeout = options.timeout == c10d::kUnsetTimeout ? timeout_.load() : options.timeout;
  auto run = [all_reduce = all_reduce_, timeout, tensor = tensors[0]] {
    const at::AutoDispatchBelowADInplaceOrView below_autograd;
    const at::Tensor contiguous = materialized(tensor).contiguous();
    all_reduce->run(contiguous, SharedSegment::Clock::now() + timeout);
    if (!contiguous.is_same(tensor)) tensor.copy_(contiguous);
  };
  auto pending =
      c10::make_intrusive<Pending>(getRank(), c10d::OpType::ALLREDUCE, "ccl:all_reduce", tensors, run);
  queue_->push(pending);
  return pending;
}

Work CclBackend::barrier(const c10d::BarrierOptions& options) {
  // gloo numbers its calls, so it must be called at once, whatever this rank's queue still has to do.
  auto others = gloo_->barrier(options);
  if (!queue_) return others;
  auto run = [others] { others->wait(); };
  auto pending =
      c10::make_intrusive<Pending>(getRank(), c10d::OpType::BARRIER, "ccl:barrier", Tensors(), run);
  queue_->push(pending);
  return pending;
}

void CclBackend::abort() {
  if (segment_) segment_->abort();
  gloo_->abort();
}

void CclBackend::shutdown() { gloo_->shutdown(); }

Work CclBackend::broadcast(Tensors& tensors, const c10d::BroadcastOptions& options) {
  return gloo_->broadcast(tensors, options);
}

Work CclBackend::allreduce_sparse(Tensors& tensors, const c10d::AllreduceOptions& options) {
  return gloo_->allreduce_sparse(tensors, options);
}

Work CclBackend::allreduce_coalesced(Tensors& tensors, const c10d::AllreduceCoalescedOptions& options) {
  return gloo_->allreduce_coalesced(tensors, options);
}

Work CclBackend::reduce(Tensors& tensors, const c10d::ReduceOptions& options) {
  return gloo_->reduce(tensors, options);
}

Work CclBackend::allgather(std::vector<Tensors>& outputs, Tensors& inputs,
                           const c10d::AllgatherOptions& options) {
  return gloo_->allgather(outputs, inputs, options);
}

Work CclBackend::_allgather_base(at::Tensor& output, at::Tensor& input,
                                 const c10d::AllgatherOptions& options) {
  at::Tensor flat_output = output.view(-1), flat_input = input.reshape(-1);
  return gloo_->_allgather_base(flat_output, flat_input, options);
}

Work CclBackend::allgather_coalesced(std::vector<Tensors>& outputs, Tensors& inputs,
                                     const c10d::AllgatherOptions& options) {
  return gloo_->allgather_coalesced(outputs, inputs, options);
}

Work CclBackend::allgather_into_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                                 const c10d::AllgatherOptions& options) {
  return gloo_->allgather_into_tensor_coalesced(outputs, inputs, options);
}

Work CclBackend::gather(std::vector<Tensors>& outputs, Tensors& inputs, const c10d::GatherOptions& options) {
  return gloo_->gather(outputs, inputs, options);
}

Work CclBackend::scatter(Tensors& outputs, std::vector<Tensors>& inputs,
                         const c10d::ScatterOptions& options) {
  return gloo_->scatter(outputs, inputs, options);
}

Work CclBackend::reduce_scatter(Tensors& outputs, std::vector<Tensors>& inputs,
                                const c10d::ReduceScatterOptions& options) {
  return gloo_->reduce_scatter(outputs, inputs, options);
}

Work CclBackend::_reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                                      const c10d::ReduceScatterOptions& options) {
  at::Tensor flat_output = output.view(-1), flat_input = input.reshape(-1);
  return gloo_->_reduce_scatter_base(flat_output, flat_input, options);
}

Work CclBackend::reduce_scatter_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                                 const c10d::ReduceScatterOptions& options) {
  return gloo_->reduce_scatter_tensor_coalesced(outputs, inputs, options);
}

Work CclBackend::alltoall_base(at::Tensor& output, at::Tensor& input, std::vector<int64_t>& output_sizes,
                               std::vector<int64_t>& input_sizes, const c10d::AllToAllOptions& options) {
  return gloo_->alltoall_base(output, input, output_sizes, input_sizes, options);
}

Work CclBackend::alltoall(Tensors& outputs, Tensors& inputs, const c10d::AllToAllOptions& options) {
  return gloo_->alltoall(outputs, inputs, options);
}

Work CclBackend::send(Tensors& tensors, int rank, int tag) { return gloo_->send(tensors, rank, tag); }

Work CclBackend::recv(Tensors& tensors, int rank, int tag) { return gloo_->recv(tensors, rank, tag); }

Work CclBackend::recvAnysource(Tensors& tensors, int tag) { return gloo_->recvAnysource(tensors, tag); }

void CclBackend::monitoredBarrier(const c10d::BarrierOptions& options, bool wait_all) {
  gloo_->monitoredBarrier(options, wait_all);
}

}  // namespace ipex::torch_ops

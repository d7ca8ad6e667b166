// Parallel loops on OpenMP (the team that PyTorch uses), and parallel tasks on oneTBB.
#pragma once

#include <cstdint>
#include <functional>

namespace ipex {

// The number of threads of the next parallel region; 1 inside a parallel region. It follows
// torch.set_num_threads.
int num_threads();

// Limits parallel regions of this thread to `threads` threads while it lives. 0: no limit.
class ThreadLimit {
 public:
  explicit ThreadLimit(int threads);
  ~ThreadLimit();
  ThreadLimit(const ThreadLimit&) = delete;
  ThreadLimit& operator=(const ThreadLimit&) = delete;

 private:
  int previous_;
};

using ParallelBody = void (*)(void* closure, int64_t begin, int64_t end, int64_t thread);

// Runs body over [begin, end) in at most num_threads() contiguous chunks of at least `grain` iterations.
// `thread` is the number of the chunk. A single chunk runs on the calling thread. The body must not throw.
void parallel_for(int64_t begin, int64_t end, int64_t grain, ParallelBody body, void* closure);

// Runs task(i) for i in [0, count) on oneTBB, and rethrows the first exception.
void parallel_tasks(int64_t count, const std::function<void(int64_t)>& task);

// The first out-of-range index that kernels of a run report. A run sets its slot on its own thread, and
// parallel_for passes it on to the other threads of the team, so that concurrent runs do not mix their
// errors.
struct IndexFault {
  bool set = false;
  int64_t index = 0, size = 0, error = 0;
};

class IndexFaultScope {
 public:
  explicit IndexFaultScope(IndexFault* slot);
  ~IndexFaultScope();
  IndexFaultScope(const IndexFaultScope&) = delete;
  IndexFaultScope& operator=(const IndexFaultScope&) = delete;

 private:
  IndexFault* previous_;
};

}  // namespace ipex

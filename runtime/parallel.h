// Fork-join on the process's OpenMP team (the one PyTorch uses), and task-shaped work on oneTBB.
#pragma once

#include <cstdint>
#include <functional>

namespace ipex {

// Threads of the next parallel region: omp_get_max_threads(), so torch.set_num_threads is seen at each call;
// 1 inside a parallel region.
int num_threads();

// While it lives, parallel regions of this thread have at most `threads` threads; 0 changes nothing.
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
// `thread` is the chunk's number. Serial when one chunk remains. The body does not throw.
void parallel_for(int64_t begin, int64_t end, int64_t grain, ParallelBody body, void* closure);

// Runs task(i) for i in [0, count) on oneTBB; the first exception is rethrown.
void parallel_tasks(int64_t count, const std::function<void(int64_t)>& task);

// The first out-of-range index that kernels of one run report. A run makes its slot current on its own
// thread; parallel_for carries it to the team's other threads, so that two runs at once do not see each
// other's errors.
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

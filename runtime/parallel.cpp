// OpenMP loops, oneTBB tasks, and the functions that generated code calls (abi.h).
#include "runtime/parallel.h"

#include <omp.h>
#include <tbb/parallel_for.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>

#include "runtime/abi.h"
#include "runtime/arena.h"
#include "runtime/error.h"
#include "runtime/team_placement.h"
#include "runtime/time_limit.h"

#ifdef __SANITIZE_THREAD__
extern "C" void __tsan_acquire(void*);
extern "C" void __tsan_release(void*);
#endif

namespace ipex {
namespace {

thread_local IndexFault* current_fault = nullptr;

#ifdef __SANITIZE_THREAD__
void acquire(char* p) { __tsan_acquire(p); }
void release(char* p) { __tsan_release(p); }
#else
void acquire(char*) {}
void release(char*) {}
#endif

// Tells ThreadSanitizer about fork and join, because it does not see synchronization in libgomp and oneTBB.
struct ForkJoin {
  ForkJoin() { release(&forked); }
  ~ForkJoin() { acquire(&joined); }
  struct Member {
    explicit Member(ForkJoin& team) : team(team) { acquire(&team.forked); }
    ~Member() { release(&team.joined); }
    ForkJoin& team;
  };
  char forked = 0, joined = 0;
};

}  // namespace

IndexFaultScope::IndexFaultScope(IndexFault* slot) : previous_(current_fault) { current_fault = slot; }
IndexFaultScope::~IndexFaultScope() { current_fault = previous_; }

int num_threads() { return omp_in_parallel() ? 1 : omp_get_max_threads(); }

ThreadLimit::ThreadLimit(int threads) : previous_(threads > 0 ? omp_get_max_threads() : 0) {
  if (threads > 0) omp_set_num_threads(threads);
}
ThreadLimit::~ThreadLimit() {
  if (previous_ > 0) omp_set_num_threads(previous_);
}

void parallel_for(int64_t begin, int64_t end, int64_t grain, ParallelBody body, void* closure) {
  const int64_t count = end - begin;
  if (count <= 0) return;
  const int64_t chunks = std::min<int64_t>(num_threads(), count / std::max<int64_t>(grain, 1));
  if (chunks <= 1) return body(closure, begin, end, 0);
  IndexFault* fault = current_fault;
  const PlacedTeam* const placed = placed_team();
  ForkJoin team;
#pragma omp parallel num_threads(static_cast<int>(chunks))
  {
    const ForkJoin::Member member(team);
    if (placed) take_place(*placed, omp_get_thread_num());
    // The team may be smaller than requested, so threads take chunks in turn.
    IndexFaultScope scope(fault);
    for (int64_t chunk = omp_get_thread_num(); chunk < chunks; chunk += omp_get_num_threads()) {
      const int64_t first = begin + count * chunk / chunks;
      const int64_t last = begin + count * (chunk + 1) / chunks;
      body(closure, first, last, chunk);
    }
  }
}

void parallel_tasks(int64_t count, const std::function<void(int64_t)>& task) {
  if (count == 1) return task(0);
  ForkJoin arena;
  const auto run = [&, deadline = current_deadline()](int64_t i) {
    const ForkJoin::Member member(arena);
    const TimeLimit limit(deadline);
    task(i);
  };
  tbb::parallel_for(int64_t{0}, count, run, tbb::simple_partitioner{});
}

}  // namespace ipex

extern "C" {

void ipex_parallel_for(int64_t begin, int64_t end, int64_t grain,
                       void (*body)(void*, int64_t, int64_t, int64_t), void* closure) {
  ipex::parallel_for(begin, end, grain, body, closure);
}

int64_t ipex_num_threads(void) { return ipex::num_threads(); }

// An exception cannot pass through a kernel's frames, which have no unwind tables.
void* ipex_scratch_acquire(int64_t bytes) {
  try {
    return ipex::CachingAllocator::instance().allocate(static_cast<size_t>(std::max<int64_t>(bytes, 1)));
  } catch (const ipex::OutOfMemory& error) {
    std::fprintf(stderr, "ipex: a kernel cannot continue: %s\n", error.what());
    std::abort();
  }
}

void ipex_scratch_release(void* pointer) { ipex::CachingAllocator::instance().deallocate(pointer); }

void ipex_report_index(int64_t index, int64_t size, int64_t error) {
  ipex::IndexFault* fault = ipex::current_fault;
  if (!fault || std::atomic_ref(fault->set).load(std::memory_order_relaxed)) return;
  std::atomic_ref(fault->index).store(index, std::memory_order_relaxed);
  std::atomic_ref(fault->size).store(size, std::memory_order_relaxed);
  std::atomic_ref(fault->error).store(error, std::memory_order_relaxed);
  std::atomic_ref(fault->set).store(true, std::memory_order_release);
}
}

// A thread that runs jobs in order, with an OpenMP team of its own on given CPUs.
//
// The thread lives until the worker is destroyed and its jobs are done, or until finish_workers(). In a child
// process made by fork() its thread must be started again, by ensure_started(); jobs of the parent do not
// run there.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>

#include "runtime/cpu_list.h"

namespace ipex {

class Job {
 public:
  virtual ~Job() = default;
  virtual void run() noexcept = 0;  // on the worker's thread
};

class Worker {
 public:
  // Called on the thread: before its team is placed, and after its last job. They must not throw.
  struct Hooks {
    std::function<void()> begin, end;
  };

  // Starts the thread and waits until its team is placed. UserError if a CPU is refused, or after
  // finish_workers().
  Worker(CpuList cpus, Hooks hooks);
  // Does not wait for jobs.
  ~Worker();
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  const CpuList& cpus() const { return cpus_; }
  // Whether the thread must be started again, because this is another process.
  bool must_start() const;
  // Starts it if it must be. The caller holds no lock that a hook takes.
  void ensure_started();
  // After ensure_started(). UserError after finish_workers().
  void submit(std::unique_ptr<Job> job);
  // Whether the caller is a job of this worker.
  bool is_current_thread() const;

 private:
  struct State;
  void start();

  const CpuList cpus_;
  const Hooks hooks_;
  std::atomic<uint64_t> process_ = 0;  // in which state_ was made
  std::shared_ptr<State> state_;
};

// Waits until all workers have done their jobs and their threads have ended. New workers and jobs are refused
// from now on. For the end of a program.
void finish_workers();

// A number that is another one in each process made by fork().
uint64_t process_generation();

}  // namespace ipex

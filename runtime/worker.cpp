#include "runtime/worker.h"

#include <omp.h>
#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <deque>
#include <exception>
#include <mutex>
#include <new>
#include <thread>
#include <vector>

#include "runtime/error.h"
#include "runtime/spin.h"
#include "runtime/team_placement.h"

namespace ipex {

struct Worker::State {
  std::mutex mutex;
  std::condition_variable changed;
  std::deque<std::unique_ptr<Job>> jobs;
  std::atomic<bool> has_jobs = false;  // may be read without the lock
  bool closed = false;                 // no more jobs will come

  // Returns null when the last job is done.
  std::unique_ptr<Job> next() {
    spin_until([&] { return has_jobs.load(); });
    std::unique_lock lock(mutex);
    changed.wait(lock, [&] { return closed || !jobs.empty(); });
    if (jobs.empty()) return nullptr;
    auto job = std::move(jobs.front());
    jobs.pop_front();
    has_jobs = !jobs.empty();
    return job;
  }
  void close() {
    {
      std::lock_guard lock(mutex);
      closed = true;
    }
    changed.notify_one();
  }
};

namespace {

std::atomic<uint64_t> generation{1};

using Flag = std::shared_ptr<std::atomic<bool>>;

// All threads of workers. A thread cannot join itself, so ended ones are joined when the next one starts.
class Threads {
 public:
  static Threads& instance() {
    static const bool watches_forks [[maybe_unused]] = pthread_atfork(nullptr, nullptr, &in_child) == 0;
    Threads* threads = current.load();
    if (threads) return *threads;
    auto* made = new Threads;  // never destroyed: workers may be destroyed at exit
    if (current.compare_exchange_strong(threads, made)) return *made;
    delete made;
    return *threads;
  }

  void add(std::function<void()> close, const std::function<std::thread(Flag)>& start) {
    std::lock_guard lock(mutex_);
    if (finished_) throw UserError("the program ends: no more tasks can be started");
    std::erase_if(all_, [](Entry& entry) {
      const bool ended = *entry.ended;
      if (ended) entry.thread.join();
      return ended;
    });
    auto ended = std::make_shared<std::atomic<bool>>(false);
    all_.push_back({start(ended), ended, std::move(close)});
  }

  // Held while a worker of the parent process starts its thread again: two submissions may come at once.
  std::mutex& restarts() { return restarts_; }

  void finish() {
    std::vector<Entry> all;
    {
      std::lock_guard lock(mutex_);
      finished_ = true;
      all = std::move(all_);
    }
    for (Entry& entry : all) entry.close();
    for (Entry& entry : all)
      if (entry.thread.get_id() != std::this_thread::get_id()) entry.thread.join();
  }

 private:
  struct Entry {
    std::thread thread;
    Flag ended;
    std::function<void()> close;
  };

  // The threads do not exist in the child, and the lock may be taken. Both are left as they are.
  static void in_child() {
    current = nullptr;
    ++generation;
  }

  static std::atomic<Threads*> current;
  std::mutex mutex_, restarts_;
  std::vector<Entry> all_;
  bool finished_ = false;
};

std::atomic<Threads*> Threads::current{nullptr};

thread_local const void* own_state = nullptr;  // of the worker whose thread this is

}  // namespace

uint64_t process_generation() { return generation; }

Worker::Worker(CpuList cpus, Hooks hooks) : cpus_(std::move(cpus)), hooks_(std::move(hooks)) { start(); }

Worker::~Worker() {
  if (process_ == generation)
    state_->close();
  else
    new (std::nothrow) std::shared_ptr<State>(state_);  // its lock may be taken by a thread of the parent
}

bool Worker::is_current_thread() const { return !must_start() && own_state == state_.get(); }

void Worker::start() {
  struct Start {
    std::mutex mutex;
    std::condition_variable done_changed;
    bool done = false;
    std::exception_ptr error;
  };
  const auto starting = std::make_shared<Start>();
  auto state = std::make_shared<State>();
  const auto run = [state, starting, cpus = cpus_, hooks = hooks_, all = allowed_cpus()](const Flag& ended) {
    own_state = state.get();
    std::exception_ptr error;
    hooks.begin();
    try {
      set_thread_affinity(all);                            // not the mask of a pinned thread that starts us
      omp_set_num_threads(static_cast<int>(cpus.size()));  // before a team is made
      place_team(one_thread_each(cpus));
    } catch (...) {
      error = std::current_exception();
    }
    {
      std::lock_guard lock(starting->mutex);
      starting->done = true;
      starting->error = error;
    }
    starting->done_changed.notify_one();
    if (!error)
      while (auto job = state->next()) job->run();
    hooks.end();
    *ended = true;
  };
  Threads::instance().add([state] { state->close(); },
                          [&](Flag ended) { return std::thread(run, std::move(ended)); });
  {
    std::unique_lock lock(starting->mutex);
    starting->done_changed.wait(lock, [&] { return starting->done; });
  }
  if (starting->error) std::rethrow_exception(starting->error);
  if (state_) new std::shared_ptr<State>(state_);  // of the parent process, as in the destructor
  state_ = std::move(state);
  process_ = generation.load();
}

bool Worker::must_start() const { return process_ != generation; }

void Worker::ensure_started() {
  if (!must_start()) return;
  const std::lock_guard lock(Threads::instance().restarts());
  if (must_start()) start();
}

void Worker::submit(std::unique_ptr<Job> job) {
  {
    std::lock_guard lock(state_->mutex);
    if (state_->closed) throw UserError("the program ends: no more tasks can be submitted");
    state_->jobs.push_back(std::move(job));
    state_->has_jobs = true;
  }
  state_->changed.notify_one();
}

void finish_workers() { Threads::instance().finish(); }

}  // namespace ipex

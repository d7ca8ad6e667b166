// See streams.h and runtime/worker.h. A task calls a Python object on a worker's thread, with the
// thread-local state of PyTorch that the submitter had. It holds the GIL as every caller does: PyTorch's
// operators, TorchScript and compiled graphs release it while they compute.
#include "python/csrc/streams.h"

#include <ATen/Parallel.h>
#include <ATen/ThreadLocalState.h>
#include <ATen/autocast_mode.h>
#include <pthread.h>
#include <pybind11/stl.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>

#include "runtime/error.h"
#include "runtime/spin.h"
#include "runtime/team_placement.h"
#include "runtime/worker.h"

// MKL's number of threads for the calling thread. Only a PyTorch with MKL has it.
extern "C" int MKL_Set_Num_Threads_Local(int threads) __attribute__((weak));

namespace ipex::python {
namespace {

namespace py = pybind11;
using namespace py::literals;

// CPUs for a team, or the masks of a team that was not pinned.
class CpuPool {
 public:
  explicit CpuPool(TeamPlacement placement) : placement_(std::move(placement)) {}
  explicit CpuPool(const CpuList& cpus) {
    const CpuList allowed = allowed_cpus();
    CpuList kept;
    for (const int cpu : cpus) {
      if (std::ranges::find(kept, cpu) != kept.end())
        throw UserError("core " + std::to_string(cpu) + " is listed twice");
      if (std::ranges::binary_search(allowed, cpu)) kept.push_back(cpu);
    }
    if (kept.empty())
      throw UserError("none of the cores [" + cpu_list_text(cpus) + "] may be used by this process, only " +
                      cpu_list_text(allowed));
    placement_ = one_thread_each(kept);
  }

  const TeamPlacement& placement() const { return placement_; }
  CpuList cpus() const { return placement_.cpus(); }

 private:
  TeamPlacement placement_;
};

// The number of threads of the libraries that PyTorch calls.
void set_threads(int threads) {
  if (MKL_Set_Num_Threads_Local) MKL_Set_Num_Threads_Local(threads);
}

void set_cpu_pool(const CpuPool& pool) {
  // PyTorch sets a thread's number of threads at its first use in this thread: not later.
  at::get_num_threads();
  place_team(pool.placement());
  set_threads(static_cast<int>(pool.placement().masks.size()));
}

// ---- tasks ----

// The attached state of a worker's thread in Python. It lives as long as the thread, so that thread-local
// objects of Python stay.
thread_local PyThreadState* python_thread = nullptr;

Worker::Hooks python_hooks(int threads) {
  return {[threads] {
            at::get_num_threads();
            set_threads(threads);
            PyGILState_Ensure();
            python_thread = PyEval_SaveThread();
          },
          [] {
            PyEval_RestoreThread(python_thread);
            PyGILState_Release(PyGILState_UNLOCKED);
          }};
}

// A task inside the submitter's autocast context is in no context of its thread, so that a context that the
// task opens and leaves would clear the cache of casted weights. That can block for ever: PyTorch frees the
// tensors, for which it takes the GIL, under a lock that other threads take while they hold the GIL.
//
// Casted weights stay in the cache until the submitter's context ends. A task that may run later does not
// cache.
class AutocastContext {
 public:
  AutocastContext(bool is_inside, bool caches)
      : is_inside_(is_inside), before_(at::autocast::is_autocast_cache_enabled()) {
    if (is_inside_) at::autocast::increment_nesting();
    at::autocast::set_autocast_cache_enabled(caches);
  }
  ~AutocastContext() {
    at::autocast::set_autocast_cache_enabled(before_);
    if (is_inside_) at::autocast::decrement_nesting();
  }
  AutocastContext(const AutocastContext&) = delete;
  AutocastContext& operator=(const AutocastContext&) = delete;

 private:
  const bool is_inside_, before_;
};

// Threads that wait for results, without the GIL.
std::atomic<int> waiting_threads = 0;
struct Waiting {
  Waiting() { ++waiting_threads; }
  ~Waiting() { --waiting_threads; }
};

std::atomic<int> tasks_in_python = 0;
// The threads of a parent process do not exist in a forked child. A task that forks leaves Python there too,
// so that its count may become negative.
const int resets_counts [[maybe_unused]] =
    pthread_atfork(nullptr, nullptr, [] { waiting_threads = tasks_in_python = 0; });

// The result of a task, once it is there.
class Outcome {
 public:
  ~Outcome() {
    if (!value_) return;
    const py::gil_scoped_acquire locked;  // the last owner may be the worker
    value_ = {};
  }
  void set(py::object value, bool is_error) {
    {
      std::lock_guard lock(mutex_);
      value_ = std::move(value);
      is_error_ = is_error;
      ready_ = true;
    }
    changed_.notify_all();
  }
  bool ready() const { return ready_; }
  bool wait_for(std::chrono::milliseconds time) const {
    if (spin_until([&] { return ready(); })) return true;
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, time, [&] { return ready(); });
  }
  // Once ready, with the GIL.
  py::object get() const {
    if (!is_error_) return value_;
    PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(value_.ptr())), value_.ptr());
    throw py::error_already_set();
  }

 private:
  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
  py::object value_;  // the result, or the exception with its traceback
  bool is_error_ = false;
  std::atomic<bool> ready_ = false;  // may be read without the lock
};

class Call final : public Job {
 public:
  // is_awaited: the submitter waits for the task in its present contexts.
  Call(py::object function, py::args args, py::kwargs kwargs, std::shared_ptr<Outcome> outcome,
       bool is_awaited)
      : function_(std::move(function)),
        args_(std::move(args)),
        kwargs_(std::move(kwargs)),
        outcome_(std::move(outcome)),
        is_awaited_(is_awaited),
        caches_(at::autocast::is_autocast_cache_enabled() && (is_awaited || !in_autocast_)) {}

  void run() noexcept override {
    // The submitter holds the GIL until it waits, and another task may leave it soon.
    if (is_awaited_) spin_until([] { return waiting_threads > 0; });
    spin_until([] { return tasks_in_python <= 0; }, kWakeUp / 5);
    ++tasks_in_python;
    PyEval_RestoreThread(python_thread);
    py::object value;
    bool is_error = false;
    try {
      const at::ThreadLocalStateGuard guard(*state_);
      const AutocastContext autocast(in_autocast_, caches_);
      if (PyContext_Enter(context_.ptr())) throw py::error_already_set();
      value = py::reinterpret_steal<py::object>(PyObject_Call(function_.ptr(), args_.ptr(), kwargs_.ptr()));
      std::optional<py::error_already_set> error;
      if (!value) error.emplace();
      PyContext_Exit(context_.ptr());
      if (error) throw std::move(*error);
    } catch (py::error_already_set& error) {
      is_error = true;
      value = error.value();
      if (error.trace()) PyException_SetTraceback(value.ptr(), error.trace().ptr());
    } catch (const std::exception& error) {  // of PyTorch, while it restores the state
      is_error = true;
      value = py::module_::import("builtins").attr("RuntimeError")(error.what());
    }
    function_ = context_ = {};
    args_.release().dec_ref();
    kwargs_.release().dec_ref();
    state_.reset();
    python_thread = PyEval_SaveThread();
    --tasks_in_python;
    outcome_->set(std::move(value), is_error);
  }

 private:
  py::object function_;
  py::args args_;
  py::kwargs kwargs_;
  // Variables of Python's contextvars, among them all settings of torch.compile.
  py::object context_ = py::reinterpret_steal<py::object>(PyContext_CopyCurrent());
  const std::shared_ptr<Outcome> outcome_;
  const bool is_awaited_;
  std::optional<at::ThreadLocalState> state_{std::in_place};
  const bool in_autocast_ = at::autocast::is_autocast_enabled(at::kCPU), caches_;
};

class Future {
 public:
  Future(std::shared_ptr<const Outcome> outcome, std::shared_ptr<const Worker> worker)
      : outcome_(std::move(outcome)), worker_(std::move(worker)) {}

  bool done() const {
    require_own_process();
    return outcome_->ready();
  }

  py::object get() const {
    require_own_process();
    if (worker_->is_current_thread() && !outcome_->ready())
      throw UserError("a task waits for a later task of the same Task, which would never run");
    while (true) {
      {
        const py::gil_scoped_release unlocked;
        const Waiting waiting;
        if (outcome_->wait_for(std::chrono::milliseconds(100))) break;
      }
      if (PyErr_CheckSignals()) throw py::error_already_set();
    }
    return outcome_->get();
  }

 private:
  void require_own_process() const {
    if (process_ != process_generation())
      throw UserError("the task was submitted before this process was forked: its result is in the parent");
  }

  const std::shared_ptr<const Outcome> outcome_;
  const std::shared_ptr<const Worker> worker_;
  const uint64_t process_ = process_generation();
};

class TaskModule {
 public:
  explicit TaskModule(const CpuPool& pool) {
    const CpuList cpus = pool.cpus();
    const py::gil_scoped_release unlocked;
    worker_ = std::make_shared<Worker>(cpus, python_hooks(static_cast<int>(cpus.size())));
  }

  Future submit(py::object function, py::args args, py::kwargs kwargs, bool is_awaited) const {
    auto outcome = std::make_shared<Outcome>();
    auto call =
        std::make_unique<Call>(std::move(function), std::move(args), std::move(kwargs), outcome, is_awaited);
    if (worker_->must_start()) {
      const py::gil_scoped_release unlocked;
      worker_->ensure_started();
    }
    worker_->submit(std::move(call));
    return {std::move(outcome), worker_};
  }

 private:
  std::shared_ptr<Worker> worker_;
};

}  // namespace

void bind_streams(py::module_& m) {
  py::class_<CpuPool>(m, "CPUPool", "Cores for a team of threads.")
      .def(py::init<const CpuList&>(), "core_ids"_a,
           "Leaves out cores that the process may not use. Raises RuntimeError if none is left.")
      .def("get_core_list", &CpuPool::cpus);
  m.def(
      "get_current_cpu_pool",
      [] {
        at::get_num_threads();
        return CpuPool(current_placement());
      },
      "The cores of the calling thread's team, for set_cpu_pool().");
  m.def(
      "team_masks",
      [] {
        at::get_num_threads();
        return team_masks();
      },
      "For each thread of the calling thread's team, the cores on which it may run.");
  m.def("set_cpu_pool", &set_cpu_pool, "cpu_pool"_a, "Moves the calling thread's team to these cores.");
  m.def("get_process_available_cores", &allowed_cpus);
  m.def("get_numa_nodes", [] { return numa_nodes(); });
  m.def("get_cores_of_node", [](int node) { return cores_of_node(node); }, "node"_a);

  py::class_<Future>(m, "TaskFuture", "The result of a task.")
      .def("get", &Future::get,
           "Waits for the task. Returns its result, or raises its exception. May be called again.")
      .def("done", &Future::done, "Whether get() returns at once.");
  // The function comes with each call: Python's garbage collector would not see one that is kept here.
  py::class_<TaskModule>(m, "TaskModule", "A thread with a pinned team that calls functions.")
      .def(py::init<const CpuPool&>(), "cpu_pool"_a)
      .def("run_async",
           [](const TaskModule& task, py::object function, py::args args, py::kwargs kwargs) {
             return task.submit(std::move(function), std::move(args), std::move(kwargs), false);
           })
      .def(
          "run_awaited",
          [](const TaskModule& task, py::object function, py::args args, py::kwargs kwargs) {
            return task.submit(std::move(function), std::move(args), std::move(kwargs), true);
          },
          "As run_async, where the caller calls get() before it leaves any context.")
      .def("run_sync", [](const TaskModule& task, py::object function, py::args args, py::kwargs kwargs) {
        return task.submit(std::move(function), std::move(args), std::move(kwargs), true).get();
      });
  py::module_::import("atexit").attr("register")(py::cpp_function([] {
    const py::gil_scoped_release unlocked;
    finish_workers();
  }));
}

}  // namespace ipex::python

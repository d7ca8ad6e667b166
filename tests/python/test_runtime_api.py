"""ipex.cpu.runtime: pools of cores, pinned teams, and tasks: state, exceptions, copies, forks and the end of a program.

The tests need one core; those that use two skip where the process may use only one."""

import contextvars
import copy
import gc
import os
import pickle
import sys
import threading
import time
import traceback
import warnings
import weakref

import intel_extension_for_pytorch as ipex
import pytest
import torch
from intel_extension_for_pytorch.cpu import runtime

pytestmark = pytest.mark.needs_ipex

CORES = sorted(os.sched_getaffinity(0))
FIRST = CORES[0]
needs_two_cores = pytest.mark.skipif(len(CORES) < 2, reason="the process may use one core only")


def team_masks():
    """The masks of the threads of this thread's team, by a region in which each thread reports its own."""
    return [set(m) for m in ipex._C.team_masks()]


@pytest.fixture
def pool():
    return runtime.CPUPool([FIRST])


@pytest.fixture(autouse=True)
def same_team_after():
    mask, threads = os.sched_getaffinity(0), torch.get_num_threads()
    yield
    assert (os.sched_getaffinity(0), torch.get_num_threads()) == (mask, threads)


# ---- pools ----


def test_the_extension_is_enabled_without_preload():
    assert runtime.is_runtime_ext_enabled() is True
    assert ipex.cpu.runtime is runtime


def test_a_pool_without_arguments_has_every_core_of_the_process():
    assert runtime.CPUPool().core_ids == CORES
    assert runtime.CPUPool().cpu_pool.get_core_list() == CORES


def test_cores_that_the_process_may_not_use_are_left_out():
    with pytest.warns(UserWarning, match="may not use the cores \\[4000, 4001\\]"):
        pool = runtime.CPUPool([4001, FIRST, 4000])
    assert pool.core_ids == [FIRST]
    with pytest.raises(RuntimeError, match=r"none of the cores \[4000-4001\].*only"):
        runtime.CPUPool(range(4000, 4002))


def test_wrong_pools():
    with pytest.raises(AssertionError, match="list or a range"):
        runtime.CPUPool((FIRST,))
    with pytest.raises(RuntimeError, match="listed twice"):
        runtime.CPUPool([FIRST, FIRST])
    with pytest.raises(RuntimeError, match="none of the cores"):
        runtime.CPUPool([])
    with pytest.raises(RuntimeError, match="NUMA node 99 has no CPUs"):
        runtime.CPUPool(node_id=99)
    with pytest.warns(UserWarning, match="core_ids is used"):
        assert runtime.CPUPool([FIRST], node_id=99).core_ids == [FIRST]


def test_cores_of_a_node():
    nodes = runtime.runtime_utils.get_num_nodes()
    cores = [runtime.get_core_list_of_node_id(node) for node in ipex._C.get_numa_nodes()]
    assert len(cores) == nodes
    assert max(map(len, cores)) == runtime.runtime_utils.get_num_cores_per_node()
    every = [core for of_node in cores for core in of_node]
    assert len(set(every)) == len(every)
    for core in every:
        with open(f"/sys/devices/system/cpu/cpu{core}/topology/thread_siblings_list") as siblings:
            assert int(siblings.read().replace("-", ",").split(",")[0]) <= core


def test_pools_are_copied_and_pickled(pool):
    for again in (copy.copy(pool), copy.deepcopy(pool), pickle.loads(pickle.dumps(pool))):
        assert again.core_ids == pool.core_ids


# ---- pin ----


def test_pin_restores_mask_and_threads(pool):
    before = (os.sched_getaffinity(0), torch.get_num_threads())
    with runtime.pin(pool):
        assert (os.sched_getaffinity(0), torch.get_num_threads()) == ({FIRST}, 1)
        assert runtime.CPUPool().core_ids == CORES  # the process may still use all
    assert (os.sched_getaffinity(0), torch.get_num_threads()) == before
    with pytest.raises(ZeroDivisionError), runtime.pin(pool):
        _ = 1 / 0
    assert (os.sched_getaffinity(0), torch.get_num_threads()) == before


@needs_two_cores
def test_pin_puts_each_thread_on_its_core():
    first, second = CORES[:2]
    with runtime.pin(runtime.CPUPool([second, first])):
        assert team_masks() == [{second}, {first}]
        with runtime.pin(runtime.CPUPool([first])):
            assert team_masks() == [{first}]
        assert team_masks() == [{second}, {first}]
        with runtime.pin(runtime.CPUPool([first, second])):
            assert team_masks() == [{first}, {second}]
        assert team_masks() == [{second}, {first}]
    assert all(mask == set(CORES) for mask in team_masks())


def test_pin_decorates(pool):
    @runtime.pin(pool)
    def inside(x):
        """What it does."""
        return x + 1, os.sched_getaffinity(0), torch.get_num_threads()

    assert inside(1) == (2, {FIRST}, 1)
    assert inside.__doc__ == "What it does."
    seen = []
    threads = [threading.Thread(target=lambda: seen.append(inside(1))) for _ in range(4)]
    [t.start() for t in threads]
    [t.join() for t in threads]
    assert seen == [(2, {FIRST}, 1)] * 4


def test_pin_does_not_change_other_threads(pool):
    threads = []
    with runtime.pin(pool):
        worker = threading.Thread(target=lambda: threads.append(torch.get_num_threads()))
        worker.start()
        worker.join()
    assert threads == [torch.get_num_threads()]


def test_pools_of_the_extension_module(pool):
    before = ipex._C.get_current_cpu_pool()
    ipex._C.set_cpu_pool(pool.cpu_pool)
    assert ipex._C.get_current_cpu_pool().get_core_list() == [FIRST]
    ipex._C.set_cpu_pool(before)
    assert os.sched_getaffinity(0) == set(CORES)


# ---- tasks ----


def test_a_task_has_a_pinned_team():
    core = CORES[-1]
    task = runtime.Task(lambda: (team_masks(), torch.get_num_threads()), runtime.CPUPool([core]))
    with runtime.pin(runtime.CPUPool([FIRST])):  # the mask of the thread that submits does not matter
        other = runtime.Task(lambda: team_masks(), runtime.CPUPool([core]))
    assert task.run_sync() == ([{core}], 1)
    assert other().get() == [{core}]


@needs_two_cores
def test_a_task_with_two_threads():
    cores = CORES[:2]
    task = runtime.Task(lambda: (team_masks(), torch.get_num_threads()), runtime.CPUPool(cores))
    assert task.run_sync() == ([{core} for core in cores], 2)


def test_submissions_run_in_order_on_one_thread(pool):
    log = []

    def note(i):
        log.append(i)
        return i, threading.get_ident()

    task = runtime.Task(note, pool)
    results = [future.get() for future in [task(i) for i in range(50)]]
    assert [i for i, _ in results] == list(range(50)) == log
    assert len({thread for _, thread in results}) == 1
    assert results[0][1] != threading.get_ident()


def test_arguments_and_results_are_passed_as_they_are(pool):
    box = object()
    task = runtime.Task(lambda *args, **kwargs: (args, kwargs), pool)
    future = task(box, 1, key=box)
    (args, kwargs) = future.get()
    assert args == (box, 1) and kwargs == {"key": box}
    assert future.get()[0][0] is box  # again
    assert future.done()


def test_python_state_of_the_thread_stays(pool):
    local = threading.local()

    def count():
        local.n = getattr(local, "n", 0) + 1
        return local.n

    task = runtime.Task(count, pool)
    assert [task.run_sync() for _ in range(3)] == [1, 2, 3]


@pytest.mark.parametrize("enabled", [False, True])
def test_gradient_mode_is_carried(pool, enabled):
    x = torch.ones(2, requires_grad=True)
    task = runtime.Task(lambda: (x * 2).requires_grad, pool)
    with torch.set_grad_enabled(enabled):
        future = task()
    assert future.get() is enabled


def test_inference_mode_is_carried(pool):
    task = runtime.Task(lambda: torch.ones(1).is_inference(), pool)
    with torch.inference_mode():
        inside = task()
    assert (inside.get(), task.run_sync()) == (True, False)


def test_context_variables_are_carried(pool):
    """The settings of torch.compile are context variables."""
    variable = contextvars.ContextVar("variable", default=0)
    task = runtime.Task(lambda: (variable.get(), torch._dynamo.config.recompile_limit, variable.set(5))[:2], pool)
    variable.set(3)
    with torch._dynamo.config.patch(recompile_limit=17):
        futures = [task(), task()]
    assert [future.get() for future in futures] == [(3, 17)] * 2
    assert variable.get() == 3


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_autocast_is_carried(pool, dtype):
    layer = torch.nn.Linear(4, 4)
    task = runtime.Task(layer, pool)
    with torch.autocast("cpu", dtype):
        future = task(torch.ones(1, 4))
    assert future.get().dtype == dtype
    assert task.run_sync(torch.ones(1, 4)).dtype == torch.float32


def test_casted_weights_do_not_outlive_the_task(pool):
    """The submitter's autocast context ends, and clears the cache, before the task runs."""
    layer = torch.nn.Linear(4, 4, bias=False)
    gate = threading.Event()
    task = runtime.Task(lambda x: (gate.wait(), layer(x))[1], pool)
    x = torch.ones(1, 4)
    with torch.autocast("cpu", torch.bfloat16):
        future = task(x)
    gate.set()
    future.get()
    with torch.no_grad():
        layer.weight.zero_()
    with torch.autocast("cpu", torch.bfloat16):
        assert layer(x).abs().max() == 0


def test_the_profiler_sees_the_task(pool):
    task = runtime.Task(lambda x: x.exp(), pool)
    with torch.profiler.profile() as profile:
        task.run_sync(torch.ones(3))
    assert any(event.key == "aten::exp" for event in profile.key_averages())


def test_gradients_flow_through_tasks(pool):
    w = torch.tensor([3.0], requires_grad=True)
    task = runtime.Task(lambda x: (x * w).sum(), pool)
    (task(torch.ones(2)).get() + task(torch.ones(3)).get()).backward()
    assert w.grad.item() == 5


class OddError(Exception):
    pass


@pytest.mark.parametrize("error", [OddError("text"), KeyError("k"), SystemExit(3), StopIteration(4)])
def test_exceptions_keep_type_and_text(pool, error):
    def fail():
        raise error

    task = runtime.Task(fail, pool)
    future = task()
    for _ in range(2):
        with pytest.raises(type(error)) as caught:
            future.get()
        assert caught.value is error
    assert "in fail" in "".join(traceback.format_exception(caught.value))
    assert runtime.Task(lambda: 1, pool).run_sync() == 1


def test_exceptions_of_operators_and_scripts(pool):
    task = runtime.Task(lambda: torch.ones(2, 3) @ torch.ones(2, 3), pool)
    with pytest.raises(RuntimeError, match="cannot be multiplied"):
        task.run_sync()

    @torch.jit.script
    def fail(x: torch.Tensor):
        raise ValueError("from the script")
        return x

    with pytest.raises(torch.jit.Error, match="from the script"):
        runtime.Task(fail, pool).run_sync(torch.ones(1))
    with pytest.raises(IndexError):
        runtime.Task(lambda: torch.ones(2)[3], pool).run_sync()


def test_wrong_tasks(pool):
    with pytest.raises(TypeError, match="a module or a function, not int"):
        runtime.Task(3, pool)
    with pytest.raises(AssertionError, match="CPUPool"):
        runtime.Task(print, [FIRST])


def test_a_task_that_waits_for_itself_is_an_error(pool):
    task = runtime.Task(lambda again: task.run_sync(False) if again else 1, pool)
    with pytest.raises(RuntimeError, match="waits for a later task"):
        task.run_sync(True)
    assert task.run_sync(False) == 1


def test_a_task_may_submit_to_another(pool):
    inner = runtime.Task(lambda x: x + 1, pool)
    outer = runtime.Task(lambda x: inner.run_sync(x) * 2, pool)
    assert outer.run_sync(1) == 4


def test_copies(pool):
    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = torch.nn.Linear(2, 2)

        def forward(self, x):
            return self.layer(x)

    net, x = Net(), torch.ones(1, 2)
    task = runtime.Task(net, pool)
    shallow, deep = copy.copy(task), copy.deepcopy(task)
    with torch.no_grad():
        before = net(x)
        net.layer.weight.zero_()
        after = net(x)
        assert torch.equal(shallow(x).get(), after)
        assert torch.equal(task(x).get(), after)
        assert torch.equal(deep(x).get(), before)
    assert pickle.loads(pickle.dumps(runtime.Task(max, pool))).run_sync(1, 2) == 2


def test_results_arrive_without_the_task(pool):
    future = runtime.Task(lambda: (time.sleep(0.05), 7)[1], pool)()
    assert future.get() == 7


def test_tensors_are_freed_when_the_result_is_there(pool):
    x = torch.ones(3)
    alive = weakref.ref(x)
    future = runtime.Task(lambda y: y.sum().item(), pool)(x)
    del x
    assert future.get() == 3 and alive() is None


def test_threads_end_with_their_tasks(pool):
    def threads():
        return len(os.listdir("/proc/self/task"))

    runtime.Task(int, pool).run_sync()
    before = threads()
    for _ in range(20):
        runtime.Task(int, pool).run_sync()
    deadline = time.monotonic() + 10
    while threads() > before + 1 and time.monotonic() < deadline:
        time.sleep(0.01)
    assert threads() <= before + 1


def test_a_task_of_its_owner_is_collected(pool):
    class Owner:
        def __init__(self):
            self.task = runtime.Task(self.step, pool)

        def step(self):
            return 1

    owner = Owner()
    assert owner.task.run_sync() == 1
    alive = weakref.ref(owner)
    del owner
    gc.collect()
    assert alive() is None


# ---- the GIL ----


def compiled_layer():
    from intel_extension_for_pytorch.compiler.backend import ipex as backend

    return torch.compile(torch.nn.Linear(512, 512), backend=backend)


def traced_layer():
    layer = ipex.optimize(torch.nn.Linear(512, 512).eval())
    return torch.jit.freeze(torch.jit.trace(layer, torch.ones(4096, 512)))


@pytest.mark.parametrize(
    "module",
    [
        lambda: torch.nn.Linear(512, 512),
        lambda: ipex.optimize(torch.nn.Linear(512, 512).eval()),
        compiled_layer,
        traced_layer,
    ],
    ids=["eager", "optimized", "compiled", "traced"],
)
def test_native_work_releases_the_gil(pool, module):
    """With an endless switch interval, the submitter's loop runs during a call only if the call releases the GIL."""
    module, x = module(), torch.randn(4096, 512)
    started = threading.Event()

    def work(quiet):
        with torch.no_grad():
            if quiet:
                return module(x)
            begin = time.perf_counter()
            started.set()
            while time.perf_counter() - begin < 0.3:
                module(x)

    task = runtime.Task(work, pool)
    task.run_sync(True)
    interval = sys.getswitchinterval()
    sys.setswitchinterval(100)
    try:
        future = task(False)
        started.wait()
        turns = 0
        while not future.done():
            time.sleep(0.0005)
            turns += 1
        future.get()
    finally:
        sys.setswitchinterval(interval)
    assert turns >= 3


def test_no_warnings_in_usual_use(pool):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        runtime.Task(torch.nn.Identity(), pool).run_sync(torch.ones(1))

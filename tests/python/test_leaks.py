"""Errors that show only over many calls or threads: memory growth, shared state, fixed thread counts."""

import functools
import gc
import math
import subprocess
import sys
import threading
import weakref
from pathlib import Path

import psutil
import pytest
import torch
from comparison import assert_close_to_eager
from conftest import BACKEND
from intel_extension_for_pytorch import _C
from zoo_handwritten import MODELS

CALLS = 10_000
ALLOWED_GROWTH = 4 << 20  # bytes; one leaked 1 KB per call would be ten million


def resident():
    gc.collect()
    return psutil.Process().memory_info().rss


def growth_over(calls, step):
    """Growth of resident memory in bytes over `calls` calls, after a warm-up of a tenth as many."""
    for _ in range(calls // 10):
        step()
    before = resident()
    for _ in range(calls):
        step()
    return resident() - before


def test_inference_memory_is_flat(compiled):
    run = compiled(lambda x, y: (torch.relu(x @ y) + x.sum(1, keepdim=True), x.exp()))
    x, y = torch.randn(16, 16), torch.randn(16, 16)
    with torch.no_grad():
        assert growth_over(CALLS, lambda: run(x, y)) < ALLOWED_GROWTH


def test_training_memory_is_flat(compiled):
    model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.GELU(), torch.nn.Linear(16, 4))
    run, x = compiled(model), torch.randn(5, 8)

    def step():
        model.zero_grad()
        run(x).square().sum().backward()

    assert growth_over(CALLS // 4, step) < ALLOWED_GROWTH


LIVE_BYTES = []  # recorded by each call of the operator below


@torch.library.custom_op("ipex_leaks::note", mutates_args=())
def note(x: torch.Tensor) -> torch.Tensor:
    LIVE_BYTES.append(_C.memory()["live_bytes"])
    return x.clone()


note.register_fake(torch.empty_like)
torch.library.register_autograd("ipex_leaks::note", lambda ctx, grad: note(grad))


@pytest.mark.needs_ipex
def test_backward_frees_activations_on_its_way(compiled):
    """Saved values are freed layer by layer, while gradients are allocated layer by layer."""
    width, rows, layers = 64, 4096, 10
    weights = [torch.randn(width, width, requires_grad=True) for _ in range(layers)]

    def network(x):
        x = note(x)
        for weight in weights:
            x = torch.tanh(x @ weight)
        return note(x)

    run, x = compiled(network, dynamic=False), torch.randn(rows, width, requires_grad=True)
    before = _C.memory()["live_bytes"]
    run(x).sum().backward()
    activation = rows * width * 4
    for weight in weights:
        weight.grad = None
    LIVE_BYTES.clear()
    result = run(x).sum()
    forward_end = LIVE_BYTES[-1]
    result.backward()
    _, _, backward_begin, backward_end = (live - before for live in LIVE_BYTES)
    assert forward_end - before > layers * activation
    assert backward_begin > layers * activation
    assert backward_end < 5 * activation


def test_saved_values_are_what_forward_read(compiled):
    """Inputs and outputs are changed between the passes. Autograd refuses this as in eager, and values that are changed
    without its knowledge are not used."""

    def function(x, w):
        y = x.view(-1, 4).clone() @ w
        return y.clone(), torch.sigmoid(y.t().clone())

    w = torch.randn(4, 3, requires_grad=True)
    x = torch.randn(8, 4)
    results = []
    for run in (function, compiled(function)):
        w.grad = None
        given = x.clone()
        plain, gate = run(given, w)
        with torch.no_grad():
            given.fill_(math.nan)  # a clone was saved
            plain.detach().data.fill_(math.nan)
        gate.sum().backward()
        results.append(w.grad.clone())
    assert_close_to_eager(results[1], results[0])


def test_packed_weights_are_shared_and_freed_with_the_weight(compiled):
    live = lambda: _C.memory()["live_bytes"]  # noqa: E731
    layer = torch.nn.Linear(512, 512)
    run = compiled(layer, dynamic=False)
    with torch.no_grad():
        run(torch.randn(8, 512))
        packed = live()
        run(torch.randn(16, 512))
        assert live() < packed + layer.weight.nbytes // 2, "the second batch size packed the weights again"
        del layer, run
        gc.collect()
        compiled(torch.sin)(torch.randn(3))  # the next compilation or recomputation frees them
    assert live() < packed - 512 * 512 * 2


def test_mutated_weights_do_not_pile_up(compiled):
    """Each update creates new packed weights, and the old ones must be freed."""
    layer = torch.nn.Linear(64, 64)
    run, x = compiled(layer), torch.randn(4, 64)

    def step():
        layer.weight.add_(0.001)
        run(x)

    with torch.no_grad():
        assert growth_over(2000, step) < ALLOWED_GROWTH


def test_errors_do_not_leak(compiled):
    run = compiled(lambda t, i: t[i] * 2)
    table, bad = torch.randn(100, 50), torch.tensor([0, 100])

    def step():
        with pytest.raises((IndexError, RuntimeError)):
            run(table, bad)

    assert growth_over(500, step) < ALLOWED_GROWTH


def test_compiled_models_are_freed(compiled):
    """A deleted model frees its kernels, packed weights and arena (a megabyte of weights each time)."""
    alive = []

    def step():
        layer = torch.nn.Linear(512, 512)
        alive.append(weakref.ref(layer.weight))
        with torch.no_grad():
            compiled(layer)(torch.randn(2, 512))
        del layer
        torch._dynamo.reset()
        gc.collect()

    assert growth_over(8, step) < 4 << 20
    assert not [weight for weight in alive if weight() is not None]


def in_threads(workers):
    """Runs the callables at the same time, and raises an exception if one of them does."""
    errors, start = [], threading.Barrier(len(workers))

    def guarded(work):
        try:
            start.wait()
            work()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=guarded, args=(work,)) for work in workers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]


def call_many(run, inputs, expected, times=40):
    with torch.no_grad():
        for _ in range(times):
            assert_close_to_eager(run(*inputs), expected, scale=20.0)


def test_several_models_in_threads(compiled):
    """Each thread compiles and runs its own model."""
    workers = []
    for name in ("mlp", "cnn", "mlp_mixer", "dlrm"):
        model, inputs = MODELS[name]()
        model.eval()
        with torch.no_grad():
            expected = model(*inputs)
        workers.append(functools.partial(call_many, compiled(model), inputs, expected))
    in_threads(workers)


def test_one_model_in_threads(compiled):
    """Four threads call one executable with different inputs: calls share no state."""
    model, (x,) = MODELS["mlp"]()
    model.eval()
    run = compiled(model)
    workers = []
    with torch.no_grad():
        run(x)
        for i in range(4):
            mine = x * (i + 1)
            workers.append(functools.partial(call_many, run, (mine,), model(mine), times=200))
    in_threads(workers)


def test_an_eager_graph_in_threads(compiled):
    """Concurrent calls of a graph that runs eagerly share no values."""
    function = lambda x: x[0:3].as_strided((4,), (1,), 0).sin().cumsum(0) * 2  # noqa: E731
    run, x = compiled(function), torch.randn(8)
    run(x)
    in_threads([functools.partial(call_many, run, (x * i,), function(x * i), times=200) for i in range(1, 5)])


def test_one_model_in_threads_with_repacking(compiled):
    """Calls during which another thread replaces the weights see either the old or the new ones, never a mixture."""
    layer = torch.nn.Linear(96, 96, bias=False)
    x = torch.eye(96)
    old, new = torch.zeros(96, 96), torch.ones(96, 96)
    layer.weight.data = old
    run = compiled(layer)
    stop = threading.Event()

    def read():
        with torch.no_grad():
            while not stop.is_set():
                values = run(x).unique()
                assert set(values.tolist()) <= {0.0, 1.0}

    def write():
        try:
            for i in range(50):
                layer.weight.data = new if i % 2 else old
        finally:
            stop.set()

    with torch.no_grad():
        run(x)
    in_threads([read, read, write])


def test_set_num_threads_is_read_at_each_call(compiled):
    """Compiled with one thread count and run with others: the same values, and at most the requested threads."""
    before = torch.get_num_threads()
    x = torch.randn(512, 1031)
    run = compiled(lambda x: (x.exp().sum(1), (x * 2 + 1).sigmoid(), x.softmax(-1)))
    try:
        torch.set_num_threads(1)
        single = run(x)
        for count in (2, 3, 1, 4):
            torch.set_num_threads(count)
            assert_close_to_eager(run(x), single, scale=10.0)
            assert torch.get_num_threads() == count
    finally:
        torch.set_num_threads(before)


@pytest.mark.needs_ipex
def test_one_thread_uses_one_thread(compiled):
    """With one thread, CPU time does not exceed wall time by more than noise."""
    before = torch.get_num_threads()
    x = torch.randn(2048, 2048)
    run = compiled(lambda x: (x.exp() + x.sin()).tanh().sum(1))
    try:
        torch.set_num_threads(1)
        run(x)
        process = psutil.Process()
        threads = {t.id: t.user_time + t.system_time for t in process.threads()}
        for _ in range(20):
            run(x)
        spent = [t.user_time + t.system_time - threads.get(t.id, 0.0) for t in process.threads()]
    finally:
        torch.set_num_threads(before)
    assert sum(spent) - max(spent) < 0.3 * max(spent) + 0.1


def test_gil_is_released(compiled):
    """Another Python thread makes progress during a long compiled call."""
    x = torch.randn(4_000_000)
    run = compiled(lambda x: torch.special.ndtri(torch.sigmoid(x)).exp().tanh().sum())
    run(x)
    ticks, done = [0], threading.Event()

    def tick():
        while not done.is_set():
            ticks[0] += 1

    thread = threading.Thread(target=tick)
    thread.start()
    start = ticks[0]
    for _ in range(3):
        run(x)
    done.set()
    thread.join()
    assert ticks[0] - start > 1000


@pytest.mark.nightly
def test_soak():
    """Half an hour of random models, shapes and threads: no wrong result, no memory growth (soak.py)."""
    command = [sys.executable, str(Path(__file__).parent / "soak.py"), "--minutes", "30", "--backend", BACKEND]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout + result.stderr[-2000:]

"""Streams: how a batch is split and joined, and one module on several teams of threads at once, bit by bit."""

import collections
import copy
import os
import threading

import intel_extension_for_pytorch as ipex
import pytest
import torch
from intel_extension_for_pytorch.compiler.backend import ipex as backend
from intel_extension_for_pytorch.cpu import runtime

pytestmark = pytest.mark.needs_ipex

Hint = runtime.MultiStreamModuleHint
CORES = sorted(os.sched_getaffinity(0))


class Recorder(torch.nn.Module):
    """Returns its arguments, and notes the rows and the thread of each call."""

    def __init__(self):
        super().__init__()
        self.calls = []

    def forward(self, *args, **kwargs):
        self.calls.append((args, kwargs, threading.get_ident()))
        return (*args, kwargs) if kwargs else args[0] if len(args) == 1 else args


def streams(model, count, monkeypatch, **options):
    """A module with `count` streams on a machine with any number of cores: the tasks share the cores there are."""
    from intel_extension_for_pytorch.cpu.runtime import multi_stream

    class Pool(runtime.CPUPool):
        """A pool of invented cores, whose team has one real core for each thread that fits."""

        def __init__(self, core_ids=None):
            self.core_ids = list(range(100, 100 + count) if core_ids is None else core_ids)
            self.cpu_pool = ipex._C.CPUPool(CORES[: len(self.core_ids)])

        def __reduce__(self):
            return Pool, (self.core_ids,)

    monkeypatch.setattr(multi_stream, "CPUPool", Pool)
    return runtime.MultiStreamModule(model, options.pop("num_streams", count), Pool(), **options)


# ---- splitting ----


@pytest.mark.parametrize(
    ("batch", "count", "rows"),
    [(8, 2, [4, 4]), (7, 3, [3, 2, 2]), (2, 3, [1, 1]), (4, 3, [2, 1, 1]), (1, 4, [1]), (0, 2, [0]), (5, 1, [5])],
)
def test_rows_of_each_stream(monkeypatch, batch, count, rows):
    x = torch.randn(batch, 3)
    model = Recorder()
    joined = streams(model, count, monkeypatch)(x)
    assert torch.equal(joined, x)
    assert sorted((len(args[0]) for args, _, _ in model.calls), reverse=True) == rows
    separate = streams(model, count, monkeypatch, concat_output=False)(x)
    assert [len(part) for part in separate] == rows and torch.equal(torch.cat(separate), x)


@pytest.mark.parametrize(("cores", "count", "shares"), [(3, 2, [2, 1]), (7, 3, [3, 2, 2]), (4, 4, [1] * 4)])
def test_cores_of_each_stream(monkeypatch, cores, count, shares):
    module = streams(torch.nn.Identity(), cores, monkeypatch, num_streams=count)
    parts = [task.cpu_pool.core_ids for task in module.tasks]
    assert [len(part) for part in parts] == shares
    assert [core for part in parts for core in part] == module.core_list


def test_streams_run_on_threads_of_their_own(monkeypatch):
    model = Recorder()
    streams(model, 3, monkeypatch)(torch.ones(3))
    assert len({thread for *_, thread in model.calls} | {threading.get_ident()}) == 4


def test_number_of_streams():
    pool = runtime.CPUPool()
    assert runtime.get_default_num_streams(pool) == len(CORES)
    assert runtime.MultiStreamModule(torch.nn.Identity()).get_stream_number() == len(CORES)
    with pytest.warns(UserWarning, match=f"{len(CORES)} streams are used"):
        module = runtime.MultiStreamModule(torch.nn.Identity(), len(CORES) + 1, pool)
    assert module.get_stream_number() == len(CORES)
    for wrong in (0, -1, "auto", 1.5):
        with pytest.raises(ValueError, match='"AUTO" or a positive int'):
            runtime.MultiStreamModule(torch.nn.Identity(), wrong, pool)


def test_one_stream_runs_in_the_caller_and_restores_it():
    before = os.sched_getaffinity(0), torch.get_num_threads()
    seen = []
    model = lambda x: (seen.append((threading.get_ident(), os.sched_getaffinity(0))), x)[1]  # noqa: E731
    module = runtime.MultiStreamModule(model, 1, runtime.CPUPool([CORES[-1]]))
    assert torch.equal(module(torch.ones(2)), torch.ones(2))
    assert seen == [(threading.get_ident(), {CORES[-1]})]
    assert (os.sched_getaffinity(0), torch.get_num_threads()) == before


# ---- hints ----

A, B, C = torch.randn(4, 1), torch.randn(4, 2), torch.randn(4, 3)
Pair = collections.namedtuple("Pair", "left right")


@pytest.mark.parametrize(
    ("args", "kwargs", "inputs", "outputs"),
    [
        ((A, False, B), {}, Hint(0, None, 0), Hint((0, None, 0))),
        ((A, True, B), {}, Hint(0, 0, 0), Hint(0, 0, 0)),  # values that are not tensors pass
        (((A, B, C),), {}, Hint((0, 0, 0)), Hint((0, 0, 0))),
        (({"a": A, "b": B},), {}, Hint({"a": 0, "b": 0}), Hint({"a": 0, "b": 0})),
        ((((A, B), C),), {}, Hint(((0, 0), 0)), Hint(((0, 0), 0))),
        (([A, {"b": (B, None)}],), {}, Hint([0, {"b": (0, None)}]), Hint([0, {"b": (0, None)}])),
        ((A.t(), B, C.t()), {}, Hint(1, 0, -1), Hint((1, 0, -1))),
        ((A, B), {"key": C}, Hint(0, 0, key=0), Hint(0, 0, key=0)),
        ((A,), {"key": C, "flag": 3}, Hint(0, key=0, flag=None), Hint((0, {"key": 0, "flag": None}))),
        ((Pair(A, B),), {}, Hint((0, 0)), Hint(Pair(0, 0))),
    ],
    ids=lambda value: repr(value) if isinstance(value, Hint) else "",
)
def test_hints(monkeypatch, args, kwargs, inputs, outputs):
    model = Recorder()
    expected = model(*args, **kwargs)
    for count in (1, 2, 3, 8):
        model.calls.clear()
        module = streams(model, count, monkeypatch, input_split_hint=inputs, output_concat_hint=outputs)
        result = module(*args, **kwargs)
        torch.testing.assert_close(result, expected, rtol=0, atol=0)
        assert type(result) is type(expected)
        assert len(model.calls) == min(count, 4)


def test_none_gives_every_stream_the_same_object(monkeypatch):
    model = Recorder()
    module = streams(model, 2, monkeypatch, input_split_hint=Hint(0, None), output_concat_hint=Hint((0, None)))
    table = torch.randn(3)
    _, same = module(A, table)
    assert same is table and all(args[1] is table for args, _, _ in model.calls)


def test_parts_are_views(monkeypatch):
    model = Recorder()
    streams(model, 2, monkeypatch, concat_output=False)(A)
    assert {args[0].untyped_storage().data_ptr() for args, _, _ in model.calls} == {A.untyped_storage().data_ptr()}


def test_dataclasses_of_transformers(monkeypatch):
    outputs = pytest.importorskip("transformers.modeling_outputs")
    model = lambda x: outputs.BaseModelOutput(last_hidden_state=x)  # noqa: E731
    result = streams(model, 2, monkeypatch, output_concat_hint=Hint(last_hidden_state=0))(A)
    assert type(result) is outputs.BaseModelOutput and torch.equal(result.last_hidden_state, A)


@pytest.mark.parametrize(
    ("args", "kwargs", "inputs", "outputs", "message"),
    [
        ((A, B), {}, None, None, "has no entry for argument 1"),
        ((A,), {"key": B}, None, None, "has no entry for key"),
        ((A, torch.ones(5)), {}, Hint(0, 0), None, "different batch sizes: 4 in argument 0, 5 in argument 1"),
        ((A,), {}, Hint(2), None, "argument 0 has 2 dimensions, so dimension 2"),
        ((A,), {}, Hint(None), None, "names no tensor to split"),
        ((3,), {}, None, None, "names no tensor to split"),
        (((A, B),), {}, None, None, "the dimension 0, but it is a tuple of 2"),
        (((A, B),), {}, Hint((0, 0, 0)), None, "a sequence of 3 entries, but it is a tuple of 2"),
        (({"a": A, "b": B},), {}, Hint({"a": 0}), None, r"keys \['a'\], but it is a dict with the keys \['a', 'b'\]"),
        ((A,), {}, Hint("0"), None, "is '0': it must be an int"),
        (((A, B),), {}, Hint((0, 0)), None, "the result of a stream is a tuple of 2, and its hint is the dimension 0"),
        ((A,), {}, None, Hint((0, 0)), "the hint for the result is a sequence of 2 entries"),
    ],
)  # fmt: skip
def test_hints_that_do_not_fit(monkeypatch, args, kwargs, inputs, outputs, message):
    module = streams(Recorder(), 2, monkeypatch, input_split_hint=inputs, output_concat_hint=outputs)
    with pytest.raises(RuntimeError, match=message):
        module(*args, **kwargs)


def test_the_first_error_is_raised_after_all_streams_ended(monkeypatch):
    ended = []

    def model(x):
        if x[0] < 2:
            raise KeyError(int(x[0]))
        ended.append(int(x[0]))

    module = streams(model, 4, monkeypatch)
    with pytest.raises(KeyError, match="0"):
        module(torch.arange(4))
    assert sorted(ended) == [2, 3]


# ---- the module ----


def test_it_is_a_module(monkeypatch):
    net = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Dropout(0.5))
    module = streams(net, 2, monkeypatch)
    assert [p is q for p, q in zip(module.parameters(), net.parameters(), strict=True)] == [True, True]
    module.eval()
    assert not net.training
    x = torch.randn(6, 2)
    twin = copy.deepcopy(module)
    with torch.no_grad():
        before = net(x)
        assert torch.equal(module(x), before)
        net[0].weight.zero_()
        assert torch.equal(module(x), net(x))  # weights are shared
        assert torch.equal(twin(x), before)  # and copied in a copy, once for all streams
    assert len({id(task.module) for task in twin.tasks} | {id(twin.model)}) == 1


def test_gradients(monkeypatch):
    net = torch.nn.Linear(3, 2)
    module = streams(net, 2, monkeypatch)
    x = torch.randn(4, 3)
    module(x).sum().backward()
    found = net.weight.grad.clone()
    net.weight.grad = None
    net(x).sum().backward()
    torch.testing.assert_close(found, net.weight.grad)


def test_benchmark_module():
    model = Recorder()
    module = runtime._MultiStreamBenchmarkModule(model)
    assert torch.equal(module(A), A)
    assert all(args[0] is A for args, _, _ in model.calls) and len(model.calls) == len(CORES)


# ---- one module on several teams ----


class Net(torch.nn.Module):
    """Convolutions, products, norms, sorting and sums: library steps with plans and packed weights, and kernels with
    partial sums."""

    def __init__(self):
        super().__init__()
        self.first, self.norm = torch.nn.Conv2d(3, 32, 3, padding=1), torch.nn.BatchNorm2d(32)
        self.second = torch.nn.Conv2d(32, 64, 3, stride=2)
        self.wide, self.narrow, self.layer_norm = (
            torch.nn.Linear(64, 128),
            torch.nn.Linear(128, 128),
            torch.nn.LayerNorm(128),
        )

    def forward(self, x):
        h = torch.relu(self.second(torch.relu(self.norm(self.first(x))))).mean((2, 3))
        h = torch.nn.functional.gelu(self.wide(h))
        h = self.layer_norm(h + self.narrow(h))
        ordered, places = h.sort(-1)
        return torch.softmax(h @ h.t(), -1), ordered.cumsum(-1), places, h.sum()


def artifact(net, x, tmp_path):
    ipex.aot.compile(torch.export.export(net, (x,)), tmp_path / "net.ipex")
    return ipex.aot.load(tmp_path / "net.ipex")


def script(net, x, _):
    with torch.no_grad():
        return torch.jit.freeze(torch.jit.trace(ipex.optimize(net), x))


KINDS = {
    "compiled": lambda net, x, _: torch.compile(net, backend=backend),
    "dynamic": lambda net, x, _: torch.compile(net, backend=backend, dynamic=True),
    "artifact": artifact,
    "optimized": lambda net, x, _: ipex.optimize(net),
    "script": script,
}


def teams():
    """Teams of different sizes, more than there are cores."""
    sizes = [1, 2] if len(CORES) > 1 else [1]
    return [runtime.CPUPool(CORES[:size]) for size in sizes] + [runtime.CPUPool(CORES[-1:])]


def assert_all_equal(got, expected):
    assert len(got) == len(expected)
    for a, b in zip(got, expected, strict=True):
        assert torch.equal(a, b)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", [torch.float32, pytest.param(torch.bfloat16, id="autocast")])
def test_one_module_on_teams_of_different_sizes(kind, dtype, tmp_path):
    """Calls on several teams at once give the bits that each call gives alone, whatever the size of the team."""
    if kind == "artifact" and dtype != torch.float32:
        pytest.skip("an artifact has the types of its export")
    net = Net().eval()
    batches = (8,) * 4 if kind in ("artifact", "compiled") else (8, 5, 8, 3)
    inputs = [torch.randn(batch, 3, 32, 32) for batch in batches]
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16, enabled=dtype != torch.float32):
        module = KINDS[kind](net, inputs[0], tmp_path)
        alone = []
        for pool in teams():
            with runtime.pin(pool):
                for x in inputs * (3 if kind == "script" else 0):  # its executor interprets the first calls
                    module(x)
                alone.append([module(x) for x in inputs])
        for other in alone[1:]:
            for got, expected in zip(other, alone[0], strict=True):
                assert_all_equal(got, expected)
        tasks = [runtime.Task(module, pool) for pool in teams() * 2]
        for _ in range(8):
            calls = [(i, task(x)) for i, x in enumerate(inputs) for task in tasks]
            for i, future in calls:
                assert_all_equal(future.get(), alone[0][i])


@pytest.mark.parametrize("kind", ["compiled", "dynamic", "optimized"])
def test_first_calls_at_once(kind):
    """Streams whose first calls compile at the same time."""
    net = torch.nn.Sequential(
        torch.nn.Linear(32, 64), torch.nn.GELU(), torch.nn.LayerNorm(64), torch.nn.Linear(64, 16)
    ).eval()
    module = KINDS[kind](net, None, None)
    inputs = [torch.randn(batch, 32) for batch in (2, 3, 5, 8, 13, 21)]
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        calls = [(x, task(x)) for task in [runtime.Task(module, pool) for pool in teams() * 2] for x in inputs]
        results = {}
        for x, future in calls:
            results.setdefault(len(x), []).append(future.get())
        for x in inputs:
            for result in results[len(x)]:
                torch.testing.assert_close(result, net(x), rtol=3e-2, atol=3e-2)
                # Without dynamic=True, the size that came first has a program of its own in the threads where it did.
                assert kind == "compiled" or torch.equal(result, results[len(x)][0])


def test_streams_of_a_compiled_module_compile_once(monkeypatch):
    """Not once for each stream: the threads that wait for a compilation would compile again."""
    net, compiled = torch.nn.Linear(8, 4), []

    def counting(graph, inputs):
        compiled.append(inputs[-1].shape)
        return graph

    module = streams(torch.compile(net, backend=counting, dynamic=False), 6, monkeypatch)
    for _ in range(2):
        for batch in (12, 6):
            x = torch.randn(batch, 8)
            torch.testing.assert_close(module(x), net(x))
    # The teams of two sizes have programs of their own, where there are two cores.
    sizes = len({len(task.cpu_pool.cpu_pool.get_core_list()) for task in module.tasks})
    assert len(compiled) == 2 * sizes


def test_weights_that_change_between_calls():
    """Packed weights are computed again once, and no stream sees old ones after the change."""
    net = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 64)).eval()
    module, x = torch.compile(net, backend=backend), torch.randn(8, 64)
    tasks = [runtime.Task(module, pool) for pool in teams() * 2]
    with torch.no_grad():
        for i in range(8):
            net[0].weight.fill_(i / 64)
            results = [future.get() for future in [task(x) for task in tasks]]
            torch.testing.assert_close(results[0], net(x))
            for other in results[1:]:
                assert torch.equal(results[0], other)


def test_training_on_several_streams():
    """Forward and backward passes of one compiled module at once, each with gradients of its own."""
    net = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.GELU(), torch.nn.Linear(32, 8))
    module = torch.compile(net, backend=backend)

    def gradients(x):
        return torch.autograd.grad(module(x).square().sum(), list(net.parameters()))

    inputs = [torch.randn(6, 16) for _ in range(4)]
    alone = [gradients(x) for x in inputs]
    tasks = [runtime.Task(gradients, pool) for pool in teams() * 2]
    for _ in range(4):
        calls = [(i, task(x)) for i, x in enumerate(inputs) for task in tasks]
        for i, future in calls:
            for got, expected in zip(future.get(), alone[i], strict=True):
                torch.testing.assert_close(got, expected)

"""Warm starts: reuse of compiled graphs from AOTAutograd's cache and the object cache, and their robustness."""

import json
import os
import pickle
import stat
import subprocess
import sys
import textwrap
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch
from comparison import assert_close_to_eager
from torch._dynamo.config import patch
from torch._dynamo.utils import counters

pytestmark = pytest.mark.needs_ipex


@pytest.fixture
def caches(tmp_path, monkeypatch):
    """Empty caches for this test, with AOTAutograd's cache on."""
    monkeypatch.setenv("IPEX_CACHE", str(tmp_path / "kernels"))
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "graphs"))
    with torch._functorch.config.patch(enable_autograd_cache=True):
        yield tmp_path


def outcome(ipex, function):
    """Discards all compiled code; returns the result of `function`, its reports and counters of AOTAutograd's cache."""
    torch._dynamo.reset()
    counters.clear()
    with ipex.record_reports() as reports:
        result = function()
    kinds = ("hit", "miss", "saved", "bypass")
    return result, reports, {kind: counters["aot_autograd"][f"autograd_cache_{kind}"] for kind in kinds}


def entries(caches):
    return [p for p in (caches / "graphs" / "aotautograd").rglob("*") if p.is_file()]


@pytest.fixture(scope="module")
def ipex():
    import intel_extension_for_pytorch

    return intel_extension_for_pytorch


@torch.library.custom_op("ipex_warm::scale", mutates_args=())
def scale(x: torch.Tensor, by: float) -> torch.Tensor:
    return x * by


@scale.register_fake
def _(x, by):
    return torch.empty_like(x)


def infer(compiled):
    torch.manual_seed(1)
    model = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.GELU(), torch.nn.LayerNorm(32)).eval()
    with torch.no_grad():
        return [compiled(model)(torch.ones(4, 16))]


def train(compiled):
    torch.manual_seed(1)
    model = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.GELU(), torch.nn.BatchNorm1d(32))
    loss = compiled(model)(torch.randn(32, 16)).tanh().mean()
    loss.backward(retain_graph=True)
    loss.backward()
    return [loss.detach(), *(p.grad for p in model.parameters()), *model.buffers()]


def dynamic(compiled):
    run = compiled(lambda x: torch.softmax(x * x.shape[0] ** -0.5, 1) + x.sum(0), dynamic=True)
    return [run(torch.linspace(0, 1, n * 5).view(n, 5)) for n in (3, 7, 11)]


def dynamic_train(compiled):
    run = compiled(lambda x, w: torch.tanh(x @ w).sum(0), dynamic=True)
    results = []
    for n in (3, 7):
        w = torch.linspace(-1, 1, 20).view(5, 4).requires_grad_()
        run(torch.ones(n, 5), w).sum().backward()
        results.append(w.grad)
    return results


def baked_constant(compiled):
    return [compiled(lambda x: x + torch.tensor([1.5, float("nan"), -0.0]))(torch.ones(2, 3))]


def mutation(compiled):
    x = torch.arange(6.0).view(2, 3)

    def update(t):
        t[0].mul_(3)
        return t.sum(), t.t(), None, 7

    return [v for v in compiled(update)(x) if isinstance(v, torch.Tensor)] + [x]


def external(compiled):
    return [compiled(lambda x: torch.relu(scale(x, 2.5)))(torch.randn(8, generator=torch.Generator().manual_seed(3)))]


def autocast(compiled):
    layer = torch.nn.Linear(8, 8)
    torch.nn.init.constant_(layer.weight, 0.25)
    torch.nn.init.zeros_(layer.bias)
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        return [compiled(layer)(torch.ones(2, 8))]


def library(compiled):
    """One library step of each kind, and our own steps that are not kernels."""
    torch.manual_seed(2)
    conv, lstm = torch.nn.Conv2d(4, 8, 3, groups=2), torch.nn.LSTM(8, 16, batch_first=True)

    def run(x):
        y = lstm(torch.nn.functional.relu(conv(x)).flatten(2).transpose(1, 2))[0]
        values, order = y.sort(-1)
        found = torch.searchsorted(values.contiguous(), y.contiguous())
        return [y @ y.mT, values, order, found, torch.dropout(y, 0.5, True)]

    with torch.no_grad(), patch(allow_rnn=True):
        torch.manual_seed(3)
        return compiled(run)(torch.randn(2, 4, 6, 6))


def foreach(compiled):
    """In-place updates of tensors of many sizes in one step."""
    torch.manual_seed(4)
    tensors, steps = ([torch.randn(n) for n in (3, 1, 40_000, 5)] for _ in range(2))
    compiled(lambda: torch._foreach_add_(tensors, steps, alpha=-0.5))()
    return tensors


PROGRAMS = (
    infer, train, dynamic, dynamic_train, baked_constant, mutation, external, autocast, library, foreach,
)  # fmt: skip


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.__name__)
def test_second_compile_traces_and_compiles_nothing(ipex, compiled, caches, program):
    first, cold, did = outcome(ipex, lambda: program(compiled))
    assert did["saved"] == did["miss"] > 0 and did["hit"] == did["bypass"] == 0
    assert not any(r["warm"] for r in cold)
    second, warm, did = outcome(ipex, lambda: program(compiled))
    assert did["hit"] > 0 and did["miss"] == did["bypass"] == 0
    assert [r["kind"] for r in warm] and all(r["warm"] for r in warm)
    assert {(r["kind"], r["nodes"], r["extern_steps"]) for r in warm} == {
        (r["kind"], r["nodes"], r["extern_steps"]) for r in cold
    }
    steps = [[(s["kind"], s["name"], s["detail"], s["sources"]) for s in r["steps"]] for r in cold]
    for report in warm:
        assert report["cache_hits"] == report["kernels"]
        assert [stage for stage, _ in report["times"]] == ["kernels", "steps"]  # and no pass
        assert [(s["kind"], s["name"], s["detail"], s["sources"]) for s in report["steps"]] in steps
    eager = program(lambda f, **_: f)
    for a, b, expected in zip(first, second, eager, strict=True):
        assert torch.equal(a.nan_to_num(9), b.nan_to_num(9)) and a.stride() == b.stride()
        assert_close_to_eager(b, expected)


def test_nothing_of_the_importer_is_asked(ipex, compiled, caches, monkeypatch):
    """A warm start does not build the decomposition table, which would take most of its time."""
    from intel_extension_for_pytorch.compiler import backend, decompose

    outcome(ipex, lambda: train(compiled))

    def refuse(*arguments, **keywords):
        raise AssertionError("a warm start traces")

    monkeypatch.setattr(decompose, "_table", refuse)
    monkeypatch.setattr(backend, "import_graph", refuse)
    _, reports, did = outcome(ipex, lambda: train(compiled))
    assert did["hit"] == 1 and all(r["warm"] for r in reports)


def test_steps_that_do_not_fit_are_made_again(ipex, compiled, caches, monkeypatch):
    from intel_extension_for_pytorch.compiler import native

    outcome(ipex, lambda: infer(compiled))
    load = native._load_saved
    for damage in ({"target": b"a 386"}, {"program": "ipex.program"}, {"kernels": {}}):
        monkeypatch.setattr(native, "_load_saved", lambda saved, state, by=damage: load(saved | by, state))
        result, (report,), did = outcome(ipex, lambda: infer(compiled))
        assert did["hit"] == 1 and report["warm"] and "lower" in dict(report["times"])
        assert report["cache_hits"] == report["kernels"]
        assert_close_to_eager(result, infer(lambda f: f))


def test_loaded_graphs_share_what_they_keep_of_a_weight(ipex, compiled, caches):
    """Loaded graphs share hoisted values with equal recipes, like compiled ones."""
    from intel_extension_for_pytorch import _C

    def kept():
        weight = torch.nn.Parameter(torch.linspace(-1, 1, 1 << 16).view(256, 256))
        runs = [compiled(lambda x, m=m: (x * m).bfloat16() @ weight.exp().bfloat16()) for m in (1.0, 2.0)]
        before = _C.memory()["live_bytes"]
        with torch.no_grad():
            for run in runs:
                run(torch.ones(8, 256))
        return _C.memory()["live_bytes"] - before

    copy = 2 << 16
    compiled_keep, _, _ = outcome(ipex, kept)
    loaded_keep, reports, did = outcome(ipex, kept)
    assert did["hit"] == 2 and all("steps" in dict(r["times"]) for r in reports)
    assert copy <= compiled_keep < 3 * copy and abs(compiled_keep - loaded_keep) < 0.1 * copy


def test_evicted_kernels_come_back_with_the_graph(ipex, compiled, caches):
    outcome(ipex, lambda: infer(compiled))
    for path in (caches / "kernels").iterdir():
        path.unlink()
    _, (report,), _ = outcome(ipex, lambda: infer(compiled))
    assert report["warm"] and report["cache_hits"] == report["kernels"] > 0


@pytest.mark.parametrize(
    "use",
    (
        lambda x, s: torch.add(x, x, alpha=s),
        lambda x, s: torch.nn.functional.leaky_relu(-x, s),
        lambda x, s: torch.addcmul(x, x, x, value=s),
    ),
    ids=("alpha", "leaky_relu", "addcmul"),
)
@pytest.mark.parametrize("gradients", (False, True))
def test_numbers_that_are_arguments(ipex, compiled, caches, use, gradients):
    """A float that tracing specializes is not part of an entry's key or guards, so such a graph is not cached."""

    def program(x, s):
        return x * s, use(x, s)

    def results(function):
        found = []
        for s in (0.5, 0.75, 0.25, 0.125):
            x = torch.full((3,), 9.0, requires_grad=gradients)
            a, b = function(x, s)
            if gradients:
                (a + b).sum().backward()
            found += [a.detach(), b.detach(), x.grad]
        return [r for r in found if r is not None]

    expected = results(program)
    for _ in range(2):
        found, _, _ = outcome(ipex, lambda: results(compiled(program)))
        for got, wanted in zip(found, expected, strict=True):
            torch.testing.assert_close(got, wanted)


def test_what_decides_about_code_is_in_the_key(ipex, compiled, caches, monkeypatch):
    run = lambda **options: outcome(ipex, lambda: infer(lambda m: compiled(m, **options)))[2]  # noqa: E731
    assert run()["miss"] == 1
    assert run(options={"hoist": False})["miss"] == 1
    monkeypatch.setenv("IPEX_TARGET", "avx2")
    assert run()["miss"] == 1
    monkeypatch.setenv("IPEX_DISABLE_PASS", "fuse_library")
    assert run()["miss"] == 1
    monkeypatch.delenv("IPEX_TARGET")
    monkeypatch.delenv("IPEX_DISABLE_PASS")
    assert run()["hit"] == 1


def test_entries_of_another_version_are_not_used(ipex, compiled, caches, monkeypatch, caplog):
    from intel_extension_for_pytorch.compiler import warm_start

    outcome(ipex, lambda: infer(compiled))
    tag = warm_start.cache_tag
    identity = warm_start._source_identity()
    # An entry records its origin, which is checked even if the key matches.
    monkeypatch.setattr(warm_start, "_source_identity", lambda: "another")
    monkeypatch.setattr(warm_start, "cache_tag", lambda options: tag(options).replace("another", identity))
    result, (report,), did = outcome(ipex, lambda: infer(compiled))
    assert did["hit"] == 0 and not report["warm"]
    assert "another version" in caplog.text
    assert_close_to_eager(result, infer(lambda f: f))


def test_switched_off(ipex, compiled, caches, monkeypatch):
    monkeypatch.setenv("IPEX_CACHE", "off")
    for _ in range(2):
        _, (report,), did = outcome(ipex, lambda: infer(compiled))
        assert not report["warm"] and not any(did.values())
    assert not (caches / "kernels").exists() and not entries(caches)


def test_eager_graphs_are_not_kept(ipex, compiled, caches, caplog):
    caplog.set_level("INFO", "ipex")
    x = torch.randn(4, dtype=torch.complex64)
    for _ in range(2):
        result, _, did = outcome(ipex, lambda: compiled(lambda t: t * t.conj())(x))
        assert did["saved"] == did["hit"] == 0
        assert_close_to_eager(result, x * x.conj())
    assert "no warm start" in caplog.text


def test_damaged_graph_entry(ipex, compiled, caches):
    outcome(ipex, lambda: infer(compiled))
    (entry,) = entries(caches)
    whole = entry.read_bytes()
    for kept in (0, 100, len(whole) - 1):
        for path in entries(caches):
            path.unlink()
        entry.write_bytes(whole[:kept])
        result, (report,), did = outcome(ipex, lambda: infer(compiled))
        assert did["hit"] == 0 and did["saved"] == 1 and not report["warm"]
        assert_close_to_eager(result, infer(lambda f: f))


def test_damaged_kernel_is_never_loaded(ipex, compiled, caches, caplog):
    outcome(ipex, lambda: infer(compiled))
    for path in (caches / "kernels").iterdir():
        content = bytearray(path.read_bytes())
        content[len(content) // 2] ^= 0xFF
        path.write_bytes(content)
    result, (report,), _ = outcome(ipex, lambda: infer(compiled))
    assert report["warm"] and report["cache_hits"] == 0
    assert "is damaged; it is ignored and rewritten" in caplog.text
    assert_close_to_eager(result, infer(lambda f: f))
    assert outcome(ipex, lambda: infer(compiled))[1][0]["cache_hits"] > 0


@pytest.mark.parametrize("which", ["kernels", "graphs"])
def test_directory_that_others_can_write_to_is_refused(ipex, compiled, caches, caplog, which):
    outcome(ipex, lambda: infer(compiled))
    (caches / which).chmod(0o777)
    for _ in range(2):
        result, (report,), _ = outcome(ipex, lambda: infer(compiled))
        assert report["cache_hits"] == (0 if which == "kernels" else report["kernels"])
        assert report["warm"] == (which == "kernels")
    assert caplog.text.count("other users can write to it") == 1
    assert_close_to_eager(result, infer(lambda f: f))


def test_object_cache_is_private(ipex, compiled, caches):
    outcome(ipex, lambda: infer(compiled))
    assert stat.S_IMODE((caches / "kernels").stat().st_mode) == 0o700


def test_size_limit_is_checked(ipex, compiled, caches, monkeypatch):
    monkeypatch.setenv("IPEX_CACHE_SIZE", "lots")
    with pytest.raises(Exception, match="number of megabytes"):
        outcome(ipex, lambda: infer(lambda m: compiled(m, options={"fallback": False})))


def test_cache_artifacts_move_to_another_machine(ipex, compiled, caches, monkeypatch, tmp_path):
    torch.compiler.save_cache_artifacts()  # forget what earlier tests recorded
    outcome(ipex, lambda: train(compiled))
    artifacts, info = torch.compiler.save_cache_artifacts()
    assert len(info.artifacts["aot_autograd"]) >= 1
    monkeypatch.setenv("IPEX_CACHE", str(tmp_path / "there" / "kernels"))
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "there" / "graphs"))
    torch.compiler.load_cache_artifacts(artifacts)
    result, reports, did = outcome(ipex, lambda: train(compiled))
    assert did["hit"] == 1 and did["miss"] == 0
    assert all(r["warm"] and r["cache_hits"] == r["kernels"] for r in reports)
    for value, expected in zip(result, train(lambda f: f), strict=True):
        assert_close_to_eager(value, expected)


# ---- several processes ----

PROGRAM = """
    import json, sys, torch
    import intel_extension_for_pytorch as ipex
    from torch._dynamo.utils import counters
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.GELU(), torch.nn.Linear(16, 4))
    x = torch.randn(3, 8)
    with ipex.record_reports() as reports:
        loss = torch.compile(model, backend="ipex")(x).square().sum()
        loss.backward()
    expected = model(x).square().sum()
    print(json.dumps({
        "error": abs(loss.item() - expected.item()), "warm": [r["warm"] for r in reports],
        "kernels": sum(r["kernels"] for r in reports), "hits": sum(r["cache_hits"] for r in reports),
        "traced": counters["aot_autograd"]["autograd_cache_miss"],
    }))
"""


def start(caches, program=PROGRAM, **environment):
    paths = [str(Path(__file__).parent), *sys.path]
    env = os.environ | {"PYTHONPATH": os.pathsep.join(p for p in paths if p)} | environment
    env |= {"IPEX_CACHE": str(caches / "kernels"), "TORCHINDUCTOR_CACHE_DIR": str(caches / "graphs")}
    return subprocess.Popen([sys.executable, "-c", textwrap.dedent(program)], env=env, text=True,
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE)  # fmt: skip


def finish(process):
    out, err = process.communicate(timeout=240)
    assert process.returncode == 0, err[-4000:]
    return json.loads(out.splitlines()[-1]), err


def test_processes_share_what_they_compile(caches):
    """Three processes fill one cache at the same time, and a fourth one finds everything in it."""
    for process in [start(caches) for _ in range(3)]:
        result, err = finish(process)
        assert result["error"] < 1e-5 and "cache" not in err
    result, _ = finish(start(caches))
    assert result == {"error": result["error"], "warm": [True, True], "kernels": result["kernels"],
                      "hits": result["kernels"], "traced": 0}  # fmt: skip
    assert not list((caches / "kernels").glob(".new-*"))


def test_full_disk(caches):
    """Files are limited to 100 bytes, so that every write to a cache fails halfway."""
    limit = """
    import resource, signal
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))
    """
    result, err = finish(start(caches, textwrap.dedent(limit) + textwrap.dedent(PROGRAM)))
    assert result["error"] < 1e-5 and result["hits"] == 0
    assert err.count("object cache: cannot write") == 1
    assert not list((caches / "kernels").iterdir())


# ---- forks, threads and DataLoader workers ----


def test_fork_after_compile(compiled, ipex):
    """A worker that is forked while thread pools exist runs the compiled function, and compiles another one."""
    layer = torch.nn.Linear(64, 64).eval()
    run = compiled(layer)
    x = torch.randn(512, 64)
    with torch.no_grad():
        expected = run(x)
        pid = os.fork()
        if pid == 0:
            status = 1
            try:
                torch.set_num_threads(1)
                again = run(x)
                own = torch.compile(lambda t: t.tanh() + 1, backend="ipex")(x)
                status = 0 if torch.allclose(again, expected) and torch.allclose(own, x.tanh() + 1) else 2
            finally:
                os._exit(status)
    deadline = 60
    assert wait(pid, deadline) == 0


def wait(pid, seconds):
    """The exit status of a child process, which is killed if it hangs."""
    import signal
    import time

    end = time.monotonic() + seconds
    while time.monotonic() < end:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.05)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    pytest.fail(f"the forked process did not end within {seconds} s")


def test_eight_threads_call_what_one_compiled(compiled):
    """Forward and backward, with and without gradients. (Dynamo may compile again: with any backend, its guards
    sometimes fail when threads check them at the same time.)"""
    layer = torch.nn.Sequential(torch.nn.Linear(32, 64), torch.nn.GELU(), torch.nn.Linear(64, 8))
    run = compiled(layer, dynamic=False)
    inputs = [torch.randn(16, 32) for _ in range(8)]
    run(inputs[0]).sum().backward()
    with torch.no_grad():
        run(inputs[0])
        expected = [layer(x) for x in inputs]
    weights = list(layer.parameters())
    gradients = [torch.autograd.grad(layer(x).sum(), weights) for x in inputs]

    def work(index):
        for _ in range(20):
            with torch.no_grad():
                assert_close_to_eager(run(inputs[index]), expected[index])
            found = torch.autograd.grad(run(inputs[index]).sum(), weights)
            for value, wanted in zip(found, gradients[index], strict=True):
                assert_close_to_eager(value, wanted)

    # Dynamo guards on the thread count, which OpenMP keeps by thread.
    same = {"initializer": torch.set_num_threads, "initargs": (torch.get_num_threads(),)}
    with ThreadPoolExecutor(8, **same) as pool:
        list(pool.map(work, range(8)))


def test_eight_threads_compile_at_the_same_time(compiled):
    """Each thread compiles its own backward graph, and its cache entry is saved while the others compile."""
    layers = [torch.nn.Sequential(torch.nn.Linear(32, 24 + i), torch.nn.GELU()) for i in range(8)]
    x = torch.randn(16, 32)

    def work(layer):
        weights = list(layer.parameters())
        found = torch.autograd.grad(compiled(layer, dynamic=False)(x).sum(), weights)
        for value, wanted in zip(found, torch.autograd.grad(layer(x).sum(), weights), strict=True):
            assert_close_to_eager(value, wanted)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(work, layers))


class Squares(torch.utils.data.Dataset):
    """Runs a compiled function in DataLoader's workers."""

    def __init__(self, function):
        self.function = function

    def __len__(self):
        return 8

    def __getitem__(self, i):
        return self.function(torch.full((3,), float(i)))


def test_data_loader_workers(compiled):
    run = compiled(lambda t: t * t + 1)
    run(torch.ones(3))
    loader = torch.utils.data.DataLoader(Squares(run), batch_size=4, num_workers=2, timeout=60)
    assert_close_to_eager(torch.cat(list(loader)), torch.arange(8.0).square()[:, None].expand(8, 3) + 1)


def test_state_dict_and_copies_of_a_compiled_model(compiled):
    import copy
    import io

    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.GELU()).eval()
    run = compiled(model)
    x = torch.randn(2, 4)
    with torch.no_grad():
        expected = run(x)
        stream = io.BytesIO()
        torch.save(run.state_dict(), stream)
        stream.seek(0)
        other = compiled(torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.GELU()).eval())
        other.load_state_dict(torch.load(stream))
        assert_close_to_eager(other(x), expected)
        duplicate = copy.deepcopy(run)
        assert_close_to_eager(duplicate(x), expected)
        # a copy has its own weights
        next(iter(run.parameters())).zero_()
        assert_close_to_eager(duplicate(x), expected)
        assert_close_to_eager(run(x), model(x))
        assert_close_to_eager(pickle.loads(pickle.dumps(model))(x), model(x))


def test_products_are_measured_once(caches):
    """mode="max-autotune" caches the times of both implementations of a product, and another process uses them."""
    program = """
        import json, torch, intel_extension_for_pytorch as ipex
        torch.manual_seed(0)
        model, x = torch.nn.Linear(256, 192), torch.randn(64, 256)
        with torch.no_grad(), ipex.record_reports() as reports:
            y = torch.compile(model, backend="ipex", mode="max-autotune")(x)
            torch.testing.assert_close(y, model(x))
        print(json.dumps([report["measured"] for report in reports]))
    """
    environment = os.environ | {"TORCHINDUCTOR_AUTOGRAD_CACHE": "0"}
    run = [sys.executable, "-c", textwrap.dedent(program)]
    first, second = (
        json.loads(subprocess.run(run, env=environment, check=True, capture_output=True, text=True).stdout)
        for _ in range(2)
    )
    assert len(first[0]) == 1 and first[0][0].startswith("64x256 f32 by 256x192 f32 +bias - kernel ")
    assert second == first

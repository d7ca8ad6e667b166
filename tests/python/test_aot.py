"""Artifacts return the model's results (structures, dtypes, dynamic sizes, ISAs, weights), and bad ones are refused."""

import copy
import dataclasses
import json
import subprocess
import sys
import zipfile

import intel_extension_for_pytorch as ipex
import numpy
import pytest
import torch
from comparison import assert_error_within
from torch import nn
from torch.export import Dim

pytestmark = pytest.mark.needs_ipex
UserError = ipex.UserError


class Net(nn.Module):
    """Convolution, batch norm, linear, softmax, a lifted constant, buffers, dict in and out."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 16, 3, padding=1)
        self.norm = nn.BatchNorm2d(16)
        self.head = nn.Linear(16, 10)
        self.register_buffer("scale", torch.full((10,), 1.5), persistent=False)

    def forward(self, image, *, extra=None, power=2.0):
        x = torch.relu(self.norm(self.conv(image))).mean((2, 3))
        logits = self.head(x) * self.scale
        if extra is not None:
            logits = logits + extra["shift"]
        top = logits.topk(3, dim=-1)
        return {"probabilities": logits.softmax(-1), "top": (top.values, top.indices), "power": power, "nothing": None}


@dataclasses.dataclass
class Pair:
    a: torch.Tensor
    b: torch.Tensor


torch.export.register_dataclass(Pair, serialized_type_name="test_aot.Pair")


class Pairs(nn.Module):
    def forward(self, pair):
        return Pair(a=pair.a + pair.b, b=pair.a * 2)


def export(model, *args, dynamic=None, **kwargs):
    with torch.no_grad():
        return torch.export.export(model.eval(), args, kwargs, dynamic_shapes=dynamic)


def net(seed=0):
    torch.manual_seed(seed)
    return Net().eval()


def compile_and_load(tmp_path, program, **options):
    path = tmp_path / "model.ipex"
    ipex.aot.compile(program, path, **options)
    return ipex.aot.load(path)


def test_structures_come_back(tmp_path):
    model, image = net(), torch.randn(2, 3, 16, 16)
    extra = {"shift": torch.randn(10)}
    loaded = compile_and_load(tmp_path, export(model, image, extra=extra, power=3.0))
    with torch.no_grad():
        expected = model(image, extra=extra, power=3.0)
        actual = loaded(image, power=3.0, extra=extra)  # keyword order does not matter
    assert list(actual) == list(expected)
    torch.testing.assert_close(actual["probabilities"], expected["probabilities"])
    torch.testing.assert_close(actual["top"][0], expected["top"][0])
    assert torch.equal(actual["top"][1], expected["top"][1])
    assert (actual["power"], actual["nothing"]) == (3.0, None)
    with pytest.raises(UserError, match="exported with 3.0"):
        loaded(image, power=2.0, extra=extra)
    with pytest.raises(UserError, match="structure"):
        loaded(image)


def test_dataclasses_and_modules(tmp_path):
    pair = Pair(torch.randn(3), torch.randn(3))
    loaded = compile_and_load(tmp_path, export(Pairs(), pair))
    both = nn.Sequential(loaded)
    actual = both(pair)
    assert isinstance(actual, Pair)
    torch.testing.assert_close(actual.a, pair.a + pair.b)
    assert list(both.parameters()) == []
    assert not actual.a.requires_grad


def test_open_sizes_are_checked(tmp_path):
    model = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 4))
    batch = Dim("batch", min=1, max=64)
    loaded = compile_and_load(tmp_path, export(model, torch.randn(3, 8), dynamic=({0: batch},)))
    for size in (1, 2, 17, 64):
        x = torch.randn(size, 8)
        torch.testing.assert_close(loaded(x), model(x), atol=1e-5, rtol=1e-5)
    with pytest.raises(UserError, match=r"input input: size of dimension 0 .* is 65, .* 1 to 64"):
        loaded(torch.randn(65, 8))
    with pytest.raises(UserError, match=r"input input: size of dimension 1 is 9, .* 8"):
        loaded(torch.randn(3, 9))
    with pytest.raises(UserError, match="dtype f64"):
        loaded(torch.randn(3, 8, dtype=torch.float64))
    with pytest.raises(UserError, match="3 dimensions"):
        loaded(torch.randn(1, 3, 8))
    # any strides
    torch.testing.assert_close(loaded(torch.randn(8, 5).t()).shape, torch.Size([5, 4]))
    x = torch.randn(8, 5).t()
    torch.testing.assert_close(loaded(x), model(x), atol=1e-5, rtol=1e-5)


def test_sizes_that_have_to_do_with_each_other(tmp_path):
    """Conditions on several dynamic sizes from tracing, beyond ranges and equality."""

    class FirstRows(nn.Module):
        def forward(self, x, y):
            return x[: y.shape[0]] + y

    rows, few = Dim("rows", min=4, max=100), Dim("few", min=2, max=50)
    program = export(FirstRows(), torch.randn(9, 3), torch.randn(4, 3), dynamic=({0: rows}, {0: few}))
    loaded = compile_and_load(tmp_path, program)
    for n, m in ((9, 4), (9, 9), (100, 2)):
        x, y = torch.randn(n, 3), torch.randn(m, 3)
        assert torch.equal(loaded(x, y), x[:m] + y)
    with pytest.raises(UserError, match=r"sizes with s\d+ <= s\d+, called with x \[4, 3\], y \[5, 3\]"):
        loaded(torch.randn(4, 3), torch.randn(5, 3))


def test_sizes_that_do_not_fit_a_type(tmp_path):
    """A call that fills a tensor with such a size raises eager's error."""

    class Fills(torch.nn.Module):
        def forward(self, x):
            n = x.shape[0]
            return torch.full((2,), n, dtype=torch.int8), torch.full((2,), n * n * n, dtype=torch.float16), x.int() + n

    program = export(Fills(), torch.ones(5), dynamic=({0: Dim("n", min=1, max=5000)},))
    for run in (compile_and_load(tmp_path, program), Fills()):
        assert [part.tolist() for part in run(torch.ones(3))] == [[3, 3], [27, 27], [4, 4, 4]]
        for size, name in ((41, "c10::Half"), (128, "int8_t")):
            with pytest.raises(RuntimeError, match=f"value cannot be converted to type {name} without overflow"):
                run(torch.ones(size))


def test_sizes_that_are_multiples_of_others(tmp_path):
    class Pairs(nn.Module):
        def forward(self, x, y):
            return (x.reshape(-1, 2, 4).sum(1) + y).softmax(0), x.shape[0] // 2

    half = Dim("half", min=2, max=32)
    for shapes in ({"x": {0: 2 * half}, "y": {0: half}}, {"x": {0: 2 * half}, "y": None}):
        rows = 3 if shapes["y"] else 1
        program = export(Pairs(), torch.randn(6, 4), torch.randn(rows, 4), dynamic=shapes)
        loaded = compile_and_load(tmp_path, program)
        for size in (2, 5, 32):
            x, y = torch.randn(2 * size, 4), torch.randn(size if shapes["y"] else 1, 4)
            actual, expected = loaded(x, y), Pairs()(x, y)
            torch.testing.assert_close(actual[0], expected[0])
            assert actual[1] == size
        with pytest.raises(UserError, match=r"dimension 0 .* is 66, .* 4 to 64, multiples of 2"):
            loaded(torch.randn(66, 4), torch.randn(rows, 4))
        with pytest.raises(UserError, match=r"dimension 0 .* is 7, .* multiples of 2"):
            loaded(torch.randn(7, 4), torch.randn(rows, 4))


def test_sizes_that_are_others_plus_a_number(tmp_path):
    class Steps(nn.Module):
        def forward(self, y):
            return (y[1:] - y[:-1]).relu(), y.shape[0]

    steps = Dim("steps", min=2, max=32)
    for factor, offset in ((1, 1), (2, 1), (3, -2)):
        example = torch.randn(5 * factor + offset, 8)
        loaded = compile_and_load(tmp_path, export(Steps(), example, dynamic=({0: factor * steps + offset},)))
        assert loaded.input_sizes([7]) == [[7 * factor + offset, 8]]
        for size in (2, 9, 32):
            y = torch.randn(size * factor + offset, 8)
            (difference, rows), expected = loaded(y), Steps()(y)
            torch.testing.assert_close(difference, expected[0])
            assert rows == expected[1]
        with pytest.raises(UserError, match=f"compiled for {2 * factor + offset} to {32 * factor + offset}"):
            loaded(torch.randn(33 * factor + offset, 8))
        if factor > 1:
            with pytest.raises(UserError, match=f"multiples of {factor} plus {offset}"):
                loaded(torch.randn(9 * factor + offset + 1, 8))


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Linear(6, 8)
        self.lstm = nn.LSTM(8, 10, num_layers=2, bidirectional=True, batch_first=True)
        self.head = nn.Linear(20, 4)

    def forward(self, x):
        y, (h, c) = self.lstm(self.embed(x))
        return self.head(y), h, c


def test_recurrent_layers(tmp_path, monkeypatch):
    """torch.export fixes the number of steps: it unrolls the sequence to find the results' sizes."""
    monkeypatch.setenv("IPEX_STRICT", "1")
    torch.manual_seed(0)
    model = Recurrent().eval()
    for dynamic in (None, ({0: Dim("batch", min=1, max=64)},)):
        loaded = compile_and_load(tmp_path, export(model, torch.randn(3, 7, 6), dynamic=dynamic))
        with zipfile.ZipFile(tmp_path / "model.ipex") as archive:
            (program,) = [name for name in archive.namelist() if name.endswith("program.txt")]
            assert archive.read(program).count(b"\nonednn.lstm ") == 4
        for batch in (3, 1, 2, 64) if dynamic else (3,):
            x = torch.randn(batch, 7, 6)
            with torch.no_grad():
                torch.testing.assert_close(loaded(x), model(x))
    x = torch.randn(3, 7, 6)
    halved = compile_and_load(tmp_path, export(model, x), dtype=torch.bfloat16)
    with torch.no_grad():
        exact = copy.deepcopy(model).double()(x.double())
        with torch.autocast("cpu", torch.bfloat16):
            assert_error_within(halved(x), model(x), exact)


class Cache(nn.Module):
    """A model whose buffers are a key-value cache, a running mean and a counter."""

    def __init__(self):
        super().__init__()
        self.register_buffer("keys", torch.zeros(2, 8, 4))
        self.register_buffer("mean", torch.zeros(4))
        self.register_buffer("calls", torch.zeros((), dtype=torch.int64))
        self.project = nn.Linear(4, 4)

    def forward(self, x, position):
        old = self.calls.clone()
        self.keys.index_copy_(1, position, self.project(x))
        self.mean.lerp_(x.mean((0, 1)), 0.25)
        self.calls += 1
        return (x @ self.keys.transpose(1, 2)).softmax(-1) + self.mean.sum(), old, self.keys


def test_buffers_that_calls_write(tmp_path):
    torch.manual_seed(0)
    model = Cache().eval()
    calls = [(torch.randn(2, 1, 4), torch.tensor([i])) for i in range(5)]
    program = export(model, *calls[0])
    loaded = compile_and_load(tmp_path, program)
    other = ipex.aot.load(tmp_path / "model.ipex")
    with torch.no_grad():
        for arguments in calls:
            torch.testing.assert_close(loaded(*arguments), model(*arguments))
    assert sorted(loaded.state) == ["calls", "keys", "mean"] and loaded.state["calls"] == 5
    torch.testing.assert_close(loaded.state["keys"], model.keys)
    assert other.state["calls"] == 0 and other(*calls[0])[1] == 0
    other.state["calls"].fill_(40)  # the owner may change it
    assert other(*calls[0])[1] == 40 and loaded.state["calls"] == 5

    import threading

    def call(model):
        for _ in range(25):
            model(*calls[1])

    threads = [threading.Thread(target=call, args=(other,)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert other.state["calls"] == 141
    state = other.state
    del other, threads
    assert state["calls"] == 141  # it keeps the memory


def test_inputs_that_calls_write(tmp_path):
    class Accumulates(nn.Module):
        def forward(self, total, x):
            total.add_(x)
            return total * 2

    loaded = compile_and_load(tmp_path, export(Accumulates(), torch.zeros(3, 4), torch.ones(3, 4)))
    for total in (torch.zeros(3, 4), torch.zeros(4, 3).t()):
        version = total._version
        for step in (1, 2):
            assert torch.equal(loaded(total, torch.ones(3, 4)), torch.full((3, 4), 2.0 * step))
            assert torch.equal(total, torch.full((3, 4), float(step)))
        assert total._version > version


def test_weights_that_are_results(tmp_path):
    class Returns(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.arange(3.0))

        def forward(self, x):
            return x * self.weight, self.weight

    actual = compile_and_load(tmp_path, export(Returns(), torch.ones(3)))(torch.ones(3))
    assert torch.equal(actual[0], torch.arange(3.0)) and torch.equal(actual[1], torch.arange(3.0))


def test_bf16_is_autocast(tmp_path):
    model, x = nn.Sequential(nn.Linear(64, 64), nn.LayerNorm(64), nn.GELU(), nn.Linear(64, 8)), torch.randn(4, 64)
    loaded = compile_and_load(tmp_path, export(model, x), dtype=torch.bfloat16)
    reference = model.double()(x.double())
    model.float()
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        eager = model(x)
    actual = loaded(x)
    assert actual.dtype is eager.dtype
    error = lambda y: (y.double() - reference).norm().item()  # noqa: E731
    assert error(actual) <= 1.1 * error(eager)


@pytest.mark.parametrize("isas", [["avx2"], ["avx2", "avx512", "avx512_bf16"]])
def test_any_isa_from_any_host(tmp_path, isas):
    model, image = net(), torch.randn(1, 3, 16, 16)
    path = tmp_path / "model.ipex"
    report = ipex.aot.compile(export(model, image), path, isa=isas)
    assert report.isas == isas and report.extern_ops == []
    torch.save((image, model(image)["probabilities"]), tmp_path / "expected.pt")
    for target in set(isas) & set(ipex.environment()["supported_targets"]):
        code = (
            "import sys, torch, intel_extension_for_pytorch as ipex\n"
            f"image, expected = torch.load({str(tmp_path / 'expected.pt')!r})\n"
            f"model = ipex.aot.load({str(path)!r})\n"
            f"assert model.description()['isa'] == {target!r}, model.description()['isa']\n"
            "torch.testing.assert_close(model(image)['probabilities'], expected)\n"
        )
        import os

        environment = dict(os.environ, IPEX_TARGET=target)
        subprocess.run([sys.executable, "-c", code], check=True, env=environment)


def test_artifacts_are_reproducible(tmp_path):
    image = torch.randn(1, 3, 16, 16)
    for name in ("a", "b"):
        ipex.aot.compile(export(net(), image), tmp_path / name, isa=["avx2", "avx512"])
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_weights_of_their_own(tmp_path):
    model, image = net(), torch.randn(1, 3, 16, 16)
    path = tmp_path / "model.ipex"
    ipex.aot.compile(export(model, image), path, weights="extern")
    loaded = ipex.aot.load(path)
    torch.testing.assert_close(loaded(image)["probabilities"], model(image)["probabilities"])
    ipex.aot.compile(export(net(1), image), tmp_path / "other.ipex", weights="extern")
    with pytest.raises(UserError, match="does not hold the weights"):
        ipex.aot.load(path, weights=tmp_path / "other.ipex.weights")
    (tmp_path / "model.ipex.weights").unlink()
    with pytest.raises(UserError, match="cannot read"):
        ipex.aot.load(path)


def test_tied_weights_are_stored_once(tmp_path):
    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed = nn.Embedding(1000, 64)
            self.head = nn.Linear(64, 1000, bias=False)
            self.head.weight = self.embed.weight

        def forward(self, tokens):
            return self.head(self.embed(tokens))

    model, tokens = Tied().eval(), torch.arange(5)
    path = tmp_path / "model.ipex"
    report = ipex.aot.compile(export(model, tokens), path)
    assert report.bytes < 1.5 * 1000 * 64 * 4
    loaded = ipex.aot.load(path)
    torch.testing.assert_close(loaded(tokens), model(tokens))
    with pytest.raises(IndexError):
        loaded(torch.tensor([1, 2, 3, 4, 1000]))


def test_what_cannot_be_compiled_says_why(tmp_path):
    class Nonzero(nn.Module):
        def forward(self, x):
            return x.nonzero()

    with pytest.raises(UserError, match="depends on data"):
        ipex.aot.compile(export(Nonzero(), torch.randn(3)), tmp_path / "x")

    class Inverse(nn.Module):
        def forward(self, x):
            return torch.linalg.inv(x)

    with pytest.raises(UserError, match="_linalg_check_errors.default is called for its side effect"):
        ipex.aot.compile(export(Inverse(), torch.eye(3)), tmp_path / "x")

    class Histogram(nn.Module):
        def forward(self, x):
            return torch.histc(x.exp(), bins=4, min=0, max=4)

    program, x = export(Histogram(), torch.randn(50)), torch.randn(50)
    with pytest.raises(UserError, match=r"aten::histc.default at test_aot.py:\d+ histc"):
        ipex.aot.compile(program, tmp_path / "x", extern_ops=False)
    report = ipex.aot.compile(program, tmp_path / "x")
    assert report.extern_ops == ["aten::histc.default"]
    torch.testing.assert_close(ipex.aot.load(tmp_path / "x")(x), Histogram()(x))
    for options in ({"isa": "sse2"}, {"weights": "none"}, {"dtype": torch.float16}):
        with pytest.raises(UserError):
            ipex.aot.compile(program, tmp_path / "x", **options)
    with pytest.raises(UserError, match="ExportedProgram"):
        ipex.aot.compile(nn.Linear(2, 2), tmp_path / "x")
    with pytest.raises(UserError, match="cannot write"):
        ipex.aot.compile(program, tmp_path / "no" / "such" / "directory")


def test_damaged_files_are_refused(tmp_path):
    path = tmp_path / "model.ipex"
    ipex.aot.compile(export(nn.Linear(4, 4), torch.randn(2, 4)), path)
    good = path.read_bytes()
    for position in range(0, len(good), max(1, len(good) // 97)):
        bad = bytearray(good)
        bad[position] ^= 0x40
        path.write_bytes(bad)
        with pytest.raises(UserError):
            ipex.aot.load(path)
    path.write_bytes(good[: len(good) // 2])
    with pytest.raises(UserError):
        ipex.aot.load(path)
    with pytest.raises(UserError, match="cannot read"):
        ipex.aot.load(tmp_path / "missing")


def test_a_zip_that_other_tools_read(tmp_path):
    path = tmp_path / "model.ipex"
    ipex.aot.compile(export(nn.Linear(4, 4), torch.randn(2, 4)), path)
    with zipfile.ZipFile(path) as archive:
        assert archive.testzip() is None
        assert json.loads(archive.read("manifest.json"))["format"] == 2
        assert len(archive.read("weights/weight")) == 64


def test_models_keep_their_kernels(tmp_path):
    class Affine(nn.Module):
        def __init__(self, factor):
            super().__init__()
            self.factor = factor

        def forward(self, x):
            return x * self.factor + 1

    x, loaded = torch.randn(5), {}
    for factor in (2.0, 3.0, 4.0):  # kernels of the same name
        loaded[factor] = compile_and_load(tmp_path, export(Affine(factor), x))
        loaded.pop(3.0, None)
    for factor, model in loaded.items():
        torch.testing.assert_close(model(x), x * factor + 1)


def test_threads_share_a_model(tmp_path):
    import threading

    model, x = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 64)), torch.randn(8, 64)
    loaded = compile_and_load(tmp_path, export(model, x))
    expected, results = loaded(x), []

    def call():
        for _ in range(50):
            results.append(torch.equal(loaded(x), expected))

    threads = [threading.Thread(target=call) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results) == 200 and all(results)


# ---- the command line ----


def ipexc(*arguments):
    from intel_extension_for_pytorch.cli import main

    return main([str(a) for a in arguments])


FACTORY = """
import torch
def plain():
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.GELU(), torch.nn.Linear(16, 4))
def with_inputs():
    return torch.nn.Sequential(plain(), torch.nn.Softmax(-1)), (torch.randn(2, 8),)
"""


@pytest.fixture
def factory(tmp_path):
    path = tmp_path / "factory_for_aot.py"
    path.write_text(FACTORY)
    return path


def test_compile_inspect_run_bench(tmp_path, factory, capsys):
    artifact = tmp_path / "m.ipex"
    given = ["--input", "input=f32[batch,8]", "--dynamic", "batch=1..64"]
    assert ipexc("compile", f"{factory}:plain", "-o", artifact, "--isa", "avx2", *given, "--json") == 0
    report = json.loads(capsys.readouterr().out)
    assert report["isas"] == ["avx2"] and report["extern_ops"] == []
    assert ipexc("inspect", artifact, "--json") == 0
    seen = json.loads(capsys.readouterr().out)
    assert seen["inputs"][0]["name"] == "input" and seen["inputs"][0]["dtype"] == "f32"
    assert seen["inputs"][0]["shape"] == ["batch", 8]
    assert [o["name"] for o in seen["outputs"]] == ["output"] and seen["isas"] == ["avx2"]
    assert (seen["dims"][0]["low"], seen["dims"][0]["high"]) == (1, 64)
    assert ipexc("inspect", artifact) == 0
    assert "onednn.matmul" in capsys.readouterr().out

    x = torch.randn(5, 8)
    numpy.save(tmp_path / "x.npy", x.numpy())
    assert ipexc("run", artifact, "--input", f"input={tmp_path / 'x.npy'}", "--output", tmp_path / "out", "--json") == 0
    assert json.loads(capsys.readouterr().out)["outputs"][0]["shape"] == [5, 4]
    namespace = {}
    exec(FACTORY, namespace)
    expected = namespace["plain"]()(x).detach()
    torch.testing.assert_close(torch.from_numpy(numpy.load(tmp_path / "out" / "output.npy")), expected)

    assert (
        ipexc(
            "bench", artifact, "--size", "batch=4", "--threads", "1", "--streams", "1,2", "--seconds", "0.05", "--json"
        )
        == 0
    )
    settings = json.loads(capsys.readouterr().out)["settings"]
    assert [s["streams"] for s in settings] == [1, 2] and all(s["calls"] > 0 for s in settings)


def test_command_line_with_sizes_that_follow_from_others(tmp_path, factory, capsys):
    factory.write_text(
        FACTORY
        + """
class Steps(torch.nn.Module):
    def forward(self, y, w):
        return (y[1:] - y[:-1]) * w
"""
    )
    artifact = tmp_path / "steps.ipex"
    given = ["--input", "y=f32[2*steps+1,8]", "--input", "w=f32[2*steps,1]", "--dynamic", "steps=2..16"]
    assert ipexc("compile", f"{factory}:Steps", "-o", artifact, *given) == 0
    capsys.readouterr()
    assert ipexc("inspect", artifact, "--json") == 0
    seen = json.loads(capsys.readouterr().out)
    assert [i["shape"] for i in seen["inputs"]] == [["steps * 2 + 1", 8], ["steps * 2", 1]]
    assert ipexc("bench", artifact, "--size", "steps=4", "--seconds", "0.05", "--json") == 0
    assert [i["shape"] for i in json.loads(capsys.readouterr().out)["inputs"]] == [[9, 8], [8, 1]]
    assert ipexc("compile", f"{factory}:Steps", "-o", artifact, "--input", "y=f32[n^2,8]", "--dynamic", "n=2..9") == 3
    assert "n^2 is neither" in capsys.readouterr().err


def test_exit_codes(tmp_path, factory, capsys):
    assert ipexc("compile", f"{factory}:plain") == 2
    assert ipexc("compile", f"{factory}:plain", "-o", tmp_path / "x", "--dtype", "int4") == 2
    assert ipexc("inspect", tmp_path / "missing") == 2
    assert ipexc("compile", f"{factory}:plain", "-o", tmp_path / "x") == 3
    assert "returns no inputs" in capsys.readouterr().err
    assert ipexc("compile", f"{factory}:missing", "-o", tmp_path / "x") == 3
    assert ipexc("compile", "no.such.module:f", "-o", tmp_path / "x") == 3
    (tmp_path / "bad").write_text("no artifact")
    assert ipexc("inspect", tmp_path / "bad") == 3
    assert ipexc("run", tmp_path / "bad") == 3
    assert ipexc("compile", "--help") == 0


@pytest.mark.parametrize("form", ["cpp", "loop", "llvm", "asm"])
def test_emit(tmp_path, factory, form, capsys):
    assert ipexc("compile", f"{factory}:with_inputs", "-o", tmp_path / "m.ipex", "--emit", form, "--isa", "avx2") == 0
    suffix = {"cpp": "cpp", "loop": "loop", "llvm": "ll", "asm": "s"}[form]
    text = (tmp_path / f"m.avx2.{suffix}").read_text()
    assert f"m.avx2.{suffix}" in capsys.readouterr().out
    assert "k0" in text and {"cpp": "for (int64_t", "loop": "ramp(", "llvm": "define ", "asm": ".globl"}[form] in text

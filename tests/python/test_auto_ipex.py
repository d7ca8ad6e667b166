"""`auto_ipex` and `ipexrun --auto-ipex`: programs whose models are optimized without a change of theirs."""

import subprocess
import sys
import threading

import pytest
import torch
from intel_extension_for_pytorch.cpu.auto_ipex import AutoOptimizer
from launching import clean_environment
from torch import nn

pytestmark = pytest.mark.needs_ipex


class ConvNorm(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.norm = nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8)
        self.norm.running_mean.uniform_()

    def forward(self, x):
        return nn.Softmax(dim=-1)(self.norm(self.conv(x)))  # a module made in the forward pass


@pytest.fixture
def auto():
    """auto(**changes): installs an AutoOptimizer, which is removed after the test."""
    installed = []

    def install(dtype=torch.float32, verbose=False, graph_mode=False):
        installed.append(AutoOptimizer(dtype, verbose, graph_mode))
        installed[-1].install()
        return installed[-1]

    yield install
    while installed:
        installed.pop().uninstall()


@pytest.mark.parametrize("graph_mode", [True, False])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_results(auto, dtype, graph_mode):
    model, x = ConvNorm().eval(), torch.randn(2, 3, 8, 8)
    with torch.no_grad(), torch.autocast("cpu", enabled=dtype is torch.bfloat16):
        expected = model(x)
    optimizer = auto(dtype, graph_mode=graph_mode)
    results = [model(x) for _ in range(3)]
    tolerance = {"rtol": 1e-5, "atol": 1e-6} if dtype is torch.float32 else {"rtol": 2e-2, "atol": 2e-3}
    for y in results:
        torch.testing.assert_close(y, expected, **tolerance)
    assert optimizer.hits == 1 and not results[0].requires_grad
    assert model.conv.weight.dtype is torch.float32 and type(model.conv) is nn.Conv2d  # the model is as it was


def test_the_copy_follows_the_model(auto):
    model, x = ConvNorm().eval(), torch.randn(2, 3, 8, 8)
    optimizer = auto()
    model(x)
    with torch.no_grad():
        model.conv.weight.mul_(2)
    changed = model(x)
    other = ConvNorm().eval()
    model.load_state_dict(other.state_dict())
    loaded = model(x)
    assert optimizer.hits == 3
    last = ConvNorm().eval()
    for mine, new in zip(model.parameters(), last.parameters(), strict=True):
        mine.data = new.data.clone()  # keeps the tensor and its version
    for mine, new in zip(model.buffers(), last.buffers(), strict=True):
        mine.data = new.clone()
    replaced = model(x)
    assert optimizer.hits == 4
    optimizer.uninstall()
    torch.testing.assert_close(replaced, last(x).detach())
    torch.testing.assert_close(loaded, other(x).detach())
    with pytest.raises(AssertionError):
        torch.testing.assert_close(changed, loaded)


def test_what_is_left_alone(auto):
    optimizer = auto()
    training = ConvNorm()
    training(torch.randn(2, 3, 8, 8)).sum().backward()
    assert training.conv.weight.grad is not None
    nn.CrossEntropyLoss()(torch.randn(2, 3), torch.tensor([0, 1]))
    nn.ReLU().eval()(torch.randn(2))
    torch.jit.script(nn.Linear(2, 2).eval())(torch.randn(2, 2))
    assert optimizer.hits == 0
    # A gradient with respect to the input
    model, x = nn.Linear(2, 2).eval(), torch.randn(2, 2, requires_grad=True)
    model(x).sum().backward()
    assert x.grad is not None


@pytest.mark.parametrize("register", ["register_forward_hook", "register_forward_pre_hook"])
def test_models_with_hooks_run_as_they_are(auto, register):
    """Also with hooks of inner modules that come after the first call."""
    model, x, seen = ConvNorm().eval(), torch.randn(2, 3, 8, 8), []
    optimizer = auto()
    expected = model(x)
    hook = getattr(model.norm, register)(lambda *values: seen.append(len(values)))
    with torch.no_grad():
        torch.testing.assert_close(model(x), expected)
    assert len(seen) == 1 and optimizer.hits == 1
    hook.remove()
    model(x)
    assert len(seen) == 1 and optimizer.hits == 1  # the copy again


def test_threads(auto):
    """Each thread has its own nesting of calls; one copy serves all."""
    model, x = ConvNorm().eval(), torch.randn(2, 3, 8, 8)
    expected = model(x).detach()
    optimizer = auto()
    results = [None] * 4

    def work(i):
        results[i] = model(x)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert optimizer.hits == 1
    for result in results:
        torch.testing.assert_close(result, expected)


def test_a_model_that_cannot_be_optimized(auto, monkeypatch, capfd):
    from intel_extension_for_pytorch.cpu import auto_ipex

    def fail(*_, **__):
        raise RuntimeError("no way")

    monkeypatch.setattr(auto_ipex, "optimize", fail)
    optimizer = auto()
    model, x = nn.Linear(2, 2).eval(), torch.randn(2, 2)
    assert torch.equal(model(x), model(x)) and optimizer.hits == 0
    assert capfd.readouterr().err.count("Linear runs as it is, because optimize fails: no way") == 1


PROGRAM = """
import sys, torch
from helper import SIZE
model = torch.nn.Sequential(torch.nn.Conv2d(3, SIZE, 3), torch.nn.BatchNorm2d(SIZE)).eval()
for _ in range(3):
    model(torch.randn(1, 3, 8, 8))
print("arguments", sys.argv[1:], "main", __name__)
sys.exit(5)
"""


@pytest.mark.parametrize(
    "command",
    [
        ["launch", "--ninstance", "1", "--auto_ipex", "--auto_ipex_verbose", "--disable_ipex_graph_mode", "program.py"],
        ["auto_ipex", "--dtype", "bfloat16", "--auto-ipex-verbose", "-m", "program"],
    ],
    ids=["launcher", "module"],
)
def test_commands(tmp_path, command):
    (tmp_path / "helper.py").write_text("SIZE = 8\n")
    (tmp_path / "program.py").write_text(PROGRAM)
    name, *arguments = command
    done = subprocess.run(
        [sys.executable, "-m", f"intel_extension_for_pytorch.cpu.{name}", *arguments, "--", "a b", "--dtype"],
        env=clean_environment(),
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 5, done.stdout + done.stderr
    assert "arguments ['--', 'a b', '--dtype'] main __main__" in done.stdout
    assert done.stdout.count("_ipex_optimize_hit_count is: 1 (Sequential") == 1
    profiled = "torch_ipex::convolution_forward" if name == "launch" else "ipex::onednn.conv"
    assert profiled in done.stdout and "native_batch_norm" not in done.stdout

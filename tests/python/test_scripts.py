"""Scripts as users write them (tests/scripts), each in processes of its own. Deployment in C++ is the subject of
test_torchscript_cpp.py."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from ranks import ONECCL

pytestmark = [pytest.mark.needs_ipex, pytest.mark.needs_cpu("avx512f")]  # ipex.optimize refuses bf16 elsewhere
SCRIPTS = Path(__file__).parents[1] / "scripts"


def run(script, *arguments, launcher=()):
    command = [sys.executable, *launcher, SCRIPTS / script, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def numbers(pattern, text):
    return [float(n) for n in re.findall(pattern, text)]


def test_bf16_training():
    printed = run("bf16_training.py", "--epochs", "3")
    losses = numbers(r"loss (\S+)", printed)
    assert len(losses) == 3 and losses[2] < 0.5 * losses[0]
    assert numbers(r"accuracy (\S+)", printed)[0] > 0.85


def test_bf16_inference_trace_freeze():
    printed = run("bf16_inference_trace_freeze.py", "--small")
    assert numbers(r"relative error ([\d.]+)", printed)[0] < 0.02
    assert "parts compiled 1, run 2 times, interpreted 0" in printed


def test_save_and_load(tmp_path):
    saved, loaded = (run("save_and_load.py", action, tmp_path / "model.pt") for action in ("save", "load"))
    assert saved == loaded and saved.startswith("torch.bfloat16")


STEPS = {
    "optimize": ["--autocast", "--ipex-optimize"],
    "compile": ["--autocast", "--channels-last", "--compile", "ipex"],
    "optimize, compile": ["--autocast", "--ipex-optimize", "--compile", "ipex"],
}


def losses_of_resnet(*arguments, launcher=()):
    printed = run("resnet50_training.py", *arguments, launcher=launcher)
    assert numbers(r"(\S+) images/s", printed)[0] > 0
    losses = numbers(r"\d\.\d{6}", printed)
    assert losses
    return losses


QUICK = ["--small", "--size", "32", "--batch", "4", "--steps", "2", "--warm-up", "1"]


@pytest.mark.parametrize("steps", STEPS)
def test_resnet50_training(steps, plain_losses):
    """Targets of uint8, and an optimizer without a learning rate."""
    losses = losses_of_resnet(*QUICK, *STEPS[steps])
    torch.testing.assert_close(losses, plain_losses, rtol=2e-2, atol=0)


LAUNCHERS = {
    "run_cpu": ["-m", "torch.backends.xeon.run_cpu", "--disable-iomp", "--ninstances", "1"],
    "ipexrun": ["-m", "intel_extension_for_pytorch.cpu.launch", "--nnodes", "1", "--nprocs-per-node", "2"],
}


@pytest.mark.parametrize("name", LAUNCHERS)
def test_resnet50_training_by_launchers(name, plain_losses, monkeypatch):
    """Each of two ranks takes half of the batch, and its batch norms see no more."""
    options = ["--autocast", "--ipex-optimize", *(["--ddp", "ccl", "--batch", "2"] if name == "ipexrun" else [])]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([*filter(None, [os.environ.get("PYTHONPATH")]), ONECCL]))
    losses = losses_of_resnet(*QUICK, *options, launcher=LAUNCHERS[name])
    torch.testing.assert_close(losses, plain_losses, rtol=2e-2 if name == "run_cpu" else 1e-1, atol=0)


@pytest.fixture(scope="module")
def plain_losses():
    return losses_of_resnet(*QUICK)


def test_labels_of_uint8():
    """PyTorch takes them for a batch of rows, and refuses them for images."""
    rows, labels = torch.randn(4, 10), torch.tensor([1, 9, 0, 3], dtype=torch.uint8)
    cross_entropy = torch.nn.functional.cross_entropy
    assert torch.equal(cross_entropy(rows, labels), cross_entropy(rows, labels.long()))
    with pytest.raises(RuntimeError, match="expected scalar type Long but found Byte"):
        cross_entropy(torch.randn(4, 10, 2), torch.zeros(4, 2, dtype=torch.uint8))


@pytest.mark.nightly
@pytest.mark.parametrize("steps", ["optimize", "optimize, compile"])
def test_resnet50_training_in_full(steps):
    losses = losses_of_resnet(*STEPS[steps], "--batch", "8", "--steps", "2", "--warm-up", "1")
    plain = losses_of_resnet("--autocast", "--batch", "8", "--steps", "2", "--warm-up", "1")
    torch.testing.assert_close(losses, plain, rtol=2e-2, atol=0)


def same_bits(a, b):
    """Whether nested states are equal, tensors bit by bit."""
    if isinstance(a, torch.Tensor):
        return a.dtype == b.dtype and torch.equal(*(x.contiguous().view(-1).view(torch.uint8) for x in (a, b)))
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same_bits(a[key], b[key]) for key in a)
    if isinstance(a, list):
        return len(a) == len(b) and all(map(same_bits, a, b))
    return a == b


@pytest.mark.parametrize(
    "options",
    [["--optimizer", "SGD"], ["--optimizer", "AdamW"], pytest.param(["--compile"], marks=pytest.mark.nightly)],
    ids=" ".join,
)
def test_resume_training(tmp_path, options):
    """Continued in a fresh process, training gives the same losses and the same bits of weights and states."""
    whole = run("resume_training.py", *options, "--checkpoint", tmp_path / "middle", "--result", tmp_path / "whole")
    rest = run("resume_training.py", *options, "--resume", tmp_path / "middle", "--result", tmp_path / "rest")
    assert whole.splitlines()[3:] == rest.splitlines() and len(rest.splitlines()) == 3
    assert same_bits(torch.load(tmp_path / "whole"), torch.load(tmp_path / "rest"))


@pytest.mark.parametrize("options", [[], ["--compile"]], ids=["eager", "compile"])
def test_ddp_training(options):
    torchrun = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    printed = run("ddp_training.py", *options, launcher=torchrun)
    for rank in (0, 1):
        all_equal = "equal on all ranks are 6 of 6 parameters and 4 of 4 trails, of which 4 are not zero"
        assert f"rank {rank}: {all_equal}" in printed

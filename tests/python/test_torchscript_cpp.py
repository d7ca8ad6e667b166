"""A C++ program that includes no header of ours and is built outside of the build tree runs frozen bf16 models: with
find_package(IPEX), by its variables and by its target. Its results are Python's, bit for bit."""

import os
import shutil
import subprocess
from pathlib import Path

import intel_extension_for_pytorch as ipex
import pytest
import torch
from test_torchscript import Residual, called, frozen, images, kinds

pytestmark = [
    pytest.mark.needs_ipex,
    pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::torch.jit.TracerWarning"),
]
SOURCE = Path(__file__).parents[1] / "cpp_torchscript"


def configure(source, build, *prefixes, **environment):
    return subprocess.run(
        ["cmake", "-S", source, "-B", build, f"-DCMAKE_PREFIX_PATH={';'.join(map(str, prefixes))}"],
        capture_output=True, text=True, check=False, env=dict(os.environ, **environment),
    )  # fmt: skip


@pytest.fixture(scope="module")
def build(tmp_path_factory):
    if shutil.which("cmake") is None:
        pytest.skip("no cmake")
    folder = tmp_path_factory.mktemp("cpp_torchscript")
    shutil.copytree(SOURCE, folder / "source")
    done = configure(folder / "source", folder / "build", ipex.cmake_prefix_path, torch.utils.cmake_prefix_path)
    assert done.returncode == 0, done.stdout + done.stderr
    built = subprocess.run(["cmake", "--build", folder / "build"], capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stdout + built.stderr
    return folder / "build"


def run(build, program, tmp_path, script, x, calls=3, threads=1):
    """The result, and what the program printed. It runs without the environment's paths of libraries."""
    script.save(tmp_path / "model.pt")
    torch.save(x, tmp_path / "x.pt")
    command = [build / program, *(tmp_path / name for name in ("model.pt", "x.pt", "y.pt")), str(calls), str(threads)]
    environment = dict(os.environ, OMP_NUM_THREADS=str(torch.get_num_threads()))
    environment.pop("LD_LIBRARY_PATH", None)
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stdout + done.stderr
    return torch.load(tmp_path / "y.pt"), done.stdout


@pytest.mark.parametrize("program", ["run_script", "run_script_by_target"])
def test_frozen_model(build, tmp_path, program):
    torch.manual_seed(0)
    model, x = Residual().eval(), images(3)[0]
    script = frozen(model, (x,))
    result, printed = run(build, program, tmp_path, script, x, calls=3, threads=3)
    assert "0 results differ; compiled 1, native 8, interpreted 0" in printed
    assert torch.equal(result, [called(script, x)[0] for _ in range(3)][-1])


class Logits(torch.nn.Module):
    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, x):
        return self.model(x).logits


def test_resnet50(build, tmp_path):
    import transformers

    torch.manual_seed(0)
    model = Logits(transformers.ResNetForImageClassification(transformers.ResNetConfig(num_labels=1000))).eval()
    x = torch.randn(1, 3, 224, 224)
    script = frozen(model, (x,))
    result, printed = run(build, "run_script", tmp_path, script, x)
    assert "compiled 1, native 2, interpreted 0" in printed
    assert torch.equal(result, [called(script, x)[0] for _ in range(3)][-1])
    assert kinds(script, x) == ["ipex::CompiledGraph"]


def test_install_prefix_from_the_environment(build, tmp_path):
    """IPEX_INSTALL_PREFIX names the folder of the library; a wrong one is reported."""
    package = Path(ipex.cmake_prefix_path).parents[1]
    places = [ipex.cmake_prefix_path, torch.utils.cmake_prefix_path]
    assert configure(SOURCE, tmp_path / "right", *places, IPEX_INSTALL_PREFIX=str(package)).returncode == 0
    wrong = configure(SOURCE, tmp_path / "wrong", *places, IPEX_INSTALL_PREFIX=str(tmp_path))
    assert wrong.returncode != 0 and f"libintel-ext-pt-cpu.so is not in {tmp_path}" in " ".join(wrong.stderr.split())

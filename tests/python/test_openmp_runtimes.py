"""Our backend under PyTorch's own launcher and under `ipexrun`, with libgomp and with libiomp5."""

import os
import re
import shutil
import subprocess
import sys
import zipfile

import pytest
from intel_extension_for_pytorch.cpu.launch import Launcher
from launching import clean_environment, commands, physical_cores, start

pytestmark = pytest.mark.needs_ipex

# Compiles a model with work for several threads, compares it with eager, and prints what runs it.
PROGRAM = """
import torch, intel_extension_for_pytorch as ipex
from intel_extension_for_pytorch.compiler.backend import ipex as backend
torch.manual_seed(0)
layers = torch.nn.Conv2d(3, 16, 3, padding=1), torch.nn.GELU(), torch.nn.Flatten(), torch.nn.Linear(16 * 32 * 32, 10)
model, x = torch.nn.Sequential(*layers).eval(), torch.randn(8, 3, 32, 32)
compiled = torch.compile(model, backend=backend, fullgraph=True)
with torch.no_grad():
    for _ in range(3):
        torch.testing.assert_close(compiled(x), model(x), rtol=1e-4, atol=1e-5)
linear = torch.compile(torch.nn.Linear(256, 256), backend=backend)
linear(torch.randn(64, 256)).sum().backward()
mapped = {line.split("/")[-1].strip() for line in open("/proc/self/maps") if "/lib" in line}
print("threads", torch.get_num_threads(), ipex._C.num_threads())
print("runtimes", *sorted(name for name in mapped if "gomp" in name or "omp5" in name))
"""


@pytest.fixture(scope="session")
def libiomp5(tmp_path_factory):
    """A folder lib/ with libiomp5.so, from this environment or from PyPI's intel-openmp."""
    if found := Launcher().find_library("intel"):
        return os.path.dirname(found)
    folder = tmp_path_factory.mktemp("intel-openmp")
    command = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--only-binary=:all:", "-d", folder]
    done = subprocess.run([*command, "intel-openmp"], capture_output=True, text=True, check=False, timeout=120)
    wheels = list(folder.glob("*.whl"))
    if done.returncode or not wheels:
        pytest.skip("PyPI's intel-openmp, which has libiomp5, cannot be downloaded")
    with zipfile.ZipFile(wheels[0]) as wheel:
        (member,) = [name for name in wheel.namelist() if name.endswith("/lib/libiomp5.so")]
        (folder / "lib").mkdir()
        (folder / "lib" / "libiomp5.so").write_bytes(wheel.read(member))
    return str(folder / "lib")


@pytest.fixture
def program(tmp_path):
    path = tmp_path / "program.py"
    path.write_text(PROGRAM)
    return str(path)


def check(output, messages, intel):
    threads = re.search(r"threads (\d+) (\d+)", output)
    assert threads, output + messages
    assert threads[1] == threads[2] == str(len(physical_cores()))
    # libiomp5 also takes the place of libgomp, which stays loaded and idle.
    assert ("libiomp5.so" in output) == intel, output


def run_cpu(*arguments, **environment):
    """`python -m torch.backends.xeon.run_cpu`."""
    done = subprocess.run(
        [sys.executable, "-m", "torch.backends.xeon.run_cpu", *arguments],
        env=clean_environment(**environment),
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout, done.stderr


def test_run_cpu_with_libgomp(program):
    check(*run_cpu("--disable-iomp", "--ninstances", "1", program), intel=False)


def test_run_cpu_with_libiomp5(program, libiomp5):
    """run_cpu finds the library in $CONDA_PREFIX/lib."""
    output, messages = run_cpu("--ninstances", "1", program, CONDA_PREFIX=os.path.dirname(libiomp5))
    check(output, messages, intel=True)
    assert "libiomp5.so" in messages and "KMP_AFFINITY=granularity=fine,compact,1,0" in messages


@pytest.mark.parametrize("runtime", ["auto", "default"])
def test_ipexrun(program, libiomp5, runtime):
    process = start("--omp-runtime", runtime, program, CONDA_PREFIX=os.path.dirname(libiomp5))
    output, messages = process.communicate(timeout=120)
    assert process.returncode == 0, output + messages
    check(output, messages, intel=runtime != "default")
    assert (
        "OpenMP runtime of PyTorch and of the kernels: " + ("the libgomp" if runtime == "default" else "/")
    ) in messages


def test_preset_kmp_affinity(program, libiomp5):
    """Where the user has set both, libiomp5 binds the threads, and numactl would bind them a second time."""
    user = {"LD_PRELOAD": f"{libiomp5}/libiomp5.so", "KMP_AFFINITY": "granularity=fine,compact,1,0"}
    process = start(program, **user)
    output, messages = process.communicate(timeout=120)
    assert process.returncode == 0, output + messages
    check(output, messages, intel=True)
    assert "cmd: numactl" not in messages


@pytest.mark.skipif(len(physical_cores()) < 2, reason="needs two cores")
def test_ranks_with_libiomp5_stay_on_their_cores(tmp_path, libiomp5):
    """KMP_AFFINITY=compact counts from the first core that a rank may use, not from that of the machine."""
    path = commands(tmp_path / "bin", *(name for name in ("lscpu", "numactl", "taskset") if shutil.which(name)))
    program = tmp_path / "work.py"
    program.write_text(
        "import os, torch\nsquare = torch.randn(500, 500)\nsquare @ square\n"
        "tasks = os.listdir('/proc/self/task')\n"
        "print(*sorted({cpu for task in tasks for cpu in os.sched_getaffinity(int(task))}))\n"
    )
    options = ("--nnodes", 1, "--nprocs-per-node", 2, "--ccl-worker-count", 0, "--omp-runtime", "intel")
    user = {"KMP_AFFINITY": "granularity=fine,compact,1,0", "KMP_BLOCKTIME": "1"}  # as accelerate sets them
    process = start(*options, program, PATH=path, CONDA_PREFIX=os.path.dirname(libiomp5), **user)
    output, messages = process.communicate(timeout=120)
    assert process.returncode == 0, output + messages
    cores = [set(line.split()[1:]) for line in sorted(output.splitlines())]
    assert len(cores) == 2 and all(cores) and not cores[0] & cores[1], output

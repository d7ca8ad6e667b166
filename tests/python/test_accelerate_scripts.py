"""Scripts for Hugging Face Accelerate and transformers' Trainer, run as users run them, in tests/scripts.

Each runs with two sets of packages. "newest" is Accelerate and transformers of this environment, through the adapter.
"1.7.0" is the last Accelerate that applies IPEX by itself, with the transformers of its time and no line of ours: its
packages are in build/beside/accelerate-1.7.0, in front of this environment's (`make build/beside/.ready`).
"""

import json
import os
import pty
import re
import select
import shutil
import signal
import socket
import subprocess
import sys
import termios
import time
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
SCRIPTS = ROOT / "tests" / "scripts"
BESIDE = ROOT / "build" / "beside"
ADAPTER = "intel_extension_for_pytorch.integrations.accelerate"
SECONDS = 300
STACKS = ("1.7.0", "newest")
bf16_cpu = pytest.mark.needs_cpu("avx512bw")


def beside(name):
    """A folder of packages that only some tests see."""
    if not (BESIDE / name).is_dir():
        pytest.skip(f"{BESIDE / name} is not there: make build/beside/.ready build/beside/impi/.ready")
    return BESIDE / name


def environment(stack, *packages, **variables):
    front = [beside("accelerate-1.7.0")] if stack == "1.7.0" else []
    path = [*front, *os.environ.get("PYTHONPATH", "").split(os.pathsep), *map(beside, packages)]
    ours = ("ACCELERATE_", "CCL_", "PMI_", "RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_", "OMP_NUM_THREADS")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
    settings = {
        "PYTHONPATH": os.pathsep.join(str(part) for part in path if part),
        "GLOO_SOCKET_IFNAME": "lo",
        "HF_HUB_OFFLINE": "1",
        "OMP_NUM_THREADS": "1",
    }
    return kept | settings | variables


def accelerate(stack):
    return [sys.executable, "-m", ADAPTER if stack == "newest" else "accelerate.commands.accelerate_cli"]


def run(words, variables, folder=SCRIPTS):
    """What a command prints. The command and all that it has started end with the test."""
    process = subprocess.Popen(
        list(map(str, words)),
        cwd=folder,
        env=variables,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        output, errors = process.communicate(timeout=SECONDS)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    assert process.returncode == 0, output + errors
    return output


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]


# ---- Accelerate ----


def epochs(output):
    """The losses and accuracies that accelerate_text_classification.py prints, after its first line."""
    found = re.findall(r"\bepoch \d+: loss (\S+), accuracy (\S+) of 121", output)
    losses, accuracies = ([float(value) for value in column] for column in zip(*found, strict=True))
    assert len(losses) == 3 and sorted(losses, reverse=True) == losses
    assert losses[-1] < 0.5 and accuracies[-1] > 0.8
    return found


@bf16_cpu
def test_single_process():
    """The same file and script, the same numbers: the adapter does what 1.7.0 did."""
    found = []
    for stack in STACKS:
        launch = [*accelerate(stack), "launch", "--config_file", "accelerate_single.yaml"]
        output = run([*launch, "accelerate_text_classification.py"], environment(stack))
        assert "1 processes, bf16, backend None, optimized: True" in output
        found.append(epochs(output))
    assert found[0] == found[1]


@pytest.mark.nightly
@pytest.mark.parametrize("stack", STACKS)
@pytest.mark.parametrize("option, optimized", [("--ipex", True), (None, False)])
def test_option_ipex(stack, option, optimized):
    launch = [*accelerate(stack), "launch", "--cpu", *([option] if option else [])]
    output = run([*launch, "accelerate_text_classification.py", "--epochs", "1"], environment(stack))
    assert f"1 processes, no, backend None, optimized: {optimized}" in output


def variables_of(launcher):
    """The environment with this `mpirun` in front."""
    if launcher == "impi":
        return {"I_MPI_ROOT": str(beside("impi")), "PATH": f"{beside('impi') / 'bin'}{os.pathsep}{os.environ['PATH']}"}
    mpirun = shutil.which("mpirun")
    if mpirun is None or b"HYDRA" not in subprocess.run([mpirun, "--version"], capture_output=True, check=False).stdout:
        pytest.skip("there is no mpirun of MPICH: apt-get install mpich")
    return {}


@bf16_cpu
@pytest.mark.nightly
@pytest.mark.parametrize("launcher", ["mpich", "impi"])
@pytest.mark.parametrize("stack, backend", [("1.7.0", "gloo"), ("1.7.0", "ccl"), ("newest", "gloo")])
def test_two_ranks_by_mpirun(stack, backend, launcher, tmp_path):
    hosts = tmp_path / "hostfile"
    hosts.write_text("127.0.0.1:2\n")
    packages, variables = ["oneccl"] if backend == "ccl" else [], variables_of(launcher)
    if backend == "ccl":
        variables["CCL_WORKER_COUNT"] = "1"
    options = ["--config_file", "accelerate_distributed.yaml", "--main_process_port", free_port()]
    launch = [*accelerate(stack), "launch", *options, "--mpirun_hostfile", hosts]
    words = [*launch, "accelerate_text_classification.py", "--batch_size", "8"]
    output = run(words, environment(stack, *packages, **variables))
    assert output.count(f"2 processes, bf16, backend {backend}, optimized: True") == 1
    epochs(output)


@bf16_cpu
@pytest.mark.nightly
@pytest.mark.parametrize("stack", STACKS)
def test_two_ranks_by_ipexrun(stack):
    pytest.importorskip("intel_extension_for_pytorch.cpu.launch", reason="this build has no ipexrun")
    script = ["accelerate_text_classification.py", "--batch_size", "8"]
    if stack == "newest":
        script = ["-m", ADAPTER, "run", *script]
    ipexrun = [sys.executable, "-m", "intel_extension_for_pytorch.cpu.launch", "--nnodes", "1"]
    ranks = ["--nprocs-per-node", "2", "--master-port", free_port(), "--ccl-worker-count", "0"]
    variables = environment(
        stack, ACCELERATE_USE_CPU="true", ACCELERATE_MIXED_PRECISION="bf16", ACCELERATE_USE_IPEX="true"
    )
    output = run([*ipexrun, *ranks, *script], variables)
    assert output.count("2 processes, bf16, backend gloo, optimized: True") == 1
    epochs(output)


RANK = """
import os, sys, torch
from accelerate import Accelerator
if sys.argv[2] == "newest":
    from intel_extension_for_pytorch.integrations.accelerate import enable
    enable()
from torch import nn
accelerator = Accelerator(cpu=True)
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 4))
optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
model, optimizer = accelerator.prepare(model, optimizer)
assert hasattr(accelerator.unwrap_model(model), "params_attr")
x, y = torch.randn(4, 8, 16), torch.randint(4, (4, 8))
mine = slice(accelerator.process_index, None, accelerator.num_processes)
for i in range(4):
    accelerator.backward(nn.functional.cross_entropy(model(x[i, mine]), y[i, mine]))
    optimizer.step()
    optimizer.zero_grad()
if accelerator.is_main_process:
    torch.save(accelerator.unwrap_model(model).state_dict(), sys.argv[1])
accelerator.wait_for_everyone()
accelerator.end_training()
"""


@pytest.mark.parametrize("stack", [pytest.param("1.7.0", marks=pytest.mark.nightly), "newest"])
def test_two_ranks_train_as_one(stack, tmp_path):
    """Two processes with a half of each batch, known by the variables that hydra sets, and one with the whole."""
    import torch

    (tmp_path / "rank.py").write_text(RANK)
    words = [sys.executable, "rank.py", tmp_path / "one", stack]
    run(words, environment(stack, ACCELERATE_USE_IPEX="true"), tmp_path)
    port = str(free_port())
    common = {"PMI_SIZE": "2", "MPI_LOCALNRANKS": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    words[2] = tmp_path / "two"
    ranks = []
    for rank in "01":
        variables = environment(stack, ACCELERATE_USE_IPEX="true", PMI_RANK=rank, MPI_LOCALRANKID=rank, **common)
        ranks.append(subprocess.Popen(list(map(str, words)), cwd=tmp_path, env=variables))
    try:
        assert [rank.wait(SECONDS) for rank in ranks] == [0, 0]
    finally:
        for rank in ranks:
            rank.kill()
    one, two = (torch.load(tmp_path / name) for name in ("one", "two"))
    for name, value in one.items():
        torch.testing.assert_close(two[name], value)


@bf16_cpu
@pytest.mark.nightly
@pytest.mark.parametrize("stack", STACKS)
@pytest.mark.parametrize("optimizer", ["SGD", "AdamW", "RMSprop"])
def test_checkpoint(stack, optimizer, tmp_path):
    launch = [*accelerate(stack), "launch", "--config_file", "accelerate_single.yaml"]
    words = [*launch, "accelerate_checkpoint.py", tmp_path, "--optimizer", optimizer]
    output = run(words, environment(stack))
    assert "stored ['torch.bfloat16'], saved ['torch.float32']" in output
    assert "same bits: True, same learning rate: True" in output


@pytest.mark.nightly
@pytest.mark.parametrize("precision", ["no", pytest.param("bf16", marks=bf16_cpu)])
@pytest.mark.parametrize("fusion", [False, True])
@pytest.mark.parametrize("door", ["arguments", "options"])
def test_inference(precision, fusion, door):
    script = ["accelerate_inference.py", "--mixed_precision", precision]
    if door == "arguments":
        words = [sys.executable, *script, "--use_ipex", *(["--do_fusion"] if fusion else [])]
    else:
        options = ["--ipex_enabled", *(["--ipex_fusion_enabled"] if fusion else [])]
        words = [*accelerate("newest"), "launch", "--cpu", *options, *script]
    output = run(words, environment("newest"))
    assert f"optimized: True, compiled: {fusion}" in output
    difference = float(re.search(r"largest difference (\S+), same classes: True", output)[1])
    assert difference < (0.005 if precision == "bf16" else 1e-6)


def dialogue(words, answers, variables):
    """Answers the questions of a program in a terminal: pairs of what a question contains and what is typed."""
    waiting, output, seen = list(answers), "", 0
    child, terminal = pty.fork()
    if child == 0:
        os.chdir(SCRIPTS)
        os.execvpe(words[0], words, variables)
    try:
        while select.select([terminal], [], [], 60)[0]:
            try:
                output += os.read(terminal, 4096).decode(errors="replace")
            except OSError:  # the program has ended
                break
            # A question ends with a colon, and a menu by hiding the cursor.
            if waiting and waiting[0][0] in output[seen:] and output.rstrip().endswith((":", "[?25l")):
                seen = len(output)
                # A menu drops what is typed before it reads single keys.
                while output.endswith("[?25l") and termios.tcgetattr(terminal)[3] & termios.ICANON:
                    time.sleep(0.01)
                os.write(terminal, waiting.pop(0)[1].encode())
        else:
            os.kill(child, signal.SIGKILL)
    finally:
        status = os.waitpid(child, 0)[1]
        os.close(terminal)
    assert (status, waiting) == (0, []), output
    return output


@pytest.mark.parametrize("stack", STACKS)
def test_config_in_a_terminal(stack, tmp_path):
    """Where the question for IPEX stands differs; the file that is written does not."""
    ipex = ("Do you want to use Intel PyTorch Extension (IPEX)", "yes\n")
    machine = [
        ("In which compute environment", "\r"),
        ("Which type of machine", "\r"),
        ("training on CPU only", "yes\n"),
    ]
    rest = [("torch dynamo", "\n"), ("DeepSpeed", "\n"), ("mixed precision", "2\r")]
    answers = [*machine, ipex, *rest] if stack == "1.7.0" else [ipex, *machine, *rest]
    path = tmp_path / "config.yaml"
    output = dialogue([*accelerate(stack), "config", "--config_file", str(path)], answers, environment(stack))
    assert "configuration saved" in output
    written = yaml.safe_load(path.read_text())
    assert written["ipex_config"] == {"ipex": True} and written["use_cpu"] is True
    assert (written["distributed_type"], written["mixed_precision"]) == ("NO", "bf16")


@pytest.mark.nightly
def test_accelerate_test(tmp_path):
    """Accelerate's own test of a configuration, through the adapter."""
    output = run([*accelerate("newest"), "test", "--config_file", "accelerate_single.yaml"], environment("newest"))
    assert "Test is a success" in output


@pytest.mark.nightly
@pytest.mark.parametrize("version", ["1.7.0", "1.12.0", "1.13.0", "1.14.0"])
def test_adapter_with_other_releases(version, tmp_path):
    """test_accelerate.py and test_accelerate_command.py with another accelerate, which is installed from the index."""
    pip = [sys.executable, "-m", "pip", "install", "-q", "--disable-pip-version-check", "--no-deps"]
    installed = subprocess.run([*pip, "--target", tmp_path / version, f"accelerate=={version}"], check=False)
    if installed.returncode:
        pytest.skip(f"accelerate {version} cannot be installed here")
    variables = environment("newest")
    variables["PYTHONPATH"] = f"{tmp_path / version}{os.pathsep}{variables['PYTHONPATH']}"
    words = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    words += ["tests/python/test_accelerate.py", "tests/python/test_accelerate_command.py"]
    assert " passed" in run(words, variables, ROOT)


# ---- Trainer ----

TRAINER = [
    *("trainer_question_answering.py", "--use_cpu", "--num_train_epochs", "2", "--learning_rate", "2e-3"),
    *("--logging_steps", "14", "--report_to", "none", "--save_strategy", "no", "--disable_tqdm", "true"),
]


def check_answers(folder, **expected):
    """The summary of a training, and the same answers by the saved model in another process."""
    summary = json.loads((folder / "summary.json").read_text())
    assert {name: summary[name] for name in expected} == expected
    losses = summary["losses"]
    assert losses[0] > 2 and losses[-1] < 0.5 and summary["exact_match"] > 0.9
    words = [sys.executable, "question_answering_inference.py", folder, "--dtype", "bf16"]
    again = json.loads(run(words, environment("newest")).splitlines()[-1])
    assert again["answers"] == summary["answers"]
    assert again["correct"] >= 0.9 * again["of"]


@bf16_cpu
@pytest.mark.nightly
@pytest.mark.parametrize("stack", STACKS)
@pytest.mark.parametrize("use_ipex", [True, False])
def test_trainer_compiled(stack, use_ipex, tmp_path):
    script = [*TRAINER, "--bf16", "--output_dir", tmp_path, "--per_device_train_batch_size", "32"]
    python = [sys.executable, *(["-m", ADAPTER, "run"] if stack == "newest" else [])]
    variables = environment(stack, ACCELERATE_USE_IPEX=str(use_ipex).lower())
    run([*python, *script, "--torch_compile_backend", "ipex"], variables)
    check_answers(tmp_path, processes=1, backend=None, optimized=use_ipex)


@bf16_cpu
@pytest.mark.parametrize("stack", [pytest.param("1.7.0", marks=pytest.mark.nightly), "newest"])
def test_trainer_on_two_ranks(stack, tmp_path):
    script = [*TRAINER, "--bf16", "--output_dir", tmp_path, "--per_device_train_batch_size", "16", "--ddp_backend=ccl"]
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--nproc_per_node", "2", "--master_port", free_port()]
    adapter = ["-m", ADAPTER, "run"] if stack == "newest" else []
    variables = environment(stack, "oneccl", ACCELERATE_USE_IPEX="true", CCL_WORKER_COUNT="1")
    run([*torchrun, *adapter, *script], variables)
    check_answers(tmp_path, processes=2, backend="ccl", optimized=True)

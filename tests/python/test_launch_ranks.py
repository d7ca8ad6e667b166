"""`ipexrun cpu --nnodes`: ranks that it starts itself, and ranks that MPI starts."""

import os
import re
import shutil
import socket
import time
from contextlib import closing

import pytest
from intel_extension_for_pytorch.cpu.launch import DistributedTrainingLauncher, command_line
from launching import commands, hydra, launch, physical_cores, report_program, reports, start
from lscpu_texts import machine

CORES = physical_cores()
pytestmark = pytest.mark.skipif(len(CORES) < 2, reason="needs two cores")
TOOLS = [name for name in ("lscpu", "numactl", "taskset") if shutil.which(name)]
RANKS = ("--nnodes", 1, "--nprocs-per-node", 2)
SUM = """
import os, torch, torch.distributed as dist
dist.init_process_group("gloo")
total = torch.tensor([dist.get_rank() + 1.0])
dist.all_reduce(total)
print("sum", total.item(), "of", dist.get_world_size(), "with", torch.get_num_threads(), "threads")
dist.barrier()
dist.destroy_process_group()
"""


@pytest.fixture
def report(tmp_path):
    return report_program(tmp_path)


@pytest.fixture
def no_mpi(tmp_path):
    """A PATH without mpiexec.hydra."""
    return commands(tmp_path / "bin", *TOOLS)


@pytest.fixture(params=["mpich", "impi"])
def mpi(request, tmp_path):
    """A PATH with one kind of mpiexec.hydra."""
    folder = hydra(request.param)
    return os.pathsep.join([str(folder), commands(tmp_path / "bin", *TOOLS), os.environ["PATH"]])


def free_port():
    with closing(socket.socket()) as listening:
        listening.bind(("127.0.0.1", 0))
        return listening.getsockname()[1]


def check_ranks(output, messages):
    seen = sorted(reports(output), key=lambda r: r["environment"]["RANK"])
    assert [r["environment"]["RANK"] for r in seen] == ["0", "1"], messages
    for i, r in enumerate(seen):
        e = r["environment"]
        assert r["arguments"] == ["a b", "$HOME"]
        assert set(r["cores"]) <= set(CORES) and len(r["cores"]) >= int(e["OMP_NUM_THREADS"]) >= 1
        assert e["PMI_RANK"] == e["LOCAL_RANK"] == e["MPI_LOCALRANKID"] == str(i)
        sizes = ("PMI_SIZE", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MPI_LOCALNRANKS")
        assert {e[name] for name in sizes} == {"2"}
        assert e["MASTER_ADDR"] == "127.0.0.1" and e["MASTER_PORT"] == "12345"
        assert "jemalloc" not in e.get("LD_PRELOAD", "")
    assert not set(seen[0]["cores"]) & set(seen[1]["cores"])


REPORTING = (*RANKS, "--ccl_worker_count", 0, "--master-port", 12345)


# ---- without MPI ----


def test_own_ranks(report, no_mpi):
    output, messages = launch(*REPORTING, report, "a b", "$HOME", PATH=no_mpi)
    assert sorted(re.findall(r"^\[(\d)\] \{", output, re.M)) == ["0", "1"]
    check_ranks(output, messages)


def test_own_ranks_communicate(tmp_path, no_mpi):
    program = tmp_path / "sum.py"
    program.write_text(SUM)
    output, _ = launch(*RANKS, "--master-port", free_port(), program, PATH=no_mpi)
    lines = sorted(output.splitlines())
    threads = lines[0].split()[-2]
    assert lines == [f"[{i}] sum 3.0 of 2 with {threads} threads" for i in (0, 1)]
    assert 1 <= int(threads) <= len(CORES) // 2


def test_a_dying_rank_ends_the_others(tmp_path, no_mpi):
    program = tmp_path / "die.py"
    program.write_text(
        "import os, sys, time\nif os.environ['RANK'] == '1':\n    print('bad news')\n    sys.exit(9)\ntime.sleep(60)\n"
    )
    began = time.monotonic()
    output, messages = launch(*RANKS, program, status=9, PATH=no_mpi)
    assert time.monotonic() - began < 30
    assert output == "[1] bad news\n"
    assert "rank 1 failed with exit code 9; rank 0 will be ended" in messages


def test_logs_of_own_ranks(tmp_path, no_mpi):
    program = tmp_path / "speak.py"
    program.write_text("import os\nprint('I am', os.environ['RANK'])\nprint('end', end='')\n")
    output, _ = launch(*RANKS, "--log-dir", tmp_path / "logs", program, PATH=no_mpi)
    (whole,) = [p for p in (tmp_path / "logs").glob("run_*.log") if re.fullmatch(r"run_\d+\.log", p.name)]
    assert sorted(output.splitlines()) == ["[0] I am 0", "[0] end", "[1] I am 1", "[1] end"]
    assert sorted(whole.read_text().splitlines()) == sorted(output.splitlines())
    for rank in (0, 1):
        (log,) = (tmp_path / "logs").glob(f"run_*_rank_{rank}.log")
        assert log.read_text() == f"I am {rank}\nend"


def test_ctrl_c_ends_all_ranks(tmp_path, no_mpi):
    program = tmp_path / "wait.py"
    program.write_text("import time\nprint('ready')\ntime.sleep(60)\n")
    process = start(*RANKS, program, PATH=no_mpi)
    assert sorted(process.stdout.readline() for _ in range(2)) == ["[0] ready\n", "[1] ready\n"]
    process.send_signal(2)
    output, messages = process.communicate(timeout=30)
    assert output.count("KeyboardInterrupt") == 2
    assert process.returncode in (1, 130), messages


# ---- with MPI ----


def test_ranks_of_mpi(report, mpi):
    output, messages = launch(*REPORTING, report, "a b", "$HOME", PATH=mpi)
    assert "mpiexec.hydra -l -np 2 -ppn 2" in messages
    check_ranks(output, messages)


@pytest.mark.nightly
def test_ranks_of_mpi_communicate(tmp_path, mpi):
    program = tmp_path / "sum.py"
    program.write_text(SUM)
    output, _ = launch(*RANKS, "--master-port", free_port(), program, PATH=mpi)
    assert output.count("sum") == 2 and output.count("3.0") == 2


def test_exit_code_and_logs_of_mpi(tmp_path, mpi):
    program = tmp_path / "die.py"
    program.write_text(
        "import os, sys, time\nrank = os.environ['RANK']\nos.write(1, f'I am {rank}\\n'.encode())\n"
        "time.sleep(1)\nsys.exit(9 if rank == '1' else 0)\n"
    )
    _, messages = launch(*RANKS, "--log-dir", tmp_path / "logs", program, status=9, PATH=mpi)
    assert "mpiexec.hydra failed with exit code 9" in messages
    for rank in (0, 1):
        (log,) = (tmp_path / "logs").glob(f"run_*_rank_{rank}.log")
        assert log.read_text().startswith(f"I am {rank}\n")


# ---- cores ----


def settings(text, *arguments):
    """The options after they were fitted to a machine, and the pools."""
    launcher = DistributedTrainingLauncher(lscpu_txt=text)
    args = command_line.parse(["--nnodes", "1", *map(str, arguments), "program.py"])
    launcher._make_pools(args)
    return args, [pool.get_pool_txt()["cores"] for pool in launcher.cpuinfo.pools_ondemand]


def test_pools(capsys):
    two = machine(2, 28)
    args, pools = settings(two)  # one rank for each node
    assert args.nprocs_per_node == 2 and pools == ["0-27,56-83", "28-55,84-111"]
    args, pools = settings(two, "--nodes-list", 1)
    assert args.nprocs_per_node == 1 and pools == ["28-55,84-111"]
    # 8 cores compute and 4 communicate, with both threads of each.
    assert settings(two, "--ncores-per-instance", 8, "--strategy", "close")[1] == ["0-11,56-67", "12-23,68-79"]
    logical = settings(two, "--ncores-per-instance", 8, "--logical-cores-for-ccl", "--strategy", "close")[1]
    assert logical == ["0-7,56-63", "8-15,64-71"]
    args, _ = settings(machine(1, 4, threads=1), "--nprocs-per-node", 2)
    assert args.ccl_worker_count == 1
    assert "would leave no core for computing" in capsys.readouterr().out
    for ranks, kept, pools in ((1, 1, ["0-1"]), (2, 0, ["0", "1"])):
        args, found = settings(machine(1, 2, threads=1), "--nprocs-per-node", ranks, "--ncores-per-instance", 1)
        assert args.ccl_worker_count == kept and found == pools
        assert f"{kept} cores of each rank are kept for communication" in capsys.readouterr().out
    args, _ = settings(two, "--ncores-per-instance", 26, "--bind-numa-node")
    assert args.ccl_worker_count == 2
    args, _ = settings(machine(1, 8, threads=1), "--logical-cores-for-ccl")
    assert not args.logical_cores_for_ccl


def test_options_of_instances(report, no_mpi):
    messages = launch(*RANKS, "--ninstances", 3, "--latency-mode", report, PATH=no_mpi)[1]
    assert "ignored: --ninstances, --latency-mode" in messages


def test_contradictions(report):
    both = ("--logical-cores-for-ccl", "--use-logical-cores")
    assert "exclude each other" in launch(*RANKS, *both, report, status=2)[1]
    assert "more than" in launch("--nnodes", 1, "--nprocs-per-node", 999, report, status=2)[1]


# ---- hosts ----


def test_hostfile(tmp_path, report, no_mpi):
    hosts = tmp_path / "hosts"
    two = ("--nnodes", 2, "--hostfile", hosts, report)
    assert "does not exist" in launch(*two, status=2)[1]
    hosts.write_text("127.0.0.1\n# a comment\n")
    assert "names 1 machines, and --nnodes is 2" in launch(*two, status=2)[1]
    hosts.write_text("192.0.2.1\n127.0.0.1\n")
    assert "192.0.2.1, is not an address of this machine" in launch(*two, status=2)[1]
    hosts.write_text("127.0.0.1\n127.0.0.2:2\n")
    assert "ssh is not installed" in launch(*two, status=2, PATH=no_mpi)[1]
    ssh = commands(tmp_path / "ssh", *TOOLS, ssh='echo "Permission denied (publickey)" >&2; exit 255')
    assert "`ssh 127.0.0.2` without a password fails: Permission denied" in launch(*two, status=2, PATH=ssh)[1]
    works = commands(tmp_path / "works", *TOOLS, ssh="exit 0")
    assert "needs mpiexec.hydra" in launch(*two, status=2, PATH=works)[1]

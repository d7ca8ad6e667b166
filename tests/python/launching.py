"""Runs `ipexrun` for the tests, and builds folders of commands for its PATH."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from intel_extension_for_pytorch.cpu.launch import CPUPoolList, distributed

PACKAGE = Path(__file__).resolve().parents[2] / "python" / "intel_extension_for_pytorch" / "cpu"
# The launcher needs nothing else of the package; without it, PyTorch need not be imported.
DRIVER = f"import sys; sys.path.insert(0, {str(PACKAGE)!r}); from launch.command_line import main; sys.exit(main())"

VARIABLES = ("OMP", "KMP", "GOMP", "LD_PRELOAD", "MALLOC_CONF", "CCL", "I_MPI_PIN", "PMI_", "MPI_", "MASTER", "LOCAL")
VARIABLES += ("RANK", "WORLD_SIZE")
# Prints what an instance sees, as one line of JSON. One short write: lines of several instances do not mix.
REPORT = f"""
import json, os, sys
environment = {{name: value for name, value in os.environ.items() if name.startswith({VARIABLES})}}
seen = {{"arguments": sys.argv[1:], "cores": sorted(os.sched_getaffinity(0)), "environment": environment}}
os.write(1, (json.dumps(seen) + "\\n").encode())
"""


def report_program(folder: Path) -> Path:
    """A program that prints `reports`."""
    path = folder / "report.py"
    path.write_text(REPORT)
    return path


def physical_cores() -> list[int]:
    """The CPUs that instances get by default, in the order in which they get them."""
    pools = CPUPoolList()
    pools.gen_pools_ondemand(ncores_per_instance=1)
    return [pool[0].cpu for pool in pools.pools_ondemand]


def clean_environment(**changes: str | None) -> dict[str, str]:
    """This environment without the variables that the launcher sets."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith((*VARIABLES, "CONDA", "VIRTUAL"))}
    changed = kept | {k: v for k, v in changes.items() if v is not None}
    return {k: v for k, v in changed.items() if k not in changes or changes[k] is not None}


def start(
    *arguments: object,
    prefix: tuple[str, ...] = (),
    stdin: int = subprocess.DEVNULL,
    stdout: int = subprocess.PIPE,
    setup: str = "",
    **environment: str | None,
) -> subprocess.Popen:
    """Starts `ipexrun cpu ...`, behind the words of `prefix`; its output and messages are pipes.

    setup: statements that run before `ipexrun`; they can import `launch`.
    """
    return subprocess.Popen(
        [
            *prefix,
            sys.executable,
            "-c",
            DRIVER.replace("sys.exit(", f"{setup}; sys.exit(") if setup else DRIVER,
            "cpu",
            *map(str, arguments),
        ],
        env=clean_environment(**environment),
        stdin=stdin,
        stdout=stdout,
        stderr=subprocess.PIPE,
        text=True,
    )


def launch(*arguments: object, status: int = 0, **environment: str | None) -> tuple[str, str]:
    """Runs `ipexrun cpu ...` to its end; returns its output and its messages."""
    process = start(*arguments, **environment)
    output, messages = process.communicate(timeout=120)
    assert process.returncode == status, f"status {process.returncode}, not {status}\n{output}\n{messages}"
    return output, messages


def reports(output: str) -> list[dict]:
    """What the instances printed by `REPORT`, also behind "[0] "."""
    return [json.loads(line[line.index("{") :]) for line in output.splitlines() if '"arguments"' in line]


def commands(folder: Path, *names: str, **scripts: str) -> str:
    """A folder for PATH with only these commands of the machine, and shell scripts by name."""
    folder.mkdir()
    for name in names:
        found = shutil.which(name)
        assert found, f"{name} is not installed"
        (folder / name).symlink_to(found)
    for name, text in scripts.items():
        (folder / name).write_text(f"#!/bin/sh\n{text}\n")
        (folder / name).chmod(0o755)
    return str(folder)


def hydra(kind: str) -> Path:
    """The folder of an mpiexec.hydra: "mpich", or "impi" for Intel MPI. Skips if it is not installed."""
    folders = os.environ["PATH"].split(os.pathsep)
    for folder in map(Path, folders):
        command = folder / "mpiexec.hydra"
        if command.exists() and distributed._is_intel_mpi(str(command)) == (kind == "impi"):
            return folder
    package = {"mpich": "Debian's mpich", "impi": "PyPI's impi-rt"}[kind]
    return pytest.skip(f"{package} is not installed")

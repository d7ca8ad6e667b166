"""Runs part of the other suites for smaller instruction sets, each in a process of its own."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
SUITES = ("test_special_values.py", "test_op_matrix.py", "test_attention.py")
CASES = "epilogues or infinity or gelu or cumsum or 197 or few"


@pytest.mark.needs_ipex
@pytest.mark.parametrize(
    "target",
    (
        pytest.param("avx2", marks=pytest.mark.needs_cpu("avx512f")),
        pytest.param("avx512", marks=pytest.mark.needs_cpu("avx512_bf16")),
    ),
)
def test_smaller_target(target):
    held = {"avx2": "AVX2", "avx512": "AVX512_CORE"}[target]  # limits oneDNN to this instruction set
    environment = {**os.environ, "IPEX_TARGET": target, "ONEDNN_MAX_CPU_ISA": held}
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "-k", CASES]
    done = subprocess.run(
        [*command, *(str(HERE / suite) for suite in SUITES)],
        env=environment,
        capture_output=True,
        text=True,
        cwd=HERE,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-4000:]
    assert " passed" in done.stdout

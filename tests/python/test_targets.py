"""Runs part of the other suites for smaller instruction sets, each in a process of its own."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

HERE = Path(__file__).parent
SUITES = ("test_special_values.py", "test_op_matrix.py", "test_attention.py")
CASES = "epilogues or infinity or gelu or cumsum or 197 or few"


@pytest.mark.needs_ipex
@pytest.mark.parametrize(
    "target",
    (
        pytest.param("avx2", marks=pytest.mark.needs_cpu("avx512f")),
        pytest.param("avx512", marks=[pytest.mark.needs_cpu("avx512_bf16"), pytest.mark.nightly]),
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


ISAS = ("avx2", "avx512", "avx512_bf16")
LIMITS = {"default": 0, "avx2": 0, "avx2_vnni": 0, "avx512": 1, "avx512_vnni": 1, "avx512_bf16": 2, "amx": 2, "": 2}


@pytest.mark.needs_ipex
@pytest.mark.parametrize("limit", LIMITS)
def test_limit_of_pytorch(monkeypatch, limit):
    """ATEN_CPU_CAPABILITY never raises the target, and IPEX_TARGET wins over it."""
    from intel_extension_for_pytorch import _C

    monkeypatch.delenv("IPEX_TARGET", raising=False)
    monkeypatch.setenv("ATEN_CPU_CAPABILITY", limit)
    best = _C.supported_targets()[-1]
    assert _C.target() == ISAS[min(ISAS.index(best), LIMITS[limit])]
    monkeypatch.setenv("IPEX_TARGET", best)
    assert _C.target() == best


@pytest.mark.needs_ipex
@pytest.mark.needs_cpu("avx512f")
@pytest.mark.parametrize(("limit", "is_wide"), [("avx2", False), ("avx512", True)])
def test_code_within_the_limit_of_pytorch(monkeypatch, tmp_path, compiled, limit, is_wide):
    monkeypatch.delenv("IPEX_TARGET", raising=False)
    for name, value in {"ATEN_CPU_CAPABILITY": limit, "IPEX_DUMP": str(tmp_path), "IPEX_CACHE": "off"}.items():
        monkeypatch.setenv(name, value)
    x = torch.randn(1000)
    torch.testing.assert_close(compiled(lambda x: torch.exp(x) + 1)(x), torch.exp(x) + 1)
    code = [path.read_text() for path in tmp_path.rglob("*.s")]
    assert code and any("zmm" in text for text in code) == is_wide

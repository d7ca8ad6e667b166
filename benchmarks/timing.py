"""Timing for the benchmarks: interleaved rounds (from the package), and fresh processes for cold measurements."""

from __future__ import annotations

import json
import os
import subprocess
import sys

from intel_extension_for_pytorch.bench.timing import Sample, interleaved, machine

__all__ = ["Sample", "in_fresh_process", "interleaved", "machine"]


def in_fresh_process(code: str, env: dict[str, str] | None = None, timeout: float = 900) -> dict:
    """Runs Python code in a new process, for cold first calls and memory peaks. Its last line of output must be
    JSON."""
    result = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, **(env or {})},
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )
    if result.returncode != 0:
        raise RuntimeError(f"benchmark process failed:\n{result.stderr[-3000:]}")
    return json.loads(result.stdout.strip().splitlines()[-1])

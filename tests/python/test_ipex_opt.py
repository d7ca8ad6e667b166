"""The command ipex-opt: passes by name, the pipeline, lowering, emission, and comparison with the interpreter."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).resolve().parents[2]
BUILDS = (f"release-{torch.__version__.split('+')[0]}", "release", "dev")
TOOL = next((tool for build in BUILDS if (tool := ROOT / "build" / build / "ipex-opt").exists()), None)
SOFTMAX = """graph main(%x: f32[s0,8]{8,1}) symbols(s0=5) {
  %a = pointwise.exp(%x) : f32[s0,8]
  %s = reduce.sum(%a) axes=[1] keepdim=true : f32[s0,1]
  %se = expand(%s) dims=[0,1] : f32[s0,8]
  %y = pointwise.div(%a, %se) : f32[s0,8]
  return %y
}
"""

pytestmark = pytest.mark.skipif(TOOL is None, reason="ipex-opt is made by the CMake build, not by the wheel")


def ipex_opt(*arguments: str, text: str = SOFTMAX, code: int = 0) -> str:
    result = subprocess.run([TOOL, *arguments], input=text, capture_output=True, text=True, timeout=60, check=False)
    assert result.returncode == code, result.stderr
    return result.stdout if code == 0 else result.stderr


def test_a_pass_by_name_keeps_the_text_readable():
    once = ipex_opt("--pass", "canonicalize")
    assert "pointwise.exp" in once and "group" not in once
    assert ipex_opt("--pass", "canonicalize", text=once) == once


def test_the_pipeline_makes_one_group():
    assert ipex_opt("--pipeline").count("= group(") == 1


def test_lowered_kernels_are_the_input_of_the_loop_passes():
    loops = ipex_opt("--lower")
    assert loops.startswith("func ")
    assert "vector" not in ipex_opt("--pass", "apply_schedule,vectorize", text=loops)


@pytest.mark.parametrize(("form", "mnemonic"), [("llvm", "define "), ("asm", "vaddps"), ("loop", "func ")])
@pytest.mark.parametrize("target", ["avx2", "avx512", "avx512_bf16"])
def test_emits_for_any_target_on_any_machine(form, mnemonic, target):
    text = ipex_opt("--emit", form, "--target", target)
    assert mnemonic in text
    if form == "asm":
        assert ("%zmm" in text) == (target != "avx2")


def test_run_compares_with_the_interpreter():
    line = ipex_opt("--run").strip().splitlines()[-1]
    assert line.startswith("output 0: largest relative difference ")
    assert float(line.rsplit(" ", 1)[1]) < 1e-6


def test_every_listed_pass_can_be_named():
    names = [line.split()[1] for line in ipex_opt("--list", text="").splitlines()]
    assert {"canonicalize", "form_groups", "vectorize", "legalize"} <= set(names)


def test_errors_say_what_and_where():
    assert "no_such_pass" in ipex_opt("--pass", "no_such_pass", code=1)
    misspelt = SOFTMAX.replace("pointwise.exp", "pointwise.expp")
    message = ipex_opt("--pipeline", text=misspelt, code=1)
    assert "'expp' is not a row of pointwise.def" in message
    assert "<stdin>: 2:" in ipex_opt("--pipeline", text=SOFTMAX.replace("(%x) :", "(%w) :"), code=1)

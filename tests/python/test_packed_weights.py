"""Files with packed weights of an artifact: a load maps them, and ignores files that do not match."""

import logging
import os
import subprocess
import sys

import intel_extension_for_pytorch as ipex
import pytest
import torch
from intel_extension_for_pytorch import _C
from test_aot import compile_and_load, export, ipexc

pytestmark = pytest.mark.needs_ipex


def model(seed=0):
    torch.manual_seed(seed)
    return torch.nn.Sequential(torch.nn.Linear(512, 1024), torch.nn.ReLU(), torch.nn.Linear(1024, 512))


@pytest.fixture
def artifact(tmp_path):
    """(path, input, result without packed weights)"""
    x = torch.randn(16, 512)  # with more rows, weights are not packed on CPUs without AVX-512
    loaded = compile_and_load(tmp_path, export(model(), x))
    return tmp_path / "model.ipex", x, loaded(x)


def load_and_warnings(path, caplog):
    caplog.clear()
    with caplog.at_level(logging.WARNING):
        loaded = ipex.aot.load(path)
    return loaded, [record.getMessage() for record in caplog.records if "is not used" in record.getMessage()]


def test_the_same_results_without_memory_of_their_own(artifact, caplog):
    path, x, expected = artifact
    packed = ipex.aot.pack(path)
    assert packed.stat().st_size > model()[0].weight.nbytes, "this CPU packs nothing: choose another model"
    before = _C.memory()["live_bytes"]
    loaded, warnings = load_and_warnings(path, caplog)
    assert not warnings
    assert _C.memory()["live_bytes"] == before
    assert torch.equal(loaded(x), expected)
    assert _C.memory()["live_bytes"] <= before + expected.nbytes * 2


def test_from_the_command_line(artifact, capsys):
    path, x, expected = artifact
    assert ipexc("pack", path) == 0
    assert f"{path}.packed" in capsys.readouterr().out
    assert torch.equal(ipex.aot.load(path)(x), expected)
    assert ipexc("pack", path.with_name("missing.ipex")) == 2


def test_values_of_another_artifact_are_passed_over(artifact, caplog):
    path, x, _ = artifact
    ipex.aot.pack(path)
    ipex.aot.compile(export(model(seed=1), x), path)
    loaded, warnings = load_and_warnings(path, caplog)
    assert len(warnings) == 1 and "another artifact" in warnings[0]
    torch.testing.assert_close(loaded(x), model(seed=1)(x), atol=1e-5, rtol=1e-5)


def test_weights_of_their_own(tmp_path):
    x = torch.randn(16, 512)  # with more rows, weights are not packed on CPUs without AVX-512
    path = tmp_path / "model.ipex"
    ipex.aot.compile(export(model(), x), path, weights="extern")
    expected = ipex.aot.load(path)(x)
    ipex.aot.pack(path)
    assert torch.equal(ipex.aot.load(path)(x), expected)


def test_damaged_values_are_refused(artifact):
    """A change of any byte is an error."""
    path, _, _ = artifact
    packed = ipex.aot.pack(path)
    whole = packed.read_bytes()
    for at in range(0, len(whole), len(whole) // 97):
        packed.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
        with pytest.raises(ipex.UserError):
            ipex.aot.load(path)
    packed.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(ipex.UserError):
        ipex.aot.load(path)


def test_a_model_without_weights(tmp_path):
    x = torch.randn(4, 8)
    loaded = compile_and_load(tmp_path, export(torch.nn.GELU(), x))
    path = tmp_path / "model.ipex"
    ipex.aot.pack(path)
    assert torch.equal(ipex.aot.load(path)(x), loaded(x))


@pytest.mark.needs_cpu("avx512f")
def test_values_for_another_target_are_passed_over(tmp_path):
    x = torch.randn(16, 512)  # with more rows, weights are not packed on CPUs without AVX-512
    path = tmp_path / "model.ipex"
    ipex.aot.compile(export(model(), x), path, isa=("avx2", _C.target()))
    ipex.aot.pack(path)
    program = f"import intel_extension_for_pytorch as ipex, torch; ipex.aot.load({str(path)!r})(torch.ones(16, 512))"
    environment = {**os.environ, "IPEX_TARGET": "avx2"}
    run = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True)
    assert "to another target than avx2" in run.stderr

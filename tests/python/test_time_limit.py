"""IPEX_COMPILE_LIMIT: a compilation that takes too long is given up, its graph runs eagerly, and the next one
compiles."""

import logging
import time

import intel_extension_for_pytorch as ipex
import pytest
import torch
from conftest import BACKEND

pytestmark = pytest.mark.needs_ipex
X = torch.linspace(-1, 1, 12).view(3, 4)


@pytest.fixture
def endless_rule(monkeypatch):
    """A rule of aten.sinc that swallows exceptions and never returns."""
    from intel_extension_for_pytorch.compiler import importer

    def endless(im, node, x):
        while True:
            try:
                time.sleep(0.01)
            except Exception:  # as PyTorch's code does here and there
                continue

    known = importer.rule_for

    def rule_for(target):
        return endless if target is torch.ops.aten.sinc.default else known(target)

    monkeypatch.setattr(importer, "rule_for", rule_for)
    monkeypatch.setenv("IPEX_COMPILE_LIMIT", "0.3")


def test_a_rule_that_does_not_return(endless_rule, caplog, monkeypatch):
    torch._dynamo.reset()
    logging.getLogger("ipex").propagate = True
    start = time.monotonic()
    with caplog.at_level(logging.WARNING, "ipex"), ipex.record_reports() as reports:
        found = torch.compile(lambda x: torch.sinc(x).cos(), backend=BACKEND)(X)
    assert time.monotonic() - start < 60
    torch.testing.assert_close(found, torch.sinc(X).cos())
    why = reports[0]["eager"]
    assert "IPEX_COMPILE_LIMIT=0.3" in why
    assert "aten.sinc.default" in why
    assert why in caplog.text
    monkeypatch.setenv("IPEX_COMPILE_LIMIT", "600")  # a loaded machine may need more than a moment
    with ipex.record_reports() as reports:
        torch.testing.assert_close(torch.compile(lambda x: torch.cos(x) * 3, backend=BACKEND)(X), X.cos() * 3)
    assert reports[0]["eager"] is None


def test_is_an_error_when_strict(endless_rule, strict):
    torch._dynamo.reset()
    with pytest.raises(Exception, match=r"IPEX_COMPILE_LIMIT=0\.3.*aten\.sinc"):
        torch.compile(lambda x: torch.sinc(x).cos(), backend=BACKEND)(X)


def test_passes_and_kernels(monkeypatch):
    """C++ checks the time between passes and kernels, and names the step that it did not start."""
    from intel_extension_for_pytorch.compiler import time_limit

    in_cpp = time_limit.in_cpp

    def without_time(*arguments, **options):
        time_limit._running[0].end = 0.0
        return in_cpp(*arguments, **options)

    monkeypatch.setattr(time_limit, "in_cpp", without_time)
    torch._dynamo.reset()
    with ipex.record_reports() as reports:
        found = torch.compile(lambda x: x.sin().cos(), backend=BACKEND)(X)
    torch.testing.assert_close(found, X.sin().cos())
    assert "no time left for graph pass canonicalize" in reports[0]["eager"]


@pytest.mark.parametrize("limit", ["0", "600"])
def test_no_limit_is_reached(limit, monkeypatch, strict):
    monkeypatch.setenv("IPEX_COMPILE_LIMIT", limit)
    torch._dynamo.reset()
    torch.testing.assert_close(torch.compile(lambda x: x.sin().cos(), backend=BACKEND)(X), X.sin().cos())


def test_interrupt_while_cpp_compiles(monkeypatch):
    """The limit passes while C++ runs without the GIL: its error and the interrupt arrive together."""
    from intel_extension_for_pytorch import _C

    compile_graph = _C.compile

    def slowly(*arguments, **options):
        end = time.monotonic() + 0.6
        with pytest.raises(_C.OutOfTime):
            compile_graph(*arguments, **{**options, "seconds": 0.0})
        time.sleep(max(end - time.monotonic(), 0))
        return compile_graph(*arguments, **{**options, "seconds": 0.0})

    monkeypatch.setattr(_C, "compile", slowly)
    monkeypatch.setenv("IPEX_COMPILE_LIMIT", "0.3")
    torch._dynamo.reset()
    with ipex.record_reports() as reports:
        found = torch.compile(lambda x: x.sin().cos(), backend=BACKEND)(X)
    torch.testing.assert_close(found, X.sin().cos())
    assert "IPEX_COMPILE_LIMIT=0.3" in reports[0]["eager"]


def test_a_limit_that_is_no_number(monkeypatch, caplog):
    monkeypatch.setenv("IPEX_COMPILE_LIMIT", "10m")
    torch._dynamo.reset()
    logging.getLogger("ipex").propagate = True
    with caplog.at_level(logging.WARNING, "ipex"):
        torch.testing.assert_close(torch.compile(lambda x: x.sin() * 2, backend=BACKEND)(X), X.sin() * 2)
    assert "IPEX_COMPILE_LIMIT=10m is not a number of seconds" in caplog.text

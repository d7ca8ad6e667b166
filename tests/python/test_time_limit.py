"""IPEX_COMPILE_LIMIT: a compilation that does not end is given up, its graph runs eagerly, the next one compiles."""

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
    from intel_extension_for_pytorch import ops

    def endless(im, node, x):
        while True:
            try:
                time.sleep(0.01)
            except Exception:  # as PyTorch's code does here and there
                continue

    known = ops.rule_for

    def rule_for(target):
        return endless if target is torch.ops.aten.sinc.default else known(target)

    monkeypatch.setattr(ops, "rule_for", rule_for)
    monkeypatch.setenv("IPEX_COMPILE_LIMIT", "0.3")


def test_a_rule_that_does_not_return(endless_rule, caplog):
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
    with ipex.record_reports() as reports:
        torch.testing.assert_close(torch.compile(lambda x: torch.cos(x) * 3, backend=BACKEND)(X), X.cos() * 3)
    assert reports[0]["eager"] is None


def test_is_an_error_when_strict(endless_rule, strict):
    torch._dynamo.reset()
    with pytest.raises(Exception, match=r"IPEX_COMPILE_LIMIT=0\.3.*aten\.sinc"):
        torch.compile(lambda x: torch.sinc(x).cos(), backend=BACKEND)(X)


def test_passes_and_kernels(monkeypatch):
    """C++ asks between its parts, and names what it did not begin."""
    from intel_extension_for_pytorch import backend

    monkeypatch.setattr(backend.time_limit, "seconds_left", lambda: 0.0)
    torch._dynamo.reset()
    with ipex.record_reports() as reports:
        found = torch.compile(lambda x: x.sin().cos(), backend=BACKEND)(X)
    torch.testing.assert_close(found, X.sin().cos())
    assert "no time is left for graph pass canonicalize" in reports[0]["eager"]


@pytest.mark.parametrize("limit", ["0", "600"])
def test_no_limit_is_reached(limit, monkeypatch, strict):
    monkeypatch.setenv("IPEX_COMPILE_LIMIT", limit)
    torch._dynamo.reset()
    torch.testing.assert_close(torch.compile(lambda x: x.sin().cos(), backend=BACKEND)(X), X.sin().cos())

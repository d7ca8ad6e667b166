"""Fixtures of the Python suites: which backend is under test, a private object cache, fixed seeds, strict mode.

IPEX_TEST_BACKEND names another torch.compile backend to run the suites against (aot_eager checks the tests
themselves: it must pass everything that is not marked needs_ipex).
"""

import logging
import os
import tempfile
import zlib
from collections import Counter

# Read when libgomp is loaded: several workers share the cores, and threads that spin for each other take them from all.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")
os.environ.setdefault("IPEX_POISON", "1")

import pytest
import torch
import torch._functorch.config

BACKEND = os.environ.get("IPEX_TEST_BACKEND", "ipex")

# The knob is read by C++ at each compile; a session starts from an empty cache unless the caller has one to warm.
session_cache = tempfile.TemporaryDirectory(prefix="ipex-test-cache-")
os.environ.setdefault("IPEX_CACHE", session_cache.name)
# A graph that comes from AOTAutograd's cache is not compiled: test_warm_start.py is about that, the rest is not. Run
# twice with IPEX_TEST_WARM=1 and one TORCHINDUCTOR_CACHE_DIR, the second time every suite runs what was kept.
torch._functorch.config.enable_autograd_cache = os.environ.get("IPEX_TEST_WARM", "0") != "0"
torch.set_num_threads(min(4, os.cpu_count() or 1))
torch._dynamo.config.cache_size_limit = 64


def pytest_configure(config):
    config.addinivalue_line("markers", "needs_ipex: checks what only this backend promises")
    config.addinivalue_line("markers", "one_in(n): CI runs one in n of these cases, `make nightly` all")
    # Dynamo's structured trace would bury the report of a failing test under thousands of empty lines.
    logging.getLogger("torch.__trace").addFilter(lambda record: False)


@pytest.hookimpl(tryfirst=True)  # before pytest leaves out what is marked nightly
def pytest_collection_modifyitems(items):
    for item in items:
        one_in = item.get_closest_marker("one_in")
        # By name: which ones does not depend on what else is collected, and no dtype or layout is left out whole.
        if one_in and zlib.crc32(item.name.encode()) % one_in.args[0]:
            item.add_marker(pytest.mark.nightly)
    if BACKEND == "ipex":
        return
    skip = pytest.mark.skip(reason=f"IPEX_TEST_BACKEND={BACKEND}")
    for item in items:
        if item.get_closest_marker("needs_ipex"):
            item.add_marker(skip)


def pytest_terminal_summary(terminalreporter):
    """Lines that tests recorded with record_property("summary", ...), also when workers ran them."""
    reports = [r for outcome in ("passed", "failed") for r in terminalreporter.stats.get(outcome, [])]
    lines = [(r.nodeid.rpartition("::")[2], v) for r in reports for k, v in r.user_properties if k == "summary"]
    if lines:
        terminalreporter.section("what was compiled: native ops (in kernels + library calls), extern ops; fuzz seeds")
    for name, line in lines:
        terminalreporter.write_line(f"{name:48} {line}")
    models = Counter(
        (r.nodeid.rpartition("::test_")[2].partition("[")[0], outcome)
        for outcome in ("passed", "failed", "error")
        for r in terminalreporter.stats.get(outcome, [])
        if "test_models.py::" in r.nodeid and r.nodeid.endswith("]")
    )
    if models:
        terminalreporter.section("models, by mode")
    for mode in dict.fromkeys(mode for mode, _ in models):
        counts = [f"{models[mode, outcome]} {outcome}" for outcome in ("passed", "failed", "error")]
        terminalreporter.write_line(f"{mode:24} {', '.join(counts)}")


def pytest_report_header():
    return f"torch.compile backend: {BACKEND}, threads: {torch.get_num_threads()}, torch {torch.__version__}"


@pytest.fixture(autouse=True)
def fresh_state():
    """No compiled code, seed or autograd mode leaks from one test into the next."""
    torch._dynamo.reset()
    torch.manual_seed(0)
    yield
    torch._dynamo.reset()


@pytest.fixture
def strict(monkeypatch):
    """An op without a native lowering is an error for the length of the test."""
    monkeypatch.setenv("IPEX_STRICT", "1")


@pytest.fixture
def compiled():
    """compiled(fn_or_module, **torch_compile_arguments): torch.compile with the backend under test."""

    def compile_it(target, **arguments):
        return torch.compile(target, backend=BACKEND, **arguments)

    return compile_it

"""Fixtures of the Python suites: which backend is under test, a private object cache, fixed seeds, strict mode.

IPEX_TEST_BACKEND names another torch.compile backend to run the suites against. aot_eager checks the tests themselves:
it must pass all that are not marked needs_ipex. `--shuffle=random` runs the tests in a random order and prints its
seed.
"""

import logging
import os
import random
import re
import tempfile
import zlib
from collections import Counter
from pathlib import Path

# Must be set before libgomp is loaded. Several workers share the cores, so waiting threads must not spin.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")
os.environ.setdefault("IPEX_POISON", "1")

import pytest
import torch
import torch._functorch.config

BACKEND = os.environ.get("IPEX_TEST_BACKEND", "ipex")

# C++ reads this knob at each compilation. A session starts with an empty cache, unless the caller provides one.
session_cache = tempfile.TemporaryDirectory(prefix="ipex-test-cache-")
os.environ.setdefault("IPEX_CACHE", session_cache.name)
# Graphs from AOTAutograd's cache are not compiled, so it is off except in test_warm_start.py. To run all suites on
# cached graphs, run them twice with IPEX_TEST_WARM=1 and the same TORCHINDUCTOR_CACHE_DIR.
torch._functorch.config.enable_autograd_cache = os.environ.get("IPEX_TEST_WARM", "0") != "0"
torch.set_num_threads(min(4, os.cpu_count() or 1))
torch._dynamo.config.cache_size_limit = 64


# Features from /proc/cpuinfo, independent of our code, so that tests that are skipped by mistake are found.
CPU_FLAGS = frozenset(re.search(r"^flags\s*:(.*)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)[1].split())


def pytest_addoption(parser):
    parser.addoption("--shuffle", metavar="SEED", help="run the tests in the order of this seed; 'random' draws one")


def pytest_configure(config):
    if config.option.shuffle == "random":
        # Workers inherit the seed, so that they use the same order.
        config.option.shuffle = os.environ.setdefault("IPEX_TEST_ORDER", str(random.SystemRandom().randrange(10**6)))
    config.addinivalue_line("markers", "needs_ipex: checks what only this backend promises")
    config.addinivalue_line("markers", "needs_cpu(flag): only where /proc/cpuinfo lists the flag")
    config.addinivalue_line("markers", "lacks_cpu(flag): only where /proc/cpuinfo does not list the flag")
    config.addinivalue_line("markers", "one_in(n): CI runs one in n of these cases, `make nightly` all")
    # Dynamo's structured trace would add thousands of empty lines to the report of a failing test.
    logging.getLogger("torch.__trace").addFilter(lambda record: False)


@pytest.hookimpl(tryfirst=True)  # before pytest leaves out what is marked nightly
def pytest_collection_modifyitems(config, items):
    if config.option.shuffle is not None:
        random.Random(config.option.shuffle).shuffle(items)
    for item in items:
        for marker in item.iter_markers("needs_cpu"):
            if marker.args[0] not in CPU_FLAGS:
                item.add_marker(pytest.mark.skip(reason=f"this CPU has no {marker.args[0]}"))
        for marker in item.iter_markers("lacks_cpu"):
            if marker.args[0] in CPU_FLAGS:
                item.add_marker(pytest.mark.skip(reason=f"this CPU has {marker.args[0]}"))
        one_in = item.get_closest_marker("one_in")
        # Select by name, independent of which other tests are collected, so that every dtype and layout is covered.
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


def unjustified(reason):
    """Whether a test was wrongly skipped because of a CPU feature."""
    stated = re.fullmatch(r"this CPU has (no )?(\w+)", reason)
    if stated:
        return (stated[2] in CPU_FLAGS) == bool(stated[1])
    return re.search(r"\bCPU\b|avx|amx|instruction", reason, re.IGNORECASE) is not None


def pytest_sessionfinish(session):
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    skipped = reporter.stats.get("skipped", []) if reporter else []
    reasons = {r.nodeid: r.longrepr[2].removeprefix("Skipped: ") for r in skipped if isinstance(r.longrepr, tuple)}
    wrong = {nodeid: reason for nodeid, reason in reasons.items() if unjustified(reason)}
    for nodeid, reason in wrong.items():
        reporter.write_line(f"ERROR {nodeid}: skipped for a CPU feature: {reason}; mark it needs_cpu or lacks_cpu")
    if wrong:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_report_header(config):
    order = "" if config.option.shuffle is None else f", --shuffle {config.option.shuffle}"
    return f"torch.compile backend: {BACKEND}, threads: {torch.get_num_threads()}, torch {torch.__version__}{order}"


@pytest.fixture(autouse=True)
def fresh_state():
    """Resets compiled code, seeds and autograd modes between tests."""
    torch._dynamo.reset()
    torch.manual_seed(0)
    yield
    torch._dynamo.reset()


class Faults(logging.Handler):
    """Collects errors in the compiler's Python code after which a graph ran eagerly."""

    KINDS = (TypeError, AttributeError, LookupError, NameError, AssertionError, RecursionError)

    def __init__(self):
        super().__init__()
        self.found = []

    def emit(self, record):
        if isinstance(cause := getattr(record, "cause", None), self.KINDS):
            self.found.append(repr(cause))


@pytest.fixture(autouse=True)
def no_hidden_faults():
    """Fails a test if a graph ran eagerly because of an error in our code: its results would still be right."""
    faults = Faults()
    logging.getLogger("ipex").addHandler(faults)
    yield
    logging.getLogger("ipex").removeHandler(faults)
    assert not faults.found


@pytest.fixture
def strict(monkeypatch):
    """Makes an op without a native lowering an error during the test."""
    monkeypatch.setenv("IPEX_STRICT", "1")


@pytest.fixture
def compiled():
    """compiled(fn_or_module, **torch_compile_arguments): torch.compile with the backend under test."""

    def compile_it(target, **arguments):
        return torch.compile(target, backend=BACKEND, **arguments)

    return compile_it

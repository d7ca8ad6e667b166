"""Compares every op of OpInfo with eager, in every dtype and form: a slice in CI, and everything in the nightly run.

`python tests/python/opinfo_sweep.py` is the same as a command with options. Native ops are counted in compiled graphs.
"""

from collections import Counter

import native_share
import opinfo_cases
import opinfo_check
import opinfo_exceptions
import opinfo_sweep
import pytest
import torch
from conftest import BACKEND

SLICE = opinfo_cases.op_db[::8]
CHUNKS = 8
OTHERS = [(d, f) for d in opinfo_sweep.DTYPES for f in opinfo_sweep.FORMS if (d, f) != ("fp32", "forward")]


@pytest.fixture(autouse=True)
def one_thread():
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def failures(info, dtype, form, samples):
    tally = opinfo_check.Tally()
    cases = opinfo_cases.cases(info, opinfo_cases.DTYPES[dtype], form, samples)
    opinfo_check.check(cases, BACKEND, tally)
    listed = opinfo_exceptions.covering(info.formatted_name, dtype, form) is not None
    return [] if listed else [f"{info.formatted_name} {dtype} {form} {label}: {m}" for label, m in tally.failed]


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_slice(chunk):
    """Two forward samples in fp32, and two in another dtype or form, which varies by op."""
    found = []
    for position, info in list(enumerate(SLICE))[chunk::CHUNKS]:
        found += failures(info, "fp32", "forward", 2)
        found += failures(info, *OTHERS[position % len(OTHERS)], 2)
    assert not found, "\n".join(found)


@pytest.mark.needs_ipex
@pytest.mark.parametrize(
    "share, step",
    [pytest.param("fp32 forward", 1, marks=pytest.mark.nightly), ("fp32 forward, every third op", 3)],
    ids=["all", "third"],
)
def test_native_share(share, step, record_property):
    """Counts native ops for the first forward sample of each op in fp32."""
    native, extern = 0, Counter()
    for info in opinfo_cases.op_db[::step]:
        for case in opinfo_cases.cases(info, torch.float32, "forward", 1):
            here = native_share.of_case(case)
            native += here[0]
            extern += here[1]
    series = ".".join(torch.__version__.split(".")[:2])  # each PyTorch has a list of its own
    native_share.check("opinfo", f"{share}, torch {series}", native, extern)
    record_property("summary", native_share.text(native, extern))


@pytest.mark.nightly
@pytest.mark.timeout(0)
def test_everything(tmp_path, record_property):
    options = opinfo_sweep.parse(["--json", str(tmp_path / "records"), "--backend", BACKEND])
    records = opinfo_sweep.run(options)
    record_property("summary", opinfo_sweep.report(records))
    unlisted, stale = opinfo_sweep.judge(records)
    assert not unlisted, "\n".join(unlisted[:50])
    assert not stale, "\n".join(stale)

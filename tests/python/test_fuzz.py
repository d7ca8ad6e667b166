"""Random programs, eager against compiled, for IPEX_FUZZ_SECONDS (60 by default; more in the nightly run).

The seed of the run is printed at its start; a failure prints the seed of its program and the program, minimised.
IPEX_FUZZ_SEED=n runs the program of seed n first.
"""

import os
import random
import time

import pytest
import torch
from random_programs import Generator, Program, Ref, Step, minimised, mismatch

SECONDS = float(os.environ.get("IPEX_FUZZ_SECONDS", "60"))


def check_one(seed):
    program = Generator(seed).program(steps=random.Random(seed).randint(3, 24))
    if not program.outputs:
        return
    found = mismatch(program)
    if found is None:
        return
    smallest = minimised(program, lambda candidate: mismatch(candidate) is not None)
    message = (mismatch(smallest) or found)[1]
    pytest.fail(f"IPEX_FUZZ_SEED={seed}: {message}\n{smallest}\n", pytrace=False)


def fuzz(seconds, capsys, record_property):
    seed = int(os.environ.get("IPEX_FUZZ_SEED", time.time_ns() % 1_000_000_000))
    record_property("summary", f"IPEX_FUZZ_SEED={seed}")
    with capsys.disabled():
        print(f"\nfuzz: IPEX_FUZZ_SEED={seed}, {seconds:.0f} s", flush=True)
    end, programs = time.monotonic() + seconds, 0
    while time.monotonic() < end or programs == 0:
        check_one(seed + programs)
        programs += 1
    record_property("summary", f"{programs} programs")


def test_random_programs(capsys, record_property, strict):
    fuzz(SECONDS, capsys, record_property)


@pytest.mark.nightly
@pytest.mark.timeout(3600)
def test_random_programs_long(capsys, record_property, strict):
    fuzz(20 * SECONDS, capsys, record_property)


def test_generation_is_reproducible():
    assert str(Generator(5).program(12)) == str(Generator(5).program(12))


def test_minimiser_keeps_only_what_fails():
    """A failure that needs one op in the middle of a chain is reduced to that op on an input."""
    aten = torch.ops.aten
    steps = [Step(op, (Ref(i),), {}) for i, op in enumerate((aten.neg.default, aten.exp.default, aten.abs.default))]
    program = Program([torch.randn(4)], [*steps, Step(aten.add.Tensor, (Ref(3), Ref(1)), {})], [4, 2])
    smallest = minimised(program, lambda p: any(s.target is aten.exp.default for s in p.steps))
    assert [s.target for s in smallest.steps] == [aten.exp.default]
    assert torch.equal(smallest.eager()[0], program.eager()[1])

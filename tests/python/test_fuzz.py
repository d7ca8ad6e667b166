"""Compares random programs in eager and compiled, for IPEX_FUZZ_SECONDS (default 30; more in the nightly run).

The run prints its seed. A failure prints the seed of its program and the minimised program. IPEX_FUZZ_SEED=n runs the
program with seed n first. `fuzz.py` is the same as a command, for a given number of nodes.
"""

import os
import time

import pytest
import torch
from fuzz import Counts, check
from program_generator import Generator, random_program
from program_minimiser import minimised
from random_programs import Engine, Extent, Program, Ref, Step, mismatch

SECONDS = float(os.environ.get("IPEX_FUZZ_SECONDS", "30"))
aten = torch.ops.aten


def fuzz(seconds, capsys, record_property):
    seed = int(os.environ.get("IPEX_FUZZ_SEED", time.time_ns() % 1_000_000_000))
    record_property("summary", f"IPEX_FUZZ_SEED={seed}")
    with capsys.disabled():
        print(f"\nfuzz: IPEX_FUZZ_SEED={seed}, {seconds:.0f} s", flush=True)
    end, counts = time.monotonic() + seconds, Counts()
    while time.monotonic() < end or not counts:
        report = check(seed, counts)
        if report is not None:
            pytest.fail(report, pytrace=False)
        seed += 1
    record_property("summary", f"{counts['programs']} programs of {counts['nodes']} nodes")


def test_random_programs(capsys, record_property, strict):
    fuzz(SECONDS, capsys, record_property)


@pytest.mark.nightly
@pytest.mark.timeout(3600)
def test_random_programs_long(capsys, record_property, strict):
    fuzz(40 * SECONDS, capsys, record_property)


def test_generation_is_reproducible():
    assert str(Generator(5).program(12)) == str(Generator(5).program(12))


def test_programs_reach_their_size():
    """A few seeds suffice for programs of 200 steps, all kinds of programs, and in-place ops."""
    programs = [random_program(seed) for seed in range(20)]
    assert max(len(p.steps) for p in programs) >= 200
    assert {p.dynamic for p in programs} == {p.engine.interpreter for p in programs} == {True, False}
    assert any(step.mutates for p in programs for step in p.steps)
    assert any(step.draws for p in programs for step in p.steps)


def test_minimiser_keeps_only_what_fails():
    """A failure of one op in the middle of a chain is reduced to that op on an input."""
    steps = [Step(op, (Ref(i),), {}) for i, op in enumerate((aten.neg.default, aten.exp.default, aten.abs.default))]
    program = Program([[torch.randn(4)]], [*steps, Step(aten.add.Tensor, (Ref(3), Ref(1)), {})], [4, 2])
    smallest = minimised(program, lambda p: any(s.target is aten.exp.default for s in p.steps))
    assert [s.target for s in smallest.steps] == [aten.exp.default]
    assert torch.equal(smallest.eager()[0], program.eager()[1])


@pytest.mark.parametrize("engine", (Engine(), pytest.param(Engine(interpreter=True), marks=pytest.mark.needs_ipex)))
def test_one_compiled_program_runs_every_binding(engine):
    """A program with a size argument, an in-place change of an input, and a view of it as output: wrong code is
    found."""
    bindings = [[torch.randn(rows, columns)] for rows, columns in ((4, 6), (2, 33), (17, 8))]
    steps = [
        Step(aten.slice.Tensor, (Ref(0), 1, Extent(0, 1, over=2), Extent(0, 1)), {}),
        Step(aten.exp_.default, (Ref(1),), {}),
        Step(aten.sum.dim_IntList, (Ref(0), [1]), {}),
    ]
    program, runs = Program(bindings, steps, [1, 3], dynamic=True, engine=engine), []
    assert mismatch(program, runs.append) is None
    assert runs == [3, 3, 3]
    run, covers = program.compiled()
    assert covers(bindings[2]) and not covers([torch.randn(1, 6)])
    assert torch.allclose(run(bindings[2][0].clone())[1], program.eager(2)[1])


@pytest.mark.parametrize("engine", (Engine(), pytest.param(Engine(interpreter=True), marks=pytest.mark.needs_ipex)))
def test_division_by_zero_is_compared(engine):
    """A division by zero only with the second inputs: the program raises eager's error."""
    inputs = [[torch.tensor([7, 8]), torch.tensor(divisors)] for divisors in ([2, 3], [2, 0])]
    program, runs = Program(inputs, [Step(aten.remainder.Tensor, (Ref(0), Ref(1)), {})], [2], engine=engine), []
    assert mismatch(program, runs.append) is None
    assert runs == [1, 1]


def test_drawn_numbers_are_compared():
    """Random numbers, also in-place ones, are drawn in the order and layout of the program: eager's, bit for bit."""
    steps = [
        Step(aten.permute.default, (Ref(0), [1, 0]), {}),
        Step(aten.randn_like.default, (Ref(1),), {}),
        Step(aten.exp.default, (Ref(1),), {}),
        Step(aten.uniform_.default, (Ref(3), 0.0, 2.0), {}),
        Step(aten.floor.default, (Ref(4),), {}),
    ]
    assert mismatch(Program([[torch.randn(3, 5)]], steps, [2, 5], outside=True)) is None

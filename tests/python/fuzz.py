"""The fuzzer as a command: runs random programs, for a number of graph nodes or seconds.

    python tests/python/fuzz.py --nodes 1000000 --more-inputs 8 --seed 1 --keep-going

`nodes` counts the nodes of all programs that were compiled and agreed with eager. `evaluations` counts them once for
each run of a compiled program that was compared, with other values or sizes.
"""

import argparse
import json
import os
import sys
import time
from collections import Counter

from program_generator import random_program
from program_minimiser import minimised
from random_programs import mismatch, mismatch_of_numbers


class Counts(Counter):
    """Numbers of programs, nodes and evaluations, and nodes by kind of program."""

    def add_program(self, program, runs):
        steps = len(program.steps)
        self.update(programs=1, nodes=steps, evaluations=steps * runs)
        self["dynamic"] += steps if program.dynamic else 0
        self["interpreted"] += steps if program.engine.interpreter else 0
        self["mutating"] += steps if any(s.mutates for s in program.steps) else 0
        self["largest"] = max(self["largest"], steps)
        self[program.engine.target or "best"] += steps


def check(seed, counts, more_bindings=0):
    """None, or a report of the failure: the seed, the difference and the minimised program."""
    program = random_program(seed, more_bindings)
    if not program.outputs:
        return None
    for compare in (mismatch, *([mismatch_of_numbers] if takes_numbers(program) else [])):
        runs = []
        found = compare(program, runs.append)
        if found is not None:
            smallest = minimised(program, lambda c, f=found: (other := compare(c)) and other.kind == f.kind)  # noqa: B023
            inputs = f" (with --more-inputs {more_bindings})" if more_bindings else ""
            how = "" if compare is mismatch else ", a number of it changes"
            message = (compare(smallest) or found).message
            return f"IPEX_FUZZ_SEED={seed}{inputs}{how}: {message}\n{smallest}\n"
        counts.add_program(program, len(runs))
    return None


def takes_numbers(program):
    """Whether the program also runs as a Python function: a small one with a float argument."""
    small = not program.dynamic and not program.extreme and len(program.steps) <= 12
    return small and program.scaled(0.5).steps != program.steps and not any(s.mutates for s in program.steps)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=100_000, help="stop after so many evaluations of nodes")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="or after so long")
    parser.add_argument("--seed", type=int, default=1, help="of the first program; the next ones follow")
    parser.add_argument("--more-inputs", type=int, default=0, help="of each program: beside its 3 or 4")
    parser.add_argument("--keep-going", action="store_true", help="report mismatches and go on")
    parser.add_argument("--json", help="also write the counts to this file")
    arguments = parser.parse_args()
    os.environ.setdefault("IPEX_STRICT", "1")
    os.environ.setdefault("IPEX_POISON", "1")
    counts, start, seed, failures, shown = Counts(), time.monotonic(), arguments.seed, 0, 0.0
    while counts["evaluations"] < arguments.nodes and time.monotonic() - start < arguments.seconds:
        report = check(seed, counts, arguments.more_inputs)
        seed += 1
        if report is not None:
            failures += 1
            print(report, flush=True)
            if not arguments.keep_going:
                break
        if time.monotonic() - shown > 60:
            shown = time.monotonic()
            print(f"seed {seed}: {dict(counts)}, {failures} failures, {shown - start:.0f} s", flush=True)
        if arguments.json:
            with open(arguments.json, "w", encoding="utf-8") as f:
                json.dump({"first seed": arguments.seed, "next seed": seed, "failures": failures, **counts}, f)
    print(f"seeds {arguments.seed}..{seed - 1}: {dict(counts)}, {failures} failures")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())

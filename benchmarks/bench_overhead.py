"""Times overheads: a call of a one-kernel graph in aot_eager, Inductor and ipex (interleaved), each additional step of
a graph, and the import of the backend in fresh processes."""

from __future__ import annotations

import argparse
import json
from functools import partial
from statistics import median

import intel_extension_for_pytorch as ipex
import torch
from rich.console import Console
from tables import ResultTable
from timing import in_fresh_process, interleaved


def one_kernel(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.gelu(x) * y


def sums(x: torch.Tensor, _: torch.Tensor, steps: int) -> torch.Tensor:
    for i in range(steps):  # alternate the axis, so that no two are fused into one kernel
        x = x.cumsum(i % 2)
    return x


def products(x: torch.Tensor, y: torch.Tensor, steps: int) -> torch.Tensor:
    for _ in range(steps):
        x = x @ y
    return x


# Name -> the operation, its rows and columns, and the kind of the step that computes it.
STEPS = {
    "kernel, running sums of 4 x 4": (sums, (4, 4), "kernel"),
    "kernel, 4 x 4 by 4 x 4": (products, (4, 4), "kernel"),
    "library, 16 x 80 by 80 x 80": (products, (16, 80), "library"),
}


def nanoseconds_a_step(rounds: int, more: int = 32) -> dict[str, float]:
    """The time per step for each kind of step: from the difference between `more` + 1 steps and one step."""
    found = {}
    with torch.inference_mode():
        for name, (function, (rows, columns), kind) in STEPS.items():
            torch._dynamo.reset()
            x, y = torch.ones(rows, columns), torch.eye(columns)
            calls = {}
            for steps in (1, more + 1):
                with ipex.record_reports() as reports:
                    compiled = torch.compile(function, backend="ipex", dynamic=False)
                    compiled(x, y, steps)
                if (count := sum(r[f"{kind}_steps"] for r in reports)) != steps:
                    raise RuntimeError(f"{function.__name__}: {count} steps of the kind {kind!r}, not {steps}")
                calls[str(steps)] = partial(compiled, x, y, steps)
            one, many = interleaved(calls, rounds=rounds).values()
            found[name] = (many.median - one.median) * 1e6 / more
    return found


IMPORT = """
import json, time, torch, torch._dynamo.backends.common, torch._functorch.aot_autograd
start = time.perf_counter()
torch._dynamo.backends.registry.lookup_backend("ipex")
print(json.dumps((time.perf_counter() - start) * 1e3))
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of a table")
    parser.add_argument("--tables", help="also save the table as Markdown in this folder")
    parser.add_argument("--rounds", type=int, default=30)
    arguments = parser.parse_args()
    x, y = torch.randn(64), torch.randn(64)
    variants = {"eager": lambda: one_kernel(x, y)}
    with torch.inference_mode():
        for backend in ("aot_eager", "inductor", "ipex"):
            torch._dynamo.reset()
            compiled = torch.compile(one_kernel, backend=backend, dynamic=False)
            compiled(x, y)
            variants[backend] = lambda compiled=compiled: compiled(x, y)
        samples = interleaved(variants, rounds=arguments.rounds)
    steps = nanoseconds_a_step(arguments.rounds)
    imports = [float(in_fresh_process(IMPORT)) for _ in range(5)]
    if arguments.json:
        print(
            json.dumps(
                {name: s.median * 1e3 for name, s in samples.items()}
                | {"import_ms": median(imports)}
                | {"steps_ns": steps}
            )
        )
        return
    table = ResultTable("overhead", "gelu(x) * y of 64 elements, microseconds per call", "bench_overhead.py",
                        ["variant", "median", "best", "spread"])  # fmt: skip
    for name, sample in samples.items():
        table.add(name, f"{sample.median * 1e3:.2f}", f"{sample.best * 1e3:.2f}", f"{sample.spread:.0%}")
    table.show(Console(width=110))
    table.save(arguments.tables)
    table = ResultTable("steps", "Each additional step of a graph, nanoseconds", "bench_overhead.py",
                        ["step", "ns"])  # fmt: skip
    for name, ns in steps.items():
        table.add(name, f"{ns:.0f}")
    table.show(Console(width=110))
    table.save(arguments.tables)
    table = ResultTable("import", 'Finding `backend="ipex"` once torch is imported, milliseconds of 5 fresh processes',
                        "bench_overhead.py", ["what", "median", "best"])  # fmt: skip
    table.add("lookup of the backend, all of its imports", f"{median(imports):.1f}", f"{min(imports):.1f}")
    table.show(Console(width=110))
    table.save(arguments.tables)


if __name__ == "__main__":
    main()

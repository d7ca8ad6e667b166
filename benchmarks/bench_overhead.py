"""What a call costs beyond the kernel: a one-kernel graph through aot_eager, Inductor and ipex, interleaved. And what
finding the backend costs: the import behind the entry point, in fresh processes."""

from __future__ import annotations

import argparse
import json
from statistics import median

import torch
from rich.console import Console
from tables import ResultTable
from timing import in_fresh_process, interleaved


def one_kernel(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.gelu(x) * y


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
    imports = [float(in_fresh_process(IMPORT)) for _ in range(5)]
    if arguments.json:
        print(json.dumps({name: s.median * 1e3 for name, s in samples.items()} | {"import_ms": median(imports)}))
        return
    table = ResultTable("overhead", "gelu(x) * y of 64 elements, microseconds a call", "bench_overhead.py",
                        ["variant", "median", "best", "spread"])  # fmt: skip
    for name, sample in samples.items():
        table.add(name, f"{sample.median * 1e3:.2f}", f"{sample.best * 1e3:.2f}", f"{sample.spread:.0%}")
    table.show(Console(width=110))
    table.save(arguments.tables)
    table = ResultTable("import", 'Finding `backend="ipex"` once torch is imported, milliseconds of 5 fresh processes',
                        "bench_overhead.py", ["what", "median", "best"])  # fmt: skip
    table.add("lookup of the backend, all of its imports", f"{median(imports):.1f}", f"{min(imports):.1f}")
    table.show(Console(width=110))
    table.save(arguments.tables)


if __name__ == "__main__":
    main()

"""Times streams of one core each beside one stream with all their cores (ipex.cpu.runtime), interleaved, and what the
submission and the join of a task cost.

Throughput is the batch divided by the time of a call. The last table says what a submission costs. With more cores, the
rows and the cores of a stream stay as they are, and so does the time of its call; only the submissions, one after the
other, grow with the number of streams."""

from __future__ import annotations

import argparse
import json
import os
import time
import warnings
from collections.abc import Callable

import intel_extension_for_pytorch as ipex
import models
import torch
from intel_extension_for_pytorch.compiler.backend import ipex as backend
from intel_extension_for_pytorch.cpu import runtime
from rich.console import Console
from tables import ResultTable
from timing import interleaved

MODELS = ("resnet50", "bert_base")
Hint = runtime.MultiStreamModuleHint


class Features(torch.nn.Module):
    """The first result of a model of transformers, called by position and without labels."""

    def __init__(self, case: models.Case) -> None:
        super().__init__()
        self.model = case.model
        self.names = tuple(name for name in case.inputs if name != "labels")

    def forward(self, *inputs: torch.Tensor) -> torch.Tensor:
        named = dict(zip(self.names, inputs, strict=True))
        return self.model(**named, return_dict=False)[0]


def forms(module: torch.nn.Module, inputs: tuple[torch.Tensor, ...]) -> dict[str, Callable]:
    """The module as scripts for streams use it."""
    optimized = ipex.optimize(module, dtype=torch.bfloat16)
    script = torch.jit.freeze(torch.jit.trace(optimized, inputs, check_trace=False))
    return {"optimized": optimized, "script": script, "compiled": torch.compile(module, backend=backend, dynamic=False)}


def throughput(name: str, rows: int, cores: list[int], rounds: int) -> dict[str, dict[str, float]]:
    """For each form, samples per second of one stream on all cores and of a stream for each core."""
    case = models.build(name, batch=rows * len(cores))
    module = Features(case).eval()
    inputs = tuple(case.inputs[n] for n in module.names)
    found = {}
    hint = Hint(*(0 for _ in inputs))
    pool = runtime.CPUPool(cores)
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        examples = tuple(x[:rows] for x in inputs)
        for form, model in forms(module, examples).items():
            one = runtime.MultiStreamModule(model, 1, pool, input_split_hint=hint)
            many = runtime.MultiStreamModule(model, len(cores), pool, input_split_hint=hint)
            for _ in range(3):  # TorchScript compiles at the third call
                one(*inputs), many(*inputs)
            variants = {"one": lambda m=one: m(*inputs), "streams": lambda m=many: m(*inputs)}
            samples = interleaved(variants, rounds=rounds)
            batch = len(inputs[0])
            found[form] = {variant: batch / sample.median * 1e3 for variant, sample in samples.items()}
    return found


def overhead(cores: list[int], rounds: int) -> dict[str, float]:
    """Microseconds of a submission and join of an empty task, and of a call of empty streams for each stream."""
    task = runtime.Task(lambda: None, runtime.CPUPool(cores[-1:]))
    x = torch.empty(len(cores), 1)
    empty = runtime.MultiStreamModule(lambda part: part, len(cores), runtime.CPUPool(cores), concat_output=False)

    def median(call: Callable[[], object]) -> float:
        times = []
        for _ in range(100 * rounds):
            start = time.perf_counter()
            call()
            times.append(time.perf_counter() - start)
        return sorted(times)[len(times) // 2] * 1e6

    def submissions() -> float:
        """Of many tasks at once, so that no thread has to wake up."""
        futures = [task() for _ in range(100)]
        for future in futures:
            future.get()

    return {
        "one task": median(task.run_sync),
        "100 tasks in a row": median(submissions) / 100,
        "streams": median(lambda: empty(x)) / len(cores),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="*", choices=MODELS, default=MODELS)
    parser.add_argument("--rows", type=int, default=4, help="of the batch, for each stream")
    parser.add_argument("--cores", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of tables")
    parser.add_argument("--tables", help="also save the tables as Markdown in this folder")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")  # of the tracer
    cores = sorted(os.sched_getaffinity(0))[: arguments.cores]
    command = "bench_streams.py"
    speed = ResultTable("streams", f"{len(cores)} streams of one core beside one stream of {len(cores)} cores, bf16, "
                        "samples per second", command, ["case", "one stream", "streams", "ratio"])  # fmt: skip
    cost = ResultTable("stream_overhead", "Submission and join, microseconds for each task", command,
                       ["case", "us", "of a 10 ms call"])  # fmt: skip
    found: dict[str, object] = {"version": ipex.__version__, "cores": len(cores)}
    for name in arguments.only:
        for form, rates in throughput(name, arguments.rows, cores, arguments.rounds).items():
            case = f"{name}, {arguments.rows} rows each, {form}"
            found[case] = rates | {"ratio": rates["streams"] / rates["one"]}
            speed.add(case, f"{rates['one']:.1f}", f"{rates['streams']:.1f}", f"{rates['streams'] / rates['one']:.2f}x")
    for case, microseconds in overhead(cores, arguments.rounds).items():
        found[case] = microseconds
        cost.add(case, f"{microseconds:.1f}", f"{microseconds / 1e4:.2%}")
    if arguments.json:
        print(json.dumps(found))
        return
    for table in (speed, cost):
        table.show(Console(width=110))
        table.save(arguments.tables)


if __name__ == "__main__":
    main()

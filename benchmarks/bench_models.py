"""Benchmarks whole models: first call in a fresh process (with empty or filled caches), steady state and peak memory.

Variants are eager (also with channels_last weights and images, for models with convolutions), aot_eager, Inductor (also
frozen, for inference) and ipex.

python benchmarks/bench_models.py                       all cases
python benchmarks/bench_models.py --only bert_base      cases whose name contains the text
python benchmarks/bench_models.py --first-call          only first calls; --steady: only steady state
python benchmarks/bench_models.py --warm                only warm first calls: in a second process, with filled caches
python benchmarks/bench_models.py --memory              only peak resident memory of a later step
python benchmarks/bench_models.py --scaling             only one thread against all, eager and ipex, interleaved
python benchmarks/bench_models.py --counts              only counts of native and Extern ops
python benchmarks/bench_models.py --tables build/figures    also save the tables as Markdown (see tables.py)
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from models import build, loss_of
from rich.console import Console
from rich.progress import track
from tables import ResultTable
from timing import in_fresh_process, interleaved, machine
from torch.utils import _pytree as pytree


@dataclass(frozen=True)
class Benchmark:
    """One line of the results: a model, its batch size, mode and precision."""

    model: str
    batch: int
    mode: str  # "infer", "train"
    precision: str  # "fp32", "bf16" (inference: bf16 weights; training: autocast)

    @property
    def name(self) -> str:
        return f"{self.model} b{self.batch} {self.mode} {self.precision}"


INFERENCE = {  # model -> batch size
    "resnet50": 1, "bert_base": 1, "gpt2": 1, "gpt2_decode": 1, "gpt2_decode_1024": 1, "llama_decode": 1, "vit_base": 1,
    "dlrm": 256,
}  # fmt: skip
TRAINING = {
    "resnet50": 16, "unet": 4, "bert_classifier": 8, "gpt2": 4, "llama_small": 4, "vit_base": 4, "dlrm": 256,
}  # fmt: skip
CASES = [
    Benchmark(model, batch, mode, precision)
    for mode, models in (("infer", INFERENCE), ("train", TRAINING))
    for model, batch in models.items()
    for precision in ("fp32", "bf16")
]
CONVOLVE = ("resnet50", "unet")


def variants_of(case: Benchmark, *, inductor: bool) -> list[str]:
    """The variants that are measured in steady state, ipex last."""
    names = ["eager", "channels_last"] if case.model in CONVOLVE else ["eager"]
    if inductor:
        names += ["inductor", "frozen"] if case.mode == "infer" else ["inductor"]
    return [*names, "ipex"]


def compiled(model: torch.nn.Module, variant: str) -> Callable:
    if variant in ("eager", "channels_last"):
        return model
    options = {"backend": "inductor", "options": {"freezing": True}} if variant == "frozen" else {"backend": variant}
    return torch.compile(model, dynamic=False, **options)


def converted(tensor: torch.Tensor, case: Benchmark, variant: str) -> torch.Tensor:
    """An input tensor in the dtype and layout of the variant."""
    if case.mode == "infer" and case.precision == "bf16" and tensor.is_floating_point():
        tensor = tensor.to(torch.bfloat16)
    wanted = variant == "channels_last" and tensor.dim() == 4
    return tensor.contiguous(memory_format=torch.channels_last) if wanted else tensor


def callable_of(case: Benchmark, variant: str) -> Callable:
    """A function that runs one forward pass or, for training, forward, backward and zeroing of gradients. `variant`:
    one of `variants_of`, or the name of a backend."""
    built = build(case.model, batch=case.batch)
    model, inputs = built.model, pytree.tree_map(lambda t: converted(t, case, variant), built.inputs)
    if variant == "channels_last":
        model.to(memory_format=torch.channels_last)
    if case.mode == "infer":
        model.eval()
        if case.precision == "bf16":
            model.to(torch.bfloat16)
        if isinstance(inputs, dict):
            inputs.pop("labels", None)
        net = compiled(model, variant)

        def infer():
            with torch.inference_mode():
                return net(**inputs) if isinstance(inputs, dict) else net(*inputs)

        return infer
    model.train()
    net, given = compiled(model, variant), replace(built, inputs=inputs)

    def train():
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=case.precision == "bf16"):
            loss = loss_of(given.call(net))
        loss.backward()
        model.zero_grad(set_to_none=True)

    return train


def first_calls(case: Benchmark, variants: list[str], count: int, *, warm: bool = False) -> dict[str, list[float]]:
    """Seconds of the first call in fresh processes, `count` times, with empty compile caches, or with caches that
    another process filled (`warm`). Inductor, which takes a minute, is measured once."""
    body = (
        "import time, torch._dynamo; import torch._functorch.aot_autograd\n"
        "start = time.perf_counter(); fn()\n"
        "print(time.perf_counter() - start)"
    )
    seconds: dict[str, list[float]] = {variant: [] for variant in variants}
    for turn in range(count):
        for variant in variants if turn == 0 else [v for v in variants if v in ("aot_eager", "ipex")]:
            with tempfile.TemporaryDirectory() as cache:
                if warm:
                    _in_process(cache, case, variant, body)
                seconds[variant].append(_in_process(cache, case, variant, body))
    return seconds


def peak_memory(case: Benchmark, variant: str) -> float:
    """Peak resident MB in a fresh process, in steps after the second. By then everything is compiled."""
    body = (
        "fn(); fn()\n"
        "open('/proc/self/clear_refs', 'w').write('5')\n"  # resets the peak
        "fn(); fn()\n"
        "print(next(int(l.split()[1]) for l in open('/proc/self/status') if l.startswith('VmHWM')) / 1024)"
    )
    with tempfile.TemporaryDirectory() as cache:
        return _in_process(cache, case, variant, body)


def _in_process(cache: str, case: Benchmark, variant: str, body: str) -> float:
    """Runs `body` in a fresh process with compile caches in `cache`, and returns the number that it prints. In `body`,
    `fn` is the case's callable."""
    fields = (case.model, case.batch, case.mode, case.precision)
    code = (
        f"import sys; sys.path.insert(0, {__file__.rsplit('/', 1)[0]!r})\n"
        "import bench_models as b\n"
        f"fn = b.callable_of(b.Benchmark(*{fields!r}), {variant!r})\n"
    )
    env = {"IPEX_CACHE": f"{cache}/ipex", "TORCHINDUCTOR_CACHE_DIR": f"{cache}/inductor"}
    return float(in_fresh_process(code + body, env))


def scaling(case: Benchmark) -> dict[str, float]:
    """Median ms of eager and ipex with one thread and with all, interleaved. Code is compiled once for both."""
    all_threads = torch.get_num_threads()

    def limited(run: Callable, threads: int) -> Callable:
        def call() -> None:
            torch.set_num_threads(threads)
            run()

        return call

    variants = {}
    for name in ("eager", "ipex"):
        run = callable_of(case, name)
        variants |= {f"{name} {threads}": limited(run, threads) for threads in (1, all_threads)}
    try:
        samples = interleaved(variants, rounds=9 if case.mode == "infer" else 5)
    finally:
        torch.set_num_threads(all_threads)
    return {name: sample.median for name, sample in samples.items()}


def counts(case: Benchmark) -> list[dict]:
    """The reports of all graphs that the case compiles."""
    import intel_extension_for_pytorch as ipex

    torch._dynamo.reset()
    with ipex.record_reports() as reports:
        callable_of(case, "ipex")()
    return reports


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="run the cases whose name contains this")
    parser.add_argument("--first-call", action="store_true")
    parser.add_argument("--warm", action="store_true")
    parser.add_argument("--calls", type=int, default=3, help="number of processes for first calls of each variant")
    parser.add_argument("--steady", action="store_true")
    parser.add_argument("--memory", action="store_true")
    parser.add_argument("--scaling", action="store_true")
    parser.add_argument("--counts", action="store_true")
    parser.add_argument(
        "--no-inductor", action="store_true", help="do not measure Inductor, which needs a C++ compiler"
    )
    parser.add_argument("--json", help="also write the results to this file")
    parser.add_argument("--tables", help="also save the tables as Markdown in this folder")
    arguments = parser.parse_args()
    only = (
        arguments.first_call,
        arguments.warm,
        arguments.steady,
        arguments.memory,
        arguments.scaling,
        arguments.counts,
    )
    everything = not any(only)
    cases = [c for c in CASES if arguments.only in c.name]
    console = Console(width=140)
    results: dict[str, dict] = {case.name: {} for case in cases}
    peers = ["aot_eager", "ipex"] if arguments.no_inductor else ["aot_eager", "inductor", "ipex"]

    def finish(table: ResultTable) -> None:
        table.show(console)
        table.save(arguments.tables)

    if arguments.counts or everything:
        columns = ["case", "graphs", "native ops", "kernels", "oneDNN", "Extern"]
        table = ResultTable("counts", "What runs natively", "bench_models.py --counts", columns)
        for case in track(cases, "counting", console=console, transient=True):
            reports = counts(case)
            externs = Counter(op.split(": ")[0] for r in reports for op in r["extern_ops"])
            keys = ("native_ops", "kernel_steps", "library_steps", "extern_steps")
            row = {key: sum(r[key] for r in reports) for key in keys}
            results[case.name]["counts"] = row | {"extern_ops": dict(externs)}
            names = ", ".join(f"{count} {op}" for op, count in externs.items()) or "0"
            table.add(case.name, str(len(reports)), *(str(row[key]) for key in keys[:3]), names)
        finish(table)

    for wanted, warm, name, title in (
        (arguments.first_call, False, "first_call", "Cold first call, seconds"),
        (arguments.warm, True, "warm_first_call", "Warm first call, seconds"),
    ):
        if not (wanted or everything):
            continue
        command = "bench_models.py " + ("--warm" if warm else "--first-call")
        table = ResultTable(name, f"{title}, median of {arguments.calls}", command,
                            ["case", *peers, "ipex / aot_eager", "range"])  # fmt: skip
        for case in track(cases, title, console=console, transient=True):
            calls = first_calls(case, peers, arguments.calls, warm=warm)
            results[case.name][f"{name}_s"] = calls
            seconds = {peer: statistics.median(given) for peer, given in calls.items()}
            extent = (max(calls["ipex"]) - min(calls["ipex"])) / seconds["ipex"]
            table.add(case.name, *(f"{s:.2f}" for s in seconds.values()),
                      f"{seconds['ipex'] / seconds['aot_eager']:.2f}", f"{extent:.0%}")  # fmt: skip
        finish(table)

    named = dict.fromkeys(v for case in CASES for v in variants_of(case, inductor=not arguments.no_inductor))
    columns = [v for v in named if v != "ipex"] + ["ipex"]

    if arguments.steady or everything:
        table = ResultTable("steady", "Steady state, median ms of an interleaved run", "bench_models.py --steady",
                            ["case", *columns, "best other / ipex", "inductor / ipex", "spread"])  # fmt: skip
        for case in track(cases, "steady state", console=console, transient=True):
            torch._dynamo.reset()
            variants = variants_of(case, inductor=not arguments.no_inductor)
            samples = interleaved(
                {name: callable_of(case, name) for name in variants}, rounds=9 if case.mode == "infer" else 5
            )
            ms = {name: sample.median for name, sample in samples.items()}
            results[case.name]["steady_ms"] = ms
            best = min(v for name, v in ms.items() if name != "ipex")
            table.add(case.name, *(f"{ms[c]:.2f}" if c in ms else "" for c in columns), f"{best / ms['ipex']:.2f}",
                      f"{ms['inductor'] / ms['ipex']:.2f}" if "inductor" in ms else "",
                      f"{max(s.spread for s in samples.values()):.0%}")  # fmt: skip
        finish(table)

    if arguments.scaling or everything:
        threads = torch.get_num_threads()
        names = [f"{name} {count}" for name in ("eager", "ipex") for count in (1, threads)]
        table = ResultTable("scaling", f"One thread and {threads}, median ms of an interleaved run",
                            "bench_models.py --scaling", ["case", *names, "eager 1 / all", "ipex 1 / all",
                            "eager 1 / ipex 1"])  # fmt: skip
        for case in track(cases, "scaling", console=console, transient=True):
            torch._dynamo.reset()
            ms = scaling(case)
            results[case.name]["scaling_ms"] = ms
            one, all_, ours, ours_all = (ms[name] for name in names)
            table.add(case.name, *(f"{ms[name]:.2f}" for name in names), f"{one / all_:.2f}", f"{ours / ours_all:.2f}",
                      f"{one / ours:.2f}")  # fmt: skip
        finish(table)

    if arguments.memory or everything:
        peers = [c for c in columns if c not in ("channels_last", "frozen")]
        table = ResultTable("memory", "Peak resident memory of a step, MB", "bench_models.py --memory",
                            ["case", *peers, *(f"ipex / {p}" for p in peers if p != "ipex")])  # fmt: skip
        for case in track(cases, "memory", console=console, transient=True):
            peaks = {peer: peak_memory(case, peer) for peer in peers}
            results[case.name]["peak_mb"] = peaks
            table.add(case.name, *(f"{mb:.0f}" for mb in peaks.values()),
                      *(f"{peaks['ipex'] / peaks[p]:.2f}" for p in peers if p != "ipex"))  # fmt: skip
        finish(table)

    if arguments.json:
        with open(arguments.json, "w", encoding="utf-8") as f:
            json.dump({"machine": machine(), "results": results}, f, indent=1)


if __name__ == "__main__":
    main()

"""Times models prepared by `ipex.optimize` in bf16: eager mode, traced and frozen, and compiled; beside them the plain
model in eager mode, with channels_last and PyTorch's fused optimizers, Inductor, and the plain model compiled by ipex.

python benchmarks/bench_optimize.py                     all cases
python benchmarks/bench_optimize.py --only resnet50     cases whose name contains the text
python benchmarks/bench_optimize.py --memory            bytes of weights, gradients and states in training
python benchmarks/bench_optimize.py --import-time       import of the package, after that of torch
python benchmarks/bench_optimize.py --tables build/figures    also save the tables as Markdown (see tables.py)
"""

from __future__ import annotations

import argparse
import statistics
import warnings
from collections.abc import Callable
from typing import Any

import intel_extension_for_pytorch as ipex
import torch
from models import Case, build, loss_of
from rich.console import Console
from tables import ResultTable
from timing import in_fresh_process, interleaved
from torch.utils import _pytree as pytree

INFERENCE = {"resnet50": 1, "bert_base": 1}
TRAINING = {  # model -> batch size, optimizer
    "resnet50": (16, torch.optim.SGD, {"lr": 1e-4, "momentum": 0.9}),
    "bert_classifier": (8, torch.optim.AdamW, {"lr": 1e-5}),
    "dlrm": (256, torch.optim.Adagrad, {"lr": 1e-3}),
}
BF16 = torch.bfloat16


def channels_last(value: Any) -> Any:
    is_image = isinstance(value, torch.Tensor) and value.dim() == 4
    return value.contiguous(memory_format=torch.channels_last) if is_image else value


def given(name: str, batch: int) -> tuple[Case, Any]:
    torch.manual_seed(0)
    built = build(name, batch=batch)
    inputs = pytree.tree_map(channels_last, built.inputs)
    return built, inputs


def call(model: Callable, inputs: Any) -> Any:
    return model(**inputs) if isinstance(inputs, dict) else model(*inputs)


class Traceable(torch.nn.Module):
    """A model with positional arguments and a tuple of tensors as result, as torch.jit.trace takes them."""

    def __init__(self, model: torch.nn.Module, names: list[str] | None) -> None:
        super().__init__()
        self.model, self.names = model, names

    def forward(self, *inputs: torch.Tensor) -> tuple[torch.Tensor, ...]:
        named = dict(zip(self.names, inputs, strict=True)) if self.names else {}
        result = self.model(**named) if self.names else self.model(*inputs)
        return tuple(leaf for leaf in pytree.tree_leaves(result) if isinstance(leaf, torch.Tensor))


def inference(name: str, batch: int, inductor: bool) -> dict[str, Callable]:
    def variant(kind: str) -> Callable:
        built, inputs = given(name, batch)
        model = built.model.eval()
        if isinstance(inputs, dict):
            inputs.pop("labels", None)
        if kind in ("optimize", "frozen script", "optimize + compile"):
            model = ipex.optimize(model, dtype=BF16)
        else:
            model = model.to(memory_format=torch.channels_last) if name == "resnet50" else model
        if kind == "frozen script":
            names = list(inputs) if isinstance(inputs, dict) else None
            inputs = tuple(inputs.values()) if isinstance(inputs, dict) else inputs
            with torch.no_grad(), torch.autocast("cpu", BF16), warnings.catch_warnings():
                warnings.simplefilter("ignore")
                model = torch.jit.freeze(torch.jit.trace(Traceable(model, names).eval(), inputs, strict=False))
        if kind in ("compile", "optimize + compile"):
            model = torch.compile(model, backend="ipex")
        elif kind == "inductor":
            model = torch.compile(model)

        def run() -> Any:
            with torch.no_grad(), torch.autocast("cpu", BF16):
                return call(model, inputs)

        return run

    kinds = ["eager", *(["inductor"] if inductor else []), "optimize", "frozen script", "compile", "optimize + compile"]
    return {kind: variant(kind) for kind in kinds}


def training(name: str, inductor: bool) -> dict[str, Callable]:
    batch, optimizer_class, options = TRAINING[name]

    def variant(kind: str) -> Callable:
        built, inputs = given(name, batch)
        model = built.model.train()
        fused = {} if kind.startswith("optimize") else {"fused": True}
        if kind.startswith("optimize"):
            optimizer = optimizer_class(model.parameters(), **options)
            model, optimizer = ipex.optimize(model, optimizer=optimizer, dtype=BF16)
        else:
            model = model.to(memory_format=torch.channels_last) if name == "resnet50" else model
            optimizer = optimizer_class(model.parameters(), **options, **fused)
        net = model
        if kind in ("compile", "optimize + compile"):
            net = torch.compile(model, backend="ipex")
        elif kind == "inductor":
            net = torch.compile(model)

        def run() -> None:
            optimizer.zero_grad()
            with torch.autocast("cpu", BF16):
                loss = loss_of(call(net, inputs))
            loss.backward()
            optimizer.step()

        return run

    kinds = ["eager", *(["inductor"] if inductor else []), "optimize", "compile", "optimize + compile"]
    return {kind: variant(kind) for kind in kinds}


def show(table: ResultTable, folder: str | None) -> None:
    table.show(Console(width=140))
    table.save(folder)


def times(only: str, rounds: int, inductor: bool, folder: str | None) -> None:
    for mode in ("inference", "training"):
        columns: list[str] = []
        ratios: dict[str, list[float]] = {}
        table = None
        for name in INFERENCE if mode == "inference" else TRAINING:
            if only not in f"{name} {mode}":
                continue
            torch._dynamo.reset()
            variants = inference(name, INFERENCE[name], inductor) if mode == "inference" else training(name, inductor)
            samples = interleaved(variants, rounds=rounds)
            if table is None:
                columns = list(variants)
                title = f"{mode.capitalize()} in bf16, ms; in brackets: eager's time by this one"
                table = ResultTable(f"optimize_{mode}", title, "bench_optimize.py", ["model", *columns])
            base = samples["eager"].median
            for kind in columns:
                ratios.setdefault(kind, []).append(base / samples[kind].median)
            table.add(name, *(f"{samples[k].median:.1f} ({base / samples[k].median:.2f}x)" for k in columns))
        if table is not None:
            table.add("geometric mean", *(f"{statistics.geometric_mean(ratios[k]):.2f}x" for k in columns))
            show(table, folder)


def memory(folder: str | None) -> None:
    """Bytes of everything that lives between two steps."""
    table = ResultTable(
        "optimize_memory",
        "Bytes a parameter between steps: weights with masters or low halves, states of the optimizer, gradients",
        "bench_optimize.py --memory",
        ["model", "autocast, fp32 weights", "optimize, split bf16"],
    )
    for name in ("bert_classifier",):
        batch, optimizer_class, options = TRAINING[name]
        found = []
        for split in (False, True):
            built, inputs = given(name, batch)
            model = built.model.train()
            optimizer = optimizer_class(model.parameters(), **options)
            if split:
                model, optimizer = ipex.optimize(model, optimizer=optimizer, dtype=BF16)
            with torch.autocast("cpu", BF16):
                loss = loss_of(call(model, inputs))
            loss.backward()
            optimizer.step()
            wrappers = getattr(optimizer, "params_attr", {}).values()
            held = [*model.parameters(), *(p.grad for p in model.parameters() if p.grad is not None)]
            held += [t for state in optimizer.state.values() for t in state.values() if isinstance(t, torch.Tensor)]
            held += [t for w in wrappers for t in (w.master_parameter, w.parameter_trail) if t is not None]
            storages = {t.untyped_storage().data_ptr(): t.untyped_storage().nbytes() for t in held}
            found.append(sum(storages.values()) / sum(p.numel() for p in model.parameters()))
        table.add(name, *(f"{value:.2f}" for value in found))
    show(table, folder)


def import_time(folder: str | None) -> None:
    code = (
        "import time, torch\n"
        "start = time.perf_counter()\n"
        "import intel_extension_for_pytorch\n"
        "print(time.perf_counter() - start)"
    )
    milliseconds = sorted(1e3 * float(in_fresh_process(code)) for _ in range(9))
    table = ResultTable("import_time", "Import after torch, ms", "bench_optimize.py --import-time", ["median", "least"])
    table.add(f"{statistics.median(milliseconds):.1f}", f"{milliseconds[0]:.1f}")
    show(table, folder)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="run the cases whose name contains this")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--no-inductor", action="store_true")
    parser.add_argument("--memory", action="store_true")
    parser.add_argument("--import-time", action="store_true")
    parser.add_argument("--tables", help="also save the tables as Markdown in this folder")
    arguments = parser.parse_args()
    if arguments.memory:
        memory(arguments.tables)
    elif arguments.import_time:
        import_time(arguments.tables)
    else:
        times(arguments.only, arguments.rounds, not arguments.no_inductor, arguments.tables)


if __name__ == "__main__":
    main()

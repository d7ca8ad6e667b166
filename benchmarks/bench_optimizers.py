"""Times one optimizer step over the parameters of a small transformer, interleaved: eager's loop, foreach and fused
forms, and the step compiled by Inductor and by ipex."""

from __future__ import annotations

import argparse
import copy
import time

import torch
from rich.console import Console
from tables import ResultTable
from timing import interleaved

OPTIMIZERS = {
    "sgd": (torch.optim.SGD, {"lr": 1e-4, "momentum": 0.9}),
    "adam": (torch.optim.Adam, {"lr": 1e-4}),
    "adamw": (torch.optim.AdamW, {"lr": 1e-4}),
    "adagrad": (torch.optim.Adagrad, {"lr": 1e-4}),
}
EAGER = {"for": {"foreach": False}, "foreach": {"foreach": True}, "fused": {"fused": True}}


def parameters(layers: int, width: int) -> list[torch.nn.Parameter]:
    layer = torch.nn.TransformerEncoderLayer(width, 4, 4 * width)
    model = torch.nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
    for p in model.parameters():
        p.grad = torch.randn_like(p) * 1e-3
    return list(model.parameters())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="*", default=list(OPTIMIZERS), choices=list(OPTIMIZERS))
    parser.add_argument("--backends", nargs="*", default=["inductor", "ipex"])
    parser.add_argument("--layers", type=int, default=6)
    parser.add_argument("--width", type=int, default=512)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--tables", help="also save the table as Markdown in this folder")
    arguments = parser.parse_args()
    backends = arguments.backends
    base = parameters(arguments.layers, arguments.width)
    count = f"{len(base)} tensors, {sum(p.numel() for p in base) / 1e6:.1f} M elements"
    columns = ["optimizer", *EAGER, *backends, *(f"{b} first call s" for b in backends)]
    table = ResultTable("optimizers", f"One step over {count}, ms", "bench_optimizers.py", columns)
    for name in arguments.only:
        optimizer, options = OPTIMIZERS[name]
        variants, first = {}, {}
        for form, choice in EAGER.items():
            variants[form] = optimizer(copied(base), **options, **choice).step
        for backend in backends:
            torch._dynamo.reset()
            opt = optimizer(copied(base), **options)
            step = torch.compile(opt.step, backend=backend)
            start = time.perf_counter()
            step()
            first[backend] = time.perf_counter() - start
            step()
            variants[backend] = step
        samples = interleaved(variants, rounds=arguments.rounds)
        table.add(name, *(f"{samples[v].median:.2f}" for v in variants), *(f"{first[b]:.1f}" for b in backends))
    table.show(Console(width=110))
    table.save(arguments.tables)


def copied(base: list[torch.nn.Parameter]) -> list[torch.nn.Parameter]:
    result = copy.deepcopy(base)
    for ours, p in zip(result, base, strict=True):
        ours.grad = p.grad.clone()
    return result


if __name__ == "__main__":
    main()

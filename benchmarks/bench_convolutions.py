"""Times f32 convolutions and gradients of their weights that our kernels compute (Winograd's method, planes of
products), interleaved with eager and with oneDNN's primitives in the same graph. Also shows the relative error of each
against float64 (2-norm)."""

from __future__ import annotations

import argparse
import functools
import os
import types
from collections.abc import Callable
from unittest import mock

import torch
from rich.console import Console
from tables import ResultTable
from timing import interleaved

# batch, channels in and out, rows and columns of the input, window, stride
CONVOLUTIONS = [
    (1, 64, 64, 56, 3, 1),
    (1, 128, 128, 28, 3, 1),
    (1, 256, 256, 14, 3, 1),
    (1, 512, 512, 7, 3, 1),
    (8, 64, 64, 56, 3, 1),
    (8, 512, 512, 7, 3, 1),
    (4, 32, 32, 64, 3, 1),
]
GRADIENTS = [
    (16, 64, 64, 56, 3, 1),
    (16, 128, 128, 28, 3, 1),
    (16, 256, 256, 14, 3, 1),
    (16, 512, 512, 7, 3, 1),
    (4, 32, 32, 64, 3, 1),
    (16, 128, 128, 56, 3, 2),
    (16, 512, 512, 14, 3, 2),
    (16, 1024, 256, 14, 1, 1),
    (16, 512, 2048, 7, 1, 1),
]
OURS = "winograd,winograd_of_data,weights_by_taps,weights_by_winograd"


def images(batch: int, channels: int, size: int) -> torch.Tensor:
    return torch.randn(batch, channels, size, size).to(memory_format=torch.channels_last)


def convolution(batch: int, terms: int, columns: int, size: int, window: int, stride: int) -> tuple[Callable, tuple]:
    def run(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return torch.conv2d(x, w, stride=stride, padding=window // 2)

    return run, (images(batch, terms, size), torch.randn(columns, terms, window, window) / (terms**0.5 * window))


def gradient(batch: int, terms: int, columns: int, size: int, window: int, stride: int) -> tuple[Callable, tuple]:
    def run(grad: torch.Tensor, x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        settings = [stride] * 2, [window // 2] * 2, [1, 1], False, [0, 0], 1, [False, True, False]
        return torch.ops.aten.convolution_backward(grad, x, w, None, *settings)[1]

    size_of_result = (size - 1) // stride + 1
    given = images(batch, columns, size_of_result), images(batch, terms, size)
    return run, (*given, torch.zeros(columns, terms, window, window))


def compiled(function: Callable, inputs: tuple, without: str) -> Callable:
    """`function` compiled without some implementations. It is copied, because Dynamo compiles a code object once."""
    name = f"{function.__name__}_without_{without.replace(',', '_')}"
    code = function.__code__.replace(co_name=name)
    own = types.FunctionType(code, function.__globals__, name, closure=function.__closure__)
    with mock.patch.dict(os.environ, {"IPEX_DISABLE_IMPLEMENTATIONS": without}):
        run = torch.compile(own, backend="ipex", dynamic=False)
        run(*inputs)
    return run


def error(actual: torch.Tensor, expected: torch.Tensor) -> float:
    return ((actual - expected).norm() / expected.norm()).item()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--tables", help="also save the table as Markdown in this folder")
    arguments = parser.parse_args()
    table = ResultTable(
        "convolutions",
        "Convolutions in f32, median ms and errors by norm",
        "bench_convolutions.py",
        ["case", "eager", "library", "ipex", "library / ipex", "error of eager", "of ipex", "spread"],
    )
    for title, make, cases in (("", convolution, CONVOLUTIONS), ("gradient of weights ", gradient, GRADIENTS)):
        for batch, terms, columns, size, window, stride in cases:
            torch.manual_seed(0)
            torch._dynamo.reset()
            function, inputs = make(batch, terms, columns, size, window, stride)
            with torch.no_grad():
                runs = {
                    "eager": function,
                    "library": compiled(function, inputs, OURS),
                    "ipex": compiled(function, inputs, ""),
                }
                exact = function(*(x.double() for x in inputs))
                errors = {name: error(run(*inputs), exact) for name, run in runs.items()}
                calls = {name: functools.partial(run, *inputs) for name, run in runs.items()}
                samples = interleaved(calls, rounds=arguments.rounds)
            ms = {name: sample.median for name, sample in samples.items()}
            table.add(
                f"{title}{batch} x {terms} to {columns}, {size} x {size}, {window} x {window} / {stride}",
                *(f"{ms[name]:.2f}" for name in runs),
                f"{ms['library'] / ms['ipex']:.2f}",
                *(f"{errors[name]:.1e}" for name in ("eager", "ipex")),
                f"{max(sample.spread for sample in samples.values()):.0%}",
            )
    table.show(Console(width=150))
    table.save(arguments.tables)


if __name__ == "__main__":
    main()

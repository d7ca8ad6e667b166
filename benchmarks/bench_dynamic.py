"""Measures the cost of symbolic sizes: code compiled once with dynamic=True against static code for each size.

    python benchmarks/bench_dynamic.py            a BERT, batch 1..64 x length 8..512
    python benchmarks/bench_dynamic.py --ops      kernels of models, at small, odd and large sizes

The goal is a ratio of at most 1.1 at every size.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable

import torch
import torch.nn.functional as F
import transformers
from rich.console import Console
from rich.table import Table
from timing import interleaved, machine

GRID = [(1, 8), (1, 64), (1, 128), (1, 511), (4, 33), (8, 128), (16, 512), (32, 100), (64, 8), (64, 64)]

# The dynamic code is compiled with the first shape.
MATRICES = [(64, 65), (3, 4096), (300, 777), (2048, 1024)]
IMAGES = [(2, 16, 14, 21), (8, 64, 28, 28), (4, 32, 57, 57)]
WINDOWS = [(2, 14, 28, 32), (4, 28, 28, 64), (2, 56, 56, 96)]

OPS: dict[str, tuple[Callable, list[tuple[int, ...]]]] = {
    "gelu + add": (lambda x: F.gelu(x) + x, MATRICES),
    "add of a row": (lambda x: x + x[0], MATRICES),
    "add of a column": (lambda x: x + x[:, :1], MATRICES),
    "softmax": (lambda x: x.softmax(-1), MATRICES),
    "softmax of columns": (lambda x: x.softmax(0), MATRICES),
    "log softmax": (lambda x: x.log_softmax(-1), MATRICES),
    "layer norm": (lambda x: F.layer_norm(x, (x.shape[-1],)), MATRICES),
    "RMS norm": (lambda x: x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6), MATRICES),
    "sum of rows": (lambda x: x.sum(-1), MATRICES),
    "sum of columns": (lambda x: x.sum(0), MATRICES),
    "sum of all": (lambda x: x.sum(), MATRICES),
    "mean and variance": (lambda x: (x.mean(1), x.var(1)), MATRICES),
    "argmax": (lambda x: x.argmax(-1), MATRICES),
    "transpose": (lambda x: x.t().contiguous(), MATRICES),
    "pad": (lambda x: F.pad(x, (1, 2, 3, 4)), MATRICES),
    "cat": (lambda x: torch.cat([x, x + 1], 1), MATRICES),
    "slices": (lambda x: x[::2, x.shape[1] // 2 :] * 2, MATRICES),
    "roll": (lambda x: x.roll((1, 3), (0, 1)), MATRICES),
    "flip": (lambda x: x.flip(1), MATRICES),
    "repeat": (lambda x: x.repeat(2, 3), [(64, 65), (300, 777)]),
    "cumsum": (lambda x: x.cumsum(-1), MATRICES),
    "rotary": (lambda x: x * x.cos() + torch.cat([-x[:, x.shape[1] // 2 :], x[:, : x.shape[1] // 2]], 1) * x.sin(),
               [(48, 64), (300, 776), (2048, 1024)]),
    "causal mask": (lambda x: x.masked_fill(torch.ones_like(x, dtype=torch.bool).triu(1), -1e9).softmax(-1), MATRICES),
    "embedding": (lambda x: F.embedding(x.abs().mul(3).long().clamp(max=999), torch.ones(1000, 64)), MATRICES[:3]),
    "group norm": (lambda x: F.group_norm(x, 8), IMAGES),
    "batch norm": (lambda x: F.batch_norm(x, None, None, training=True), IMAGES),
    "max pool": (lambda x: F.max_pool2d(x, 2), IMAGES),
    "average pool": (lambda x: F.avg_pool2d(x, 3, padding=1), IMAGES),
    "mean of pixels": (lambda x: x.mean((2, 3)), IMAGES),
    "upsample": (lambda x: F.interpolate(x, scale_factor=2), IMAGES),
    "windows": (lambda x: x.view(x.shape[0], x.shape[1] // 7, 7, x.shape[2] // 7, 7, x.shape[3]).transpose(2, 3)
                .reshape(-1, 49, x.shape[3]) + 1, WINDOWS),
    "patch merging": (lambda x: torch.cat([x[:, i::2, j::2] for i in (0, 1) for j in (0, 1)], -1), WINDOWS),
    "heads": (lambda x: x.view(x.shape[0], -1, x.shape[3] // 8, 8).permute(0, 2, 1, 3).contiguous() * 2, WINDOWS),
}  # fmt: skip


def distinct_backend() -> Callable:
    """A new callable for the backend: Dynamo caches compiled code by the backend object."""
    return lambda module, inputs: torch._dynamo.lookup_backend("ipex")(module, inputs)


def sizes(text: str) -> list[tuple[int, int]]:
    """Parses "1x8,64x128" to [(1, 8), (64, 128)]."""
    return [(int(batch), int(length)) for batch, _, length in (part.partition("x") for part in text.split(","))]


class Results:
    """A table with one row per size: static and dynamic time, their ratio, and the first dynamic call with this
    size."""

    def __init__(self, title: str, rounds: int) -> None:
        self.table = Table("what", "static ms", "dynamic ms", "ratio", "first dynamic call ms", title=title)
        self.rounds = rounds
        self.figures: dict[str, dict[str, float]] = {}

    def measure(self, name: str, static: Callable[[], object], dynamic: Callable[[], object]) -> None:
        start = time.perf_counter()
        dynamic()
        first = (time.perf_counter() - start) * 1e3
        samples = interleaved({"static": static, "dynamic": dynamic}, rounds=self.rounds)
        a, b = samples["static"].median, samples["dynamic"].median
        self.figures[name] = {"static": a, "dynamic": b, "ratio": b / a, "first_dynamic": first}
        self.table.add_row(name, f"{a:.3f}", f"{b:.3f}", f"{b / a:.2f}", f"{first:.0f}")

    def report(self, file: str | None) -> None:
        Console(width=110).print(self.table)
        worst = sorted(self.figures, key=lambda name: -self.figures[name]["ratio"])[:5]
        print("worst:", ", ".join(f"{name} {self.figures[name]['ratio']:.2f}" for name in worst))
        if file:
            with open(file, "w", encoding="utf-8") as f:
                json.dump({"machine": machine(), "results": self.figures}, f, indent=1)


def bench_bert(arguments: argparse.Namespace) -> Results:
    config = transformers.BertConfig(num_hidden_layers=arguments.layers)
    model = transformers.BertModel(config).eval()
    torch._dynamo.config.cache_size_limit = 2 * len(arguments.sizes) + 2
    results = Results(
        f"BERT, {arguments.layers} layers, {'bf16' if arguments.bf16 else 'fp32'}\n{machine()}", arguments.rounds
    )

    def call(target: Callable, batch: int, length: int) -> Callable[[], object]:
        ids = torch.randint(0, config.vocab_size, (batch, length))
        mask = torch.ones_like(ids)
        return lambda: target(input_ids=ids, attention_mask=mask)

    with torch.inference_mode(), torch.autocast("cpu", torch.bfloat16, enabled=arguments.bf16):
        dynamic = torch.compile(model, backend=distinct_backend(), dynamic=True)
        call(dynamic, 2, 24)()
        for batch, length in arguments.sizes:
            static = torch.compile(model, backend=distinct_backend(), dynamic=False)
            results.measure(f"{batch} x {length}", call(static, batch, length), call(dynamic, batch, length))
    print(f"graphs compiled in total: {torch._dynamo.utils.counters['stats']['unique_graphs']}")
    return results


def bench_ops(arguments: argparse.Namespace) -> Results:
    results = Results(f"kernels, {'bf16' if arguments.bf16 else 'fp32'}\n{machine()}", arguments.rounds)
    dtype = torch.bfloat16 if arguments.bf16 else torch.float32
    for name, (function, shapes) in OPS.items():
        if arguments.only not in name:
            continue
        torch._dynamo.reset()
        dynamic = torch.compile(function, backend=distinct_backend(), dynamic=True)
        with torch.inference_mode():
            dynamic(torch.randn(shapes[0], dtype=dtype))
            for shape in shapes:
                x = torch.randn(shape, dtype=dtype)
                static = torch.compile(function, backend=distinct_backend(), dynamic=False)
                what = f"{name} {'x'.join(map(str, shape))}"
                results.measure(what, lambda f=static, x=x: f(x), lambda f=dynamic, x=x: f(x))
    return results


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ops", action="store_true", help="measure kernels of models instead of the BERT")
    parser.add_argument("--only", default="", help="only kernels whose name contains this")
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--sizes", type=sizes, default=GRID, help="batch x length, for example 1x8,64x128")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--bf16", action="store_true", help="under bf16 autocast")
    parser.add_argument("--json", help="also write the results to this file")
    arguments = parser.parse_args()
    torch.manual_seed(0)
    (bench_ops if arguments.ops else bench_bert)(arguments).report(arguments.json)


if __name__ == "__main__":
    main()

"""Times one optimizer step over the parameters of whole models, interleaved: torch's loop, foreach and fused forms, and
the fused step of `ipex.optimize` with float32 parameters and with parameters that are split into bf16 halves.

The last columns relate our float32 step to torch's, and its memory traffic to what the machine reaches in a triad
(a = b + s * c) over arrays that are as large.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable

import torch
from intel_extension_for_pytorch import _C
from intel_extension_for_pytorch.nn.utils._parameter_wrapper import cast
from intel_extension_for_pytorch.optim import Lamb
from intel_extension_for_pytorch.optim._fused import fuse
from rich.console import Console
from tables import ResultTable
from timing import interleaved

Shapes = list[tuple[int, ...]]
# Class, options, and the float32 values that a step moves for each element: what it reads and what it writes.
OPTIMIZERS = {
    "sgd": (torch.optim.SGD, {"lr": 1e-4, "momentum": 0.9, "weight_decay": 1e-4}, 5),
    "adagrad": (torch.optim.Adagrad, {"lr": 1e-4}, 5),
    "adam": (torch.optim.Adam, {"lr": 1e-4}, 7),
    "adamw": (torch.optim.AdamW, {"lr": 1e-4}, 7),
    "lamb": (Lamb, {"lr": 1e-4, "weight_decay": 0.01}, 10),
}
FORMS = {"loop": {"foreach": False}, "foreach": {"foreach": True}, "fused": {"fused": True}}


def resnet50() -> Shapes:
    def convolution(inputs: int, outputs: int, size: int) -> Shapes:
        return [(outputs, inputs, size, size), (outputs,), (outputs,)]  # and its batch norm

    shapes, inputs = convolution(3, 64, 7), 64
    for width, blocks in ((64, 3), (128, 4), (256, 6), (512, 3)):
        for block in range(blocks):
            if block == 0:
                shapes += convolution(inputs, 4 * width, 1)
            for a, b, size in ((inputs, width, 1), (width, width, 3), (width, 4 * width, 1)):
                shapes += convolution(a, b, size)
            inputs = 4 * width
    return [*shapes, (1000, 2048), (1000,)]


def bert_base() -> Shapes:
    layer: Shapes = [(768, 768), (768,)] * 4 + [(3072, 768), (3072,), (768, 3072), (768,)] + [(768,)] * 4
    return [(30522, 768), (512, 768), (2, 768), (768,), (768,), *(layer * 12), (768, 768), (768,)]


def dlrm() -> Shapes:
    """Tables of 26 features, cut to 100,000 rows, and two perceptrons."""
    rows = [100_000, 39_060, 17_295, 7424, 20_265, 3, 7122, 1543, 63, 100_000, 100_000, 100_000, 10, 2209, 11_938]
    rows += [155, 4, 976, 14, 100_000, 100_000, 100_000, 100_000, 12_973, 108, 36]
    shapes: Shapes = [(count, 64) for count in rows]
    for widths in ((13, 512, 256, 64), (415, 512, 512, 256, 1)):
        for a, b in zip(widths, widths[1:], strict=False):
            shapes += [(b, a), (b,)]
    return shapes


MODELS = {"resnet50": resnet50, "bert_base": bert_base, "dlrm": dlrm}


def parameters(grads: list[torch.Tensor]) -> list[torch.nn.Parameter]:
    """New parameters. All variants read the same gradients, which saves memory."""
    generator = torch.Generator().manual_seed(0)
    result = [torch.nn.Parameter(torch.randn(grad.shape, generator=generator) * 0.02) for grad in grads]
    for p, grad in zip(result, grads, strict=True):
        p.grad = grad
    return result


class ForeachLamb:
    """Lamb of torch's multi-tensor operators, as a user of PyTorch writes it."""

    def __init__(self, params: Iterable[torch.nn.Parameter], lr: float, weight_decay: float) -> None:
        self.params = list(params)
        self.averages = [torch.zeros_like(p) for p in self.params]
        self.squares = [torch.zeros_like(p) for p in self.params]
        self.lr, self.weight_decay, self.steps = lr, weight_decay, 0

    @torch.no_grad()
    def step(self) -> None:
        beta1, beta2, eps = 0.9, 0.999, 1e-8
        self.steps += 1
        grads = [p.grad for p in self.params]
        torch._foreach_lerp_(self.averages, grads, 1 - beta1)
        torch._foreach_mul_(self.squares, beta2)
        torch._foreach_addcmul_(self.squares, grads, grads, 1 - beta2)
        roots = torch._foreach_sqrt(self.squares)
        torch._foreach_div_(roots, (1 - beta2**self.steps) ** 0.5)
        torch._foreach_add_(roots, eps)
        updates = torch._foreach_div(self.averages, 1 - beta1**self.steps)
        torch._foreach_div_(updates, roots)
        torch._foreach_add_(updates, self.params, alpha=self.weight_decay)
        norms, others = torch._foreach_norm(self.params), torch._foreach_norm(updates)
        trust = [a / b if a > 0 and b > 0 else torch.ones(()) for a, b in zip(norms, others, strict=True)]
        torch._foreach_mul_(updates, trust)
        torch._foreach_add_(self.params, updates, alpha=-self.lr)


def variants(name: str, shapes: Shapes) -> dict[str, Callable[[], None]]:
    kind, options, _ = OPTIMIZERS[name]
    generator = torch.Generator().manual_seed(1)
    grads = [torch.randn(shape, generator=generator) * 1e-3 for shape in shapes]
    if kind is Lamb:
        result = {
            "loop": kind(parameters(grads), **options).step,
            "foreach": ForeachLamb(parameters(grads), **options).step,
        }
    else:
        result = {form: kind(parameters(grads), **options, **choice).step for form, choice in FORMS.items()}
    for form in ("ipex", "split"):
        params = parameters(grads)
        optimizer = kind(params, **options)
        wrappers = {}
        if form == "split":
            wrappers = {p: cast(p, torch.bfloat16, training=True, split=True) for p in params}
            for p in params:
                p.grad = p.grad.to(torch.bfloat16)
        fuse(optimizer, wrappers)
        result[form] = optimizer.step
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", nargs="*", default=list(MODELS), choices=list(MODELS))
    parser.add_argument("--only", nargs="*", default=list(OPTIMIZERS), choices=list(OPTIMIZERS))
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--tables", help="also save the table as Markdown in this folder")
    arguments = parser.parse_args()
    columns = ["model", "optimizer", *FORMS, "ipex", "split bf16", "vs loop", "vs foreach", "vs fused", "GB/s", "triad"]
    table = ResultTable("fused_optimizers", "One step, ms", "bench_fused_optimizers.py", columns)
    for model in arguments.models:
        shapes = MODELS[model]()
        elements = sum(torch.Size(shape).numel() for shape in shapes)
        triad = _C.machine_limits(4 * elements)["triad_gbs"]
        for name in arguments.only:
            samples = interleaved(variants(name, shapes), rounds=arguments.rounds)
            times = {form: sample.median for form, sample in samples.items()}
            ours = times["ipex"]
            traffic = 4 * OPTIMIZERS[name][2] * elements / ours / 1e6
            cells = [f"{times[form]:.2f}" if form in times else "-" for form in (*FORMS, "ipex", "split")]
            ratios = [f"{times[form] / ours:.2f}x" if form in times else "-" for form in FORMS]
            table.add(f"{model}, {elements / 1e6:.1f} M", name, *cells, *ratios, f"{traffic:.1f}", f"{triad:.1f}")
    table.show(Console(width=140))
    table.save(arguments.tables)


if __name__ == "__main__":
    main()

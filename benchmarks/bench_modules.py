"""Times the modules of `ipex.nn` and `ipex.llm` in eager mode beside plain PyTorch, interleaved: the interaction of a
DLRM, bags over 26 tables with their update, RoIAlign, frozen batch norm, and fused linear layers."""

from __future__ import annotations

import argparse
import copy
from collections.abc import Callable, Iterator

import intel_extension_for_pytorch as ipex
import torch
from intel_extension_for_pytorch.nn.modules._roi_align import roi_align
from rich.console import Console
from tables import ResultTable
from timing import interleaved
from torch import nn
from torch.nn import functional

Case = tuple[str, Callable[[], object], Callable[[], object]]
DTYPES = {"f32": torch.float32, "bf16": torch.bfloat16}


def interactions() -> Iterator[Case]:
    interaction = ipex.nn.functional.interaction

    def plain(*tensors: torch.Tensor) -> torch.Tensor:
        rows = torch.stack(tensors, 1)
        products = torch.bmm(rows, rows.transpose(1, 2))
        i, j = torch.tril_indices(len(tensors), len(tensors), -1)
        return torch.cat([tensors[0], products[:, i, j]], 1)

    for name, dtype in DTYPES.items():
        tensors = [torch.randn(2048, 128, dtype=dtype, requires_grad=True) for _ in range(27)]
        grad = torch.randn(2048, 128 + 351, dtype=dtype)

        def step(function: Callable, tensors: list = tensors, grad: torch.Tensor = grad) -> object:
            return torch.autograd.grad(function(*tensors), tensors, grad)

        yield f"interaction 27x[2048,128] {name}, step", lambda s=step: s(plain), lambda s=step: s(interaction)


def embedding_bags() -> Iterator[Case]:
    rows = [100000, 20000, 50000, 10000, 3, 5000, 2000, 1000, 100, 200000, *[30000] * 16]
    batch, width = 2048, 128
    for optimizer in ("SGD", "Adagrad"):
        for hot in (1, 10):
            bags = nn.ModuleList(nn.EmbeddingBag(count, width, mode="sum", sparse=True) for count in rows)
            name = f"MergedEmbeddingBagWith{'SGD' if optimizer == 'SGD' else 'AdaGrad'}"
            merged = getattr(ipex.nn.modules, name).from_embeddingbag_list(copy.deepcopy(bags), lr=0.1)
            update = getattr(torch.optim, optimizer)(bags.parameters(), lr=0.1)
            indices = [torch.randint(0, count, (batch * hot,)) for count in rows]
            offsets = [torch.arange(batch) * hot for _ in rows]
            grads = [torch.randn(batch, width) for _ in rows]

            def plain(bags=bags, update=update, indices=indices, offsets=offsets, grads=grads) -> None:
                results = [bag(i, o) for bag, i, o in zip(bags, indices, offsets, strict=True)]
                torch.autograd.backward(results, grads)
                update.step()
                update.zero_grad()

            def ours(merged=merged, indices=indices, offsets=offsets, grads=grads) -> None:
                torch.autograd.backward(merged(indices, offsets), grads)

            yield f"26 tables, {hot} a bag, {optimizer}, step", plain, ours


def plain_roi_align(images: torch.Tensor, rois: torch.Tensor, pooled: int, scale: float, ratio: int) -> torch.Tensor:
    """RoIAlign by ATen ops: a gather of the four pixels around each sample."""
    height, width = images.shape[2:]

    def taps(start: torch.Tensor, end: torch.Tensor, size: int) -> tuple[torch.Tensor, ...]:
        bins = (end - start).clamp_min(1) / pooled
        number = torch.arange(pooled * ratio, dtype=rois.dtype)
        position = start[:, None] + bins[:, None] * (number + 0.5) / ratio
        inside = ((position >= -1) & (position <= size)).to(rois.dtype)
        position = position.clamp(0, size - 1)
        low = position.floor()
        high = (low + 1).clamp_max(size - 1)
        return low.long(), high.long(), inside * (1 - position + low), inside * (position - low)

    x1, y1, x2, y2 = (rois[:, 1:] * scale).unbind(1)
    rows, columns = taps(y1, y2, height), taps(x1, x2, width)
    pixels = images.permute(0, 2, 3, 1).flatten(0, 2)
    image = rois[:, 0].long()[:, None, None] * height * width
    result = 0
    for a in (0, 1):
        for b in (0, 1):
            position = image + rows[a][:, :, None] * width + columns[b][:, None, :]
            weight = rows[a + 2][:, :, None] * columns[b + 2][:, None, :]
            result = result + pixels[position] * weight[..., None].to(images.dtype)
    return result.unflatten(1, (pooled, ratio)).unflatten(3, (pooled, ratio)).mean((2, 4)).permute(0, 3, 1, 2)


def regions() -> Iterator[Case]:
    try:
        from torchvision.ops import roi_align as theirs
    except ImportError:
        theirs = None
    for layout in (torch.contiguous_format, torch.channels_last):
        images = torch.randn(2, 256, 50, 68).contiguous(memory_format=layout).requires_grad_()
        corners = torch.rand(128, 2) * torch.tensor([700.0, 500.0])
        image = torch.randint(0, 2, (128, 1)).float()
        rois = torch.cat([image, corners, corners + 20 + torch.rand(128, 2) * 200], 1)
        grad = torch.randn(128, 256, 7, 7).contiguous(memory_format=layout)
        arguments = (images, rois, 7, 1 / 16, 2)
        torch.testing.assert_close(roi_align(*arguments), plain_roi_align(*arguments), rtol=1e-3, atol=1e-3)

        def step(function: Callable, arguments: tuple = arguments, grad: torch.Tensor = grad) -> object:
            return torch.autograd.grad(function(*arguments), arguments[:1], grad)

        name = f"RoIAlign 128 regions of [2,256,50,68] {str(layout)[6:]}, step"
        yield name, lambda s=step: s(plain_roi_align), lambda s=step: s(roi_align)
        if theirs is not None:
            yield f"{name}, beside torchvision", lambda s=step: s(theirs), lambda s=step: s(roi_align)


def layers() -> Iterator[Case]:
    for name, dtype in DTYPES.items():
        x = torch.randn(4, 64, 56, 56).to(dtype, memory_format=torch.channels_last)
        norm = ipex.nn.FrozenBatchNorm2d(64)

        def plain_norm(x: torch.Tensor = x, norm: nn.Module = norm) -> torch.Tensor:
            scale = norm.weight * (norm.running_var + norm.eps).rsqrt()
            shift = norm.bias - norm.running_mean * scale
            return x * scale.to(x.dtype).reshape(1, -1, 1, 1) + shift.to(x.dtype).reshape(1, -1, 1, 1)

        yield f"FrozenBatchNorm2d [4,64,56,56] {name}", plain_norm, lambda n=norm, x=x: n(x)
        linear = nn.Linear(1024, 1024, dtype=dtype)
        for rows in (1, 64):
            a, b = torch.randn(rows, 1024, dtype=dtype), torch.randn(rows, 1024, dtype=dtype)
            fused = ipex.llm.modules.LinearSiluMul(linear)
            yield (
                f"LinearSiluMul 1024 to 1024, {rows} rows {name}",
                lambda linear=linear, a=a, b=b: functional.silu(linear(a)) * b,
                lambda f=fused, a=a, b=b: f(a, b),
            )
        hidden, weight = torch.randn(64, 1024, dtype=dtype), torch.randn(1024, dtype=dtype)
        yield (
            f"rms_norm [64,1024] {name}",
            lambda h=hidden, w=weight: functional.rms_norm(h, (1024,), w, 1e-6),
            lambda h=hidden, w=weight: ipex.llm.functional.rms_norm(h, w, 1e-6),
        )


CASES = {"interaction": interactions, "bags": embedding_bags, "regions": regions, "layers": layers}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="*", default=list(CASES), choices=list(CASES))
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--tables", help="also save the table as Markdown in this folder")
    arguments = parser.parse_args()
    table = ResultTable("modules", "Eager modules, ms", "bench_modules.py", ["case", "plain", "ipex", "plain / ipex"])
    for group in arguments.only:
        for name, plain, ours in CASES[group]():
            # `layers` holds inference; the others differentiate what requires it.
            with torch.set_grad_enabled(group != "layers"):
                samples = interleaved({"plain": plain, "ipex": ours}, rounds=arguments.rounds)
            theirs, ipex_ms = samples["plain"].median, samples["ipex"].median
            table.add(name, f"{theirs:.2f}", f"{ipex_ms:.2f}", f"{theirs / ipex_ms:.2f}")
    table.show(Console(width=110))
    table.save(arguments.tables)


if __name__ == "__main__":
    main()

"""Cases of the kernel benchmark: all rows of the op tables, groups of ops that models fuse, matmuls and convolutions.

A case is a function and its inputs. Names have the form group/op/dtype/size/layout, so that a regular expression can
select cases.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from .. import _C

# Shape of one operand. Three of them in fp32 fit in the L1 cache, in the L2 cache, or in neither.
SIZES = {"L1": (2, 1024), "L2": (64, 1024), "memory": (16384, 1024)}
LAYOUTS = ("contiguous", "strided", "broadcast")
DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}


@dataclass(frozen=True)
class Case:
    """One case. `make()` returns the function and its inputs, from a fixed seed."""

    name: str
    dtype: str
    size: str  # a key of SIZES, or "-" if the op has its own shapes
    make: Callable[[], tuple[Callable[..., Any], tuple[Any, ...]]]
    standard: bool = True  # included in a run without a filter
    flops: float = 0  # for matmuls and convolutions; else taken from the report

    @property
    def group(self) -> str:
        return self.name.partition("/")[0]


def all_cases() -> list[Case]:
    """All cases, in a fixed order. Their names are unique."""
    return [*_table_cases(), *_fused_cases(), *_edge_cases(), *_matmul_cases(), *_conv_cases()]


def select(pattern: str | None) -> list[Case]:
    """The cases whose name contains the regular expression `pattern`; None: the standard cases."""
    if pattern is None:
        return [case for case in all_cases() if case.standard]
    expression = re.compile(pattern)
    return [case for case in all_cases() if expression.search(case.name)]


def _random(shape: tuple[int, ...], dtype: torch.dtype, seed: int = 0, *, low: float = 0.1) -> Tensor:
    """Uniform in [low, low + 0.8). All functions of the tables except _ABOVE_ONE are defined from 0.1 on."""
    generator = torch.Generator().manual_seed(seed)
    return (torch.rand(shape, generator=generator) * 0.8 + low).to(dtype)


# ---- rows of the op tables ----

_ABOVE_ONE = ("acosh", "special_zeta")  # need a first operand above 1
# Values for arguments that have no default and are not tensors, by type.
_REQUIRED = {"number": 0.5, "float": 0.5, "int": -1, "List[int]": [-1], "Optional[List[int]]": [-1], "bool": False}


def _tensor_arguments(op: Any) -> int:
    return sum(str(a.type) in ("Tensor", "Optional[Tensor]") for a in op._schema.arguments)


def _overload(aten_name: str) -> Any:
    """The functional overload with the most tensor operands whose other arguments have a default or a value in
    _REQUIRED; None if there is none."""
    base, _, suffix = {"fill": "fill.Scalar"}.get(aten_name, aten_name).partition(".")
    packet = getattr(torch.ops.aten, base, None)
    if packet is None:
        return None
    known = {"Tensor", "Optional[Tensor]", *_REQUIRED}
    usable = []
    for name in packet.overloads():
        op = getattr(packet, name)
        arguments = op._schema.arguments
        if op._schema.is_mutable or any(a.is_out for a in arguments) or not _tensor_arguments(op):
            continue
        if all(a.has_default_value() or str(a.type) in known for a in arguments) and suffix in ("", name):
            usable.append(op)
    return max(usable, key=_tensor_arguments, default=None)


def _table_cases() -> Iterator[Case]:
    for kind in ("pointwise", "reduction", "scan"):
        for row in getattr(_C, f"{kind}_rows")():
            op = next((op for name in row["aten"].split() if (op := _overload(name)) is not None), None)
            if op is None or not row["floats"]:
                continue
            for dtype in DTYPES:
                for size in SIZES:
                    for layout in LAYOUTS:
                        yield Case(
                            f"{kind}/{row['name']}/{dtype}/{size}/{layout}",
                            dtype,
                            size,
                            lambda op=op, d=dtype, s=size, la=layout: _table_call(op, DTYPES[d], SIZES[s], la),
                            standard=dtype == "fp32" and size == "L2" and layout == "contiguous",
                        )


def _table_call(
    op: Any, dtype: torch.dtype, shape: tuple[int, int], layout: str
) -> tuple[Callable[..., Any], tuple[Tensor, ...]]:
    tensors, fixed = [], {}
    for argument in op._schema.arguments:
        if str(argument.type) in ("Tensor", "Optional[Tensor]"):
            boolean = argument.name == "condition"
            low = 1.1 if not tensors and op.overloadpacket.__name__ in _ABOVE_ONE else 0.1
            tensors.append(_operand(shape, dtype, layout, len(tensors), low=low, boolean=boolean))
        elif not argument.has_default_value():
            fixed[argument.name] = _REQUIRED[str(argument.type)]
    names = [a.name for a in op._schema.arguments if str(a.type) in ("Tensor", "Optional[Tensor]")]

    def call(*operands: Tensor) -> Any:
        return op(**dict(zip(names, operands, strict=True)), **fixed)

    return call, tuple(tensors)


def _operand(
    shape: tuple[int, int], dtype: torch.dtype, layout: str, position: int, *, low: float, boolean: bool
) -> Tensor:
    rows, columns = shape
    if layout == "strided":
        tensor = _random((rows, 2 * columns), dtype, position, low=low)[:, ::2]
    elif layout == "broadcast" and position != 0:
        tensor = _random((1, columns), dtype, position, low=low)
    elif layout == "broadcast":
        tensor = _random((rows, 1), dtype, position, low=low).expand(rows, columns)
    else:
        tensor = _random(shape, dtype, position, low=low)
    return tensor > 0.5 if boolean else tensor


# ---- groups that models fuse ----


def _softmax(x: Tensor) -> Tensor:
    return torch.softmax(x, -1)


def _layer_norm(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    return F.layer_norm(x, (x.shape[-1],), weight, bias)


def _rms_norm(x: Tensor, weight: Tensor) -> Tensor:
    return F.rms_norm(x, (x.shape[-1],), weight)


def _gelu_bias_residual(x: Tensor, bias: Tensor, residual: Tensor) -> Tensor:
    return F.gelu(x + bias) + residual


def _swiglu(gate: Tensor, up: Tensor) -> Tensor:
    return F.silu(gate) * up


def _rotary(x: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
    half = x.shape[-1] // 2
    turned = torch.cat((-x[..., half:], x[..., :half]), -1)
    return x * cosine + turned * sine


def _cross_entropy(logits: Tensor, target: Tensor) -> Tensor:
    return F.cross_entropy(logits, target)


def _batch_norm(x: Tensor, weight: Tensor, bias: Tensor) -> Any:
    return torch.ops.aten.native_batch_norm(x, weight, bias, None, None, True, 0.1, 1e-5)


def _batch_norm_backward(gradient: Tensor, x: Tensor, weight: Tensor, mean: Tensor, scale: Tensor) -> Any:
    return torch.ops.aten.native_batch_norm_backward(
        gradient, x, weight, None, None, mean, scale, True, 1e-5, [True, True, True]
    )


def _layer_norm_backward(gradient: Tensor, x: Tensor, mean: Tensor, scale: Tensor, weight: Tensor, bias: Tensor) -> Any:
    return torch.ops.aten.native_layer_norm_backward(
        gradient, x, (x.shape[-1],), mean, scale, weight, bias, [True, True, True]
    )


def _dropout_residual(x: Tensor, mask: Tensor, residual: Tensor) -> Tensor:
    return torch.where(mask, x / 0.9, 0.0) + residual


def _adam(weight: Tensor, gradient: Tensor, first: Tensor, second: Tensor) -> tuple[Tensor, ...]:
    first = first.lerp(gradient, 0.1)
    second = second * 0.999 + gradient * gradient * 0.001
    return weight - 0.001 * first / (second.sqrt() + 1e-8), first, second


def _sgd(weight: Tensor, gradient: Tensor, momentum: Tensor) -> tuple[Tensor, ...]:
    momentum = momentum * 0.9 + gradient
    return weight - 0.1 * momentum, momentum


def _embedding_bag(indices: Tensor, table: Tensor) -> Tensor:
    return F.embedding_bag(indices, table, mode="sum")


def _transpose(x: Tensor) -> Tensor:
    return x.t().contiguous()


def _cast(x: Tensor) -> Tensor:
    return x.to(torch.float32 if x.dtype == torch.bfloat16 else torch.bfloat16)


def _fused_cases() -> Iterator[Case]:
    def tensor(*shape: int) -> Callable[[torch.dtype, int], Tensor]:
        return lambda dtype, seed: _random(shape, dtype, seed)

    def single(*shape: int) -> Callable[[torch.dtype, int], Tensor]:  # statistics stay fp32
        return lambda _, seed: _random(shape, torch.float32, seed)

    def integers(limit: int, *shape: int) -> Callable[[torch.dtype, int], Tensor]:
        return lambda _, seed: torch.randint(limit, shape, generator=torch.Generator().manual_seed(seed))

    def mask(*shape: int) -> Callable[[torch.dtype, int], Tensor]:
        return lambda _, seed: _random(shape, torch.float32, seed) > 0.2

    for size, (rows, columns) in SIZES.items():
        full, row = tensor(rows, columns), tensor(columns)
        heads = tensor(1, max(rows * columns // (64 * 64), 1), 64, 64)
        channels, images = (64, max(rows * columns // (64 * 28 * 28), 1))
        image = tensor(images, channels, 28, 28)
        groups: dict[str, tuple[Callable[..., Any], tuple[Callable[[torch.dtype, int], Tensor], ...]]] = {
            "softmax": (_softmax, (full,)),
            "layer_norm": (_layer_norm, (full, row, row)),
            "layer_norm_backward": (_layer_norm_backward, (full, full, tensor(rows, 1), tensor(rows, 1), row, row)),
            "rms_norm": (_rms_norm, (full, row)),
            "gelu_bias_residual": (_gelu_bias_residual, (full, row, full)),
            "swiglu": (_swiglu, (full, full)),
            "rotary": (_rotary, (heads, tensor(64, 64), tensor(64, 64))),
            "cross_entropy": (_cross_entropy, (full, integers(columns, rows))),
            "batch_norm": (_batch_norm, (image, single(channels), single(channels))),
            "batch_norm_backward": (_batch_norm_backward, (image, image, *[single(channels)] * 3)),
            "dropout_residual": (_dropout_residual, (full, mask(rows, columns), full)),
            "adam": (_adam, (full, full, full, full)),
            "sgd": (_sgd, (full, full, full)),
            "embedding_bag": (_embedding_bag, (integers(rows, 512, 32), tensor(rows, 64))),
            "transpose": (_transpose, (full,)),
            "cast": (_cast, (full,)),
        }
        for name, (function, makers) in groups.items():
            for dtype, torch_dtype in DTYPES.items():

                def make(function=function, makers=makers, torch_dtype=torch_dtype):
                    return function, tuple(maker(torch_dtype, i) for i, maker in enumerate(makers))

                yield Case(f"fused/{name}/{dtype}/{size}", dtype, size, make, standard=size != "L1")


# ---- windows, padding and slices: cases where the body changes along a loop ----


def _triangle_softmax(x: Tensor) -> Tensor:
    inside = torch.ones(x.shape[-2:], dtype=torch.bool).tril()
    return torch.softmax(x.masked_fill(~inside, -torch.inf), -1)


def _shifted_windows(x: Tensor) -> Tensor:
    """Swin's shifted windows: [batch, 56, 56, channels], shifted by 3, in windows of 7 x 7."""
    parts = torch.roll(x, (-3, -3), (1, 2)).view(x.shape[0], 8, 7, 8, 7, x.shape[3])
    return parts.permute(0, 1, 3, 2, 4, 5).contiguous()


def _edge_cases() -> Iterator[Case]:
    image, row = (4, 64, 56, 56), (512, 300)
    heads, square = (1, 12, 1024, 64), (1024, 1024)
    groups: dict[str, tuple[Callable[..., Any], tuple[tuple[int, ...], ...]]] = {
        "max_pool_3x3_s2": (lambda x: F.max_pool2d(x, 3, 2, 1), (image,)),
        "max_pool_2x2": (lambda x: F.max_pool2d(x, 2), (image,)),
        "avg_pool_3x3": (lambda x: F.avg_pool2d(x, 3, 1, 1), (image,)),
        "adaptive_pool_7": (lambda x: F.adaptive_avg_pool2d(x, 7), (image,)),
        "pad_1": (lambda x: F.pad(x, (1, 1, 1, 1)), (image,)),
        "pad_reflect": (lambda x: F.pad(x, (2, 2, 2, 2), mode="reflect"), (image,)),
        "cat_last_relu": (lambda x, y: torch.relu(torch.cat((x, y[:, :212]), 1)), (row, row)),
        "cat_channels_relu": (lambda x, y: torch.relu(torch.cat((x, y), 1)), (image, image)),
        "cat_cache": (lambda x, y: torch.cat((x, y), 2) * 1.5, (heads, (1, 12, 1, 64))),
        "slice_scatter": (lambda x, y: torch.slice_scatter(x, y[:, :204], 1, 8, 212) * 2, (row, row)),
        "rotate_half": (lambda x: torch.cat((-x[..., 32:], x[..., :32]), -1) * x, (heads,)),
        "roll": (lambda x: torch.roll(x, (3, 3), (2, 3)) * 2, (image,)),
        "triu": (torch.triu, (square,)),
        "triangle_softmax": (_triangle_softmax, (square,)),
        "unfold_sum": (lambda x: x.unfold(1, 5, 1).sum(-1), (row,)),
        "pixel_unshuffle": (lambda x: F.pixel_unshuffle(x, 2), (image,)),
        "shifted_windows": (_shifted_windows, ((8, 56, 56, 96),)),
        "conv1d_depthwise": (
            lambda x, w: F.conv1d(x, w, padding=3, groups=512)[..., :256],
            ((4, 512, 256), (512, 1, 4)),
        ),
    }
    for name, (function, shapes) in groups.items():
        for layout in ("contiguous", "channels_last"):
            if layout == "channels_last" and (name.startswith("conv") or image not in shapes):
                continue
            for dtype, torch_dtype in DTYPES.items():

                def make(function=function, shapes=shapes, torch_dtype=torch_dtype, layout=layout):
                    tensors = (_random(shape, torch_dtype, i, low=-0.4) for i, shape in enumerate(shapes))
                    if layout == "channels_last":
                        tensors = (t.to(memory_format=torch.channels_last) for t in tensors)
                    return function, tuple(tensors)

                yield Case(f"edges/{name}/{dtype}/-/{layout}", dtype, "-", make)


# ---- matmuls and convolutions ----

# (model, rows, outputs, inputs) of the linear layers.
_LINEARS = [
    ("bert", 128, 768, 768),
    ("bert", 128, 3072, 768),
    ("bert", 128, 768, 3072),
    ("bert", 1024, 3072, 768),
    ("gpt2_decode", 1, 2304, 768),
    ("gpt2_decode", 1, 3072, 768),
    ("gpt2_prefill", 128, 2304, 768),
    ("llama_decode", 1, 2048, 2048),
    ("llama_decode", 1, 8192, 2048),
    ("llama_prefill", 128, 8192, 2048),
    ("dlrm", 256, 512, 256),
    ("dlrm", 256, 1024, 479),
]

# (channels in, channels out, image, kernel, stride, groups) of ResNet-50 and a depthwise one, batch 1.
_CONVS = [
    (3, 64, 224, 7, 2, 1),
    (64, 64, 56, 1, 1, 1),
    (64, 64, 56, 3, 1, 1),
    (64, 256, 56, 1, 1, 1),
    (256, 128, 56, 1, 1, 1),
    (128, 128, 56, 3, 2, 1),
    (128, 512, 28, 1, 1, 1),
    (256, 256, 14, 3, 1, 1),
    (512, 2048, 7, 1, 1, 1),
    (512, 512, 7, 3, 1, 1),
    (144, 144, 56, 3, 1, 144),
]


def _matmul_cases() -> Iterator[Case]:
    for model, rows, outputs, inputs in _LINEARS:
        for dtype, torch_dtype in DTYPES.items():

            def make(rows=rows, outputs=outputs, inputs=inputs, torch_dtype=torch_dtype):
                layer = torch.nn.Linear(inputs, outputs).to(torch_dtype).eval()
                return layer, (_random((rows, inputs), torch_dtype),)

            name = f"matmul/{model}_{rows}x{outputs}x{inputs}/{dtype}"
            yield Case(name, dtype, "-", make, flops=2.0 * rows * outputs * inputs)


def _conv_cases() -> Iterator[Case]:
    for channels, outputs, image, kernel, stride, groups in _CONVS:
        for dtype, torch_dtype in DTYPES.items():

            def make(c=channels, o=outputs, i=image, k=kernel, s=stride, g=groups, torch_dtype=torch_dtype):
                layer = torch.nn.Conv2d(c, o, k, s, k // 2, groups=g, bias=True).to(torch_dtype).eval()
                return torch.nn.Sequential(layer, torch.nn.ReLU()), (_random((1, c, i, i), torch_dtype),)

            side = (image + 2 * (kernel // 2) - kernel) // stride + 1
            flops = 2.0 * outputs * side * side * (channels // groups) * kernel * kernel
            kind = "depthwise" if groups > 1 else f"{kernel}x{kernel}"
            name = f"conv/{kind}_{channels}_{outputs}_{image}_s{stride}/{dtype}"
            yield Case(name, dtype, "-", make, flops=flops)

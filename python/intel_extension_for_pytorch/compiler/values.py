"""Values of a Graph under construction, and helpers that read the traced metadata of FX nodes."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Sequence
from typing import Any

import torch
from torch import fx

from .. import torch_private
from ..errors import GraphFallback
from .sizes import Dim

DTYPE_NAMES = {
    torch.bool: "b1", torch.uint8: "u8", torch.int8: "i8", torch.int16: "i16", torch.int32: "i32",
    torch.int64: "i64", torch.float16: "f16", torch.bfloat16: "bf16", torch.float32: "f32", torch.float64: "f64",
}  # fmt: skip
# The prefix that Dynamo puts before the path of a module: L['self'].layer.0, L['fn'].0
MODULE_ROOT = re.compile(r"^L\['\w+'\]\.?")
_PYTORCH = os.path.dirname(torch.__file__)
HALF = (torch.float16, torch.bfloat16)


def traced_shape(node: Any) -> torch.Size:
    return node.meta["val"].shape


def traced_count(node: Any) -> int | torch.SymInt:
    """The number of elements of a traced tensor. (torch.Size.numel() would add guards on symbols.)"""
    return math.prod(traced_shape(node))


def opmath(dtype: torch.dtype) -> torch.dtype:
    """The type that arithmetic on `dtype` is done in."""
    return torch.float32 if dtype in HALF else dtype


class Ref:
    """A value of the Graph under construction; arithmetic on it writes pointwise ops of that Graph.

    Operands are tensors or numbers. They are promoted and broadcast as in ATen.

    `id` is the C++ handle. `owned` is false for a value whose copy (aten.clone) was left out, so that it shares memory
    with another value. The copy is made if the user gets to see the value.
    """

    __slots__ = ("dtype", "id", "owned", "shape", "writer")

    def __init__(self, writer: Any, id: int, dtype: torch.dtype, shape: tuple[Dim, ...], owned: bool = True) -> None:
        self.writer = writer  # the GraphWriter
        self.id = id
        self.dtype = dtype
        self.shape = shape
        self.owned = owned

    def __add__(self, other: Operand) -> Ref:
        return self.writer.pointwise("add", self, other)

    def __sub__(self, other: Operand) -> Ref:
        return self.writer.pointwise("sub", self, other)

    def __mul__(self, other: Operand) -> Ref:
        return self.writer.pointwise("mul", self, other)

    def __truediv__(self, other: Operand) -> Ref:
        return self.writer.pointwise("div", self, other)

    def __neg__(self) -> Ref:
        return self.writer.pointwise("neg", self)

    def to(self, dtype: torch.dtype) -> Ref:
        return self.writer.cast(self, dtype)

    def reshape(self, shape: tuple[Dim, ...]) -> Ref:
        return self.writer.reshape(self, shape)

    def expand(self, shape: tuple[Dim, ...], dims: Sequence[int] | None = None) -> Ref:
        """Broadcasts; dimension i becomes dims[i] of `shape` (default: aligned at the right)."""
        return self.writer.expand(self, shape, dims)

    def sum(self, axes: Sequence[int] | None = None, keepdim: bool = False) -> Ref:
        """The sum over `axes` (default: all), in the value's own type."""
        return self.writer.reduce("sum", self, axes, keepdim)


Operand = Ref | float | int | torch.SymInt | torch.SymFloat


def require_plain(node: fx.Node, value: Any) -> None:
    """Raises GraphFallback unless the Graph's types can hold `value`."""
    if not isinstance(value, torch.Tensor):
        raise GraphFallback(f"{node.target} returns a {type(value).__name__}")
    if value.dtype in DTYPE_NAMES and torch_private.is_plain_tensor(value):
        return
    what = f"{value.dtype}" if value.dtype not in DTYPE_NAMES else f"{type(value).__name__} {value.layout}"
    raise GraphFallback(f"{node.target} ({node.name}) has a value of type {what} on {value.device}")


def node_source(node: fx.Node) -> str:
    """Where the op comes from: "file.py:12 linear" names the innermost line outside of PyTorch. Dynamo records no lines
    inside PyTorch's own modules; "encoder.0 (Linear) linear" then names the module."""
    name = node.target._opname if isinstance(node.target, torch_private.OpOverload) else node.name
    trace = node.meta.get("stack_trace")
    if not trace:
        modules = node.meta.get("nn_module_stack") or node.meta.get("fwd_nn_module_stack")
        if not modules:
            return name
        path, kind = next(reversed(modules.values()))
        return f"{MODULE_ROOT.sub('', path)} ({getattr(kind, '__name__', kind)}) {name}"
    at = innermost = trace.rfind('File "')
    while at >= 0 and trace.startswith(_PYTORCH, at + 6):
        at = trace.rfind('File "', 0, at)
    at = at if at >= 0 else innermost
    end = trace.find("\n", at)
    file, _, rest = trace[at + 6 : end].partition('", line ')
    return f"{file.rpartition('/')[2]}:{rest.partition(',')[0]} {name}"

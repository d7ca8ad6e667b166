"""Formulas of linspace, logspace, eye and roll, and of random ops, which must draw in eager's order."""

from __future__ import annotations

from typing import Any

import torch

from ... import torch_private
from ..conversions import fits
from .registry import Tensor, aten, formula


def _has_range(dtype: torch.dtype | None, *ends: float | Tensor) -> bool:
    """Whether ATen accepts a range of this type: all possible values of its ends must fit."""
    if dtype is torch.bool:
        return False
    dtype = dtype or torch.get_default_dtype()
    return dtype.is_complex or all(_fits(end, dtype) for end in ends)


def _fits(value: float | Tensor | torch.SymInt | torch.SymFloat, dtype: torch.dtype) -> bool:
    if isinstance(value, Tensor):
        return torch.promote_types(value.dtype, dtype) is dtype
    known = torch_private.bounds(value) if isinstance(value, (torch.SymInt, torch.SymFloat)) else (value,)
    return isinstance(value, complex) or all(fits(number, dtype) for number in known)


@formula(aten.linspace.default)
@formula(aten.linspace.Tensor_Tensor)
@formula(aten.linspace.Tensor_Scalar)
@formula(aten.linspace.Scalar_Tensor)
def _linspace(
    start: float | Tensor, end: float | Tensor, steps: int, *, dtype: torch.dtype | None = None, **options: Any
) -> Tensor:
    """For integers, as in ATen: truncate the ends, compute the points in double from the nearer end, and truncate."""
    if not _has_range(dtype, start, end):
        return NotImplemented
    if dtype is None or dtype.is_floating_point or dtype.is_complex or steps < 2:
        return torch_private.linspace(start, end, steps, dtype=dtype, **options)
    first, last = (
        v.to(dtype).long() if isinstance(v, Tensor) else torch.full((), int(v)).to(dtype).long() for v in (start, end)
    )
    step, fma = (last - first).double() / (steps - 1), torch_private.fma_op()
    index = torch.arange(steps, dtype=torch.float64)
    before_middle = fma(index, step, first.double())
    after_middle = fma(index - (steps - 1), step, last.double())
    return torch.where(index < steps // 2, before_middle, after_middle).to(dtype)


@formula(aten.logspace.default)
@formula(aten.logspace.Tensor_Tensor)
@formula(aten.logspace.Tensor_Scalar)
@formula(aten.logspace.Scalar_Tensor)
def _logspace(
    start: float | Tensor, end: float | Tensor, steps: int, base: float = 10.0, *, dtype: torch.dtype | None = None,
    **options: Any,
) -> Tensor:  # fmt: skip
    if not _has_range(dtype, start, end):
        return NotImplemented
    return torch_private.logspace(start, end, steps, base, dtype=dtype, **options)


def _on_contiguous_operands(op: Any) -> None:
    """ATen draws these numbers into contiguous memory, whatever the layout of its operands. In tracing the result would
    have the operands' layout."""

    @formula(op)
    def drawn(*arguments: Any, **by_name: Any) -> Any:
        ordered = [a.contiguous() if isinstance(a, Tensor) else a for a in arguments]
        if all(a is b for a, b in zip(ordered, arguments, strict=True)):
            return NotImplemented
        return op(*ordered, **by_name)


for _op in (
    aten.normal.Tensor_Tensor, aten.normal.Tensor_float, aten.normal.float_Tensor, aten.poisson.default,
    aten._standard_gamma.default,
):  # fmt: skip
    _on_contiguous_operands(_op)


@formula(aten.eye.m)
def _eye(n: int, m: int, *, dtype: torch.dtype | None = None, **options: Any) -> Tensor:
    """PyTorch's decomposition uses the narrowest unsigned type, for which ATen has no arange."""
    return (torch.arange(n)[:, None] == torch.arange(m)).to(dtype or torch.get_default_dtype())


@formula(aten.eye.default)
def _square_eye(n: int, **options: Any) -> Tensor:
    return _eye(n, n, **options)


@formula(aten.roll.default)
def _roll(x: Tensor, shifts: list[int], dims: list[int] = ()) -> Tensor:
    """Only for channels_last images: ATen keeps the memory format, and tracing would not. Other cases have an import
    rule."""
    if not dims or x.is_contiguous() or torch_private.suggested_memory_format(x) is not torch.channels_last:
        return NotImplemented
    axes = [(0, 3, 1, 2)[d] for d in dims]  # in N, H, W, C
    return aten.roll.default(x.permute(0, 2, 3, 1), shifts, axes).permute(0, 3, 1, 2)

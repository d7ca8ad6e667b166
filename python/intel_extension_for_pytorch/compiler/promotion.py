"""ATen's type promotion for values of a Graph and Python numbers."""

from __future__ import annotations

from typing import Any

import torch

from ..errors import Unsupported
from .values import Ref


def promote(operands: list[Any]) -> torch.dtype:
    """torch.result_type over values and Python numbers: dimensioned tensors outrank 0-d ones, which outrank numbers."""
    dimensioned = zero_dim = number = None
    for operand in operands:
        if isinstance(operand, Ref):
            if operand.shape:
                dimensioned = _join(dimensioned, operand.dtype)
            else:
                zero_dim = _join(zero_dim, operand.dtype)
        elif operand is not None:
            number = _join(number, _number_dtype(operand))
    result = _combine(dimensioned, _combine(zero_dim, number))
    if result is None:
        raise Unsupported("no operand to take a dtype from")
    return result


def _number_dtype(value: Any) -> torch.dtype:
    if isinstance(value, (bool, torch.SymBool)):
        return torch.bool
    if isinstance(value, (int, torch.SymInt)):
        return torch.int64
    if isinstance(value, (float, torch.SymFloat)):
        return torch.get_default_dtype()
    raise Unsupported(f"a {type(value).__name__} is not an operand")


def _join(a: torch.dtype | None, b: torch.dtype) -> torch.dtype:
    return b if a is None or a is b else torch.promote_types(a, b)


def _combine(high: torch.dtype | None, low: torch.dtype | None) -> torch.dtype | None:
    if high is None or low is None:
        return low if high is None else high
    if high.is_floating_point:
        return high
    if high is torch.bool or low.is_floating_point:
        return torch.promote_types(high, low)
    return high

"""Formulas that raise eager's error where an integer is divided by zero."""

from __future__ import annotations

import threading
from functools import partial
from typing import Any

import torch

from ... import torch_private
from .registry import Tensor, aten, formula

_checked = threading.local()  # .op: the division whose divisors have just been checked


def _divide(op: Any, x: Any, y: Any, **options: Any) -> Tensor:
    """The op itself after a check that raises as eager does. The check is an op of its own, so it also raises if the
    quotient is unused."""
    if getattr(_checked, "op", None) is op or options.get("rounding_mode", "") is None:
        return NotImplemented
    nonzero = _nonzero(x, y)
    if nonzero is None:
        return NotImplemented
    aten._assert_async.msg(nonzero, "ZeroDivisionError")
    _checked.op = op
    try:
        return op(x, y, **options)
    finally:
        _checked.op = None


for _op in (
    aten.div.Scalar_mode, aten.div.Tensor_mode, aten.floor_divide.Scalar, aten.floor_divide.default, aten.fmod.Scalar,
    aten.fmod.Tensor, aten.remainder.Scalar, aten.remainder.Scalar_Tensor, aten.remainder.Tensor,
):  # fmt: skip
    formula(_op)(partial(_divide, _op))


def _nonzero(x: Any, y: Any) -> Tensor | None:
    """A tensor that says whether no element of x / y is divided by zero; None where no check is needed."""
    plain = [1 if isinstance(v, torch.SymInt) else v for v in (x, y)]
    if any(isinstance(v, (float, torch.SymFloat, torch.SymBool)) for v in plain):
        return None
    dtype = torch.result_type(*plain)
    if dtype.is_floating_point or dtype.is_complex or dtype is torch.bool:
        return None
    if not isinstance(y, Tensor):
        if not isinstance(y, torch.SymInt):
            y = int(y) % (1 << torch.iinfo(dtype).bits)  # wrapped around, as in the result's type
        if torch_private.is_known(y != 0):
            return None
        y = torch.scalar_tensor(y, dtype=torch.int64)
    nonzero = (y.to(dtype) != 0).all()
    # Tracing knows the value of a single constant and would raise at once. The `|` hides it.
    if torch_private.is_known(y.numel() == 1):
        nonzero = nonzero | torch.zeros((), dtype=torch.bool)
    count = x.numel() if isinstance(x, Tensor) else 1
    # If x is empty, nothing is divided, whatever it is broadcast with.
    return (
        nonzero
        if torch_private.is_known(count != 0)
        else nonzero | (torch.scalar_tensor(count, dtype=torch.int64) == 0)
    )

"""Integers divided by zero: eager's error."""

from __future__ import annotations

import threading
from functools import partial
from typing import Any

import torch

from ... import torch_private
from .registry import Tensor, aten, formula

_checked = threading.local()  # .op: the division whose divisors have just been checked


def _divide(op: Any, x: Any, y: Any, **options: Any) -> Tensor:
    """The op itself, behind a check that raises as eager does. The check is an op of its own: it raises where nobody
    reads the quotient, too."""
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
    """Whether no element of x / y is divided by zero, a tensor; None where that needs no check."""
    plain = [1 if isinstance(v, torch.SymInt) else v for v in (x, y)]
    if any(isinstance(v, (float, torch.SymFloat, torch.SymBool)) for v in plain):
        return None
    dtype = torch.result_type(*plain)
    if dtype.is_floating_point or dtype.is_complex or dtype is torch.bool:
        return None
    if not isinstance(y, Tensor):
        if not isinstance(y, torch.SymInt):
            y = int(y) % (1 << torch.iinfo(dtype).bits)  # as it is in that type
        if torch_private.is_known(y != 0):
            return None
        y = torch.scalar_tensor(y, dtype=torch.int64)
    nonzero = (y.to(dtype) != 0).all()
    if torch_private.is_known(
        y.numel() == 1
    ):  # tracing would raise for a constant at once: it knows what one number is
        nonzero = nonzero | torch.zeros((), dtype=torch.bool)
    count = x.numel() if isinstance(x, Tensor) else 1
    # Where x is empty nothing is divided, whatever it is broadcast with.
    return (
        nonzero
        if torch_private.is_known(count != 0)
        else nonzero | (torch.scalar_tensor(count, dtype=torch.int64) == 0)
    )

"""Decompositions that PyTorch does not have: ATen ops as pointwise ops, reductions and matrix products."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from ...errors import InternalError

aten = torch.ops.aten
Tensor = torch.Tensor
FORMULAS: dict[Any, Callable] = {}
NONE, MEAN = 0, 1  # among ATen's reductions of a loss


def formula(op: Any) -> Callable[[Callable], Callable]:
    """Registers a function as what an ATen overload is made of. An overload has one."""

    def register(function: Callable) -> Callable:
        if op in FORMULAS:
            raise InternalError(f"{op} has two formulas")
        FORMULAS[op] = function
        return function

    return register


def of_one_type(decomposition: Callable, accepted: tuple[torch.dtype, ...] = ()) -> Callable:
    """A decomposition for operands of one type, one of `accepted` where some are named. ATen refuses others, which
    tracing does not: the op is left whole, as it has the error."""

    def decomposed(*arguments: Any, **by_name: Any) -> Any:
        types = {a.dtype for a in (*arguments, *by_name.values()) if isinstance(a, Tensor)}
        if len(types) > 1 or (accepted and not types.issubset(accepted)):
            return NotImplemented
        return decomposition(*arguments, **by_name)

    return decomposed

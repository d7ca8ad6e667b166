"""The registry of formulas: our own decompositions of ATen ops into pointwise ops, reductions and matrix products."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from ...errors import InternalError

aten = torch.ops.aten
Tensor = torch.Tensor
FORMULAS: dict[Any, Callable] = {}
NONE, MEAN = 0, 1  # values of ATen's `reduction` argument of losses


def formula(op: Any) -> Callable[[Callable], Callable]:
    """Registers a function as the decomposition of an ATen overload. Each overload has at most one."""

    def register(function: Callable) -> Callable:
        if op in FORMULAS:
            raise InternalError(f"{op} has two formulas")
        FORMULAS[op] = function
        return function

    return register


def same_dtype_only(decomposition: Callable, accepted: tuple[torch.dtype, ...] = ()) -> Callable:
    """Restricts a decomposition to operands of one type (from `accepted`, if given). ATen refuses others, but tracing
    does not check that: such an op is not decomposed, so that ATen raises its error."""

    def decomposed(*arguments: Any, **by_name: Any) -> Any:
        types = {a.dtype for a in (*arguments, *by_name.values()) if isinstance(a, Tensor)}
        if len(types) > 1 or (accepted and not types.issubset(accepted)):
            return NotImplemented
        return decomposition(*arguments, **by_name)

    return decomposed

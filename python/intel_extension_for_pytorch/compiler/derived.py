"""Derived arguments: extra arguments of a compiled graph that Python computes from the others at each call."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from .. import torch_private
from .conversions import fits, overflow_error


@dataclass
class Derived:
    """An argument that is computed from sizes of other arguments at each call: an int, or a 0-d tensor of `dtype`."""

    expression: Any  # sympy
    parameters: list[Any]  # the symbols in the expression
    sources: list[tuple]  # where each parameter comes from, as in Imported.symbols
    dtype: torch.dtype | None = None
    fits: torch.dtype | None = None  # only check that the value fits this type, as eager does

    def __post_init__(self) -> None:
        self._function = torch_private.symbolic_function(self.expression, self.parameters)

    def __reduce__(self) -> tuple:
        return Derived, (self.expression, self.parameters, self.sources, self.dtype, self.fits)

    def value(self, arguments: Sequence[Any]) -> int | torch.Tensor:
        found = self._function(*(read_source(arguments, *source) for source in self.sources))
        if self.fits is not None:
            if not fits(found, self.fits):
                raise RuntimeError(overflow_error(self.fits))
            return 0
        return int(found) if self.dtype is None else torch.tensor(found, dtype=self.dtype)


def read_source(arguments: Sequence[Any], position: int, what: str, dim: int, divisor: int, offset: int) -> Any:
    value = arguments[position]
    given = value if what == "value" else value.shape[dim] if what == "size" else value.stride(dim)
    return given if isinstance(given, float) else (given - offset) // divisor

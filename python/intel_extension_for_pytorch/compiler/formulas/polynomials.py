"""Formulas of orthogonal polynomials with a constant degree."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch

from .registry import Tensor, aten, formula

_Recurrence = Callable[[Tensor, int, Tensor, Tensor], Tensor]
_MAX_DEGREE = 6  # above it, ATen computes Chebyshev polynomials from cosines


def _chebyshev(x: Tensor, k: int, p: Tensor, before: Tensor) -> Tensor:
    return 2 * x * p - before


# ATen name -> the polynomial of degree 1, and the recurrence: degree k + 1 from degrees k and k - 1.
_POLYNOMIALS: dict[str, tuple[Callable[[Tensor], Tensor], _Recurrence]] = {
    "chebyshev_polynomial_t": (lambda x: x, _chebyshev),
    "chebyshev_polynomial_u": (lambda x: 2 * x, _chebyshev),
    "chebyshev_polynomial_v": (lambda x: 2 * x - 1, _chebyshev),
    "chebyshev_polynomial_w": (lambda x: 2 * x + 1, _chebyshev),
    "hermite_polynomial_h": (lambda x: 2 * x, lambda x, k, p, before: 2 * x * p - 2 * k * before),
    "hermite_polynomial_he": (lambda x: x, lambda x, k, p, before: x * p - k * before),
    "laguerre_polynomial_l": (lambda x: 1 - x, lambda x, k, p, before: ((2 * k + 1 - x) * p - k * before) / (k + 1)),
    "legendre_polynomial_p": (lambda x: x, lambda x, k, p, before: ((2 * k + 1) * x * p - k * before) / (k + 1)),
}


def _polynomial(name: str, x: Tensor, n: float) -> Tensor:
    shifted = name.startswith("shifted_")
    first, following = _POLYNOMIALS[name.removeprefix("shifted_")]
    if n > _MAX_DEGREE:
        return NotImplemented
    x = x if x.is_floating_point() else x.to(torch.get_default_dtype())
    x = 2 * x - 1 if shifted else x
    if n < 1:
        return torch.full_like(x, n >= 0)
    before, p = torch.ones_like(x), first(x)
    for k in range(1, int(n)):
        before, p = p, following(x, k, p, before)
    return p


for _name in (*_POLYNOMIALS, *(f"shifted_{name}" for name in _POLYNOMIALS if name.startswith("chebyshev"))):
    formula(getattr(aten, f"special_{_name}").n_scalar)(partial(_polynomial, _name))

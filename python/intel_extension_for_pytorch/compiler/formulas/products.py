"""Formulas of ops that are sums of products: addbmm, addmv and _trilinear."""

from __future__ import annotations

import torch

from ... import torch_private
from .registry import Tensor, aten, formula


@formula(aten.addbmm.default)
def _addbmm(x: Tensor, a: Tensor, b: Tensor, *, beta: float = 1, alpha: float = 1) -> Tensor:
    """One product, whose inner dimension includes the batch."""
    inner = a.shape[0] * a.shape[2]  # not -1, which would be ambiguous where another size is 0
    wide, high = a.permute(1, 0, 2).reshape(a.shape[1], inner), b.reshape(inner, b.shape[2])
    return torch.addmm(x, wide, high, beta=beta, alpha=alpha)


@formula(aten.addmv.default)
def _addmv(x: Tensor, a: Tensor, v: Tensor, *, beta: float = 1, alpha: float = 1) -> Tensor:
    """If alpha is 0, the library that eager calls skips the product, even if it has infinities."""
    if alpha != 0 or x.dtype not in (torch.float32, torch.float64):
        op = aten.addmv.default
        return torch_private.registered_decompositions([op])[op](x, a, v, beta=beta, alpha=alpha)
    return beta * x.expand(a.shape[:1]) if beta != 0 else x.new_zeros(a.shape[:1])


@formula(aten._trilinear.default)
def _trilinear(
    x: Tensor, y: Tensor, z: Tensor, expand_x: list[int], expand_y: list[int], expand_z: list[int], sumdim: list[int],
    unroll_dim: int = 1,
) -> Tensor:  # fmt: skip
    x, y, z = _unsqueezed(x, expand_x), _unsqueezed(y, expand_y), _unsqueezed(z, expand_z)
    return (x * y * z).sum(sumdim, dtype=x.dtype) if sumdim else x * y * z


def _unsqueezed(x: Tensor, dims: list[int]) -> Tensor:
    for d in dims:
        x = x.unsqueeze(d)
    return x

"""Import rules of softmax and log_softmax, forward and backward.

They emit the same ops as PyTorch's decompositions, with three changes. The maximum need not propagate NaN, because the
sum of exponentials does. That sum is between 1 and the number of elements, so it is safe to multiply by its reciprocal:
this cannot overflow and costs at most one rounding, where a division takes four times as long. And the arguments of the
exponential are at most 0, which takes two thirds of the operations.
"""

from __future__ import annotations

from typing import Any

import torch

from ..graph_writer import GraphWriter
from ..values import Ref, opmath
from .registry import rule


def _along(x: Ref, dim: int) -> list[int]:
    return [dim % len(x.shape)]


def _exp(im: GraphWriter, x: Ref, result: torch.dtype) -> Ref:
    """exp(x) for x <= 0, as accurate as a result of this type needs."""
    half = result in (torch.bfloat16, torch.float16)
    return im.pointwise("exp_nonpositive_half" if half else "exp_nonpositive", x)


def _exponentials(im: GraphWriter, x: Ref, dim: int, result: torch.dtype) -> tuple[Ref, Ref, Ref]:
    """x - max(x) along `dim`, its exponentials, and their sum (keepdim)."""
    shifted = x - im.reduce("fmax", x, _along(x, dim), keepdim=True)
    powers = _exp(im, shifted, result)
    return shifted, powers, powers.sum(_along(x, dim), keepdim=True)


@rule("_softmax")
def _softmax(im: GraphWriter, node: Any, x: Ref, dim: int, half_to_float: bool) -> Ref:
    result = node.meta["val"].dtype
    if not x.shape or 0 in x.shape:  # 1, as for a row of one element
        return im.pointwise("exp", x - x).to(result)
    _, powers, total = _exponentials(im, x.to(opmath(x.dtype)), dim, result)
    return (powers * im.pointwise("reciprocal", total)).to(result)


@rule("_log_softmax")
def _log_softmax(im: GraphWriter, node: Any, x: Ref, dim: int, half_to_float: bool) -> Ref:
    result = node.meta["val"].dtype
    if not x.shape or 0 in x.shape:
        return (x - x).to(result)
    shifted, _, total = _exponentials(im, x.to(opmath(x.dtype)), dim, result)
    return (shifted - im.pointwise("log", total)).to(result)


@rule("_softmax_backward_data")
def _softmax_backward(im: GraphWriter, node: Any, gradient: Ref, y: Ref, dim: int, dtype: torch.dtype) -> Ref:
    wide = opmath(y.dtype)
    gradient, y = gradient.to(wide), y.to(wide)
    along = gradient * y
    total = along.sum(_along(y, dim), keepdim=True) if y.shape else along
    return (along - y * total).to(node.meta["val"].dtype)


@rule("_log_softmax_backward_data")
def _log_softmax_backward(im: GraphWriter, node: Any, gradient: Ref, y: Ref, dim: int, dtype: torch.dtype) -> Ref:
    wide = opmath(y.dtype)
    gradient, y = gradient.to(wide), y.to(wide)
    total = gradient.sum(_along(y, dim), keepdim=True) if y.shape else gradient
    result = node.meta["val"].dtype
    return (gradient - _exp(im, y, result) * total).to(result)

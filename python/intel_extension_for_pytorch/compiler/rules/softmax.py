"""Import rules of softmax and its logarithm, forward and backward.

They make what PyTorch's decompositions make, but for three things that a softmax allows. Its maximum need not keep NaN:
the sum of exponentials does. That sum is between 1 and the number of terms, so that multiplying by its reciprocal
neither overflows nor loses more than a rounding, where a division takes four times as long. And nothing is above the
maximum: exponentials of what is at most 0 take two thirds of the operations.
"""

from __future__ import annotations

from typing import Any

import torch

from ..graph_writer import GraphWriter
from ..values import Ref, opmath
from .reductions import reduce_axes
from .registry import rule
from .rows import emit_row


def _along(x: Ref, dim: int) -> list[int]:
    return [dim % len(x.shape)]


def _exp(im: GraphWriter, x: Ref, result: torch.dtype) -> Ref:
    """Exponentials of what is at most 0, as accurate as a result of this type can tell."""
    half = result in (torch.bfloat16, torch.float16)
    return emit_row(im, "exp_nonpositive_half" if half else "exp_nonpositive", x.shape, x)


def _exponentials(im: GraphWriter, x: Ref, dim: int, result: torch.dtype) -> tuple[Ref, Ref, Ref]:
    """x - its maximum along `dim`, the exponentials of that, and their sum, which keeps the dim with size 1."""
    largest = reduce_axes(im, "fmax", x, _along(x, dim), keepdim=True)
    shifted = emit_row(im, "sub", x.shape, x, largest)
    powers = _exp(im, shifted, result)
    return shifted, powers, reduce_axes(im, "sum", powers, _along(x, dim), keepdim=True)


@rule("_softmax")
def _softmax(im: GraphWriter, node: Any, x: Ref, dim: int, half_to_float: bool) -> Ref:
    result = node.meta["val"].dtype
    if not x.shape or 0 in x.shape:  # 1, as for any row of one element
        return im.cast(emit_row(im, "exp", x.shape, emit_row(im, "sub", x.shape, x, x)), result)
    _, powers, total = _exponentials(im, im.cast(x, opmath(x.dtype)), dim, result)
    scale = emit_row(im, "reciprocal", total.shape, total)
    return im.cast(emit_row(im, "mul", x.shape, powers, scale), result)


@rule("_log_softmax")
def _log_softmax(im: GraphWriter, node: Any, x: Ref, dim: int, half_to_float: bool) -> Ref:
    result = node.meta["val"].dtype
    if not x.shape or 0 in x.shape:
        return im.cast(emit_row(im, "sub", x.shape, x, x), result)
    shifted, _, total = _exponentials(im, im.cast(x, opmath(x.dtype)), dim, result)
    return im.cast(emit_row(im, "sub", x.shape, shifted, emit_row(im, "log", total.shape, total)), result)


@rule("_softmax_backward_data")
def _softmax_backward(im: GraphWriter, node: Any, gradient: Ref, y: Ref, dim: int, dtype: torch.dtype) -> Ref:
    wide = opmath(y.dtype)
    gradient, y = im.cast(gradient, wide), im.cast(y, wide)
    along = emit_row(im, "mul", y.shape, gradient, y)
    total = reduce_axes(im, "sum", along, _along(y, dim), keepdim=True) if y.shape else along
    dx = emit_row(im, "sub", y.shape, along, emit_row(im, "mul", y.shape, y, total))
    return im.cast(dx, node.meta["val"].dtype)


@rule("_log_softmax_backward_data")
def _log_softmax_backward(im: GraphWriter, node: Any, gradient: Ref, y: Ref, dim: int, dtype: torch.dtype) -> Ref:
    wide = opmath(y.dtype)
    gradient, y = im.cast(gradient, wide), im.cast(y, wide)
    total = reduce_axes(im, "sum", gradient, _along(y, dim), keepdim=True) if y.shape else gradient
    result = node.meta["val"].dtype
    share = emit_row(im, "mul", y.shape, _exp(im, y, result), total)
    return im.cast(emit_row(im, "sub", y.shape, gradient, share), result)

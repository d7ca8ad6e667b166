"""Import rules of losses whose data eager checks: what lies outside of its range ends the call with eager's error."""

from __future__ import annotations

from typing import Any

import torch

from ...errors import Unsupported
from .. import extern
from ..graph_writer import GraphWriter
from ..values import Ref, opmath
from .reductions import reduce_axes
from .registry import rule
from .rows import emit_row

_NONE, _MEAN = 0, 1  # among ATen's reductions of a loss


def _reduced(im: GraphWriter, loss: Ref, reduction: int) -> Ref:
    if reduction == _NONE:
        return loss
    return reduce_axes(im, "mean" if reduction == _MEAN else "sum", loss, list(range(len(loss.shape))))


# ---- binary cross entropy ----


@rule("binary_cross_entropy")
def _binary_cross_entropy(
    im: GraphWriter, node: Any, x: Ref, target: Ref, weight: Ref | None = None, reduction: int = _MEAN
) -> Ref:
    if any(r is not None and r.dtype is not x.dtype for r in (target, weight)):
        raise Unsupported("binary cross entropy of several types")
    wide, shape = opmath(x.dtype), x.shape
    x, target = im.cast(x, wide), im.cast(target, wide)
    _require_probabilities(im, x, "input")
    _require_probabilities(im, target, "target")
    log, log_of_rest = emit_row(im, "log", shape, x), emit_row(im, "log1p", shape, emit_row(im, "neg", shape, x))
    log, log_of_rest = (emit_row(im, "clamp_min", shape, v, -100.0) for v in (log, log_of_rest))
    negative = emit_row(im, "mul", shape, emit_row(im, "sub", shape, target, 1.0), log_of_rest)
    loss = emit_row(im, "sub", shape, negative, emit_row(im, "mul", shape, target, log))
    if weight is not None:
        loss = emit_row(im, "mul", shape, loss, im.cast(weight, wide))
    return im.cast(_reduced(im, loss, reduction), node.meta["val"].dtype)


def _require_probabilities(im: GraphWriter, x: Ref, name: str) -> None:
    """A NaN is none either."""
    within = emit_row(im, "logical_and", x.shape, emit_row(im, "ge", x.shape, x, 0), emit_row(im, "le", x.shape, x, 1))
    every = im.emit("reduce", "all", [within], torch.bool, (), axes=list(range(len(x.shape))), keepdim=False)
    extern.check(im, every, f"all elements of {name} should be between 0 and 1")


# ---- the negative logarithm of a class's likelihood ----


@rule("nll_loss_forward", "nll_loss2d_forward")
def _nll_loss(
    im: GraphWriter, node: Any, x: Ref, target: Ref, weight: Ref | None, reduction: int, ignore_index: Any
) -> list[Ref]:
    """The loss and the weight that a mean divides it by, of [N, C, ...] at [N, ...], or of [C] at []."""
    if target.dtype not in (torch.int64, torch.uint8) or (weight is not None and weight.dtype is not x.dtype):
        raise Unsupported(f"nll_loss of {x.dtype} at {target.dtype}")
    wide, channels = opmath(x.dtype), 1 if len(x.shape) > 1 else 0
    target = im.cast(target, torch.int64)
    chosen = (*x.shape[:channels], 1, *x.shape[channels + 1 :])
    each = (*x.shape[:channels], *x.shape[channels + 1 :])
    if target.shape != each:
        target = im.reshape(target, each)
    kept = emit_row(im, "ne", each, target, ignore_index)
    index = im.reshape(emit_row(im, "where", each, kept, target, 0), chosen)

    def at_target(values: Ref, map: list[int]) -> Ref:
        found = im.emit("gather", "", [values, index], values.dtype, chosen, map=map, wrap=False, error="target")
        return im.cast(im.reshape(found, each), wide)

    loss = emit_row(im, "neg", each, at_target(x, [-1 if d == channels else d for d in range(len(x.shape))]))
    if weight is not None:
        factor = emit_row(im, "where", each, kept, at_target(weight, [-1]), 0)
        loss = emit_row(im, "mul", each, loss, factor)
    loss = emit_row(im, "where", each, kept, loss, 0)
    if reduction == _NONE and len(x.shape) > 1:
        return [im.cast(loss, x.dtype), im.full(0, x.dtype, ())]
    total = im.cast(_sum(im, im.cast(kept, torch.int64)), wide) if weight is None else _sum(im, factor)
    if reduction != _NONE:
        loss = _sum(im, loss)
    if reduction == _MEAN:
        loss = emit_row(im, "div", (), loss, total)
    return [im.cast(loss, x.dtype), im.cast(total, x.dtype)]


def _sum(im: GraphWriter, x: Ref) -> Ref:
    return reduce_axes(im, "sum", x, list(range(len(x.shape))))

"""Import rules of losses that check their data: values out of range raise eager's error."""

from __future__ import annotations

from typing import Any

import torch

from ...errors import Unsupported
from .. import extern
from ..graph_writer import GraphWriter
from ..values import Ref, opmath
from .registry import rule

_NONE, _MEAN = 0, 1  # values of ATen's `reduction` argument of losses


def _reduced(im: GraphWriter, loss: Ref, reduction: int) -> Ref:
    if reduction == _NONE:
        return loss
    return im.reduce("mean" if reduction == _MEAN else "sum", loss)


# ---- binary cross entropy ----


@rule("binary_cross_entropy")
def _binary_cross_entropy(
    im: GraphWriter, node: Any, x: Ref, target: Ref, weight: Ref | None = None, reduction: int = _MEAN
) -> Ref:
    if any(r is not None and r.dtype is not x.dtype for r in (target, weight)):
        raise Unsupported("binary cross entropy of several types")
    wide = opmath(x.dtype)
    x, target = x.to(wide), target.to(wide)
    _require_probabilities(im, x, "input")
    _require_probabilities(im, target, "target")
    log, log_of_rest = im.pointwise("log", x), im.pointwise("log1p", -x)
    log, log_of_rest = (im.pointwise("clamp_min", v, -100.0) for v in (log, log_of_rest))
    loss = (target - 1.0) * log_of_rest - target * log
    if weight is not None:
        loss = loss * weight.to(wide)
    return _reduced(im, loss, reduction).to(node.meta["val"].dtype)


def _require_probabilities(im: GraphWriter, x: Ref, name: str) -> None:
    """Checks that all elements are in [0, 1]. NaN fails the check, as in eager."""
    within = im.pointwise("logical_and", im.pointwise("ge", x, 0), im.pointwise("le", x, 1))
    every = im.emit("reduce", "all", [within], torch.bool, (), axes=list(range(len(x.shape))), keepdim=False)
    extern.check(im, every, f"all elements of {name} should be between 0 and 1")


# ---- negative log likelihood ----


@rule("nll_loss_forward", "nll_loss2d_forward")
def _nll_loss(
    im: GraphWriter, node: Any, x: Ref, target: Ref, weight: Ref | None, reduction: int, ignore_index: Any
) -> list[Ref]:
    """The loss, and the total weight that a mean divides by. x is [N, C, ...] and target [N, ...], or [C] and []."""
    if target.dtype not in (torch.int64, torch.uint8) or (weight is not None and weight.dtype is not x.dtype):
        raise Unsupported(f"nll_loss of {x.dtype} at {target.dtype}")
    wide, channels = opmath(x.dtype), 1 if len(x.shape) > 1 else 0
    target = target.to(torch.int64)
    chosen = (*x.shape[:channels], 1, *x.shape[channels + 1 :])
    each = (*x.shape[:channels], *x.shape[channels + 1 :])
    if target.shape != each:
        target = target.reshape(each)
    kept = im.pointwise("ne", target, ignore_index)
    index = im.where(kept, target, 0).reshape(chosen)

    def at_target(values: Ref, map: list[int]) -> Ref:
        found = im.gather(values, [index], map=map, wrap=False, error="target")
        return found.reshape(each).to(wide)

    loss = -at_target(x, [-1 if d == channels else d for d in range(len(x.shape))])
    if weight is not None:
        factor = im.where(kept, at_target(weight, [-1]), 0)
        loss = loss * factor
    loss = im.where(kept, loss, 0)
    if reduction == _NONE and len(x.shape) > 1:
        return [loss.to(x.dtype), im.full(0, x.dtype, ())]
    total = kept.to(torch.int64).sum().to(wide) if weight is None else factor.sum()
    if reduction != _NONE:
        loss = loss.sum()
    if reduction == _MEAN:
        loss = loss / total
    return [loss.to(x.dtype), total.to(x.dtype)]

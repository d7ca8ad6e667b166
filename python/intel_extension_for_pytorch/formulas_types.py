"""Decompositions where operands have several types: PyTorch's own promote them, ATen's kernels refuse some or give the
type of the first."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch

from . import compat
from .formulas import aten, formula, norm_types_agree, of_one_type
from .ops import named_arguments

Tensor = torch.Tensor
_NONE, _MEAN = 0, 1  # among ATen's reductions of a loss


def _pytorch_decomposition(op: Any) -> Callable:
    return compat.registered_decompositions([op])[op]


for _op in (aten.linalg_cross.default, aten.mv.default):
    formula(_op)(of_one_type(_pytorch_decomposition(_op)))


# ---- losses ----


def _of_first_type(decomposition: Callable) -> Callable:
    def decomposed(x: Tensor, *arguments: Any, **by_name: Any) -> Any:
        if not x.dtype.is_floating_point:
            return NotImplemented
        return decomposition(x, *arguments, **by_name).to(x.dtype)

    return decomposed


for _op in (aten.huber_loss.default, aten.soft_margin_loss.default):
    formula(_op)(_of_first_type(_pytorch_decomposition(_op)))


@formula(aten.binary_cross_entropy.default)
def _binary_cross_entropy(x: Tensor, target: Tensor, weight: Tensor | None = None, reduction: int = _MEAN) -> Tensor:
    """With a weight of another type; the rest has a rule."""
    if weight is None or weight.dtype is x.dtype:
        return NotImplemented
    loss = (aten.binary_cross_entropy.default(x, target, None, _NONE) * weight).to(x.dtype)
    if reduction == _NONE:
        return loss
    return loss.mean() if reduction == _MEAN else loss.sum()


# ---- normalisations ----


def _batch_norm(op: Any, decomposition: Callable) -> Callable:
    """Of types that ATen refuses, and of nothing in training, the op itself, which has the error. Of a half type with
    parameters of fp32 ATen's statistics are in fp32."""

    def decomposed(x: Tensor, *arguments: Any, **by_name: Any) -> Any:
        parameters = [a.dtype for a in (*arguments, *by_name.values()) if isinstance(a, Tensor)]
        trains = named_arguments(op, (x, *arguments), by_name).get("training", True)
        if not norm_types_agree(x.dtype, parameters) or (trains and compat.is_known(x.numel() == 0)):
            return NotImplemented
        if all(p is x.dtype for p in parameters):
            return decomposition(x, *arguments, **by_name)
        y, *statistics = op(x.to(parameters[0]), *arguments, **by_name)
        return (y.to(x.dtype), *statistics)

    return decomposed


for _op in (
    aten.native_batch_norm.default, aten._native_batch_norm_legit.default, aten._batch_norm_with_update.default,
    aten._batch_norm_with_update_functional.default, aten._batch_norm_no_update.default,
):  # fmt: skip
    formula(_op)(_batch_norm(_op, _pytorch_decomposition(_op)))


@formula(aten._native_batch_norm_legit.no_stats)
@partial(_batch_norm, aten._native_batch_norm_legit.no_stats)
def _has_a_rule(*arguments: Any, **by_name: Any) -> Any:
    return NotImplemented


@formula(aten.native_layer_norm.default)
def _layer_norm(
    x: Tensor, normalized: list[int], weight: Tensor | None, bias: Tensor | None, eps: float
) -> tuple[Tensor, Tensor, Tensor]:
    """Of a half type with parameters of fp32, whose statistics ATen gives in fp32; the rest has a rule."""
    parameters = [p.dtype for p in (weight, bias) if p is not None]
    if not parameters or parameters[0] is x.dtype or not norm_types_agree(x.dtype, parameters):
        return NotImplemented
    y, mean, scale = aten.native_layer_norm.default(x.to(parameters[0]), normalized, weight, bias, eps)
    return y.to(x.dtype), mean, scale

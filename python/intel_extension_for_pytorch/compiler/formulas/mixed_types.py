"""Formulas of ops with operands of several dtypes. PyTorch's decompositions promote them; ATen's kernels refuse some
combinations, or return the dtype of the first operand."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from ... import torch_private
from ..schema import named_arguments
from ..types_without_kernels import norm_types_agree
from .norms import has_fp32_parameters
from .registry import MEAN, NONE, aten, formula, same_dtype_only

Tensor = torch.Tensor


def _pytorch_decomposition(op: Any) -> Callable:
    def decomposed(*arguments: Any, **by_name: Any) -> Any:
        return torch_private.registered_decompositions([op])[op](*arguments, **by_name)

    return decomposed


for _op in (aten.linalg_cross.default, aten.mv.default):
    formula(_op)(same_dtype_only(_pytorch_decomposition(_op)))


# ---- losses ----


def _result_in_first_dtype(decomposition: Callable) -> Callable:
    def decomposed(x: Tensor, *arguments: Any, **by_name: Any) -> Any:
        if not x.dtype.is_floating_point:
            return NotImplemented
        return decomposition(x, *arguments, **by_name).to(x.dtype)

    return decomposed


for _op in (aten.huber_loss.default, aten.soft_margin_loss.default):
    formula(_op)(_result_in_first_dtype(_pytorch_decomposition(_op)))


@formula(aten.binary_cross_entropy.default)
def _binary_cross_entropy(x: Tensor, target: Tensor, weight: Tensor | None = None, reduction: int = MEAN) -> Tensor:
    """Only for a weight of another dtype. Other cases have an import rule."""
    if weight is None or weight.dtype is x.dtype:
        return NotImplemented
    loss = (aten.binary_cross_entropy.default(x, target, None, NONE) * weight).to(x.dtype)
    if reduction == NONE:
        return loss
    return loss.mean() if reduction == MEAN else loss.sum()


# ---- normalisations ----


def _batch_norm(op: Any, decomposition: Callable) -> Callable:
    """Does not decompose the op if ATen raises an error: for these dtypes, or for no elements in training."""

    def decomposed(x: Tensor, *arguments: Any, **by_name: Any) -> Any:
        parameters = [a.dtype for a in (*arguments, *by_name.values()) if isinstance(a, Tensor)]
        trains = named_arguments(op, (x, *arguments), by_name).get("training", True)
        if not norm_types_agree(x.dtype, parameters) or (trains and torch_private.is_known(x.numel() == 0)):
            return NotImplemented
        return decomposition(x, *arguments, **by_name)

    return decomposed


for _op in (
    aten.native_batch_norm.default, aten._native_batch_norm_legit.default, aten._batch_norm_with_update.default,
    aten._batch_norm_with_update_functional.default, aten._batch_norm_no_update.default,
):  # fmt: skip
    formula(_op)(_batch_norm(_op, _pytorch_decomposition(_op)))


def _with_fp32_statistics(op: Any) -> Callable:
    """For fp16 or bf16 inputs with fp32 parameters: the op on fp32 inputs, with its result rounded. Eager keeps the
    statistics in fp32, which PyTorch's shape functions would round. Other cases have an import rule."""

    def decomposed(x: Tensor, *arguments: Any, **by_name: Any) -> Any:
        if not has_fp32_parameters(x, *arguments, *by_name.values()):
            return NotImplemented
        y, *others = op(x.float(), *arguments, **by_name)
        return y.to(x.dtype), *others

    return decomposed


for _op in (
    aten.native_layer_norm.default, aten._native_batch_norm_legit_functional.default,
    aten._native_batch_norm_legit.no_stats, aten._native_batch_norm_legit_no_training.default,
):  # fmt: skip
    formula(_op)(_with_fp32_statistics(_op))

"""Corrects PyTorch's tracing for ops whose traced form does not compute what eager does. See `as_eager()`.

Functionalization turns an in-place random op into one whose result has memory of its own. But eager draws in the order
of the memory that it writes, and it draws differently for contiguous memory and for memory with gaps. Draws whose
result is unused must be kept too, because later draws depend on them.

Some ops are decomposed before autograd sees them. Their gradients then differ from those of eager's backward ops, at
points where the slope changes and at NaN.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import torch

from .. import _C, torch_private
from .formulas.norms import has_fp32_parameters

aten, ipex = torch.ops.aten, torch.ops.ipex

_WITH_BACKWARD_OPS = (
    aten.hardshrink.default, aten.multi_margin_loss.default, aten.multilabel_margin_loss_forward.default,
    aten.softshrink.default,
)  # fmt: skip


@torch.library.register_fake("ipex::bernoulli")
def _mask(size: list[int], stride: list[int], p: float) -> torch.Tensor:
    return torch.empty_strided(size, stride, dtype=torch.bool)


@torch.library.register_fake("ipex::normal")
def _normal(size: list[int], stride: list[int], dtype: torch.dtype, mean: float, std: float) -> torch.Tensor:
    return torch.empty(size, dtype=dtype)


def _bernoulli_(
    usual: Callable, x: torch.Tensor, p: float = 0.5, *, generator: torch.Generator | None = None
) -> torch.Tensor:
    if generator is not None:
        return usual(x, p, generator=generator)
    memory = torch.empty_like(x)  # without gaps, in the same order
    return x.copy_(ipex.bernoulli(memory.shape, memory.stride(), p))


def _normal_(
    usual: Callable, x: torch.Tensor, mean: float = 0, std: float = 1, *, generator: torch.Generator | None = None
) -> torch.Tensor:
    if generator is not None or x.is_complex() or torch_private.memory_order(x) is not None:
        return usual(x, mean, std, generator=generator)
    return x.copy_(ipex.normal(x.shape, x.stride(), x.dtype, mean, std))


def _group_norm(usual: Callable, x: torch.Tensor, weight: Any, bias: Any, *settings: Any) -> tuple:
    """Handles fp16 and bf16 inputs with fp32 parameters. The formulas in formulas/ are applied too late for this: the
    statistics have gradients."""
    if not has_fp32_parameters(x, weight, bias):
        return usual(x, weight, bias, *settings)
    y, mean, scale = aten.native_group_norm.default(x.float(), weight, bias, *settings)
    return y.to(x.dtype), mean, scale


def _dropout(usual: Callable, x: torch.Tensor, p: float, train: bool | None) -> torch.Tensor:
    """With p = 1, eager draws no random numbers and multiplies by zero."""
    return x * torch.zeros((), dtype=x.dtype) if train and p == 1 else usual(x, p, train)


def _recurrent_layers(
    usual: Callable, x: torch.Tensor, hidden: Any, params: Any, has_biases: bool, layers: int, dropout: float,
    train: bool, bidirectional: bool, batch_first: bool, layer: Callable,
) -> tuple:  # fmt: skip
    """One call per layer, with dropout between them, which PyTorch's decomposition of recurrent networks leaves out."""
    if not (train and dropout and layers > 1):
        return usual(x, hidden, params, has_biases, layers, dropout, train, bidirectional, batch_first, layer)
    x, final, step = x.transpose(0, 1) if batch_first else x, [], 2 if bidirectional else 1
    for i in range(layers):
        part = slice(i * step, (i + 1) * step)
        x, last = usual(x, hidden[part], params[part], has_biases, 1, 0.0, train, bidirectional, False, layer)
        final += last
        x = torch.dropout(x, dropout, True) if i + 1 < layers else x
    return x.transpose(0, 1) if batch_first else x, final


@contextlib.contextmanager
def as_eager() -> Iterator[None]:
    """Graphs that are traced inside the context compute what eager does."""
    with contextlib.ExitStack() as stack:
        stack.enter_context(torch_private.unused_random_ops_kept())
        if not _C.flag("IPEX_PATCH_TRACING"):
            yield
            return
        stack.enter_context(torch_private.decomposed(aten.dropout.default, _dropout))
        stack.enter_context(torch_private.recurrent_layers(_recurrent_layers))
        stack.enter_context(torch_private.functionalized(aten.bernoulli_.float, _bernoulli_))
        stack.enter_context(torch_private.functionalized(aten.normal_.default, _normal_))
        stack.enter_context(torch_private.differentiated(aten.native_group_norm.default, _group_norm))
        for op in _WITH_BACKWARD_OPS:
            stack.enter_context(torch_private.differentiated(op))
        yield

"""Formulas of weight norm and group norm."""

from __future__ import annotations

from typing import Any

import torch

from ..types_without_kernels import norm_types_agree
from .registry import Tensor, aten, formula


@formula(aten._weight_norm_interface_backward.default)
def _weight_norm_backward(gradient: Tensor, v: Tensor, g: Tensor, norms: Tensor, dim: int) -> tuple[Tensor, Tensor]:
    """The gradient of v * g / norms. Its component along v vanishes; the rest is scaled."""
    axes = [d for d in range(v.dim()) if d != dim % v.dim()]
    wide = torch.promote_types(v.dtype, torch.float32)
    gradient, direction, scale, norm = (t.to(wide) for t in (gradient, v, g, norms))
    direction = direction / norm
    along = (gradient * direction).sum(axes, keepdim=True)
    return ((gradient - direction * along) * (scale / norm)).to(v.dtype), along.to(g.dtype)


@formula(aten.native_group_norm.default)
def _group_norm(
    x: Tensor, weight: Tensor | None, bias: Tensor | None, batch: int, channels: int, length: int, groups: int,
    eps: float,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """Uses layer norm for the statistics, which eager computes in fp32 for both. (torch.var would compute in fp64.)"""
    if not norm_types_agree(x.dtype, [p.dtype for p in (weight, bias) if p is not None]):
        return NotImplemented
    values = x.to(torch.promote_types(x.dtype, torch.float32))
    rows = values.reshape(batch, groups, channels // groups, length)
    _, mean, scale = aten.native_layer_norm(rows, rows.shape[2:], None, None, eps)
    factor = scale if weight is None else scale * weight.reshape(1, groups, -1, 1)
    shift = -mean * factor
    if bias is not None:
        shift = shift + bias.reshape(1, groups, -1, 1)
    by_channel = (batch, channels) + (1,) * (x.dim() - 2)
    factor, shift = (t.expand(batch, groups, channels // groups, 1).reshape(by_channel) for t in (factor, shift))
    y = values * factor + shift
    kept = next((p.dtype for p in (weight, bias) if p is not None), x.dtype)
    return y.to(x.dtype), mean.reshape(batch, groups).to(kept), scale.reshape(batch, groups).to(kept)


def has_fp32_parameters(x: Tensor, *arguments: Any) -> bool:
    """Whether x is fp16 or bf16 and the other tensors are fp32."""
    parameters = [a.dtype for a in arguments if isinstance(a, Tensor)]
    return bool(parameters) and parameters[0] is not x.dtype and norm_types_agree(x.dtype, parameters)

"""Compositions that large language models repeat. `torch.compile` fuses them; in eager mode rms_norm is one kernel."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional

__all__ = [
    "add_layer_norm",
    "add_rms_norm",
    "fast_layer_norm",
    "gelu_mul",
    "rms_norm",
    "rotary_embedding",
    "silu_mul",
]


def rms_norm(hidden_states: Tensor, weight: Tensor, eps: float) -> Tensor:
    """hidden_states / sqrt(mean of squares + eps) * weight over the last dimension, as in Llama."""
    return torch.ops.torch_ipex.rmsnorm(hidden_states, weight, eps)


def fast_layer_norm(
    hidden_states: Tensor, normalized_shape: Sequence[int], weight: Tensor | None, bias: Tensor | None, eps: float
) -> Tensor:
    """torch.nn.functional.layer_norm"""
    return functional.layer_norm(hidden_states, normalized_shape, weight, bias, eps)


def silu_mul(x: Tensor, y: Tensor, out: Tensor | None = None) -> Tensor:
    """silu(x) * y, written to `out` if it is given."""
    return _written(functional.silu(x) * y, out)


def gelu_mul(x: Tensor, y: Tensor, out: Tensor | None = None, approximate: str = "none") -> Tensor:
    """gelu(x) * y, written to `out` if it is given."""
    return _written(functional.gelu(x, approximate=approximate) * y, out)


def add_rms_norm(
    residual: Tensor | None,
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    eps: float,
    add_back: bool = False,
) -> Tensor:
    """rms_norm(residual + x) + bias. With `add_back`, `residual` becomes the sum."""
    result = rms_norm(_added(residual, x, add_back), weight, eps)
    return result if bias is None else result + bias


def add_layer_norm(
    residual: Tensor | None,
    x: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    eps: float,
    add_back: bool = False,
) -> Tensor:
    """layer_norm(residual + x) over the last dimension. With `add_back`, `residual` becomes the sum."""
    return functional.layer_norm(_added(residual, x, add_back), x.shape[-1:], weight, bias, eps)


def rotary_embedding(
    query: Tensor,
    key: Tensor,
    sin: Tensor,
    cos: Tensor,
    rotary_dim: int,
    rotary_half: bool,
    position_ids: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Rotates the first `rotary_dim` elements of each head of query and key [..., heads, width].

    `sin` and `cos` hold a row for each token, or for each position if `position_ids` is given. Rows have rotary_dim
    elements. With `rotary_half`, elements i and i + rotary_dim / 2 are a pair (Llama); else neighbours are (GPT-J).
    Rows of rotary_dim / 2 elements, one for each pair, are allowed too.
    """
    if position_ids is not None:
        sin, cos = sin[position_ids], cos[position_ids]
    sin, cos = (_per_element(angle, rotary_dim, rotary_half) for angle in (sin, cos))
    return _rotated(query, sin, cos, rotary_dim, rotary_half), _rotated(key, sin, cos, rotary_dim, rotary_half)


def _per_element(angle: Tensor, rotary_dim: int, rotary_half: bool) -> Tensor:
    """[tokens, 1, rotary_dim] from a row for each token."""
    if angle.shape[-1] * 2 == rotary_dim:
        angle = torch.cat([angle, angle], -1) if rotary_half else angle.repeat_interleave(2, -1)
    return angle.unsqueeze(-2)


def _rotated(x: Tensor, sin: Tensor, cos: Tensor, rotary_dim: int, rotary_half: bool) -> Tensor:
    head = x[..., :rotary_dim]
    if rotary_half:
        first, second = head.chunk(2, -1)
        turned = torch.cat([-second, first], -1)
    else:
        turned = torch.stack([-head[..., 1::2], head[..., ::2]], -1).flatten(-2)
    result = (head * cos + turned * sin).to(x.dtype)
    return result if rotary_dim == x.shape[-1] else torch.cat([result, x[..., rotary_dim:]], -1)


def _added(residual: Tensor | None, x: Tensor, add_back: bool) -> Tensor:
    if residual is None:
        return x
    return residual.add_(x) if add_back else residual + x


def _written(result: Tensor, out: Tensor | None) -> Tensor:
    return result if out is None else out.copy_(result)

"""Formulas of the fast paths of nn.MultiheadAttention and nn.TransformerEncoderLayer: products, attention and norms.

They are decomposed into the ops of the modules' slow path. As in ATen, a row whose mask excludes all keys is NaN.
"""

from __future__ import annotations

import math

import torch
from torch.nn import functional

from .registry import formula

aten = torch.ops.aten
Tensor = torch.Tensor

_OF_POSITIONS, _OF_KEYS, _OF_SCORES = 0, 1, 2  # mask types: [L, S], [N, S], [N, heads, L, S]


def _broadcast_mask(mask: Tensor, mask_type: int) -> Tensor:
    """The mask as [N or 1, heads or 1, L or 1, S], true where a score is excluded."""
    mask = mask.to(torch.bool)
    if mask_type == _OF_POSITIONS:
        return mask.reshape(1, 1, *mask.shape)
    return mask[:, None, None, :] if mask_type == _OF_KEYS else mask


def _projected(
    query: Tensor, key: Tensor, value: Tensor, weight: Tensor, bias: Tensor, heads: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Queries, keys and values, [N, heads, length, width]."""
    if query is key and key is value:
        parts = functional.linear(query, weight, bias).chunk(3, -1)
    else:
        given = zip((query, key, value), weight.chunk(3), bias.chunk(3), strict=True)
        parts = [functional.linear(x, w, b) for x, w, b in given]
    return tuple(part.unflatten(-1, (heads, -1)).transpose(1, 2) for part in parts)


def _attention(
    query: Tensor, key: Tensor, value: Tensor, heads: int, weight: Tensor, bias: Tensor, out_weight: Tensor,
    out_bias: Tensor, mask: Tensor | None, mask_type: int | None, need_weights: bool,
) -> tuple[Tensor, Tensor | None]:  # fmt: skip
    """The result, and the weights [N, heads, L, S] if `need_weights`."""
    q, k, v = _projected(query, key, value, weight, bias, heads)
    left_out = None if mask is None else _broadcast_mask(mask, mask_type)
    weights = None
    if need_weights:
        scores = (q / math.sqrt(q.shape[-1])) @ k.transpose(-1, -2)
        weights = (scores if left_out is None else scores.masked_fill(left_out, -math.inf)).softmax(-1)
        result = weights @ v
    elif left_out is None:
        result = functional.scaled_dot_product_attention(q, k, v)
    else:
        added = torch.zeros_like(left_out, dtype=q.dtype).masked_fill(left_out, -math.inf)
        result = functional.scaled_dot_product_attention(q, k, v, attn_mask=added)
        result = result.masked_fill(left_out.all(-1, keepdim=True), math.nan)
    return functional.linear(result.transpose(1, 2).flatten(-2), out_weight, out_bias), weights


@formula(aten._native_multi_head_attention.default)
def _multi_head_attention(
    query: Tensor, key: Tensor, value: Tensor, embed_dim: int, num_head: int, qkv_weight: Tensor, qkv_bias: Tensor,
    proj_weight: Tensor, proj_bias: Tensor, mask: Tensor | None = None, need_weights: bool = True,
    average_attn_weights: bool = True, mask_type: int | None = None,
) -> tuple[Tensor, Tensor | None]:  # fmt: skip
    if query.is_nested or (mask is not None and mask_type is None):
        return NotImplemented
    result, weights = _attention(
        query, key, value, num_head, qkv_weight, qkv_bias, proj_weight, proj_bias, mask, mask_type, need_weights
    )
    return result, weights.mean(1) if need_weights and average_attn_weights else weights


@formula(aten._transformer_encoder_layer_fwd.default)
def _encoder_layer(
    src: Tensor, embed_dim: int, num_heads: int, qkv_weight: Tensor, qkv_bias: Tensor, proj_weight: Tensor,
    proj_bias: Tensor, use_gelu: bool, norm_first: bool, eps: float, norm_weight_1: Tensor, norm_bias_1: Tensor,
    norm_weight_2: Tensor, norm_bias_2: Tensor, ffn_weight_1: Tensor, ffn_bias_1: Tensor, ffn_weight_2: Tensor,
    ffn_bias_2: Tensor, mask: Tensor | None = None, mask_type: int | None = None,
) -> Tensor:  # fmt: skip
    if src.is_nested or (mask is not None and mask_type is None):
        return NotImplemented

    def norm(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        return functional.layer_norm(x, (embed_dim,), weight, bias, eps)

    x = norm(src, norm_weight_1, norm_bias_1) if norm_first else src
    x = src + _attention(
        x, x, x, num_heads, qkv_weight, qkv_bias, proj_weight, proj_bias, mask, mask_type, need_weights=False
    )[0]  # fmt: skip
    x = x if norm_first else norm(x, norm_weight_1, norm_bias_1)
    inner = functional.linear(norm(x, norm_weight_2, norm_bias_2) if norm_first else x, ffn_weight_1, ffn_bias_1)
    inner = functional.gelu(inner) if use_gelu else functional.relu(inner)
    x = x + functional.linear(inner, ffn_weight_2, ffn_bias_2)
    return x if norm_first else norm(x, norm_weight_2, norm_bias_2)

"""Modules of large language models. The linear layers with an epilogue are one operator, in eager mode too."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from .. import functional

__all__ = [
    "FastLayerNorm",
    "Linear2SiluMul",
    "LinearAdd",
    "LinearAddAdd",
    "LinearGelu",
    "LinearMul",
    "LinearNewGelu",
    "LinearRelu",
    "LinearSilu",
    "LinearSiluMul",
    "RMSNorm",
    "RotaryEmbedding",
]


class _FusedLinear(nn.Module):
    """A linear layer, an activation, and a product or sums with other tensors."""

    activation = "none"

    def __init__(self, linear: nn.Linear) -> None:
        super().__init__()
        self.linear = linear

    def _fused(self, x: Tensor, factor: Tensor | None = None, terms: Sequence[Tensor] = ()) -> Tensor:
        return _fused(self.linear, x, self.activation, factor, terms)


class _Activated(_FusedLinear):
    def forward(self, x: Tensor) -> Tensor:
        return self._fused(x)


class LinearSilu(_Activated):
    """silu(linear(x))"""

    activation = "silu"


class LinearRelu(_Activated):
    """relu(linear(x))"""

    activation = "relu"


class LinearGelu(_Activated):
    """gelu(linear(x))"""

    activation = "gelu"


class LinearNewGelu(_Activated):
    """gelu(linear(x)) by its approximation with tanh"""

    activation = "gelu_tanh"


class LinearMul(_FusedLinear):
    """linear(x) * y"""

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return self._fused(x, y)


class LinearSiluMul(LinearMul):
    """silu(linear(x)) * y"""

    activation = "silu"


class LinearAdd(_FusedLinear):
    """linear(x) + y"""

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return self._fused(x, None, [y])


class LinearAddAdd(_FusedLinear):
    """linear(x) + y + z"""

    def forward(self, x: Tensor, y: Tensor, z: Tensor) -> Tensor:
        return self._fused(x, None, [y, z])


class Linear2SiluMul(nn.Module):
    """silu(linear_s(x)) * linear_m(x)"""

    def __init__(self, linear_s: nn.Linear, linear_m: nn.Linear) -> None:
        super().__init__()
        self.linear_s = linear_s
        self.linear_m = linear_m

    def forward(self, x: Tensor) -> Tensor:
        return _fused(self.linear_s, x, "silu", _fused(self.linear_m, x, "none", None, []), [])


class RMSNorm(nn.Module):
    """`functional.rms_norm` with a weight."""

    def __init__(self, hidden_size: int, eps: float = 1e-6, weight: Tensor | None = None) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(hidden_size) if weight is None else weight)
        self.variance_epsilon = eps

    def forward(self, hidden_states: Tensor) -> Tensor:
        return functional.rms_norm(hidden_states, self.weight, self.variance_epsilon)


class FastLayerNorm(nn.Module):
    """`nn.LayerNorm` over given weights."""

    def __init__(
        self, normalized_shape: Sequence[int], eps: float, weight: Tensor | None, bias: Tensor | None = None
    ) -> None:
        super().__init__()
        self.normalized_shape = tuple(normalized_shape)
        self.eps = eps
        self.weight = weight
        self.bias = bias

    def forward(self, hidden_states: Tensor) -> Tensor:
        return functional.fast_layer_norm(hidden_states, self.normalized_shape, self.weight, self.bias, self.eps)


class RotaryEmbedding(nn.Module):
    """`functional.rotary_embedding` with a table of angles for positions below `max_position_embeddings`."""

    def __init__(self, max_position_embeddings: int, pos_embd_dim: int, base: float = 10000) -> None:
        super().__init__()
        self.pos_embd_dim = pos_embd_dim
        frequencies = base ** -(torch.arange(0, pos_embd_dim, 2, dtype=torch.float64) / pos_embd_dim)
        angles = torch.outer(torch.arange(max_position_embeddings, dtype=torch.float64), frequencies)
        self.register_buffer("sin", angles.sin().float(), persistent=False)
        self.register_buffer("cos", angles.cos().float(), persistent=False)

    def forward(
        self, query: Tensor, key: Tensor, position_ids: Tensor, rotary_half: bool = True
    ) -> tuple[Tensor, Tensor]:
        """query, key: [batch, tokens, heads, width]; position_ids: [batch, tokens]"""
        return functional.rotary_embedding(query, key, self.sin, self.cos, self.pos_embd_dim, rotary_half, position_ids)


def _fused(linear: nn.Linear, x: Tensor, activation: str, factor: Tensor | None, terms: Sequence[Tensor]) -> Tensor:
    return torch.ops.torch_ipex.linear_fused(x, linear.weight, linear.bias, activation, factor, terms)

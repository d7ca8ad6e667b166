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
    """Rotates pairs of elements of each head by angles that grow with the position (Su et al., 2021, RoFormer).

    The angle of pair i at position p is p * base ** (-2i / pos_embd_dim). `sin_cos` holds the sines and then the
    cosines for each position below `max_position_embeddings`. `backbone` names an architecture of transformers; the
    pairs that it rotates are given to the forward pass.
    """

    sin_cos: Tensor

    def __init__(
        self,
        max_position_embeddings: int,
        pos_embd_dim: int,
        base: float = 10000,
        backbone: str | None = None,
        extra_rope_config: dict | None = None,
    ) -> None:
        super().__init__()
        if extra_rope_config:
            raise NotImplementedError(
                f"RotaryEmbedding computes plain angles, but extra_rope_config has {sorted(extra_rope_config)}; use "
                " functional.rotary_embedding with sines and cosines of your own"
            )
        self.max_position_embeddings, self.pos_embd_dim = max_position_embeddings, pos_embd_dim
        self.base, self.model_backbone = base, backbone
        self.register_buffer("sin_cos", self._table(max_position_embeddings), persistent=False)

    def _table(self, positions: int) -> Tensor:
        frequencies = self.base ** -(torch.arange(0, self.pos_embd_dim, 2, dtype=torch.float64) / self.pos_embd_dim)
        angles = torch.outer(torch.arange(positions, dtype=torch.float64), frequencies)
        return torch.cat([angles.sin(), angles.cos()], 1).float()

    def forward(
        self,
        x: Tensor,
        position_ids: Tensor,
        num_head: int,
        head_dim: int,
        offset: int,
        rotary_ndims: int,
        seq_len: int | None = None,
        num_concats: int | None = None,
    ) -> Tensor | tuple[Tensor, Tensor, Tensor]:
        """The rotated x, [batch, tokens, num_head, head_dim].

        position_ids: [batch, tokens], [1, tokens], or one number: the position of the first token.
        offset: 1 rotates pairs of neighbours, as in GPT-J; rotary_ndims / 2 elements i and i + offset, as in Llama.
        seq_len: the number of positions that are needed, if that is more than max_position_embeddings.
        num_concats: given if x [batch, tokens, heads * head_dim] holds query, key and value one behind the other. Then
            the result is the rotated query with num_head heads, the rotated key, and the value.

        Raises IndexError for a position that is not in the table, RuntimeError for sizes that do not fit.
        """
        if seq_len is not None and seq_len > self.sin_cos.shape[0]:
            self.sin_cos = self._table(seq_len)
        results = torch.ops.torch_ipex.rotary_position_embedding(
            x, self.sin_cos, position_ids, num_head, head_dim, offset, rotary_ndims
        )
        return results[0] if num_concats is None else results

    apply_function = staticmethod(functional.rotary_embedding)


def _fused(linear: nn.Linear, x: Tensor, activation: str, factor: Tensor | None, terms: Sequence[Tensor]) -> Tensor:
    return torch.ops.torch_ipex.linear_fused(x, linear.weight, linear.bias, activation, factor, terms)

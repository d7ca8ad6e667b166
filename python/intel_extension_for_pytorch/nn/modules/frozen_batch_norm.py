"""Batch norm with constant statistics and weights, for detection models."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn


class FrozenBatchNorm2d(nn.Module):
    """y = (x - running_mean) / sqrt(running_var + eps) * weight + bias by channel, computed in f32.

    The result has the dtype and the memory format of the input. Weight, bias and statistics are buffers; the state is
    that of torchvision's class, and states of `nn.BatchNorm2d` can be loaded.
    """

    def __init__(self, num_features: int, eps: float = 1e-5) -> None:
        super().__init__()
        self.num_features = num_features
        self.eps = eps
        self.register_buffer("weight", torch.ones(num_features))
        self.register_buffer("bias", torch.zeros(num_features))
        self.register_buffer("running_mean", torch.zeros(num_features))
        self.register_buffer("running_var", torch.ones(num_features))

    def forward(self, x: Tensor) -> Tensor:
        return torch.ops.torch_ipex.frozen_batch_norm(
            x, self.weight, self.bias, self.running_mean, self.running_var, self.eps
        )

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *arguments: Any) -> None:
        state_dict.pop(f"{prefix}num_batches_tracked", None)  # of nn.BatchNorm2d
        super()._load_from_state_dict(state_dict, prefix, *arguments)

    def extra_repr(self) -> str:
        return f"{self.num_features}, eps={self.eps}"

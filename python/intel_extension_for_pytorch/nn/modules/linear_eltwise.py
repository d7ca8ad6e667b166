"""A linear layer and an activation as one operator."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class IPEXLinearEltwise(nn.Module):
    """`eltwise`, "relu" or "sigmoid", of the result of a linear layer."""

    def __init__(self, ipex_linear_module: nn.Linear, eltwise: str) -> None:
        super().__init__()
        if eltwise not in ("relu", "sigmoid"):
            raise ValueError(f"IPEXLinearEltwise computes 'relu' or 'sigmoid', got {eltwise!r}")
        self.m = ipex_linear_module
        self.eltwise = eltwise

    def forward(self, x: Tensor) -> Tensor:
        return torch.ops.torch_ipex.linear_fused(x, self.m.weight, self.m.bias, self.eltwise, None, [])

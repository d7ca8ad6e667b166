"""The interaction of features in a DLRM."""

from __future__ import annotations

import torch


def interaction(*args: torch.Tensor) -> torch.Tensor:
    """The first tensor, followed by the dot products of all pairs of tensors.

    The n tensors have the size [batch, width]. The result has the size [batch, width + n (n - 1) / 2]; the products
    are those of tensors i and j for all j < i, ordered by i, then by j.
    """
    return torch.ops.torch_ipex.interaction_forward(args)

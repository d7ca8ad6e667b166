"""The channels-last layout of tensors [batch, channels, length], for which PyTorch has no memory format."""

from __future__ import annotations

from typing import TypeVar

import torch

_T = TypeVar("_T", torch.Tensor, torch.nn.Module)


def is_contiguous_channels_last_1d(tensor: torch.Tensor) -> bool:
    """Whether a tensor has 3 dims, [N, C, L], of which C is innermost and L next. Strides of dims of size 1 do not
    matter."""
    if tensor.dim() != 3:
        return False
    _, channels, length = tensor.shape
    expected = (length * channels, 1, channels)
    return all(size == 1 or a == b for size, a, b in zip(tensor.shape, tensor.stride(), expected, strict=True))


def tensor_to_channels_last_1d(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor with C innermost. Raises ValueError unless it has 3 dims, [N, C, L]."""
    if tensor.dim() != 3:
        raise ValueError(f"a channels-last 1-d tensor has 3 dims, got {list(tensor.shape)}")
    if is_contiguous_channels_last_1d(tensor):
        return tensor
    return tensor.transpose(1, 2).contiguous().transpose(1, 2)


def to_channels_last_1d(value: _T) -> _T:
    """A tensor of 3 dims in channels-last layout, or a module whose Conv1d weights have it. A module is changed in
    place."""
    if isinstance(value, torch.Tensor):
        return tensor_to_channels_last_1d(value) if value.dim() == 3 else value
    for module in value.modules():
        if isinstance(module, torch.nn.Conv1d):
            module.weight.data = tensor_to_channels_last_1d(module.weight.data)
    return value

"""The precision of products of fp32: the switch of PyTorch's library layers under the names of IPEX."""

from __future__ import annotations

import enum
import warnings

import torch


class FP32MathMode(enum.IntEnum):
    """How products of fp32 are computed."""

    FP32 = 0
    TF32 = 1
    BF32 = 2


_PRECISIONS = {FP32MathMode.FP32: "ieee", FP32MathMode.TF32: "tf32", FP32MathMode.BF32: "bf16"}


def set_fp32_math_mode(mode: FP32MathMode = FP32MathMode.FP32, device: str = "cpu") -> None:
    """Lets linear layers, convolutions, matrix products and LSTMs of fp32 multiply in lower precision, in eager mode.

    The mode is `torch.backends.mkldnn.fp32_precision`. Compiled graphs always multiply fp32 in fp32.

    Raises ValueError for another device or an unknown mode.
    """
    if device != "cpu":
        raise ValueError(f"set_fp32_math_mode: device must be 'cpu', got {device!r}")
    mode = FP32MathMode(mode)
    if mode is FP32MathMode.TF32:
        warnings.warn("TF32 needs a CPU with instructions for it; others compute in fp32", stacklevel=2)
    torch.backends.mkldnn.fp32_precision = _PRECISIONS[mode]


def get_fp32_math_mode(device: str = "cpu") -> FP32MathMode:
    """The mode that set_fp32_math_mode set. Raises ValueError for another device."""
    if device != "cpu":
        raise ValueError(f"get_fp32_math_mode: device must be 'cpu', got {device!r}")
    precision = torch.backends.mkldnn.fp32_precision
    return next((mode for mode, name in _PRECISIONS.items() if name == precision), FP32MathMode.FP32)

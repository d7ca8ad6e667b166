"""ATen's conversion of Python numbers to a dtype, and its overflow check."""

from __future__ import annotations

import math

import torch


def wrapped(value: float, dtype: torch.dtype) -> int:
    """The value that ATen gets when it converts a number to an integer or bool type: truncated, then wrapped around."""
    if dtype is torch.bool:
        return int(value != 0)
    limits = torch.iinfo(dtype)
    span = 1 << limits.bits
    return (int(value) - limits.min) % span + limits.min


# The type names in ATen's error messages.
_CPP_NAMES = {
    torch.uint8: "uint8_t", torch.int8: "int8_t", torch.int16: "int16_t", torch.int32: "int", torch.int64: "int64_t",
    torch.float16: "c10::Half", torch.bfloat16: "c10::BFloat16", torch.float32: "float",
}  # fmt: skip


def overflow_error(dtype: torch.dtype) -> str:
    return f"value cannot be converted to type {_CPP_NAMES[dtype]} without overflow"


def fits(value: float, dtype: torch.dtype) -> bool:
    """Whether ATen converts the number to that type without an overflow error (c10::overflows)."""
    if (
        dtype in (torch.bool, torch.float64)
        or dtype.is_complex
        or (dtype.is_floating_point and not math.isfinite(value))
    ):
        return True
    low, high = limits_of(dtype)
    if not dtype.is_floating_point and not isinstance(value, int):
        low, high = torch.iinfo(dtype).min, float(high)
    return low <= value <= high


def limits_of(dtype: torch.dtype) -> tuple[float, float]:
    """The range of integers that ATen converts to that type. It allows negative ones for unsigned types."""
    limits = torch.finfo(dtype) if dtype.is_floating_point else torch.iinfo(dtype)
    return limits.min or -limits.max, limits.max

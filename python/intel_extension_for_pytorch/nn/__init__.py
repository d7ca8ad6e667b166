"""Modules and functions for eager mode: `ipex.nn.functional`, `ipex.nn.modules` and `ipex.nn.FrozenBatchNorm2d`."""

from __future__ import annotations

import importlib

__all__ = ["FrozenBatchNorm2d", "functional", "modules", "utils"]


def __getattr__(name: str) -> object:
    if name in ("functional", "modules", "utils"):
        return importlib.import_module(f"{__name__}.{name}")
    if name == "FrozenBatchNorm2d":
        return importlib.import_module(f"{__name__}.modules").FrozenBatchNorm2d
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

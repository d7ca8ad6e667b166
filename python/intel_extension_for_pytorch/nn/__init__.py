"""Modules and functions beside those of `torch.nn`."""

from __future__ import annotations

import importlib


def __getattr__(name: str) -> object:
    if name in ("functional", "modules", "utils"):
        return importlib.import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

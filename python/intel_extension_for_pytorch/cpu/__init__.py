"""Running models on the CPU."""

from __future__ import annotations

import importlib

_PACKAGES = ("auto_ipex", "autocast", "launch", "runtime")


def __getattr__(name: str) -> object:
    if name in _PACKAGES:
        return importlib.import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *_PACKAGES})

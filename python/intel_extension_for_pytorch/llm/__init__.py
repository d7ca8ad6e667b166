"""Modules and functions of large language models: `ipex.llm.modules` and `ipex.llm.functional`."""

from __future__ import annotations

import importlib

__all__ = ["functional", "modules"]


def __getattr__(name: str) -> object:
    if name in __all__:
        return importlib.import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

"""Large language models: `ipex.llm.optimize`, `ipex.llm.modules` and `ipex.llm.functional`."""

from __future__ import annotations

import importlib

__all__ = ["functional", "modules", "optimize"]


def __getattr__(name: str) -> object:
    if name == "optimize":
        return importlib.import_module(f"{__name__}._optimize").optimize
    if name in __all__:
        return importlib.import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

"""Intel Extension for PyTorch: a CPU compiler backend, `torch.compile(model, backend="ipex")`.

Importing this package costs next to nothing: every attribute is loaded on first use.
"""

from __future__ import annotations

import importlib

__version__ = "2.13.0+cpu"

# attribute -> module that holds it. No module has the name of an attribute: importing it would bind it here instead.
_LAZY = {
    "explain": "explanation",
    "Explanation": "explanation",
    "environment": "machine",
    "record_reports": "compiler.records",
    "UserError": "errors",
    "Unsupported": "errors",
    "InternalError": "errors",
}

__all__ = [
    "InternalError",
    "Unsupported",
    "UserError",
    "__version__",
    "aot",
    "environment",
    "explain",
    "record_reports",
]


def __getattr__(name: str) -> object:
    if name == "aot":
        return importlib.import_module(f"{__name__}.aot")
    module = _LAZY.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f"{__name__}.{module}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_LAZY, "aot"})

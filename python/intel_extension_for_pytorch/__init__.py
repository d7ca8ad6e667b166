"""Intel Extension for PyTorch: a CPU compiler backend for `torch.compile(model, backend="ipex")`, and faster modules,
optimizers and operators for eager mode.

Importing this package registers the operators `torch.ops.torch_ipex` and changes nothing else of PyTorch. It is cheap:
every attribute is loaded on first use. Example:

    import intel_extension_for_pytorch as ipex
    print(ipex.explain(model, torch.randn(8, 64)))
"""

from __future__ import annotations

import importlib
import importlib.metadata
import sys

from .version import __version__, torch_series


def _require_torch() -> None:
    """Raises ImportError unless PyTorch is the one that this build was made for."""
    try:
        torch = sys.modules["torch"].__version__ if "torch" in sys.modules else importlib.metadata.version("torch")
    except importlib.metadata.PackageNotFoundError:
        torch = "not installed"
    if not torch.startswith(f"{torch_series}."):
        raise ImportError(
            f"intel_extension_for_pytorch {__version__} needs torch {torch_series}, but torch is {torch}: "
            f"install torch=={torch_series}.*, or the intel_extension_for_pytorch that is built for your torch",
            name=__name__,
        )


_require_torch()

import torch as _torch  # noqa: E402, F401 - the library of the operators needs it to be loaded

from . import _C as _C  # noqa: E402 - loads libintel-ext-pt-cpu.so, which registers the operators

# Attribute -> the module that holds it. A module must not have the name of an attribute: importing the module would
# bind it under that name in this package.
_LAZY = {
    "explain": "explanation",
    "Explanation": "explanation",
    "environment": "machine",
    "record_reports": "compiler.records",
    "enable_onednn_fusion": "torchscript",
    "cmake_prefix_path": "torchscript",
    "UserError": "errors",
    "Unsupported": "errors",
    "InternalError": "errors",
    "optimize": "frontend",
    "enable_auto_channels_last": "frontend",
    "disable_auto_channels_last": "frontend",
    "set_fp32_math_mode": "fpmath_mode",
    "get_fp32_math_mode": "fpmath_mode",
    "FP32MathMode": "fpmath_mode",
    "compile": "utils.compile",
    "_set_compiler_backend": "utils.compile",
    "_get_compiler_backend": "utils.compile",
    "OnDevice": "utils.on_device",
    "set_logging_level": "utils._logger",
    "verbose": "utils.verbosity",
    "VERBOSE_OFF": "utils.verbosity",
    "VERBOSE_ON": "utils.verbosity",
    "VERBOSE_ON_CREATION": "utils.verbosity",
}
_PACKAGES = ("aot", "cpu", "llm", "nn", "optim", "utils")

__all__ = ["__version__", *_PACKAGES, *(name for name in _LAZY if not name.startswith("_")), "version"]  # noqa: PLE0604


def version() -> str:
    """The version of this package."""
    return __version__


def __getattr__(name: str) -> object:
    if name == "optimize_transformers":  # the older name
        return __getattr__("llm").optimize
    if name in _PACKAGES:
        return importlib.import_module(f"{__name__}.{name}")
    module = _LAZY.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f"{__name__}.{module}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_LAZY, *_PACKAGES})

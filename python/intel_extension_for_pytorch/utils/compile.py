"""`ipex.compile` and the choice of its backend, which IPEX had before `torch.compile(backend="ipex")`."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

_BACKENDS = ("inductor", "torchscript")


class _Choice:
    backend = "inductor"


def _set_compiler_backend(backend: str = "inductor") -> None:
    """Accepts the names of IPEX's backends; all of them mean the compiler of this package. Raises RuntimeError for
    another name."""
    if backend not in _BACKENDS:
        raise RuntimeError(f"Unexpected compiler backend {backend!r}. Options are 'inductor', 'torchscript'.")
    _Choice.backend = backend


def _get_compiler_backend() -> str:
    """The name that _set_compiler_backend took last."""
    return _Choice.backend


def compile(  # noqa: A001 - the name of IPEX
    model: nn.Module,
    example_inputs: Any = None,
    mode: str | None = None,
    options: dict[str, Any] | None = None,
) -> Any:
    """`torch.compile(model, backend="ipex")`. The other arguments are accepted and have no effect."""
    return torch.compile(model, backend="ipex")

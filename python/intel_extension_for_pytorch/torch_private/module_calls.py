"""The call of every `nn.Module`, which PyTorch's global hooks can see but not answer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import nn


def module_call() -> Callable[..., Any]:
    """`nn.Module.__call__` as it is now."""
    return nn.Module.__call__


def replace_module_call(call: Callable[..., Any]) -> None:
    """From now on `module(...)` is `call(module, ...)` for every module."""
    nn.Module.__call__ = call


def has_forward_hooks(module: nn.Module) -> bool:
    """Has the module, or one inside it, hooks around its forward pass?"""
    return any(m._forward_hooks or m._forward_pre_hooks for m in module.modules())

"""Lets torch.jit.trace trace a model under autocast.

Autocast caches its casts of parameters. A cast that was made before the trace, for example by the run that checks it,
has no place in the traced graph ("Cannot insert a Tensor that requires grad as a constant"). So the model turns the
cache off for the time of a traced call.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

_BEFORE = "_ipex_autocast_cache"


def _enter(module: nn.Module, inputs: tuple[Any, ...]) -> None:
    if torch.jit.is_tracing() and torch.is_autocast_enabled("cpu"):
        module.__dict__.setdefault(_BEFORE, []).append(torch.is_autocast_cache_enabled())
        torch.set_autocast_cache_enabled(False)


def _leave(module: nn.Module, inputs: tuple[Any, ...], output: Any) -> None:
    if module.__dict__.get(_BEFORE):
        torch.set_autocast_cache_enabled(module.__dict__[_BEFORE].pop())


def make_traceable_under_autocast(model: nn.Module) -> None:
    """Adds the hooks to `model`, once."""
    if _enter not in model._forward_pre_hooks.values():
        model.register_forward_pre_hook(_enter, prepend=True)
        model.register_forward_hook(_leave, always_call=True)

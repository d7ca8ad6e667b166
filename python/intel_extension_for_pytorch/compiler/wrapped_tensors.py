"""Calls of compiled code with wrapped tensors, which only PyTorch's dispatcher can read.

A batched tensor of vmap, as autograd passes to a backward pass for `is_grads_batched=True`, becomes one call for each
element of its batch. Every other kind is refused.
"""

from __future__ import annotations

from typing import Any

import torch

from .. import _C, torch_private
from ..errors import UserError


def run(compiled: Any, arguments: list[Any]) -> list[Any]:
    """Calls a compiled graph with these arguments. UserError where one of them has no memory to read."""
    batched = [torch_private.Batched.of(a) if isinstance(a, torch.Tensor) else None for a in arguments]
    innermost = max((b.level for b in batched if b is not None), default=None)
    if innermost is None:
        for position, argument in enumerate(arguments):
            if isinstance(argument, torch.Tensor):
                _C.require_dense(argument, f"argument {position}")
    # Tensors of outer levels stay wrapped: the calls below handle them recursively.
    inner = [b if b is not None and b.level == innermost else None for b in batched]
    present = [b for b in inner if b is not None]
    size = present[0].values.shape[0]
    if compiled.writes_arguments():
        raise UserError("vmap calls compiled code that writes to its arguments; call the model without torch.compile")
    if size == 0:
        raise UserError("vmap calls compiled code with an empty batch; call the model without torch.compile")
    calls = [
        compiled.run([a if b is None else b.values[i] for a, b in zip(arguments, inner, strict=True)])
        for i in range(size)
    ]
    results = zip(*calls, strict=True)
    return [present[0].wrap(torch.stack(r)) if isinstance(r[0], torch.Tensor) else r[0] for r in results]

"""The ways to fail, as Python sees them: the C++ classes of runtime/error.h, and a graph that must stay eager."""

from __future__ import annotations

import torch  # noqa: F401  (libtorch must be loaded before the module that links against it)

from ._C import InternalError, Unsupported, UserError

__all__ = ["CutNeeded", "GraphFallback", "InternalError", "MemoryFallback", "Unsupported", "UserError"]


class GraphFallback(Exception):
    """A Graph cannot hold an op or a value: it has no counterpart in our types (complex, sparse, non-CPU...)."""


class MemoryFallback(GraphFallback):
    """An op reads or writes memory that others see: parts compiled around it would not share it as eager's do, so the
    whole graph runs eagerly."""


class CutNeeded(GraphFallback):
    """Ops that a Graph cannot hold; the graph is cut there, and what stands between is compiled. `ops`: node -> why."""

    def __init__(self, ops: dict) -> None:
        super().__init__("; ".join(f"{node.target}: {why}" for node, why in ops.items()))
        self.ops = ops

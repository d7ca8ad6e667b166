"""Exception classes: those of the C++ side (runtime/error.h), and those that keep a graph eager."""

from __future__ import annotations

import torch  # noqa: F401  (libtorch must be loaded before the module that links against it)

from ._C import InternalError, Unsupported, UserError

__all__ = ["CutNeeded", "GraphFallback", "InternalError", "MemoryFallback", "Unsupported", "UserError"]


class GraphFallback(Exception):
    """A Graph cannot represent an op or a value, for example one that is complex, sparse or not on the CPU."""


class MemoryFallback(GraphFallback):
    """An op reads or writes memory that other tensors share. Compiled code around it would not keep that sharing, so
    the whole graph runs eagerly."""


class CutNeeded(GraphFallback):
    """A Graph cannot represent some ops. The FX graph is cut at them, and the parts in between are compiled.

    `ops` maps each such node to the reason.
    """

    def __init__(self, ops: dict) -> None:
        super().__init__("; ".join(f"{node.target}: {why}" for node, why in ops.items()))
        self.ops = ops

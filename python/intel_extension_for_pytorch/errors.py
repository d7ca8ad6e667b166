"""The ways to fail, as Python sees them: the C++ classes of runtime/error.h, and a graph that must stay eager."""

from __future__ import annotations

import torch  # noqa: F401  (libtorch must be loaded before the module that links against it)

from ._C import InternalError, Unsupported, UserError

__all__ = ["GraphFallback", "InternalError", "Unsupported", "UserError"]


class GraphFallback(Exception):
    """The whole graph runs eagerly: one of its values has no counterpart in our types (complex, sparse, non-CPU...)."""

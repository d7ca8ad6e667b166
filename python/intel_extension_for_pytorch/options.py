"""The options of `torch.compile(model, backend="ipex", options={...})`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from .errors import UserError


@dataclass(frozen=True)
class Options:
    """What a compilation may be told; every field is a key of `options`."""

    hoist: bool = True  # keep what depends only on parameters (packed and cast weights) between inference calls
    recompute: bool = True  # the backward pass recomputes cheap values instead of saving them
    fallback: bool = True  # a graph that cannot be compiled runs eagerly, with a warning

    @staticmethod
    def parse(given: Mapping[str, Any] | None) -> Options:
        """Options from a mapping; UserError for an unknown key or a value of the wrong type."""
        known = {f.name: f for f in fields(Options)}
        for key, value in (given or {}).items():
            if key not in known:
                raise UserError(f"unknown option {key!r} of backend 'ipex'; known: {', '.join(sorted(known))}")
            if not isinstance(value, bool):
                raise UserError(f"option {key!r} of backend 'ipex' is True or False, not {value!r}")
        return Options(**(given or {}))

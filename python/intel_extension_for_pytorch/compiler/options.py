"""The options of `torch.compile(model, backend="ipex", options={...})`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from ..errors import UserError

# torch.compile's modes, as what they choose here. A graph is one call as it is: there is no overhead to reduce.
MODES: dict[str, dict[str, bool]] = {
    "default": {},
    "reduce-overhead": {},
    "max-autotune": {"autotune": True},
    "max-autotune-no-cudagraphs": {"autotune": True},
}


@dataclass(frozen=True)
class Options:
    """What a compilation may be told; every field is a key of `options`."""

    hoist: bool = True  # keep what depends only on parameters (packed and cast weights) between inference calls
    recompute: bool = True  # the backward pass recomputes cheap values instead of saving them
    fallback: bool = True  # a graph that cannot be compiled runs eagerly, with a warning
    autotune: bool = False  # matrix products: time our kernel and the library's, once a machine; mode="max-autotune"

    @staticmethod
    def parse(given: Mapping[str, Any] | None, mode: str | None = None) -> Options:
        """Options from a mapping or a mode of `torch.compile`; UserError for an unknown mode or key, or a value of the
        wrong type."""
        if mode is not None and mode not in MODES:
            raise UserError(f"unknown mode {mode!r} of backend 'ipex'; known: {', '.join(sorted(MODES))}")
        known = {f.name: f for f in fields(Options)}
        for key, value in (given or {}).items():
            if key not in known:
                raise UserError(f"unknown option {key!r} of backend 'ipex'; known: {', '.join(sorted(known))}")
            if not isinstance(value, bool):
                raise UserError(f"option {key!r} of backend 'ipex' is True or False, not {value!r}")
        return Options(**{**MODES.get(mode or "default", {}), **(given or {})})

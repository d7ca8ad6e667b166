"""The options of `torch.compile(model, backend="ipex", options={...})`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from ..errors import UserError

# The options that each mode of torch.compile sets. "reduce-overhead" sets none: a compiled graph is already one call.
MODES: dict[str, dict[str, bool]] = {
    "default": {},
    "reduce-overhead": {},
    "max-autotune": {"autotune": True},
    "max-autotune-no-cudagraphs": {"autotune": True},
}


@dataclass(frozen=True)
class Options:
    """Options of a compilation. Every field is a key of `options`; all are bool.

    Example: `torch.compile(model, backend="ipex", options={"autotune": True})`.
    """

    hoist: bool = True  # keep values that depend only on parameters (packed and cast weights) between inference calls
    recompute: bool = True  # recompute cheap values in the backward pass instead of saving them
    fallback: bool = True  # run a graph that cannot be compiled eagerly, with a warning, instead of raising
    autotune: bool = False  # time our kernel and oneDNN's for matrix products, once per machine; mode="max-autotune"

    @staticmethod
    def parse(given: Mapping[str, Any] | None, mode: str | None = None) -> Options:
        """Options from the `options` mapping and the `mode` of `torch.compile`; `given` overrides the mode. UserError
        for an unknown mode or key, or a value that is not a bool."""
        if mode is not None and mode not in MODES:
            raise UserError(f"unknown mode {mode!r} of backend 'ipex'; known: {', '.join(sorted(MODES))}")
        known = {f.name: f for f in fields(Options)}
        for key, value in (given or {}).items():
            if key not in known:
                raise UserError(f"unknown option {key!r} of backend 'ipex'; known: {', '.join(sorted(known))}")
            if not isinstance(value, bool):
                raise UserError(f"option {key!r} of backend 'ipex' must be True or False, not {value!r}")
        return Options(**{**MODES.get(mode or "default", {}), **(given or {})})

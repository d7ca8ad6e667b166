"""The installation and its settings, as `ipexc env` prints them."""

from __future__ import annotations

from typing import Any

import torch

from . import _C


def environment() -> dict[str, Any]:
    """Describes the installation.

    :returns: a dict with the keys `target` (the instruction set that is compiled for), `supported_targets` (those that
        this CPU runs), `threads` (int), `versions` (library to version), `cache` (directory of the object cache, or
        "off") and `knobs` (one dict per IPEX environment variable: name, value, default, help).

    Example::

        ipex.environment()["target"]
    """
    return {
        "target": _C.target(),
        "supported_targets": _C.supported_targets(),
        "threads": _C.num_threads(),
        "versions": {**_C.versions(), "torch": torch.__version__},
        "cache": _C.cache_directory() or "off",
        "knobs": _C.knobs(),
    }


def environment_text() -> str:
    """environment() as text."""
    env = environment()
    lines = [f"target    {env['target']}  (this CPU runs: {', '.join(env['supported_targets'])})"]
    lines.append(f"threads   {env['threads']}")
    lines.append("versions  " + ", ".join(f"{k} {v}" for k, v in env["versions"].items()))
    lines.append(f"cache     {env['cache']}")
    lines.append("knobs")
    width = max(len(k["name"]) for k in env["knobs"])
    for knob in env["knobs"]:
        value = repr(knob["value"]) if knob["value"] != knob["default"] else f"{knob['default']!r} (default)"
        lines.append(f"  {knob['name']:{width}}  {value:24}  {knob['help']}")
    return "\n".join(lines)

"""What this installation is and how it is set: the text and the dict of `ipexc env`."""

from __future__ import annotations

from typing import Any

import torch

from . import _C


def environment() -> dict[str, Any]:
    """Target, library versions, threads and every IPEX_* knob with its value."""
    return {
        "target": _C.target(),
        "supported_targets": _C.supported_targets(),
        "threads": _C.num_threads(),
        "versions": {**_C.versions(), "torch": torch.__version__},
        "cache": _C.cache_directory() or "off",
        "knobs": _C.knobs(),
    }


def environment_text() -> str:
    """environment() for people to read."""
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

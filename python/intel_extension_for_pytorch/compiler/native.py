"""Turns a Graph into executable code: compiles it, or loads what an earlier process compiled."""

from __future__ import annotations

import logging
import threading
import time
from typing import Any

from .. import _C
from . import records, time_limit

log = logging.getLogger("ipex")

# One graph is imported and compiled at a time, because tracing state and tables are shared. Kernels of one graph
# compile in parallel.
compile_lock = threading.RLock()


def compile_graph(graph: Any, state: dict[str, Any]) -> Any:
    time_limit.doing(lambda: f"the {state['kind']} graph's passes and kernels")
    return time_limit.in_cpp(
        _C.compile,
        graph,
        state["arguments"],
        state["symbols"],
        state["outputs"],
        hoist=state["hoist"],
        autotune=state["autotune"],
    )


def load(state: dict[str, Any], text: str, saved: dict[str, Any] | None, report: dict[str, Any]) -> Any:
    """Loads the saved steps of a graph. If there are none, or they do not fit this process, compiles its text."""
    start = time.perf_counter()
    with compile_lock:
        compiled = _load_saved(saved, state) if saved else None
        loaded = compiled is not None
        if not loaded:
            compiled = compile_graph(_C.Graph.parse(text), state)
    total_ms = (time.perf_counter() - start) * 1e3
    records.add(state, text, compiled, 0.0, total_ms, warm=True, first=report if loaded else None)
    return compiled


def _load_saved(saved: dict[str, Any], state: dict[str, Any]) -> Any:
    try:
        return _C.load(saved, state["arguments"], state["symbols"], state["outputs"])
    except Exception as error:
        log.info("warm start: cannot load the steps of a %s graph: %s; compiling it again", state["kind"], error)
        return None

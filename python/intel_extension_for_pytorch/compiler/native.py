"""From a Graph to code that runs: compiled, or as an earlier process left it."""

from __future__ import annotations

import logging
import threading
import time
from typing import Any

from .. import _C
from . import records, time_limit

log = logging.getLogger("ipex")

# One graph is imported and compiled at a time: tracing state and the tables are shared, kernels compile in parallel
# inside a compilation anyway.
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
    """A graph from what CompiledCode kept of it: its steps, or where they do not fit this process, its text."""
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
        log.info("warm start: the steps of a %s graph do not load: %s; it is compiled again", state["kind"], error)
        return None

"""Compilation reports: one dict per compiled graph, collected by `ipex.explain` and `ipex.record_reports`."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from torch import fx

# (reports, their compiled graphs) of each open context
_listeners: list[tuple[list[dict[str, Any]], list[Any]]] = []
_OF_LOADING = ("times", "kernels", "cache_hits", "loop_passes_ms", "llvm_ms", "link_ms")


@contextlib.contextmanager
def record_reports(graphs: list[Any] | None = None) -> Iterator[list[dict[str, Any]]]:
    """Collects a report (dict) for every graph compiled inside the context: forward, backward and inference graphs.

    The context yields the list of reports. Their keys are: kind ("forward", "backward" or "inference"), eager (why the
    graph runs eagerly, or None), warm (loaded from the cache instead of traced and imported), nodes (number of FX
    calls), native_ops (those that are not Extern), kernel_steps, library_steps, extern_steps, extern_ops, extern_why,
    choices (who computes products and convolutions, and why), measured (products that were timed), arena_bytes,
    naive_bytes, times, steps, imported (text of the graph before all passes), graph (text after them), loops, and times
    in ms (import_ms, total_ms and others).

    :param graphs: a list that receives the compiled graph of each report, or None for one that runs eagerly.

    Example::

        with ipex.record_reports() as reports:
            torch.compile(model, backend="ipex")(x)
        print(sum(report["extern_steps"] for report in reports))
    """
    reports: list[dict[str, Any]] = []
    listener = (reports, [] if graphs is None else graphs)
    _listeners.append(listener)
    try:
        yield reports
    finally:
        # by identity: two lists of equal reports are not the same listener
        _listeners[:] = [each for each in _listeners if each is not listener]


def add(
    state: dict[str, Any],
    graph: Any,
    compiled: Any,
    import_ms: float,
    total_ms: float,
    *,
    warm: bool,
    first: dict[str, Any] | None = None,
) -> None:
    """Records the code `compiled` from the imported `graph` with the given `state`; `warm`: from AOTAutograd's cache.

    `first`: the report of the original compilation, if its steps were loaded. Times are then those of loading.
    """
    if not _listeners:
        return
    report = dict(compiled.report())
    if first is not None:
        report = first | {key: report[key] for key in _OF_LOADING}
    report |= {
        "kind": state["kind"],
        "eager": None,
        "warm": warm,
        "nodes": state["nodes"],
        "native_ops": state["nodes"] - report["extern_steps"],
        "extern_why": dict(state["externs"]),
        "imported": str(graph),
        "import_ms": import_ms,
        "total_ms": total_ms,
    }
    _notify(report, compiled)


def add_eager(kind: str, module: fx.GraphModule, why: str) -> None:
    """Records a graph that runs eagerly."""
    _add_uncompiled(kind, count_calls(module), eager=why)


def add_aten_calls(kind: str, ops: list[tuple[str, str]]) -> None:
    """Records calls into ATen between the segments of a graph, as pairs of op and reason."""
    _add_uncompiled(kind, len(ops), extern_ops=[op for op, _ in ops], extern_why=dict(ops))


def _add_uncompiled(kind: str, nodes: int, **what: Any) -> None:
    report = {
        "kind": kind, "eager": None, "warm": False, "nodes": nodes, "native_ops": 0, "kernel_steps": 0,
        "library_steps": 0, "extern_steps": nodes, "extern_ops": [], "extern_why": {}, "choices": [], "measured": [],
        "arena_bytes": 0, "naive_bytes": 0,
        "times": [], "steps": [], "imported": "", "graph": "", "loops": "", "import_ms": 0.0, "total_ms": 0.0,
    } | what  # fmt: skip
    _notify(report, None)


def _notify(report: dict[str, Any], graph: Any) -> None:
    for reports, graphs in _listeners:
        reports.append(report)
        graphs.append(graph)


def count_calls(module: fx.GraphModule) -> int:
    """The number of ops in an FX graph."""
    return sum(n.op == "call_function" and getattr(n.target, "__name__", "") != "getitem" for n in module.graph.nodes)

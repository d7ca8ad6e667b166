"""What was compiled: one record a graph, kept while somebody listens (`ipex.explain`, `ipex.record_reports`)."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from torch import fx

# of reports, and of their graphs
_listeners: list[tuple[list[dict[str, Any]], list[Any]]] = []
_OF_LOADING = ("times", "kernels", "cache_hits", "loop_passes_ms", "llvm_ms", "link_ms")


@contextlib.contextmanager
def record_reports(graphs: list[Any] | None = None) -> Iterator[list[dict[str, Any]]]:
    """Collects a dict for every graph compiled inside the context, forward, backward and inference alike.

    Keys: kind, eager (why the graph runs eagerly, or None), warm (loaded, neither traced nor imported), nodes (FX
    calls), native_ops (those not Extern), kernel_steps, library_steps, extern_steps, extern_ops, choices (who computes
    products and convolutions, and why), measured (the products that were timed), arena_bytes, naive_bytes, times,
    steps, imported (the graph's text before all passes), graph (after them), loops and the totals in ms. `graphs`
    receives the compiled graph of each report, None for one that runs eagerly.
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
    """Records a graph, `compiled` from the imported `graph` and its `state`; `warm`: from AOTAutograd's cache.

    `first`: the report of the compilation whose steps were loaded; loading itself knows how long it took.
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
    _tell(report, compiled)


def add_eager(kind: str, module: fx.GraphModule, why: str) -> None:
    """Records a graph that runs eagerly."""
    _add_uncompiled(kind, count_calls(module), eager=why)


def add_aten_calls(kind: str, ops: list[tuple[str, str]]) -> None:
    """Records calls into ATen between the segments of a graph: op, why."""
    _add_uncompiled(kind, len(ops), extern_ops=[op for op, _ in ops], extern_why=dict(ops))


def _add_uncompiled(kind: str, nodes: int, **what: Any) -> None:
    report = {
        "kind": kind, "eager": None, "warm": False, "nodes": nodes, "native_ops": 0, "kernel_steps": 0,
        "library_steps": 0, "extern_steps": nodes, "extern_ops": [], "extern_why": {}, "choices": [], "measured": [],
        "arena_bytes": 0, "naive_bytes": 0,
        "times": [], "steps": [], "imported": "", "graph": "", "loops": "", "import_ms": 0.0, "total_ms": 0.0,
    } | what  # fmt: skip
    _tell(report, None)


def _tell(report: dict[str, Any], graph: Any) -> None:
    for reports, graphs in _listeners:
        reports.append(report)
        graphs.append(graph)


def count_calls(module: fx.GraphModule) -> int:
    """How many ops an FX graph holds."""
    return sum(n.op == "call_function" and getattr(n.target, "__name__", "") != "getitem" for n in module.graph.nodes)

"""The profile of `ipex.explain(..., profile=True)`: the time of every step, with its share of the machine's limits."""

from __future__ import annotations

import json
import statistics
import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from .. import _C

MIN_CALLS, MAX_CALLS, SECONDS = 5, 200, 1.0
MEMORY_BYTES = 576 << 20  # larger working sets use the limits measured for this one


@dataclass(frozen=True)
class StepProfile:
    """Measurements of one step. Dynamic sizes count with their values in tracing."""

    graph: int  # index of the graph in the explanation
    step: int  # index of the step in the graph
    kind: str
    name: str
    detail: str
    sources: list[str]
    runs: float  # runs per call of the model
    ms: float  # median time of one run
    gbs: float  # GB/s
    gflops: float  # GFLOP/s
    limit: float  # share of the machine's limit: max(bytes / bandwidth, flops / peak) / time

    @property
    def total_ms(self) -> float:
        return self.ms * self.runs


@dataclass(frozen=True)
class Profile:
    """A profile of calls of the model, by step, most expensive first."""

    calls: int
    ms: float  # median time of one call, including code between the graphs
    limits: dict[str, float]  # _C.machine_limits for the working set of the largest graph
    steps: list[StepProfile]
    last_call: list[tuple[int, int, int, int]] = field(repr=False)  # graph, step, begin, end in ns

    def to_dict(self) -> dict[str, Any]:
        return {**asdict(self), "steps": [{**asdict(s), "total_ms": s.total_ms} for s in self.steps]}

    def __str__(self) -> str:
        steps_ms = sum(s.total_ms for s in self.steps)
        limits = self.limits
        bf16 = f", bf16 {limits['bf16_gflops']:,.0f}" if limits["bf16_gflops"] else ""
        lines = [
            f"profile of {self.calls} calls: {self.ms:.3f} ms each, {steps_ms:.3f} in {len(self.steps)} steps",
            f"  limits of {limits['threads']} threads: memory {_bandwidth(limits):.0f} GB/s, "
            f"f32 {limits['f32_gflops']:,.0f} GFLOP/s{bf16}",
            f"  {'ms':>9} {'share':>6} {'GB/s':>7} {'GFLOP/s':>8} {'limit':>6}  graph, step",
        ]
        shown = [s for s in self.steps if s.total_ms >= steps_ms / 1000]
        for s in shown:
            runs = f" x {s.runs:g}" if s.runs != 1 else ""
            where = "; ".join(s.sources[:2]) + (f" and {len(s.sources) - 2} more" if len(s.sources) > 2 else "")
            detail = f"  [{s.detail}]" if s.detail else ""
            lines.append(
                f"  {s.total_ms:9.4f} {s.total_ms / steps_ms:6.1%} {s.gbs:7.1f} {s.gflops:8.1f} {s.limit:6.0%}  "
                f"{s.graph} {s.kind} {s.name}{runs}{detail}  {where}"
            )
        if rest := self.steps[len(shown) :]:
            lines.append(f"  {sum(s.total_ms for s in rest):9.4f} in {len(rest)} more")
        return "\n".join(lines)

    def write_trace(self, path: str | Path) -> None:
        """Writes the last call as a Chrome trace, for chrome://tracing or ui.perfetto.dev."""
        steps = {(s.graph, s.step): s for s in self.steps}
        start = min((begin for _, _, begin, _ in self.last_call), default=0)
        events = [
            {
                "name": steps[graph, step].name,
                "cat": steps[graph, step].kind,
                "ph": "X",
                "ts": (begin - start) / 1e3,
                "dur": (end - begin) / 1e3,
                "pid": 0,
                "tid": graph,
                "args": asdict(steps[graph, step]),
            }
            for graph, step, begin, end in self.last_call
        ]
        Path(path).write_text(json.dumps({"traceEvents": events, "displayTimeUnit": "ns"}), encoding="utf-8")


def measure(call: Callable[[], Any], reports: list[dict[str, Any]], compiled: list[Any]) -> Profile:
    """Calls the (warm) model for a second and measures its steps. `compiled`: the compiled graph of each report, None
    for one that runs eagerly."""
    times: list[float] = []
    events: list[list[tuple[int, int, int]]] = [[] for _ in compiled]
    graphs = [(i, graph) for i, graph in enumerate(compiled) if graph is not None]
    while len(times) < MIN_CALLS or (sum(times) < SECONDS and len(times) < MAX_CALLS):
        for _, graph in graphs:
            graph.start_profile()
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
        last = {i: graph.take_profile() for i, graph in graphs}
        for i, found in last.items():
            events[i] += found
    limits = _C.machine_limits(min(max(map(_working_set, reports), default=0), MEMORY_BYTES) // 3)
    steps = [
        _step_profile(i, index, reports[i]["steps"][index], durations, len(times), limits)
        for i, found in enumerate(events)
        for index, durations in _durations(found).items()
    ]
    return Profile(
        len(times),
        statistics.median(times) * 1e3,
        limits,
        sorted(steps, key=lambda s: -s.total_ms),
        sorted(((i, *event) for i, found in last.items() for event in found), key=lambda event: event[2]),
    )


def _working_set(report: dict[str, Any]) -> int:
    return report.get("argument_bytes", 0) + report["arena_bytes"]


def _durations(events: list[tuple[int, int, int]]) -> dict[int, list[int]]:
    durations: dict[int, list[int]] = defaultdict(list)
    for step, begin, end in events:
        durations[step].append(end - begin)
    return durations


def _step_profile(
    graph: int, index: int, step: dict[str, Any], durations: list[int], calls: int, limits: dict[str, float]
) -> StepProfile:
    ns = max(statistics.median(durations), 1)
    peak = limits["bf16_gflops" if step["multiplies"] == "bf16" and limits["bf16_gflops"] else "f32_gflops"]
    bound_ns = max(step["bytes"] / _bandwidth(limits), step["flops"] / peak)
    return StepProfile(
        graph,
        index,
        step["kind"],
        step["name"],
        step["detail"],
        list(dict.fromkeys(step["sources"])),
        len(durations) / calls,
        ns / 1e6,
        step["bytes"] / ns,
        step["flops"] / ns,
        bound_ns / ns,
    )


def _bandwidth(limits: dict[str, float]) -> float:
    return max(limits["copy_gbs"], limits["triad_gbs"], limits["read_gbs"])

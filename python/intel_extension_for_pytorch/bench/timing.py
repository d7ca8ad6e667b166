"""Interleaved timing: every variant runs in every round, so that the drift of a shared machine affects all equally."""

from __future__ import annotations

import gc
import math
import platform
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import date

import torch


@dataclass(frozen=True)
class Sample:
    """Times of one variant in milliseconds per call."""

    median: float
    best: float
    spread: float  # interquartile range over the median

    @classmethod
    def of(cls, times: Sequence[float]) -> Sample:
        quartiles = statistics.quantiles(times, n=4)
        median = statistics.median(times)
        return cls(median, min(times), (quartiles[2] - quartiles[0]) / median)


def interleaved(
    variants: dict[str, Callable[[], object]],
    rounds: int = 15,
    min_round_ms: float = 20.0,
    budget_s: float = math.inf,
) -> dict[str, Sample]:
    """Times callables (name -> callable) in interleaved rounds; returns a Sample for each.

    Each callable is warmed up twice, then called in `rounds` rounds. A round repeats a fast callable for at least
    `min_round_ms`, so that the clock's resolution and single interrupts do not matter. After `budget_s` seconds no
    further round starts, but there are at least two. A callable that takes more than a tenth of the budget is warmed up
    once.
    """
    repeats = {}
    for name, fn in variants.items():
        for _ in range(2):
            start = time.perf_counter()
            fn()
            elapsed = time.perf_counter() - start
            if elapsed > budget_s / 10:
                break
        repeats[name] = max(1, int(min_round_ms / max(elapsed * 1e3, 1e-3)))
    times: dict[str, list[float]] = {name: [] for name in variants}
    gc.collect()
    gc.disable()
    try:
        begin = time.perf_counter()
        for done in range(rounds):
            if done >= 2 and time.perf_counter() - begin > budget_s:
                break
            for name, fn in variants.items():
                count = repeats[name]
                start = time.perf_counter()
                for _ in range(count):
                    fn()
                times[name].append((time.perf_counter() - start) * 1e3 / count)
    finally:
        gc.enable()
    return {name: Sample.of(values) for name, values in times.items()}


def machine() -> str:
    """One line for a results table: CPU, threads, torch version, date."""
    name = platform.processor() or "unknown CPU"
    with open("/proc/cpuinfo", encoding="ascii", errors="replace") as f:
        fields = dict((part.strip() for part in line.split(":", 1)) for line in f.read().split("\n\n")[0].splitlines())
    name = f"{fields.get('model name', name)} (family {fields.get('cpu family')}, model {fields.get('model')})"
    return f"{name}, {torch.get_num_threads()} threads, torch {torch.__version__}, {date.today()}"

"""Implements `ipexc bench`: calls one artifact from concurrent streams, each with its own number of threads."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from .. import aot
from ..compiler.values import DTYPE_NAMES
from ..errors import UserError


def measure(
    path: Path, threads: Sequence[int], streams: Sequence[int], seconds: float, sizes: Sequence[str]
) -> dict[str, Any]:
    """Latency percentiles (ms) and calls per second for every number of threads and streams.

    `seconds`: how long to measure each setting. `sizes`: values of dynamic sizes, as "NAME=N". Returns a dict, which
    also has the time to load the artifact and the time of the first call. Raises UserError."""
    start = time.perf_counter()
    model = aot.load(path)
    load_ms = (time.perf_counter() - start) * 1e3
    description = model.description()
    inputs = _inputs(model, sizes)
    start = time.perf_counter()
    model.run(inputs)
    first_ms = (time.perf_counter() - start) * 1e3
    settings = []
    for count in threads or [torch.get_num_threads()]:
        for callers in streams:
            settings.append(
                {"threads": count, "streams": callers} | _measure_one(model, inputs, count, callers, seconds)
            )
    return {
        "artifact": str(path), "isa": description["isa"], "load_ms": round(load_ms, 3), "first_ms": round(first_ms, 3),
        "inputs": [{"name": d["name"], "dtype": d["dtype"], "shape": list(t.shape)}
                   for d, t in zip(description["inputs"], inputs, strict=True)],
        "settings": settings,
    }  # fmt: skip


def _inputs(model: aot.LoadedModel, sizes: Sequence[str]) -> list[torch.Tensor]:
    description = model.description()
    chosen: dict[str, int] = {d["name"]: max(d["low"], 1) for d in description["dims"]}
    for item in sizes:
        name, _, value = item.partition("=")
        if name not in chosen or not value.isdigit():
            raise UserError(f"--size {item}: give NAME=N; the dynamic sizes are {', '.join(chosen) or 'none'}")
        chosen[name] = int(value)
    dtypes = {name: dtype for dtype, name in DTYPE_NAMES.items()}
    tensors = []
    shapes = model.input_sizes(chosen.values())
    for item, shape in zip(description["inputs"], shapes, strict=True):
        dtype = dtypes[item["dtype"]]
        tensors.append(torch.randn(shape).to(dtype) if dtype.is_floating_point else torch.zeros(shape, dtype=dtype))
    return tensors


def _measure_one(
    model: aot.LoadedModel, inputs: list[torch.Tensor], threads: int, streams: int, seconds: float
) -> dict[str, Any]:
    latencies: list[list[float]] = [[] for _ in range(streams)]
    ready, errors = threading.Barrier(streams + 1), []

    def stream(mine: list[float]) -> None:
        torch.set_num_threads(threads)  # only for this stream: OpenMP keeps the setting per thread
        try:
            for _ in range(3):
                model.run(inputs)
            ready.wait()
            end = time.perf_counter() + seconds
            while (start := time.perf_counter()) < end or not mine:
                model.run(inputs)
                mine.append(time.perf_counter() - start)
        except Exception as error:
            errors.append(error)
            ready.abort()

    running = [threading.Thread(target=stream, args=(mine,)) for mine in latencies]
    for thread in running:
        thread.start()
    with contextlib.suppress(threading.BrokenBarrierError):
        ready.wait()
    start = time.perf_counter()
    for thread in running:
        thread.join()
    elapsed = time.perf_counter() - start
    if errors:
        raise errors[0]
    all_calls = sorted(t * 1e3 for mine in latencies for t in mine)

    def at(share: float) -> float:
        return round(all_calls[min(len(all_calls) - 1, int(share * len(all_calls)))], 4)

    return {
        "calls": len(all_calls), "p50_ms": at(0.5), "p90_ms": at(0.9), "p99_ms": at(0.99), "best_ms": at(0.0),
        "calls_per_second": round(len(all_calls) / elapsed, 2),
    }  # fmt: skip

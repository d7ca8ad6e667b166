"""Measures cases of the kernel benchmark in eager, Inductor and ipex, interleaved, and the machine's limits."""

from __future__ import annotations

import logging
import math
import os
import platform
import statistics
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import torch

from .. import _C, torch_private
from ..compiler.records import record_reports
from ..machine import environment
from .cases import SIZES, Case
from .timing import Sample, interleaved, machine

log = logging.getLogger("ipex")

VARIANTS = ("eager", "inductor", "ipex")


@dataclass(frozen=True)
class Result:
    """The measurements of one case. Times are milliseconds per call."""

    name: str
    dtype: str
    bytes: int  # size of inputs and outputs; elements that are repeated (stride 0) count once
    flops: float
    bound_ms: float  # roofline bound: max(bytes / bandwidth, flops / peak)
    samples: dict[str, Sample]  # by variant
    kernels: int = 0
    library_steps: int = 0
    extern_steps: int = 0
    error: float = 0.0  # |ipex - eager| / |eager|, with the 2-norm
    failures: dict[str, str] = field(default_factory=dict)  # by variant
    graph: str = ""  # text of the imported Graph: input of ipex-opt and of the C++ benchmark

    def ratio(self, peer: str) -> float:
        """Time of `peer` / time of ipex. Above 1, ipex is faster. NaN if either did not run."""
        ours, theirs = self.samples.get("ipex"), self.samples.get(peer)
        return theirs.median / ours.median if ours and theirs else math.nan

    def noise(self, peer: str) -> float:
        """The relative difference below which the two medians are not distinguishable, from their spreads."""
        ours, theirs = self.samples.get("ipex"), self.samples.get(peer)
        return math.hypot(ours.spread, theirs.spread) if ours and theirs else math.nan

    def verdict(self, peer: str) -> str:
        """ "faster", "slower", or "same" if the difference is below the noise; "-" if either did not run."""
        ratio = self.ratio(peer)
        if math.isnan(ratio):
            return "-"
        return "same" if abs(ratio - 1) <= self.noise(peer) else "faster" if ratio > 1 else "slower"

    @property
    def roofline(self) -> float:
        """The share of the roofline bound that ipex reaches."""
        return self.bound_ms / self.samples["ipex"].median if "ipex" in self.samples else math.nan

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @staticmethod
    def from_dict(data: dict[str, Any]) -> Result:
        samples = {name: Sample(**sample) for name, sample in data["samples"].items()}
        return Result(**{**data, "samples": samples})


@dataclass(frozen=True)
class Run:
    """All results of one run, with the conditions on the machine."""

    machine: str  # with the date
    rounds: int
    conditions: dict[str, Any]
    limits: dict[str, dict[str, float]]  # name of SIZES -> bandwidth and peak of the machine
    results: list[Result]

    def to_dict(self) -> dict[str, Any]:
        return {**asdict(self), "format": 1}

    @staticmethod
    def from_dict(data: dict[str, Any]) -> Run:
        if data.get("format") != 1:
            raise ValueError(f"unknown format {data.get('format')!r} of a kernel benchmark, expected 1")
        rest = {key: value for key, value in data.items() if key not in ("format", "results")}
        return Run(**rest, results=[Result.from_dict(result) for result in data["results"]])


@cache
def limits(size: str) -> dict[str, float]:
    """The machine's bandwidth and peak for a working set of this size (a key of SIZES), measured once per process."""
    rows, columns = SIZES.get(size, SIZES["memory"])
    return _C.machine_limits(rows * columns * 4)


def conditions() -> dict[str, Any]:
    """Clock and load of the machine, and versions of the software."""
    lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    clock = [float(line.split(":")[1]) for line in lines if line.startswith("cpu MHz")]
    found = environment()
    return {
        "cpu_mhz": statistics.mean(clock) if clock else 0.0,
        "load": os.getloadavg()[0],
        "threads": torch.get_num_threads(),
        "target": found["target"],
        "versions": found["versions"],
        "python": platform.python_version(),
    }


def measure(cases: Iterable[Case], rounds: int = 10, variants: Iterable[str] = VARIANTS) -> Iterator[Result]:
    """Runs each case in every variant. At least 10 rounds are needed to estimate the noise."""
    for case in cases:
        yield _measure(case, rounds, tuple(variants))


def finish(results: list[Result], rounds: int, started: dict[str, Any]) -> Run:
    """The Run with all results; `started`: the conditions before it."""
    sizes = {name: limits(name) for name in SIZES}
    return Run(machine(), rounds, {"start": started, "end": conditions()}, sizes, results)


def _measure(case: Case, rounds: int, variants: tuple[str, ...]) -> Result:
    torch.manual_seed(0)
    function, inputs = case.make()
    calls: dict[str, Callable[[], Any]] = {}
    failures: dict[str, str] = {}
    reports: list[dict[str, Any]] = []
    outputs: dict[str, Any] = {}
    with torch.no_grad():
        for variant in variants:
            torch_private.reset_dynamo()
            call = function if variant == "eager" else torch.compile(function, backend=variant, dynamic=False)
            try:
                with record_reports() as found:
                    outputs[variant] = call(*inputs)
            except Exception as error:
                log.warning("%s does not run under %s: %s", case.name, variant, error)
                failures[variant] = f"{type(error).__name__}: {error}"
                continue
            if variant == "ipex":
                reports = found
            calls[variant] = lambda call=call: call(*inputs)
        samples = interleaved(calls, rounds=rounds, min_round_ms=5.0)
    tensors = [*_tensors(inputs), *_tensors(outputs.get("eager", outputs.get("ipex")))]
    if isinstance(function, torch.nn.Module):
        tensors += list(function.parameters())
    moved = sum(map(_footprint, tensors))
    flops = case.flops or float(sum(step["flops"] for report in reports for step in report["steps"]))
    return Result(
        case.name,
        case.dtype,
        moved,
        flops,
        _bound_ms(case, moved),
        samples,
        sum(report["kernel_steps"] for report in reports),
        sum(report["library_steps"] for report in reports),
        sum(report["extern_steps"] for report in reports),
        _error(outputs),
        failures,
        "\n".join(report["imported"] for report in reports),
    )


def _bound_ms(case: Case, moved: int) -> float:
    found = limits(case.size)
    peak = found["bf16_gflops" if case.dtype == "bf16" and found["bf16_gflops"] else "f32_gflops"]
    return max(moved / max(found["copy_gbs"], found["triad_gbs"]), case.flops / peak) / 1e6


def _tensors(value: Any) -> list[torch.Tensor]:
    return [value] if isinstance(value, torch.Tensor) else [t for t in value or () if isinstance(t, torch.Tensor)]


def _footprint(tensor: torch.Tensor) -> int:
    """Bytes of the elements. Repeated elements (stride 0) count once."""
    dims = zip(tensor.shape, tensor.stride(), strict=True)
    return math.prod(size for size, stride in dims if stride or size == 0) * tensor.element_size()


def _error(outputs: dict[str, Any]) -> float:
    """Relative distance of ipex's outputs from eager's (2-norm); 0 if either did not run."""
    if not {"eager", "ipex"} <= outputs.keys():
        return 0.0
    apart = size = 0.0
    for ours, theirs in zip(_tensors(outputs["ipex"]), _tensors(outputs["eager"]), strict=True):
        apart += (ours.double() - theirs.double()).square().nansum().item()
        size += theirs.double().square().nansum().item()
    return math.sqrt(apart / size) if size else math.sqrt(apart)

"""Compares versions of oneDNN: products and convolutions of int8, bf16 and f32, and LSTM layers of bf16 and f32.

python benchmarks/bench_onednn.py                          all cases, one thread and all (`make bench-onednn` prepares
                                                           the versions and runs this)
python benchmarks/bench_onednn.py --only bf16 --threads 1

Each version runs in a process of its own; all run one program, `onednn_worker`, with another library. The processes
take turns, and only one works at a time. They get the same values, and their results are compared.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import subprocess
import time
from dataclasses import dataclass, field
from pathlib import Path

from rich.console import Console
from tables import ResultTable
from timing import Sample

ROOT = Path(__file__).parent.parent
LIBRARIES = {  # folder of a libdnnl.so.3, or None for the one that the program was linked with; its variables
    "as installed": (None, {}),
    "openmp": (ROOT / "build/onednn/openmp/lib", {}),
    "newest": (ROOT / "build/onednn/newest/lib", {"OCL_ICD_FILENAMES": "{folder}/libintelocl.so"}),
}
PAUSE_S = 0.03  # between turns, so that idle threads of the last process stop spinning
TOLERANCE = 1e-3  # of the sum of squares of a result; int8 must be equal


@dataclass
class Worker:
    """The process of one library."""

    name: str
    process: subprocess.Popen
    times: list[float] = field(default_factory=list)
    implementation: str = ""
    sums: tuple[float, float] = (math.nan, math.nan)

    def answer(self) -> str:
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError(f"oneDNN {self.name}: the worker ended with status {self.process.wait()}")
        return line.strip()

    def turn(self, case: int, milliseconds: float) -> float:
        """Runs a case for about this time; returns microseconds per call."""
        self.process.stdin.write(f"{case} {milliseconds}\n")
        self.process.stdin.flush()
        microseconds, total, squares, self.implementation = self.answer().split(" ", 3)
        self.sums = float(total), float(squares)
        return float(microseconds)


def start(program: Path, library: str, threads: int) -> Worker:
    folder, variables = LIBRARIES[library]
    env = {**os.environ, "OMP_NUM_THREADS": str(threads)}
    if folder:
        env |= {"LD_LIBRARY_PATH": str(folder)} | {k: v.format(folder=folder) for k, v in variables.items()}
    # The SYCL build takes the number of its threads from the CPUs that the process can use.
    command = ["taskset", "-c", f"0-{threads - 1}", str(program)]
    process = subprocess.Popen(command, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    worker = Worker(library, process)
    worker.name = worker.answer()
    return worker


def check(case: str, workers: list[Worker]) -> None:
    """Results of all versions agree."""
    first = workers[0]
    for worker in workers[1:]:
        same = (
            worker.sums == first.sums
            if case.startswith("int8")
            else math.isclose(worker.sums[1], first.sums[1], rel_tol=TOLERANCE)
        )
        if not same:
            raise RuntimeError(f"{case}: oneDNN {first.name} gives {first.sums}, {worker.name} {worker.sums}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="run the cases whose name contains this")
    parser.add_argument("--libraries", default=",".join(LIBRARIES))
    parser.add_argument("--threads", default=f"1,{os.cpu_count()}")
    parser.add_argument("--rounds", type=int, default=11)
    parser.add_argument("--milliseconds", type=float, default=60.0, help="duration of a turn")
    parser.add_argument("--program", type=Path, default=ROOT / "build" / "release" / "onednn_worker")
    parser.add_argument("--json", help="also write the results to this file")
    parser.add_argument("--tables", help="also save the table as Markdown in this folder")
    arguments = parser.parse_args()
    libraries = arguments.libraries.split(",")
    if unknown := set(libraries) - set(LIBRARIES):
        parser.error(f"unknown library {', '.join(sorted(unknown))}: use {', '.join(LIBRARIES)}")
    for needed in [arguments.program, *(LIBRARIES[name][0] for name in libraries)]:
        if needed and not needed.exists():
            parser.error(f"{needed} is missing; run `make bench-onednn`")
    thread_counts = [int(text) for text in arguments.threads.split(",")]
    listed = subprocess.run([arguments.program, "--list"], capture_output=True, text=True, check=True).stdout
    cases = [(i, case) for i, case in enumerate(listed.splitlines()) if arguments.only in case]

    console = Console(width=180)
    rows: dict[str, list[str]] = {case: [] for _, case in cases}
    columns = ["case"]
    results: dict[str, dict] = {case: {} for _, case in cases}
    for threads in thread_counts:
        workers = [start(arguments.program, library, threads) for library in libraries]
        try:
            first, *others = workers
            label = f"{threads} thread{'s' if threads > 1 else ''}"
            columns += [f"{label}: {first.name} us", *(f"{w.name}" for w in others), "spread"]
            for index, case in cases:
                for worker in workers:
                    worker.times = []
                    worker.turn(index, 1)
                check(case, workers)
                for _ in range(arguments.rounds):
                    for worker in workers:
                        time.sleep(PAUSE_S)
                        worker.times.append(worker.turn(index, arguments.milliseconds))
                samples = [Sample.of(worker.times) for worker in workers]
                ratios = [samples[0].median / sample.median for sample in samples[1:]]
                spread = max(sample.spread for sample in samples)
                rows[case] += [f"{samples[0].median:.1f}", *(f"{ratio:.2f}x" for ratio in ratios), f"{spread:.0%}"]
                results[case][threads] = {
                    w.name: {"us": w.times, "implementation": w.implementation, "sums": w.sums} for w in workers
                }
                console.print(label, case, *rows[case][-len(workers) - 1 :], *(w.implementation for w in workers))
                if arguments.json:
                    Path(arguments.json).write_text(json.dumps(results, indent=1), encoding="utf-8")
        finally:
            for worker in workers:
                worker.process.kill()
                worker.process.wait()
    title = "Versions of oneDNN: microseconds of the first, and how many times as fast the others are"
    table = ResultTable("onednn", title, "make bench-onednn", columns)
    for case, cells in rows.items():
        table.add(case, *cells)
    table.show(console)
    table.save(arguments.tables)


if __name__ == "__main__":
    main()

"""Compares inference with other compilers and runtimes: eager, Inductor, OpenVINO, ONNX Runtime, XLA and zentorch.

python benchmarks/bench_peers.py                           all cases in fp32 (`make peers` prepares and runs this)
python benchmarks/bench_peers.py --only resnet50 --precision bf16 --threads 1
python benchmarks/bench_peers.py --peers openvino,ipex     only these peers

Each peer runs in a process with its own environment (build/peers/NAME, created by `make peers` from peers/NAME.txt), so
that no package replaces another's libraries. PyTorch's own modes use the current environment. The processes compile one
after the other, then take turns: a turn is one call that is not counted and some that are, and only one process works
at a time. A peer that cannot run a case, or whose error against eager exceeds --tolerance, gets no time, and the reason
is printed.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TextIO

from rich.console import Console
from tables import ResultTable
from timing import Sample

HERE = Path(__file__).parent
PYTORCH = ("eager", "inductor", "frozen", "max_autotune")
OURS = ("ipex", "ipex_artifact")  # an artifact has no guards, like the other runtimes
OWN = (*PYTORCH, *OURS)
ENVIRONMENTS = {"openvino": "openvino", "openvino_compile": "openvino", "onnxruntime": "onnxruntime", "xla": "xla",
                "zentorch": "zentorch"}  # fmt: skip
CASES = {  # name -> batch size, or None if the case has no batch
    "resnet50": 1, "bert_base": 1, "vit_base": 1, "gpt2": 1, "gpt2_decode": 1, "dlrm": 256, "softmax": None,
    "layer_norm": None, "gelu_add": None, "rms_norm": None,
}  # fmt: skip
TURN_MS = 100.0  # minimum duration of a turn, unless one call takes longer
PAUSE_S = 0.03  # pause between turns, so that idle threads of the last process stop spinning


@dataclass
class Worker:
    """A peer's process for one case."""

    name: str
    process: subprocess.Popen
    log: TextIO
    first_call_s: float = math.nan
    error: float = math.nan
    calls: int = 1
    times: list[float] = field(default_factory=list)

    def answer(self) -> str:
        line = self.process.stdout.readline()
        if not line:
            self.process.wait()
            self.log.seek(0)
            last = [text for text in self.log.read().splitlines() if text.strip()]
            raise RuntimeError(last[-1] if last else f"exit status {self.process.returncode}")
        return line

    def turn(self, calls: int) -> float:
        """Runs a turn; returns milliseconds per call."""
        self.process.stdin.write(f"{calls}\n")
        self.process.stdin.flush()
        return float(self.answer()) / calls

    def stop(self) -> None:
        self.process.kill()
        self.process.wait()
        self.log.close()


def start(peer: str, case: str, arguments: argparse.Namespace, cache: str) -> Worker:
    environments, precision, threads = arguments.environments, arguments.precision, arguments.threads
    batch = (arguments.batch or CASES[case]) if CASES[case] else 0
    python = sys.executable if peer in OWN else str(environments / ENVIRONMENTS[peer] / "bin" / "python")
    paths = [str(HERE), *([os.environ["PYTHONPATH"]] if peer in OWN and "PYTHONPATH" in os.environ else [])]
    env = {
        **os.environ,
        "OMP_NUM_THREADS": str(threads),
        "IPEX_CACHE": f"{cache}/ipex",
        "TORCHINDUCTOR_CACHE_DIR": f"{cache}/inductor",
        "PYTHONPATH": os.pathsep.join(paths),
        "PATH": f"{Path(python).parent}{os.pathsep}{os.environ['PATH']}",
    }
    # XLA has no setting for its threads, so limit the CPUs that the process can use.
    command = ["taskset", "-c", f"0-{threads - 1}", python]
    log = tempfile.TemporaryFile("w+", errors="replace")  # noqa: SIM115, closed by stop()
    arguments = [str(HERE / "peers" / "worker.py"), peer, case, str(batch), precision, str(threads)]
    process = subprocess.Popen(
        [*command, *arguments], env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True
    )
    worker = Worker(peer, process, log)
    try:
        ready = json.loads(worker.answer())
    except RuntimeError:
        worker.stop()
        raise
    worker.first_call_s, worker.error = ready["first_call_s"], ready["error"]
    return worker


def measure(case: str, peers: list[str], arguments: argparse.Namespace, console: Console) -> dict[str, Worker]:
    """The workers that can run the case, with their times."""
    workers: list[Worker] = []
    with tempfile.TemporaryDirectory() as cache:
        for peer in peers:
            try:
                worker = start(peer, case, arguments, cache)
            except (RuntimeError, OSError) as problem:
                console.print(f"{case}: {peer} failed: {problem}", markup=False)
                continue
            if not worker.error <= arguments.tolerance:
                console.print(f"{case}: {peer} has a wrong result: error {worker.error:.2g}")
                worker.stop()
                continue
            workers.append(worker)
        try:
            for worker in workers:
                worker.turn(1)
                worker.calls = max(1, round(TURN_MS / max(worker.turn(1), 1e-3)))
            for _ in range(arguments.rounds):
                for worker in workers:
                    time.sleep(PAUSE_S)
                    worker.times.append(worker.turn(worker.calls))
        finally:
            for worker in workers:
                worker.stop()
    return {worker.name: worker for worker in workers}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="run the cases whose name contains this")
    parser.add_argument("--exact", action="store_true", help="run the case whose name is --only")
    parser.add_argument("--peers", default=",".join([*PYTORCH, *ENVIRONMENTS, *OURS]))
    parser.add_argument("--precision", choices=("fp32", "bf16"), default="fp32", help="of weights and inputs")
    parser.add_argument("--batch", type=int, help="batch size of all cases that have one")
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--tolerance", type=float, help="largest relative error (default: 1e-3; bf16: 0.05)")
    parser.add_argument("--environments", type=Path, default=HERE.parent / "build" / "peers")
    parser.add_argument("--json", help="also write the results to this file")
    parser.add_argument("--tables", help="also save the table as Markdown in this folder")
    arguments = parser.parse_args()
    peers = arguments.peers.split(",")
    if unknown := set(peers) - set(OWN) - set(ENVIRONMENTS):
        parser.error(f"unknown peer {', '.join(sorted(unknown))}: use {', '.join([*OWN, *ENVIRONMENTS])}")
    if missing := {e for p in peers if (e := ENVIRONMENTS.get(p)) and not (arguments.environments / e).exists()}:
        parser.error(f"no environment for {', '.join(sorted(missing))} in {arguments.environments}; run `make peers`")
    if arguments.tolerance is None:
        arguments.tolerance = 1e-3 if arguments.precision == "fp32" else 0.05
    console = Console(width=180)
    suffix = "" if arguments.threads == os.cpu_count() else f" --threads {arguments.threads}"
    suffix += f" --batch {arguments.batch}" if arguments.batch else ""
    command = f"bench_peers.py --precision {arguments.precision}{suffix}"
    title = f"Inference in {arguments.precision} compared with peers, {arguments.threads} threads, median ms"
    groups = {"best of PyTorch / ipex": PYTORCH, "best of the others / ipex": tuple(ENVIRONMENTS)}
    table = ResultTable(f"peers_{arguments.precision}", title, command, ["case", *peers, *groups, "spread"])
    results = {}
    ratios: dict[str, list[float]] = {name: [] for name in groups}
    for case in (c for c in CASES if (c == arguments.only if arguments.exact else arguments.only in c)):
        workers = measure(case, peers, arguments, console)
        samples = {name: Sample.of(worker.times) for name, worker in workers.items()}
        results[case] = {
            name: {"ms": w.times, "median_ms": samples[name].median, "first_call_s": w.first_call_s, "error": w.error}
            for name, w in workers.items()
        }
        ms = {name: sample.median for name, sample in samples.items()}
        cells = []
        for name, group in groups.items():
            others = [ms[peer] for peer in group if peer in ms]
            if others and "ipex" in ms:
                ratios[name].append(min(others) / ms["ipex"])
            cells.append(f"{ratios[name][-1]:.2f}" if others and "ipex" in ms else "")
        spread = f"{max(sample.spread for sample in samples.values()):.0%}" if samples else ""
        table.add(case, *(f"{ms[p]:.2f}" if p in ms else "" for p in peers), *cells, spread)
        console.print(case, {name: round(value, 3) for name, value in ms.items()}, *cells)
        if arguments.json:
            Path(arguments.json).write_text(json.dumps(results, indent=1), encoding="utf-8")
    means = [f"{name} {statistics.geometric_mean(values):.2f}" for name, values in ratios.items() if values]
    table.title += "; geometric means: " + ", ".join(means) if means else ""
    table.show(console)
    table.save(arguments.tables)


if __name__ == "__main__":
    main()

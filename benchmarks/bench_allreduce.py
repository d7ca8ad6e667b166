"""Times the sum of a tensor over ranks on this machine: gloo, and the backend "ccl", which adds in shared memory.

The sizes are those of DistributedDataParallel's buckets: the first is 1 MB, the others 25 MB. Every rank computes with
one thread. Both backends run in every round; the ratio is the median of the rounds' ratios.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from rich.console import Console
from tables import ResultTable

ONECCL = str(Path(__file__).resolve().parents[1] / "oneccl")
DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}
ROUND_MS = 20.0


def times(groups: dict[str, dist.ProcessGroup], tensor: torch.Tensor, rounds: int) -> dict[str, list[float]]:
    """Milliseconds per sum in each round, by the clock of this rank."""

    def milliseconds(group: dist.ProcessGroup, count: int) -> float:
        dist.barrier()
        start = time.perf_counter()
        for _ in range(count):
            dist.all_reduce(tensor, group=group)
        return (time.perf_counter() - start) * 1e3 / count

    repeats = {}
    for name, group in groups.items():
        milliseconds(group, 1)
        count = torch.tensor(max(1, int(ROUND_MS / milliseconds(group, 2))))
        dist.broadcast(count, 0)
        repeats[name] = int(count)
    result: dict[str, list[float]] = {name: [] for name in groups}
    for _ in range(rounds):
        for name, group in groups.items():
            tensor.fill_(1)
            result[name].append(milliseconds(group, repeats[name]))
    return result


def rank_main(rank: int, arguments: argparse.Namespace, folder: str) -> None:
    sys.path.append(ONECCL)
    import oneccl_bindings_for_pytorch  # noqa: F401

    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=arguments.ranks)
    groups = {"gloo": dist.group.WORLD, "ccl": dist.new_group(backend="ccl")}
    if isinstance(groups["ccl"]._get_backend(torch.device("cpu")), dist.ProcessGroupGloo):
        sys.exit("the ranks have no shared memory; INFO of the logger oneccl_bindings_for_pytorch says why")
    found = {}
    for megabytes in arguments.megabytes:
        for dtype in arguments.only:
            tensor = torch.ones(int(megabytes * 2**20) // DTYPES[dtype].itemsize, dtype=DTYPES[dtype])
            found[f"{megabytes:g} MB, {dtype}"] = times(groups, tensor, arguments.rounds)
    if rank == 0:
        Path(folder, "times").write_text(json.dumps(found), encoding="utf-8")
    dist.barrier()
    dist.destroy_process_group()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--megabytes", nargs="*", type=float, default=[1, 5, 25])
    parser.add_argument("--only", nargs="*", default=list(DTYPES), choices=list(DTYPES))
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--json", help="also save the times of all rounds in this file")
    parser.add_argument("--tables", help="also save the table as Markdown in this folder")
    arguments = parser.parse_args()
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    with tempfile.TemporaryDirectory() as folder:
        mp.spawn(rank_main, (arguments, folder), nprocs=arguments.ranks)
        found = json.loads(Path(folder, "times").read_text(encoding="utf-8"))
    columns = ["tensor", "gloo ms", "ccl ms", "gloo / ccl", "least", "most"]
    table = ResultTable("allreduce", f"Sum of a tensor over {arguments.ranks} ranks", "bench_allreduce.py", columns)
    for name, rounds in found.items():
        ratios = [a / b for a, b in zip(rounds["gloo"], rounds["ccl"], strict=True)]
        medians = [f"{statistics.median(rounds[backend]):.2f}" for backend in ("gloo", "ccl")]
        summary = (statistics.median(ratios), min(ratios), max(ratios))
        table.add(name, *medians, *(f"{ratio:.2f}x" for ratio in summary))
    table.show(Console(width=100))
    table.save(arguments.tables)
    if arguments.json:
        Path(arguments.json).write_text(json.dumps(found, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()

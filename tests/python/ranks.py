"""Processes of a `torch.distributed` group that tests send functions to, so that many cases share one start."""

from __future__ import annotations

import multiprocessing
import os
import sys
import tempfile
import traceback
from collections.abc import Callable
from pathlib import Path

ONECCL = str(Path(__file__).resolve().parents[2] / "oneccl")
# Longer than any case takes on a busy machine.
SECONDS = 300


def work(rank: int, size: int, backend: str, store: str, pipe) -> None:
    """A rank: receives functions and arguments, sends back (result, None) or (None, traceback)."""
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    if backend == "ccl":
        import oneccl_bindings_for_pytorch  # noqa: F401
    dist.init_process_group(backend, init_method=f"file://{store}", rank=rank, world_size=size)
    while (call := pipe.recv()) is not None:
        function, arguments = call
        torch.manual_seed(0)
        if "torch._dynamo" in sys.modules:
            torch._dynamo.reset()
        try:
            answer = function(rank, *arguments), None
        except Exception:
            answer = None, traceback.format_exc()
        pipe.send(answer)
    dist.barrier()
    dist.destroy_process_group()


class Ranks:
    """`run` calls a function of this process's modules in every rank. After a failure the ranks are started afresh."""

    def __init__(self, size: int, backend: str = "ccl", **environment: str) -> None:
        self.size, self.backend = size, backend
        self.environment = {"GLOO_SOCKET_IFNAME": "lo", **environment}
        self.processes: list = []
        self.pipes: list = []

    def start(self) -> None:
        self.folder = tempfile.TemporaryDirectory(prefix="ranks-")
        if ONECCL not in sys.path:
            sys.path.append(ONECCL)  # the ranks inherit it
        context = multiprocessing.get_context("spawn")
        before = dict(os.environ)
        os.environ.update(self.environment)
        try:
            for rank in range(self.size):
                ours, theirs = context.Pipe()
                arguments = (rank, self.size, self.backend, f"{self.folder.name}/store", theirs)
                self.processes.append(context.Process(target=work, args=arguments, daemon=True))
                self.processes[-1].start()
                theirs.close()
                self.pipes.append(ours)
        finally:
            os.environ.clear()
            os.environ.update(before)

    def run(self, function: Callable, *arguments: object) -> list:
        """The results, by rank. The function gets its rank and these arguments."""
        if not self.processes:
            self.start()
        for pipe in self.pipes:
            pipe.send((function, arguments))
        results, failures = [], []
        for rank, pipe in enumerate(self.pipes):
            # When one rank has failed, the others may wait for it in a collective.
            if not pipe.poll(5 if failures else SECONDS):
                failures.append(f"rank {rank} does not answer")
                continue
            try:
                result, failure = pipe.recv()
            except EOFError:
                self.processes[rank].join()
                result, failure = None, f"ended with exit code {self.processes[rank].exitcode}"
            results.append(result)
            if failure:
                failures.append(f"rank {rank}: {failure}")
        if failures:
            self.kill()
        assert not failures, "\n".join(failures)
        return results

    def close(self) -> None:
        """Ends the ranks in the orderly way, and checks that they do end."""
        for pipe in self.pipes:
            pipe.send(None)
        for process in self.processes:
            process.join(60)
        codes = [process.exitcode for process in self.processes]
        self.kill()
        assert not any(codes) and None not in codes, f"exit codes {codes}"

    def kill(self) -> None:
        for process in self.processes:
            process.kill()
            process.join()
        if self.processes:
            self.folder.cleanup()
        self.processes, self.pipes = [], []

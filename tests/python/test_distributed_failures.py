"""A rank that dies or hangs: the others raise a clear error in time, and a restarted job continues bit for bit."""

from __future__ import annotations

import datetime
import multiprocessing
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from ranks import ONECCL
from torch import nn
from torch.nn.parallel import DistributedDataParallel

pytest.importorskip("intel_extension_for_pytorch")
TIMEOUT = 60
SWITCH = "ONECCL_BINDINGS_FOR_PYTORCH_SHARED_MEMORY"


def train_until_killed(rank, store, pipe):
    """Trains for ever. Sends its process number after a few steps, and then the error that ends the training."""
    torch.set_num_threads(1)
    import oneccl_bindings_for_pytorch  # noqa: F401

    timeout = datetime.timedelta(seconds=TIMEOUT)
    dist.init_process_group("ccl", init_method=f"file://{store}", rank=rank, world_size=2, timeout=timeout)
    torch.manual_seed(0)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(64, 256), nn.Linear(256, 64)))
    try:
        for step in range(10**9):
            model(torch.randn(4, 64)).square().mean().backward()
            if step == 5:
                pipe.send("is training")
    except Exception as error:
        pipe.send((type(error).__name__, str(error)))


@pytest.mark.parametrize("memory", ["shared", pytest.param("gloo", marks=pytest.mark.nightly)])
def test_a_rank_is_killed(memory, tmp_path, monkeypatch):
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "lo")
    monkeypatch.setenv(SWITCH, "1" if memory == "shared" else "0")
    monkeypatch.syspath_prepend(ONECCL)
    context = multiprocessing.get_context("spawn")
    ranks, pipes = [], []
    for rank in range(2):
        ours, theirs = context.Pipe()
        ranks.append(context.Process(target=train_until_killed, args=(rank, str(tmp_path / "store"), theirs)))
        ranks[-1].start()
        theirs.close()
        pipes.append(ours)
    try:
        for pipe in pipes:
            assert pipe.poll(120) and pipe.recv() == "is training"
        os.kill(ranks[1].pid, signal.SIGKILL)
        start = time.monotonic()
        assert pipes[0].poll(TIMEOUT), "no error within the time-out"
        kind, text = pipes[0].recv()
        seconds = time.monotonic() - start
    finally:
        for process in ranks:
            process.kill()
            process.join()
    assert seconds < TIMEOUT / 2
    if memory == "shared":
        assert kind == "DistBackendError"
        assert "all_reduce of" in text and "rank 1 of the 2 ranks in this group has ended or left the group" in text
    else:
        assert "onnection" in text, text


@pytest.mark.needs_cpu("avx512f")
def test_a_restarted_job_continues_bit_for_bit(tmp_path):
    search = os.pathsep.join(filter(None, [ONECCL, os.environ.get("PYTHONPATH")]))
    job = Path(__file__).with_name("restarted_job.py")
    # With the store of its first life, a second one of a job over gloo finds addresses that are gone (PyTorch 2.13).
    new_store = {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    done = subprocess.run(
        [*command, "--max-restarts", "1", "--monitor-interval", "0.1", job, tmp_path],
        env=os.environ | {"PYTHONPATH": search, "GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1"} | new_store,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "result").read_text() == "equal"

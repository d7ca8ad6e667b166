"""A job for torchrun: trains an optimized model on two ranks over "ccl" and writes a checkpoint in the middle.

    TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1 torchrun --max-restarts 1 ... restarted_job.py FOLDER

In its first life rank 1 is killed after the checkpoint, and torchrun starts both ranks again. They continue from the
checkpoint. Then the same training runs without an interruption, and rank 0 compares: "equal" in FOLDER/result.
"""

import os
import signal
import sys
from pathlib import Path

import intel_extension_for_pytorch as ipex
import oneccl_bindings_for_pytorch  # noqa: F401
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

STEPS, SAVED = 6, 3


def prepared():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 32), nn.Dropout(0.2), nn.ReLU(), nn.Linear(32, 3)).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    return ipex.optimize(model, optimizer=optimizer, dtype=torch.bfloat16)


def batch(rank, step):
    generator = torch.Generator().manual_seed(100 * rank + step)
    return torch.randn(16, 8, generator=generator)


def train(path, dies):
    """The parameters after all steps, from the checkpoint if there is one."""
    rank = dist.get_rank()
    model, optimizer = prepared()
    start = 0
    if path.exists():
        saved = torch.load(path)
        model.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        start = saved["step"]
    ddp = DistributedDataParallel(model)
    for step in range(start, STEPS):
        torch.manual_seed(1000 * rank + step)  # dropout
        optimizer.zero_grad()
        with torch.autocast("cpu", torch.bfloat16):
            loss = ddp(batch(rank, step)).float().square().mean()
        loss.backward()
        optimizer.step()
        if step + 1 == SAVED:
            if rank == 0:
                torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": SAVED}, path)
            dist.barrier()
        elif step == SAVED and dies and rank == 1:
            os.kill(os.getpid(), signal.SIGKILL)
    return [value.clone() for value in model.state_dict().values()], start


def main():
    folder = Path(sys.argv[1])
    torch.set_num_threads(1)
    dist.init_process_group("ccl")
    is_first_life = os.environ["TORCHELASTIC_RESTART_COUNT"] == "0"
    found, start = train(folder / "checkpoint", dies=is_first_life)
    assert start == SAVED, "the job was not restarted from its checkpoint"
    wanted, start = train(folder / "another", dies=False)
    assert start == 0
    if dist.get_rank() == 0:
        same = all(torch.equal(a, b) for a, b in zip(found, wanted, strict=True))
        (folder / "result").write_text("equal" if same else f"differ: {found} {wanted}")
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

"""Optimized models under DistributedDataParallel and FSDP2 on two ranks: equal parameters, and the public state."""

import copy
import os
import tempfile
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.nn.parallel import DistributedDataParallel

RANKS = 2
BATCH = 4


def net():
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 36, 8), nn.Linear(8, 3)).train()


def data():
    generator = torch.Generator().manual_seed(1)
    return torch.randn(RANKS * BATCH, 3, 8, 8, generator=generator)


def train(model, optimizer, x, steps, low):
    for _ in range(steps):
        optimizer.zero_grad()
        with torch.autocast("cpu", torch.bfloat16, enabled=low):
            loss = model(x).float().square().mean()
        loss.backward()
        optimizer.step()
    return loss.detach()


def optimized(mode):
    import intel_extension_for_pytorch as ipex

    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    options = {} if mode == "fp32" else {"dtype": torch.bfloat16, "split_master_weight_for_bf16": mode == "split"}
    return ipex.optimize(model, optimizer=optimizer, **options)


def under_ddp(rank, mode, options, compiled, folder):
    model, optimizer = optimized(mode)
    ddp = DistributedDataParallel(model, **options)
    run = torch.compile(ddp, backend="ipex") if compiled else ddp
    mine = data()[rank * BATCH : (rank + 1) * BATCH]
    train(run, optimizer, mine, 3, mode != "fp32")
    parts = [*model.state_dict().values()]
    parts += [w.parameter_trail for w in optimizer.params_attr.values() if w.parameter_trail is not None]
    torch.save(parts, f"{folder}/{rank}")
    wrapped = ddp.state_dict()
    assert [key.removeprefix("module.") for key in wrapped] == list(model.state_dict())
    assert all(value.dtype is torch.float32 for value in wrapped.values())
    # Saved in the middle by rank 0, loaded by all ranks, and continued.
    fresh, fresh_optimizer = optimized(mode)
    fresh.load_state_dict(copy.deepcopy(model.state_dict()))
    fresh_optimizer.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    again = DistributedDataParallel(fresh, **options)
    losses = [train(m, o, mine, 2, mode != "fp32") for m, o in ((run, optimizer), (again, fresh_optimizer))]
    assert compiled or torch.equal(*losses)


def under_fsdp(rank, mode, options, compiled, folder):
    import intel_extension_for_pytorch as ipex
    from torch.distributed.fsdp import fully_shard
    from torch.distributed.tensor import DTensor

    ipex.disable_auto_channels_last()  # FSDP takes only row-major parameters
    plain = net().eval()
    model = ipex.optimize(plain, dtype=torch.bfloat16)
    x = data()
    with torch.no_grad():
        wanted = model(x)
        fully_shard(model)
        torch.testing.assert_close(model(x), wanted)
        state = model.state_dict()
    for key, value in plain.state_dict().items():
        assert isinstance(state[key], DTensor) and state[key].dtype is torch.float32
        torch.testing.assert_close(state[key].full_tensor(), value, rtol=2**-8, atol=0)


def work(rank, function, store, *arguments):
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=RANKS)
    try:
        function(rank, *arguments)
    finally:
        dist.destroy_process_group()
    # The threads of gloo outlive the group when a DDP model used it. One that then frees the last reference to a tensor
    # needs the GIL, and aborts the process if Python is already shutting down (pytorch #190489).
    os._exit(0)


def run(function, *arguments):
    with tempfile.TemporaryDirectory() as folder:
        mp.spawn(work, (function, f"{folder}/store", *arguments, folder), nprocs=RANKS)
        return [torch.load(path) for path in sorted(Path(folder).glob("[01]"))]


OPTIONS = {
    "plain": {},
    "static graph": {"static_graph": True, "gradient_as_bucket_view": True},
    "unused": {"find_unused_parameters": True},
}


@pytest.mark.parametrize(
    "mode, options, compiled",
    [("fp32", "plain", False)]
    + [
        pytest.param(mode, options, compiled, marks=pytest.mark.needs_cpu("avx512f"))
        for mode, options, compiled in [
            ("split", "plain", False),
            ("split", "static graph", False),
            ("master", "unused", False),
            ("split", "plain", True),
        ]
    ],
)
def test_ddp(mode, options, compiled):
    first, second = run(under_ddp, mode, OPTIONS[options], compiled)
    for a, b in zip(first, second, strict=True):  # low halves are any bits, also those of NaN
        assert torch.equal(a.contiguous().view(torch.uint8), b.contiguous().view(torch.uint8))
    model, optimizer = optimized(mode)  # one rank with the double batch
    train(model, optimizer, data(), 3, mode != "fp32")
    before = copy.deepcopy(net().state_dict())
    for a, (key, b) in zip(first, model.state_dict().items(), strict=False):
        change, wanted = a - before[key], b - before[key]
        assert (change - wanted).norm() <= (1e-4 if mode == "fp32" else 5e-2) * wanted.norm(), key


@pytest.mark.needs_cpu("avx512f")
def test_fsdp():
    run(under_fsdp, "split", {}, False)

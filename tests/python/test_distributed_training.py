"""Training on two ranks over "ccl": DistributedDataParallel around optimized and compiled models, in either order, with
its options and hooks; FSDP2 of compiled models. Each gives the parameters of one rank with the double batch, and the
same bits on both ranks."""

from __future__ import annotations

import copy
import itertools
from types import SimpleNamespace

import intel_extension_for_pytorch as ipex
import pytest
import torch
import torch.distributed as dist
from ranks import Ranks
from torch import nn
from torch.nn.parallel import DistributedDataParallel

RANKS = 2
BATCH = 4
STEPS = 3
OPTIONS = {
    "plain": {},
    "static": {"static_graph": True, "gradient_as_bucket_view": True},
    "unused": {"find_unused_parameters": True},
    "views": {"gradient_as_bucket_view": True, "bucket_cap_mb": 0.001},
}
# Changes of parameters, relative to those of one rank: rounding of another order of sums, and of gradients in bf16.
TOLERANCE = {"fp32": 1e-4, "bf16": 5e-2}


@pytest.fixture(scope="module")
def ranks():
    pytest.importorskip("intel_extension_for_pytorch")
    ranks = Ranks(RANKS)
    yield ranks
    ranks.close()


class Net(nn.Module):
    """A convolution, layers of several buckets, and one that only some cases use."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.conv = nn.Conv2d(3, 4, 3)
        self.layers = nn.ModuleList(nn.Linear(a, b) for a, b in ((4 * 36, 16), (16, 16), (16, 3)))
        self.unused = nn.Linear(16, 16)

    def forward(self, x):
        x = torch.relu(self.conv(x)).flatten(1)
        for layer in self.layers[:-1]:
            x = torch.relu(layer(x))
        return self.layers[-1](x)


def data():
    return torch.randn(RANKS * BATCH, 3, 8, 8, generator=torch.Generator().manual_seed(1))


def prepared(case):
    """A model and its optimizer, optimized or not."""
    model = Net().train()
    if case.options != "unused":
        del model.unused
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    if case.optimized is None:
        return model, optimizer
    import intel_extension_for_pytorch as ipex

    dtype = torch.bfloat16 if case.optimized == "bf16" else torch.float32
    return ipex.optimize(model, optimizer=optimizer, dtype=dtype)


def train(run, optimizer, x, case):
    for _ in range(STEPS):
        optimizer.zero_grad()
        with torch.autocast("cpu", torch.bfloat16, enabled=case.optimized == "bf16"):
            loss = run(x).float().square().mean()
        loss.backward()
        optimizer.step()


def assert_same_change(found, wanted, before, tolerance):
    for name, start in before.items():
        change, expected = found[name] - start, wanted[name] - start
        assert (change - expected).norm() <= tolerance * expected.norm(), name


def assert_same_bits_on_all_ranks(tensors):
    for tensor in tensors:
        bits = tensor.detach().contiguous().view(torch.uint8)
        copies = [torch.empty_like(bits) for _ in range(RANKS)]
        dist.all_gather(copies, bits)
        assert all(torch.equal(bits, other) for other in copies)


def gradients_in_bf16(group, bucket):
    """DDP takes a function of the name bf16_compress_hook only with NCCL."""
    from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import bf16_compress_hook

    return bf16_compress_hook(group, bucket)


def under_ddp(rank, case):
    dist._DEFAULT_FIRST_BUCKET_BYTES = 1 << 10  # small models have several buckets too
    model, optimizer = prepared(case)
    run = model
    if case.order == "compile in DDP":
        run = torch.compile(run, backend="ipex")
    ddp = run = DistributedDataParallel(run, **OPTIONS[case.options])
    if case.hook:
        ddp.register_comm_hook(None, gradients_in_bf16)
    if case.order == "DDP in compile":
        run = torch.compile(run, backend="ipex")
    train(run, optimizer, data()[rank * BATCH : (rank + 1) * BATCH], case)
    attributes = getattr(optimizer, "params_attr", {}).values()
    trails = [a.parameter_trail for a in attributes if a.parameter_trail is not None]
    assert bool(trails) == (case.optimized == "bf16")
    assert_same_bits_on_all_ranks([*model.parameters(), *trails])

    alone, optimizer = prepared(case)  # one rank with the double batch
    before = copy.deepcopy(alone.state_dict())
    train(alone, optimizer, data(), case)
    if case.options == "unused":
        before = {name: value for name, value in before.items() if not name.startswith("unused")}
    low = case.hook or case.optimized == "bf16"
    assert_same_change(model.state_dict(), alone.state_dict(), before, TOLERANCE["bf16" if low else "fp32"])


def cases():
    """All combinations. Some run each time: each option, each order and each kind of model at least once."""
    often = {
        ("eager", None, "static", True),
        ("eager", "fp32", "views", False),
        ("eager", "bf16", "static", False),
        ("compile in DDP", None, "views", False),
        ("compile in DDP", "bf16", "plain", False),
        ("DDP in compile", None, "unused", False),
        ("DDP in compile", "fp32", "static", False),
        ("DDP in compile", "bf16", "views", False),
        ("DDP in compile", "bf16", "plain", True),
    }
    orders = ("eager", "compile in DDP", "DDP in compile")
    for order, optimized, options, hook in itertools.product(orders, (None, "fp32", "bf16"), OPTIONS, (False, True)):
        marks = [] if (order, optimized, options, hook) in often else [pytest.mark.nightly]
        if optimized == "bf16":
            marks.append(pytest.mark.needs_cpu("avx512f"))
        if order != "eager":
            marks.append(pytest.mark.needs_ipex)
        yield pytest.param(
            SimpleNamespace(order=order, optimized=optimized, options=options, hook=hook),
            id=f"{order.replace(' ', '_')}-{optimized}-{options}{'-bf16_hook' if hook else ''}",
            marks=marks,
        )


@pytest.mark.parametrize("case", [*cases()])
def test_ddp(ranks, case):
    ranks.run(under_ddp, case)


def under_fsdp(rank, how):
    from torch.distributed.fsdp import fully_shard

    case = SimpleNamespace(optimized=None, options="plain")
    model, _ = prepared(case)
    before = copy.deepcopy(model.state_dict())
    if how == "optimized":
        ipex.disable_auto_channels_last()  # FSDP2 takes row-major parameters only
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
        ipex.optimize(model, optimizer=optimizer, inplace=True, auto_kernel_selection=True)
        ipex.enable_auto_channels_last()
    for layer in model.layers:
        if how == "layers":
            layer.compile(backend="ipex")
        fully_shard(layer)
    fully_shard(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    run = torch.compile(model, backend="ipex") if how == "model" else model
    train(run, optimizer, data()[rank * BATCH : (rank + 1) * BATCH], case)
    found = {name: value.full_tensor() for name, value in model.state_dict().items()}
    assert_same_bits_on_all_ranks(found.values())

    alone, optimizer = prepared(case)
    train(alone, optimizer, data(), case)
    assert_same_change(found, alone.state_dict(), before, TOLERANCE["fp32"])


@pytest.mark.needs_ipex
@pytest.mark.parametrize("how", ["layers", "model", "optimized"])
def test_fsdp(ranks, how):
    ranks.run(under_fsdp, how)

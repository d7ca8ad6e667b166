"""Distributed programs on gloo and the loopback interface: DDP with one graph per bucket, FSDP2, DTensor, collectives.

Two workers are started once; a test sends them a function of (rank, compiled), which returns None or raises.
"""

import contextlib
import copy
import multiprocessing
import os
import traceback

import pytest
import torch
import torch.distributed as dist
from comparison import assert_close_to_eager, difference
from conftest import BACKEND
from torch import nn
from torch.nn import functional as F

WORKERS = 2


def work(rank, store, pipe):
    """A worker process: receives functions, and sends back None or a traceback."""
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    torch.set_num_threads(1)
    dist._DEFAULT_FIRST_BUCKET_BYTES = 1 << 10  # small models have several buckets too
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=WORKERS)
    while (function := pipe.recv()) is not None:
        torch._dynamo.reset()
        torch._dynamo.utils.counters.clear()
        torch.manual_seed(0)
        try:
            with nothing_runs_eagerly():
                function(rank, lambda target, **arguments: torch.compile(target, backend=BACKEND, **arguments))
            assert torch._dynamo.utils.counters["stats"]["unique_graphs"], "nothing was compiled"
            pipe.send(None)
        except Exception:
            pipe.send(traceback.format_exc())
    dist.destroy_process_group()


@contextlib.contextmanager
def nothing_runs_eagerly():
    if BACKEND != "ipex":
        yield
        return
    from intel_extension_for_pytorch.compiler.records import record_reports

    with record_reports() as reports:
        yield
    eager = [report["eager"] for report in reports if report["eager"]]
    assert not eager, eager


@pytest.fixture(scope="module")
def workers(tmp_path_factory):
    """run(function): calls function(rank, compiled) in all workers at the same time."""
    context = multiprocessing.get_context("spawn")
    store = tmp_path_factory.mktemp("distributed") / "store"
    pipes, processes = [], []
    for rank in range(WORKERS):
        ours, theirs = context.Pipe()
        process = context.Process(target=work, args=(rank, str(store), theirs), daemon=True)
        process.start()
        theirs.close()
        pipes.append(ours)
        processes.append(process)

    def run(function):
        for pipe in pipes:
            pipe.send(function)
        failures = []
        for rank, pipe in enumerate(pipes):
            # If one worker fails, the others hang in a collective: do not wait for them.
            assert failures or pipe.poll(300), f"worker {rank} does not answer"
            if pipe.poll(5) and (failure := pipe.recv()):
                failures.append(f"worker {rank}: {failure}")
        assert not failures, "\n".join(failures)

    yield run
    for pipe in pipes:
        pipe.send(None)
    for process in processes:
        process.join(20)
        if process.is_alive():
            process.kill()


class Layer(nn.Module):
    """A user-defined layer: under DDP and FSDP, Dynamo does not trace PyTorch's own forward functions."""

    def __init__(self, width):
        super().__init__()
        self.linear = nn.Linear(32, width)

    def forward(self, x):
        return F.gelu(self.linear(x)) * 2


class Layers(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(Layer(width) for width in (32, 32, 32, 32, 4))

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return x


def batch(rank, step):
    """A batch that differs by worker and step."""
    return torch.randn(6, 32, generator=torch.Generator().manual_seed(10 * step + rank))


def train(run, model, rank, steps=3):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(steps):
        optimizer.zero_grad()
        run(batch(rank, step)).square().mean().backward()
        optimizer.step()


# ---- data parallel ----


def ddp_is_cut_at_its_buckets(rank, compiled):
    """There are several graphs, so that a bucket's gradients are sent while the next ones are computed."""
    from torch.nn.parallel import DistributedDataParallel

    eager = Layers()
    ours = copy.deepcopy(eager)
    bucket = {"bucket_cap_mb": 0.01}  # two layers of 4 KB
    eager, ours = DistributedDataParallel(eager, **bucket), DistributedDataParallel(ours, **bucket)
    graphs = []

    def counting(module, inputs):
        graphs.append(module)
        return torch._dynamo.lookup_backend(BACKEND)(module, inputs)

    train(eager, eager, rank)
    train(torch.compile(ours, backend=counting), ours, rank)
    assert len(graphs) > 1
    assert_close_to_eager(list(ours.parameters()), list(eager.parameters()), scale=20.0)


def ddp_without_the_cut(rank, compiled):
    from torch.nn.parallel import DistributedDataParallel

    eager = Layers()
    ours = copy.deepcopy(eager)
    eager, ours = DistributedDataParallel(eager), DistributedDataParallel(ours)
    with torch._dynamo.config.patch(optimize_ddp=False):
        train(eager, eager, rank)
        train(compiled(ours), ours, rank)
    assert_close_to_eager(list(ours.parameters()), list(eager.parameters()), scale=20.0)


def ddp_without_synchronisation(rank, compiled):
    """Accumulates gradients over two batches before they are summed over the workers."""
    from torch.nn.parallel import DistributedDataParallel

    def gradients(compile_it):
        torch.manual_seed(0)
        model = DistributedDataParallel(Layers())
        run = compile_it(model)
        with model.no_sync():
            run(batch(rank, 0)).square().mean().backward()
        run(batch(rank, 1)).square().mean().backward()
        return [p.grad for p in model.parameters()]

    assert_close_to_eager(gradients(compiled), gradients(lambda model: model), scale=20.0)


# ---- sharded ----


def sharded_training(rank, compile_layer, compile_model):
    """Parameters after training under FSDP2. `compile_layer` is applied to each layer before it is sharded."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    mesh = init_device_mesh("cpu", (WORKERS,))
    torch.manual_seed(0)
    model = Layers()
    for layer in model.layers:
        compile_layer(layer)
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    train(compile_model(model), model, rank)
    return [p.full_tensor() for p in model.parameters()]


def as_it_is(module):
    return module


def fully_sharded(rank, compiled):
    """FSDP2: parameters are DTensors, which hooks gather before each layer runs."""
    expected = sharded_training(rank, as_it_is, as_it_is)
    assert_close_to_eager(sharded_training(rank, as_it_is, compiled), expected, scale=20.0)


def fully_sharded_layer_by_layer(rank, compiled):
    """The recommended way: every layer is compiled before it is sharded."""
    expected = sharded_training(rank, as_it_is, as_it_is)
    found = sharded_training(rank, lambda layer: layer.compile(backend=BACKEND), as_it_is)
    assert_close_to_eager(found, expected, scale=20.0)


def distributed_tensors(rank, compiled):
    """One product sharded by rows and one by columns: the collectives are part of the graph."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Replicate, Shard, distribute_tensor

    mesh = init_device_mesh("cpu", (WORKERS,))
    x, w = torch.randn(8, 6), torch.randn(6, 4)

    def function(x, w):
        y = torch.relu(x @ w) + 1
        return y, (y * 2).redistribute(mesh, [Replicate()]).sum()

    for placements in (Shard(0), Replicate()), (Replicate(), Shard(1)), (Shard(1), Shard(0)):
        arguments = [distribute_tensor(t, mesh, [p]) for t, p in zip((x, w), placements, strict=True)]
        ours, eager = compiled(function)(*arguments), function(*arguments)
        for a, b in zip(ours, eager, strict=True):
            assert a.placements == b.placements
            message = difference(a.full_tensor(), b.full_tensor())
            assert message is None, message


def gradients_of_distributed_tensors(rank, compiled):
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Replicate, Shard, distribute_tensor

    mesh = init_device_mesh("cpu", (WORKERS,))

    def gradient(compile_it):
        torch.manual_seed(0)
        w = distribute_tensor(torch.randn(6, 4), mesh, [Shard(1)]).requires_grad_()
        x = distribute_tensor(torch.randn(8, 6), mesh, [Replicate()])
        compile_it(lambda x, w: torch.tanh(x @ w).square())(x, w).sum().backward()
        return w.grad.full_tensor()

    assert_close_to_eager(gradient(compiled), gradient(lambda f: f))


# ---- collectives ----


def collectives(rank, compiled):
    from torch.distributed import _functional_collectives as collective

    group = dist.group.WORLD
    x = torch.arange(8.0).view(4, 2) + rank

    def function(x):
        total = collective.all_reduce(x * 2, "sum", group)
        return total + 1, collective.all_gather_tensor(x.exp(), 0, group), collective.reduce_scatter_tensor(
            x, "sum", 0, group
        )  # fmt: skip

    assert_close_to_eager(compiled(function)(x), function(x))


def collective_in_place(rank, compiled):
    def function(x):
        y = x * 2
        dist.all_reduce(y)
        return y + 1

    x = torch.arange(4.0) + rank
    assert_close_to_eager(compiled(function)(x), function(x))


@pytest.mark.parametrize(
    "program",
    [
        # This test runs first: after other programs, PyTorch 2.13 fails to partition it, with every backend.
        gradients_of_distributed_tensors,
        ddp_is_cut_at_its_buckets, ddp_without_the_cut, ddp_without_synchronisation, fully_sharded,
        fully_sharded_layer_by_layer, distributed_tensors, collectives, collective_in_place,
    ],
    ids=lambda f: f.__name__,
)  # fmt: skip
def test_program(program, workers):
    workers(program)

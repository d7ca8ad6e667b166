"""The backend "ccl": every collective in every dtype, sums in shared memory and by gloo, groups, works and futures, and
what happens when the ranks do not do the same."""

from __future__ import annotations

import datetime
import os
import subprocess
import sys
import time

import pytest
import torch
import torch.distributed as dist
from intel_extension_for_pytorch import _C
from ranks import ONECCL, Ranks

DTYPES = (torch.float32, torch.bfloat16, torch.float16, torch.float64, torch.int64, torch.int32, torch.uint8)
SWITCH = "ONECCL_BINDINGS_FOR_PYTORCH_SHARED_MEMORY"


# Three ranks own parts of different sizes, and are more than the cores of a small machine.
@pytest.fixture(scope="module", params=[3, 2], ids=["shared-3", "gloo-2"])
def ranks(request):
    ranks = Ranks(request.param, **{SWITCH: "1" if request.param == 3 else "0"})
    yield ranks
    ranks.close()


@pytest.fixture(scope="module")
def shared():
    """Two ranks, with the kernels of other CPUs."""
    pytest.importorskip("intel_extension_for_pytorch")
    ranks = Ranks(2, IPEX_TARGET="avx2")
    yield ranks
    ranks.close()


def numbers(rank, elements, dtype):
    """Values of which sums over ranks are exact."""
    generator = torch.Generator().manual_seed(rank)
    return torch.randint(0, 9, (elements,), generator=generator).to(dtype)


def is_shared(group=None):
    backend = (group or dist.group.WORLD)._get_backend(torch.device("cpu"))
    return _C.has_shared_memory(backend)


def backend_of_the_group(rank):
    assert dist.get_backend() == "ccl"
    assert is_shared() == (os.environ[SWITCH] == "1")


def all_collectives(rank, dtype):
    size, count = dist.get_world_size(), 1000
    all_of = [numbers(r, count, dtype) for r in range(size)]
    mine, total = all_of[rank], sum(all_of)
    stacked = torch.cat(all_of)
    parts = [torch.full((count,), 10 * rank + r, dtype=dtype) for r in range(size)]  # for rank r
    for_me = [torch.full((count,), 10 * r + rank, dtype=dtype) for r in range(size)]

    def same(found, wanted):
        assert found.dtype is dtype and torch.equal(found, wanted), (found, wanted)

    def empty():
        return [torch.empty_like(mine) for _ in range(size)]

    x = mine.clone()
    dist.broadcast(x, 1)
    same(x, all_of[1])
    for op, wanted in (
        (dist.ReduceOp.SUM, total),
        (dist.ReduceOp.MAX, torch.stack(all_of).amax(0)),
        (dist.ReduceOp.MIN, torch.stack(all_of).amin(0)),
        (dist.ReduceOp.PRODUCT, torch.stack(all_of).prod(0).to(dtype)),
    ):
        x = mine.clone()
        dist.all_reduce(x, op)
        same(x, wanted)
    x, y = mine.clone(), mine[:7].clone()
    dist.all_reduce_coalesced([x, y])
    same(x, total)
    same(y, total[:7])
    x = mine.clone()
    dist.reduce(x, 0)
    if rank == 0:
        same(x, total)
    out = empty()
    dist.all_gather(out, mine)
    same(torch.cat(out), stacked)
    out = torch.empty_like(stacked)
    dist.all_gather_into_tensor(out, mine)
    same(out, stacked)
    flat = torch.empty(stacked.numel(), dtype=dtype)  # as Accelerate gathers, of tensors with more dimensions
    dist.all_gather_into_tensor(flat, mine.reshape(1, -1))
    same(flat, stacked.flatten())
    out = empty() if rank == 0 else None
    dist.gather(mine, out, 0)
    if rank == 0:
        same(torch.cat(out), stacked)
    x = torch.empty_like(mine)
    dist.scatter(x, parts if rank == 1 else None, 1)
    same(x, torch.full((count,), 10 + rank, dtype=dtype))
    dist.reduce_scatter(x, list(parts))
    same(x, sum(for_me))
    dist.reduce_scatter_tensor(x, torch.cat(parts))
    same(x, sum(for_me))
    out = empty()
    dist.all_to_all(out, list(parts))
    same(torch.cat(out), torch.cat(for_me))
    out = torch.empty_like(stacked)
    dist.all_to_all_single(out, torch.cat(parts))
    same(out, torch.cat(for_me))
    if rank == 0:
        dist.send(mine, 1)
    elif rank == 1:
        dist.recv(x, 0)
        same(x, all_of[0])
    dist.barrier()


def objects(rank):
    found = [None] * dist.get_world_size()
    dist.all_gather_object(found, {"rank": rank})
    assert found == [{"rank": r} for r in range(len(found))]


def sums_are_rounded_once(rank, dtype):
    """16-bit floats are added in fp32, in the order of the ranks; sizes from nothing to several pieces."""
    wide = torch.promote_types(dtype, torch.float32)
    for elements in (0, 1, 31, 1000, (1 << 18) // dtype.itemsize, (1 << 20) + 7):
        all_of = []
        for r in range(dist.get_world_size()):
            generator = torch.Generator().manual_seed(r)
            all_of.append(torch.randn(elements, generator=generator).to(dtype))
        x = all_of[rank].clone()
        dist.all_reduce(x)
        total = all_of[0].to(wide)
        for other in all_of[1:]:
            total = total + other.to(wide)
        assert torch.equal(x, total.to(dtype)), elements


def special_values(rank):
    values = [float("inf"), float("nan"), -0.0, 65504.0]
    for dtype in (torch.float32, torch.bfloat16, torch.float16):
        x = torch.tensor(values, dtype=dtype).repeat(20)
        wanted = x.float()
        for _ in range(dist.get_world_size() - 1):
            wanted = wanted + x.float()
        dist.all_reduce(x)
        assert torch.equal(x.nan_to_num(7), wanted.to(dtype).nan_to_num(7))
        assert torch.equal(x.signbit()[2::4], wanted.signbit()[2::4])


def strides_may_differ(rank):
    """The elements of the same index are added, also if the ranks store them in different orders."""
    all_of = [torch.arange(120.0).view(2, 3, 4, 5) * 10**r for r in range(dist.get_world_size())]
    wanted = sum(all_of)
    for layout in (
        lambda x, rank: x.to(memory_format=torch.channels_last) if rank else x.clone(),
        lambda x, rank: x.clone() if rank else torch.stack([x, x], -1)[..., 0],
    ):
        x = layout(all_of[rank], rank)
        strides = x.stride()
        dist.all_reduce(x)
        assert torch.equal(x, wanted) and x.stride() == strides


def works_and_futures(rank):
    size = dist.get_world_size()
    tensors = [torch.full((50_000,), float(i + rank)) for i in range(8)]
    works = [dist.all_reduce(x, async_op=True) for x in tensors]
    seen = []
    chained = works[3].get_future().then(lambda future: seen.append(future.value()[0][0].item()) or 5)
    for work in reversed(works):
        assert work.wait()
    assert all(work.is_completed() and work.is_success() and work.exception() is None for work in works)
    wanted = [float(size * i + size * (size - 1) // 2) for i in range(8)]
    assert [x[0].item() for x in tensors] == wanted and works[2].result()[0][0] == wanted[2]
    assert chained.wait() == 5 and seen == [wanted[3]]
    # A barrier, and collectives of gloo, between sums that nobody has waited for.
    x, flag = torch.ones(1 << 20), torch.ones(3, dtype=torch.int64)
    first, second = dist.all_reduce(x, async_op=True), dist.all_reduce(flag, async_op=True)
    dist.barrier()
    first.wait(), second.wait()
    assert x[-1] == size and flag[0] == size


def barrier_beside_other_collectives(rank):
    """Whether a rank has finished its sums when it calls the barrier decides nothing."""
    x, y = torch.ones(1000), torch.full((3,), float(rank))
    if rank == 1:
        time.sleep(1)  # rank 0's sum is under way meanwhile
    works = [dist.all_reduce(x, async_op=True)]
    if rank == 1:
        works.pop().wait()
        time.sleep(0.3)
    works += [dist.barrier(async_op=True), dist.broadcast(y, 0, async_op=True)]
    for work in works:
        work.wait()
    assert torch.equal(x, torch.full((1000,), float(dist.get_world_size()))) and torch.equal(y, torch.zeros(3))


def groups(rank):
    """Groups of all and of some ranks, several at a time, with and without the name of the backend."""
    size = dist.get_world_size()
    world = [dist.new_group(backend="ccl"), dist.new_group()]
    pair = dist.new_group([0, 1])
    alone = dist.new_group([1])
    assert dist.get_backend(world[0]) == dist.get_backend(world[1]) == "ccl"
    assert is_shared(world[0]) == is_shared()
    works = []
    tensors = [torch.full((10_000,), 2.0**i) for i in range(4)]
    for x, group in zip(tensors[:3], (*world, dist.group.WORLD), strict=True):
        works.append(dist.all_reduce(x, group=group, async_op=True))
    if rank < 2:
        works.append(dist.all_reduce(tensors[3], group=pair, async_op=True))
        assert is_shared(pair) == is_shared()
    for work in works:
        work.wait()
    assert [x[9].item() for x in tensors] == [size, 2.0 * size, 4.0 * size, 16.0 if rank < 2 else 8.0]
    if rank == 1:
        x = torch.ones(3)
        dist.all_reduce(x, group=alone)
        assert x.tolist() == [1.0] * 3 and not is_shared(alone)
    for group in world:
        dist.destroy_process_group(group)
    if rank < 2:
        dist.destroy_process_group(pair)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_collectives(ranks, dtype):
    ranks.run(all_collectives, dtype)


@pytest.mark.parametrize(
    "case", [backend_of_the_group, objects, special_values, works_and_futures, barrier_beside_other_collectives, groups]
)
def test_case(ranks, case):
    ranks.run(case)


@pytest.mark.parametrize("dtype", [d for d in DTYPES if d.is_floating_point], ids=str)
def test_sums_are_rounded_once(ranks, dtype):
    ranks.run(sums_are_rounded_once, dtype)


def test_strides_may_differ(shared):
    shared.run(strides_may_differ)


def test_kernels_of_another_instruction_set(shared):
    shared.run(sums_are_rounded_once, torch.bfloat16)


def one_rank_refuses(rank):
    """All ranks decide the same, whichever of them cannot take part."""
    for refusing in range(2):
        if rank == refusing:
            os.environ[SWITCH] = "0"
        group = dist.new_group()
        os.environ.pop(SWITCH, None)
        assert not is_shared(group)
        x = torch.ones(5)
        dist.all_reduce(x, group=group)
        assert x.sum() == 10
        dist.destroy_process_group(group)


def memory_of_another_group(rank):
    from intel_extension_for_pytorch import _C

    segment = _C.SharedSegment.create(2)
    for path, ranks in (("/proc/self/fd/999999", 2), ("/proc/self/exe", 2), (segment.path, 3)):
        with pytest.raises(OSError, match="shared memory of the ranks"):
            _C.SharedSegment.open(path, 1, ranks)


def the_group_ends_before_its_sums(rank):
    """What is under way is finished first. A callback may hold the last reference to the group."""
    seen = []

    def start():
        group = dist.new_group()
        tensors = [torch.ones(1 << 20) for _ in range(4)]
        works = [dist.all_reduce(x, group=group, async_op=True) for x in tensors]
        works[-1].get_future().then(lambda _: seen.append(group is not None))
        dist.destroy_process_group(group)
        return tensors

    tensors = start()
    deadline = time.monotonic() + 60
    while not seen and time.monotonic() < deadline:
        time.sleep(0.01)
    assert seen == [True] and all(x[-1] == 2 for x in tensors)


@pytest.mark.parametrize("case", [one_rank_refuses, memory_of_another_group, the_group_ends_before_its_sums])
def test_group(shared, case):
    shared.run(case)


# ---- what goes wrong ----


def environment(**more):
    """For a process that imports the package from its folder."""
    search = os.pathsep.join(filter(None, [ONECCL, os.environ.get("PYTHONPATH")]))
    clean = {k: v for k, v in os.environ.items() if k not in ("RANK", "WORLD_SIZE", "LOCAL_RANK")}
    return clean | {"PYTHONPATH": search, "GLOO_SOCKET_IFNAME": "lo", **more}


def raised(call):
    start = time.monotonic()
    with pytest.raises(dist.DistBackendError) as error:
        call()
    return str(error.value), time.monotonic() - start


def different_tensors(rank):
    group = dist.new_group()
    texts = [raised(lambda: dist.all_reduce(torch.ones(10 + rank), group=group))[0]]
    other = dist.new_group()
    x = torch.ones(10, dtype=torch.bfloat16 if rank else torch.float32)
    texts.append(raised(lambda: dist.all_reduce(x, group=other))[0])
    # The error is final, and other groups work.
    assert raised(lambda: dist.all_reduce(torch.ones(1), group=other))[0]
    dist.all_reduce(torch.ones(1))
    return texts


def a_rank_is_late(rank):
    group = dist.new_group(timeout=datetime.timedelta(seconds=1))
    dist.all_reduce(torch.ones(1), group=group)
    if rank == 0:
        text, seconds = raised(lambda: dist.all_reduce(torch.ones(5), group=group))
        assert 0.9 < seconds < 20, seconds
    dist.barrier()
    if rank == 1:
        text, _ = raised(lambda: dist.all_reduce(torch.ones(5), group=group))
    return text


def a_rank_leaves(rank):
    group = dist.new_group()
    x = torch.ones(4)
    dist.all_reduce(x, group=group)
    if rank == 1:
        dist.destroy_process_group(group)
        return None
    return raised(lambda: dist.all_reduce(x, group=group))[0]


def test_different_tensors(shared):
    for sizes, dtypes in shared.run(different_tensors):
        assert "rank 0 has 10 elements of Float" in sizes and "rank 1 has 11 elements of Float" in sizes
        assert "rank 0 has 10 elements of Float" in dtypes and "rank 1 has 10 elements of BFloat16" in dtypes


def test_a_rank_is_late(shared):
    for text in shared.run(a_rank_is_late):
        assert (
            "all_reduce of 5 elements of Float: timed out: rank 1 of the 2 ranks in this group did not take part"
            in text
        )


def test_a_rank_leaves(shared):
    text, _ = shared.run(a_rank_leaves)
    assert "rank 1 of the 2 ranks in this group has ended or left the group" in text


def test_exit_without_destroying_the_group(tmp_path):
    """Neither hangs nor aborts, also with a sum that the other rank never joins."""
    code = f"""
import sys, torch, torch.distributed as dist, oneccl_bindings_for_pytorch, datetime
dist.init_process_group("ccl", init_method="file://{tmp_path}/store", rank=int(sys.argv[1]), world_size=2)
x = torch.ones(9)
dist.all_reduce(x)
if dist.get_rank() == 0:
    work = dist.all_reduce(x, async_op=True)
"""
    ranks = [subprocess.Popen([sys.executable, "-c", code, rank], env=environment()) for rank in "01"]
    assert [rank.wait(120) for rank in ranks] == [0, 0]


# ---- import and registration ----


def python(code, **more):
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment(**more), capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_imports_in_any_order():
    """Neither needs torch first; a second import, under either name, changes nothing; gloo stays the default."""
    code = """
import importlib, sys
import torch_ccl, oneccl_bindings_for_pytorch as ccl
import intel_extension_for_pytorch
import torch.distributed as dist
creator = dist.Backend._plugins["CCL"]
importlib.reload(ccl), importlib.reload(torch_ccl)
assert dist.Backend._plugins["CCL"] is creator and dist.Backend.backend_list.count("ccl") == 1
assert dist.Backend.default_device_backend_map["cpu"] == "gloo"
assert dist.Backend.backend_capability["ccl"] == ["cpu"]
assert ccl.is_available([torch_ccl]) and isinstance(ccl.__version__, str)
print(ccl.cwd, torch_ccl.cwd)
"""
    first, second = python(code).split()
    assert first == f"{ONECCL}/oneccl_bindings_for_pytorch" and second == f"{ONECCL}/torch_ccl"


@pytest.mark.parametrize(
    "given, wanted",
    [
        ({"PMI_RANK": "1", "PMI_SIZE": "4", "MPI_LOCALRANKID": "1", "MPI_LOCALNRANKS": "4"}, "1 4 1 127.0.0.1 29500"),
        ({"PMI_RANK": "3", "PMI_SIZE": "4", "MPI_LOCALRANKID": "1", "MPI_LOCALNRANKS": "2"}, "3 4 1 None None"),
        ({"PMI_RANK": "3", "PMI_SIZE": "4", "RANK": "0", "WORLD_SIZE": "1"}, "0 1 None None None"),
        ({"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "2"}, "1 2 None None None"),
        ({"PMI_RANK": "0"}, "None None None None None"),
    ],
)
def test_ranks_of_mpi_launchers(given, wanted):
    from importlib import util

    spec = util.spec_from_file_location("launched", f"{ONECCL}/oneccl_bindings_for_pytorch/launched.py")
    launched = util.module_from_spec(spec)
    spec.loader.exec_module(launched)
    environment = dict(given)
    launched.complete_environment(environment)
    names = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT")
    assert " ".join(str(environment.get(name)) for name in names) == wanted


def test_variables_of_oneccl_are_noted_once():
    code = """
import logging, importlib
logging.basicConfig(level=logging.INFO, format="%(name)s: %(message)s", stream=__import__("sys").stdout)
import oneccl_bindings_for_pytorch as ccl, torch_ccl
importlib.reload(ccl)
"""
    said = python(code, CCL_WORKER_COUNT="2", CCL_ATL_TRANSPORT="ofi")
    lines = [line for line in said.splitlines() if "oneccl" in line]
    assert lines == [
        "oneccl_bindings_for_pytorch: no effect on this backend: CCL_WORKER_COUNT=2, CCL_ATL_TRANSPORT=ofi"
    ]
    assert "oneccl" not in python(code.replace("INFO", "WARNING"), CCL_WORKER_COUNT="2")


@pytest.mark.parametrize("package", ["oneccl_bindings_for_pytorch", "torch_ccl"])
def test_scripts_can_be_sourced(package, tmp_path):
    """Also under `set -eu`, twice, without a PATH of the user's, and beside an Intel MPI."""
    for folder in ("oneccl_bindings_for_pytorch", "torch_ccl"):
        (tmp_path / "lib/python3/site-packages").mkdir(parents=True, exist_ok=True)
        (tmp_path / "lib/python3/site-packages" / folder).symlink_to(f"{ONECCL}/{folder}")
    script = f"{tmp_path}/lib/python3/site-packages/{package}/env"
    program = f"set -eu; source {script}/vars.sh; source {script}/setvars.sh; source {script}/setvars.sh; "
    program += 'echo "$CCL_ROOT $PATH ${LD_LIBRARY_PATH-} ${I_MPI_ROOT-}"'

    def sourced():
        done = subprocess.run(
            ["bash", "-c", program], env={"PATH": "/usr/bin:/bin"}, capture_output=True, text=True, check=True
        )
        assert not done.stderr
        return done.stdout.split()

    root = f"{tmp_path}/lib/python3/site-packages/oneccl_bindings_for_pytorch"
    assert sourced() == [root, "/usr/bin:/bin"]
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/mpiexec.hydra").write_text("#!/bin/sh\n")
    (tmp_path / "bin/mpiexec.hydra").chmod(0o755)
    (tmp_path / "lib/libmpi.so.12").touch()
    assert sourced() == [root, f"{tmp_path}/bin:/usr/bin:/bin", f"{tmp_path}/lib", str(tmp_path)]

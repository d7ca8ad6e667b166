"""Ops that move elements, native in forward and backward: padding modes, patches, rolls, flips, triangles, einsum."""

import functools

import pytest
import torch
import torch.nn.functional as F
from comparison import difference
from graphs import Call, assert_all

DTYPES = (torch.float32, torch.bfloat16, torch.float64)


def padded(amounts, mode):
    return lambda x: F.pad(x, amounts, mode)


def channels_last(x):
    return x.contiguous(memory_format=torch.channels_last)


# name -> (function, shape of its input)
CASES = {
    **{
        f"pad {mode} {rank}d": (padded(pad, mode), (2, 3, 7, 6, 5)[: rank + 2])
        for mode in ("reflect", "replicate", "circular", "constant")
        for rank, pad in ((1, (2, 3)), (2, (3, 1, 0, 2)), (3, (1, 2, 2, 1, 3, 0)))
    },
    "pad reflect without batch": (padded((2, 1), "reflect"), (3, 8)),
    "pad replicate crop": (padded((-1, 2), "replicate"), (2, 3, 8)),
    "pad of transposed": (lambda x: F.pad(x.transpose(1, 2), (1, 2), mode="reflect"), (2, 5, 6)),
    "unfold": (lambda x: F.unfold(x, (3, 2), dilation=(1, 2), padding=(1, 0), stride=(2, 1)), (2, 3, 9, 8)),
    "unfold without batch": (lambda x: F.unfold(x, 2), (3, 5, 6)),
    "fold": (lambda x: F.fold(x, (8, 7), (3, 2), dilation=(1, 2), padding=(1, 0), stride=(2, 1)), (2, 18, 20)),
    "fold without overlap": (lambda x: F.fold(x, (6, 4), 2, stride=2), (3, 12, 6)),
    "tensor unfold": (lambda x: x.unfold(1, 3, 2).unfold(2, 2, 1) * 2, (3, 9, 8)),
    "roll": (lambda x: x.roll((2, -3), (0, 2)), (4, 5, 6)),
    "roll of all": (lambda x: x.roll(7), (4, 5)),
    "roll of an image": (lambda x: channels_last(x).roll((1, -2, 3), (2, 3, 1)), (2, 4, 5, 6)),
    "rows and columns": (lambda x: x[torch.tensor([3, -1, 0])][:, torch.tensor([2, 2])] * 2, (4, 5, 6)),
    "columns and rows": (lambda x: x.index_select(2, torch.tensor([5, 1]))[torch.tensor([3, 3])], (4, 5, 6)),
    "flip": (lambda x: x.flip((0, -1)) * x, (3, 4, 5)),
    "fliplr flipud rot90": (lambda x: x.fliplr() + x.flipud() + x.rot90(2), (5, 6)),
    "tril triu": (lambda x: x.tril(-1) + x.triu(2), (3, 6, 7)),
    "tril indices": (lambda x: x[tuple(torch.tril_indices(6, 7, 1))], (6, 7)),
    "diagonal": (lambda x: torch.diag_embed(x.diagonal(1, 1, 2), -1), (3, 5, 6)),
    "diag": (lambda x: x.diag(1).diag(-2), (6, 6)),
    "trace": (lambda x: x.trace(), (5, 7)),
    "pixel shuffle": (lambda x: F.pixel_unshuffle(F.pixel_shuffle(x, 2) * 2, 2), (2, 8, 3, 4)),
    "channel shuffle": (lambda x: F.channel_shuffle(x, 3), (2, 6, 4, 4)),
    "repeat_interleave": (lambda x: x.repeat_interleave(3, 1), (2, 4, 3)),
    "tile repeat": (lambda x: x.tile(2, 1, 3) + x.repeat(2, 1, 3), (2, 4, 3)),
    "chunk stack": (lambda x: torch.stack(x.chunk(3, 1)[::-1], -1), (2, 6, 3)),
    "split uneven": (lambda x: torch.cat(x.split([1, 3, 2], 1)[::-1], 1), (2, 6, 3)),
    "movedim swap": (lambda x: x.movedim(0, 2).swapaxes(0, 1).contiguous(), (2, 6, 3)),
    "einsum": (lambda x: torch.einsum("bij,bkj->bik", x, x), (2, 6, 5)),
    "einsum trace": (lambda x: torch.einsum("bii->b", x), (2, 6, 6)),
    "as_strided": (lambda x: x.as_strided((3, 4), (5, 2), 1) * 2, (4, 8)),
    "select_scatter": (lambda x: x.select_scatter(x[:, 0] * 3, 1, 2), (3, 5)),
    "slice_scatter": (lambda x: x.slice_scatter(x[:, :2] * 3, 1, 1, 5, 2), (3, 6)),
    "diagonal_scatter": (lambda x: x.diagonal_scatter(x[0, :4] * 3, 1), (5, 5)),
    "meshgrid": (lambda x: torch.stack(torch.meshgrid(x, x * 2, indexing="ij")), (6,)),
    "cartesian": (lambda x: torch.cartesian_prod(x, x), (5,)),
    "block_diag": (lambda x: torch.block_diag(x, x * 2), (2, 3)),
    "kron": (lambda x: torch.kron(x, x), (2, 3)),
    "masked_scatter of rows": (lambda x: torch.where(x > 0, x, x.flip(0)), (5, 6)),
    "take_along_dim": (lambda x: torch.take_along_dim(x, x.argsort(1), 1), (3, 7)),
    "unfold of a number": (lambda x: x.unfold(0, 1, 1) * 2, ()),
    "put": (lambda x: x.put(torch.tensor([1, -2, 7]), x[0, :3] * 2) + x, (3, 7)),
    "put of sums": (lambda x: x.put(torch.tensor([1, -2, 1]), x[0, :3], accumulate=True), (3, 7)),
    "diagonal_scatter below": (lambda x: x.diagonal_scatter(x[:, :3, 0] * 3, -2, 2, 1), (2, 4, 5)),
    "take": (lambda x: torch.take(x, torch.tensor([3, -1, 0, 3])), (3, 7)),
    "diff": (lambda x: x.diff(n=2, dim=1), (3, 7)),
    "trapezoid": (lambda x: torch.trapezoid(x, dim=0) + torch.cumulative_trapezoid(x, dim=1)[:, :1].sum(), (4, 5)),
    "affine_grid": (lambda x: F.affine_grid(x, (2, 3, 4, 5)), (2, 2, 3)),
}  # fmt: skip


def dtypes_of(name):
    """The dtypes to test. Matrix products of fp64 run in ATen."""
    return DTYPES[:2] if name == "einsum" else DTYPES


def calls(name, requires_grad):
    fn, shape = CASES[name]
    for dtype in dtypes_of(name) if not requires_grad else (torch.float32,):
        x = torch.randn(shape, generator=torch.Generator().manual_seed(4), dtype=torch.float64).to(dtype)
        yield Call(f"{name} [{dtype}]", fn, (x.requires_grad_(requires_grad),))


@pytest.mark.one_in(2)
@pytest.mark.parametrize("name", CASES)
def test_forward(name, strict):
    assert_all(list(calls(name, False)), functools.partial(difference, strides=True), at_least=len(dtypes_of(name)))


@pytest.mark.one_in(2)
@pytest.mark.parametrize("name", CASES)
def test_gradient(name, strict):
    assert_all(list(calls(name, True)), functools.partial(difference, strides=True), gradients=True)


@pytest.mark.timeout(120)
def test_a_chain_of_lookups_compiles(compiled, strict):
    """Each index is used several times by the next one, so an analysis must not traverse them as a tree."""

    def function(x, index, table):
        for _ in range(40):
            index = table[index]
        return x[index.float().long()] * 2

    x, index, table = torch.randn(50), torch.arange(64) % 50, torch.arange(50).flip(0) - 7
    assert torch.equal(compiled(function)(x, index, table), function(x, index, table))

"""Views, concatenation, scans and indexing, with sizes larger than a vector and a tile, fused with arithmetic on both
sides.

OpInfo's samples are only a few elements wide.
"""

import functools

import op_cases
import pytest
import torch
from comparison import difference
from conftest import BACKEND
from graphs import Call, assert_all

SHAPES = ((3, 17, 70), (1, 1, 33), (130, 34, 1), (2, 67, 5), (1, 300, 129))
DTYPES = (torch.float32, torch.bfloat16, torch.int64, torch.uint8, torch.bool)
aten = torch.ops.aten


def rows(x, dim, count, seed=0):
    """Indices into `dim` of x, with some negative and some repeated ones."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(-x.shape[dim], x.shape[dim], (count,), generator=generator)


def positions(x, dim, seed=0):
    """An index tensor of x's shape for gather and scatter along `dim`."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(0, x.shape[dim], x.shape, generator=generator)


# name -> function of x; DIM takes all dims of x
CASES = {
    "cumsum": lambda x, d: x.cumsum(d),
    "cummax": lambda x, d: x.cummax(d),
    "cummin indices": lambda x, d: x.cummin(d).indices,
    "logcumsumexp": lambda x, d: x.float().logcumsumexp(d),
    "cumprod": lambda x, d: (x > 0).to(x.dtype).cumprod(d),
    "flip": lambda x, d: x.flip(d),
    "flip all": lambda x, d: x.flip(0, 1, 2).transpose(d, 0).clone(),
    "pad": lambda x, d: aten.constant_pad_nd(x, [0, 0] * (2 - d) + [1, 2], 1),
    "crop": lambda x, d: aten.constant_pad_nd(x.transpose(d, 2), [2, -1], 0) if x.shape[d] > 1 else x,
    "pad then flip": lambda x, d: aten.constant_pad_nd(x, [1, 1], 0).flip(d),
    "cat": lambda x, d: torch.cat([x, x.flip(0), x.narrow(d, 0, 1)], d),
    "cat of columns": lambda x, d: torch.cat([x.transpose(d, 0), x.transpose(d, 0)], 2),
    "stack": lambda x, d: torch.stack([x, x.abs() if x.dtype != torch.bool else ~x], d),
    "roll": lambda x, d: x.roll(2, d),
    "repeat": lambda x, d: x.repeat(2, 1, 3),
    "slice": lambda x, d: x.narrow(d, x.shape[d] // 3, x.shape[d] - x.shape[d] // 3)[..., ::2],
    "unfold": lambda x, d: x.unfold(d, 1, 2).clone(),
    "split": lambda x, d: torch.cat(x.split(max(1, x.shape[d] // 2), d)[::-1], d),
    "transpose": lambda x, d: x.transpose(d, 1).reshape(-1),
    "reshape": lambda x, d: x.transpose(d, 0).reshape(x.shape[1], -1),
    "tril": lambda x, d: x.transpose(d, 2).tril(1),
    "index_select": lambda x, d: x.index_select(d, rows(x, d, 19) % x.shape[d]),
    "index": lambda x, d: x.transpose(0, d)[rows(x, d, 21)],
    "index two": lambda x, d: x.transpose(0, d)[rows(x, d, 18), :, rows(x, 2 if d != 2 else 0, 18, 1)],
    "gather": lambda x, d: x.gather(d, positions(x, d)),
    "scatter": lambda x, d: x.scatter(d, positions(x, d)[:, :1, :1], 1),
    "scatter_add": lambda x, d: x.scatter_add(d, positions(x, d), x),
    "scatter_add of bools": lambda x, d: (x > 0).scatter_add(d, positions(x, d), x > 1),
    "index_put": lambda x, d: x.transpose(0, d).index_put((rows(x, d, 9),), x.new_ones(()), accumulate=True),
    "softmax": lambda x, d: x.float().softmax(d),
    "log_softmax": lambda x, d: x.float().log_softmax(d),
    "norm": lambda x, d: x.float() / (x.float().square().sum(d, keepdim=True) + 1).sqrt(),
    "argmax": lambda x, d: (x.int().argmax(d), x.int().argmin(d, True)),
    "max": lambda x, d: x.max(d),
    "two reductions": lambda x, d: (x.float().amax(d) - x.float().mean(d), x.float().var(d)),
    "any all": lambda x, d: (x.any(d), x.all(d)),
}


def inputs(every):
    generator = torch.Generator().manual_seed(3)
    for dtype in DTYPES:
        for shape in SHAPES if dtype == torch.float32 else SHAPES[::every]:
            yield dtype, op_cases.random_values(dtype, shape, generator)


def calls_of(name, fuse, every):
    fn = CASES[name]
    for dtype, x in inputs(every):
        for dim in range(3):

            def call(x, dim=dim, fuse=fuse and dtype != torch.bool):
                result = fn(x * 2, dim) if fuse else fn(x, dim)
                parts = list(result) if isinstance(result, (tuple, list)) else [result]
                return [part + 1 if fuse else part for part in parts]

            yield Call(f"{name} [{dtype}] {tuple(x.shape)} dim {dim}{' fused' if fuse else ''}", call, (x,))


# A scatter into bf16 adds in another order than eager, and rounding errors grow with the number of additions.
@pytest.mark.one_in(3)
@pytest.mark.parametrize("every", [3, pytest.param(1, marks=pytest.mark.nightly)], ids=["some shapes", "all shapes"])
@pytest.mark.parametrize("name", CASES)
def test_structural_op(name, every):
    calls = [*calls_of(name, False, every), *calls_of(name, True, every)]
    assert_all(calls, functools.partial(difference, scale=10.0), at_least=10)


def test_linspace_of_integers(strict):
    """Cases where PyTorch's decomposition is off by one: fractional ends, and points that are exact integers."""

    def made(x):
        ends = ((4.3, 50), (0, 7), (-3, 4), (50, 4.3))
        return [torch.linspace(*pair, steps, dtype=x.dtype) + x for pair in ends for steps in (1, 2, 7, 50)]

    for dtype in (torch.int8, torch.int64):
        x = torch.tensor(1, dtype=dtype)
        ours = torch.compile(made, backend=BACKEND)(x)
        assert [t.tolist() for t in ours] == [t.tolist() for t in made(x)]


NUMBERS = (
    torch.uint8, torch.int8, torch.int16, torch.float16, torch.bfloat16, torch.int32, torch.float32, torch.int64,
    torch.float64,
)  # fmt: skip


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("dtype", NUMBERS, ids=str)
def test_bits_as_other_types(dtype, dynamic, compiled, strict):
    """Every bit is kept, also those of NaN: in rows, in columns, and for computed values."""

    def run(x):
        rows = [x.view(other) for other in NUMBERS]
        columns = [x.t().clone().t().view(other) for other in NUMBERS if other.itemsize == x.element_size()]
        number = torch.where(x == x, x, 0).abs()
        return *rows, *columns, *(number.view(other) for other in NUMBERS)

    call = compiled(run, dynamic=dynamic)
    for width in (24, 40) if dynamic else (24,):
        generator = torch.Generator().manual_seed(0)
        x = torch.randint(0, 256, (5, 8 * width), dtype=torch.uint8, generator=generator).view(dtype)
        for ours, eager in zip(call(x), run(x), strict=True):
            assert ours.dtype is eager.dtype and ours.stride() == eager.stride()
            assert torch.equal(*(t.contiguous().view(torch.uint8) for t in (ours, eager)))

"""Windows, padding, concatenation and triangles: loops that are split where comparisons of indices change. Sizes put
these edges on vector boundaries, inside vectors and next to each other. Data movement is exact in every dtype."""

import pytest
import torch
import torch.nn.functional as F
from comparison import assert_close_to_eager, assert_error_within

# By day, one case for each width, and a single one with dynamic sizes.
DTYPES = [torch.float32, torch.bfloat16, torch.int64, torch.uint8, torch.float64, torch.bool]
KINDS = [
    pytest.param(
        dtype,
        dynamic,
        id=f"{dtype}-{'dynamic' if dynamic else 'static'}",
        marks=pytest.mark.nightly if dtype in DTYPES[4:] or (dynamic and dtype != torch.float32) else (),
    )
    for dtype in DTYPES
    for dynamic in (False, True)
]
SIZES = [(3, 5), (7, 8), (8, 31), (9, 64), (5, 100), (33, 67)]  # rows, columns


@pytest.fixture(autouse=True)
def verified(monkeypatch):
    """Verifies every graph and kernel after every pass."""
    monkeypatch.setenv("IPEX_VERIFY", "1")


def compiled(function, *inputs, dynamic=False):
    torch._dynamo.reset()
    return torch.compile(function, backend="ipex", dynamic=dynamic)(*inputs)


def assert_same(ours, eager, exact):
    """In bf16, compares the errors against the exact result; else compares with eager."""
    if eager.dtype == torch.bfloat16:
        assert_error_within(ours, eager, exact)
    else:
        assert_close_to_eager(ours, eager)


def values(*shape, dtype=torch.float32, seed=0):
    x = torch.randn(*shape, generator=torch.Generator().manual_seed(seed)) * 50
    return x > 0 if dtype == torch.bool else x.abs().to(dtype) if dtype == torch.uint8 else x.to(dtype)


MOVES = {
    "rotate": lambda x, y: torch.cat((x[..., x.shape[-1] // 2 :], x[..., : x.shape[-1] // 2]), -1),
    "cat_last": lambda x, y: torch.cat((x, y[..., :3], x[..., 1:]), -1),
    "cat_rows": lambda x, y: torch.cat((x, y), 1),
    "cat_of_cats": lambda x, y: torch.cat((torch.cat((x, y), 1), torch.cat((y, x), 1)), 2).transpose(1, 2).contiguous(),
    "pad": lambda x, y: F.pad(x, (2, 1, 3, 0)),
    "pad_pad": lambda x, y: F.pad(torch.cat((x, y), 1), (1, 0, 0, 9)),
    "roll": lambda x, y: torch.roll(x, (1, 2), (1, 2)),
    "slice_scatter": lambda x, y: torch.slice_scatter(x, y[..., 1:-1], 2, 1, x.shape[2] - 1),
    "triu": lambda x, y: torch.triu(x, 1),
    "tril": lambda x, y: torch.tril(x, -2),
    "every_second": lambda x, y: torch.cat((x[..., ::2], y[..., 1::3], x[..., ::4]), -1),
    "backwards": lambda x, y: torch.cat((x.flip(-1), y), -1),
    "band": lambda x, y: torch.where(
        (torch.arange(x.shape[1])[:, None] - torch.arange(x.shape[2])).abs() < 3, x, y
    ),
    "unfold": lambda x, y: x.unfold(2, 3, 1).contiguous(),
    "stacked": lambda x, y: torch.stack((x, y), -1).flatten(-2),
}  # fmt: skip


@pytest.mark.one_in(2)
@pytest.mark.parametrize(("dtype", "dynamic"), KINDS)
@pytest.mark.parametrize("name", MOVES)
def test_moved(name, dtype, dynamic):
    for rows, columns in SIZES[:2] + SIZES[4:] if dynamic else SIZES:
        x, y = (values(3, rows, columns, dtype=dtype, seed=s) for s in (1, 2))
        expected, ours = MOVES[name](x, y), compiled(MOVES[name], x, y, dynamic=dynamic)
        assert torch.equal(ours, expected) and ours.stride() == expected.stride(), (rows, columns)


POOLS = {
    "max_3x3": lambda x: F.max_pool2d(x, 3, 2, 1),
    "max_2x2": lambda x: F.max_pool2d(x, 2),
    "max_5x5": lambda x: F.max_pool2d(x, 5, 1, 2),
    "max_dilated": lambda x: F.max_pool2d(x, 3, 1, 1, dilation=2),
    "avg_3x3": lambda x: F.avg_pool2d(x, 3, 1, 1),
    "avg_without_padding": lambda x: F.avg_pool2d(x, 3, 2, 1, count_include_pad=False),
    "avg_ceil": lambda x: F.avg_pool2d(x, 2, 2, ceil_mode=True),
    "avg_of_pad": lambda x: F.avg_pool2d(F.pad(x, (1, 2, 0, 1)), 3, 1),
}


@pytest.mark.one_in(2)
@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last], ids=["rows", "channels"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["fp32", "bf16"])
@pytest.mark.parametrize("name", POOLS)
def test_windows(name, dtype, layout):
    for channels, rows, columns in ((3, 7, 9), (20, 16, 33), (33, 8, 56)):
        x = values(2, channels, rows, columns, dtype=dtype).contiguous(memory_format=layout)
        eager, ours = POOLS[name](x), compiled(POOLS[name], x)
        if name.startswith("max"):
            assert torch.equal(ours, eager)
        else:
            assert_same(ours, eager, POOLS[name](x.double()))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["fp32", "bf16"])
def test_softmax_of_a_triangle(dtype):
    def function(x):
        inside = torch.ones(x.shape[-2:], dtype=torch.bool).tril()
        return torch.softmax(x.masked_fill(~inside, -torch.inf), -1)

    for rows, columns in ((5, 5), (64, 64), (70, 133), (133, 70)):
        x = values(2, rows, columns, dtype=dtype) / 50
        assert_same(compiled(function, x), function(x), function(x.double()))


def test_rows_from_data():
    """An index from memory is checked once per row. One beyond the table is an error."""
    table, at = values(10, 40, dtype=torch.bfloat16), torch.tensor([0, 9, -1, 3, -10])

    def function(table, at):
        return table[at] * 2

    assert torch.equal(compiled(function, table, at), function(table, at))
    with pytest.raises((IndexError, RuntimeError), match="out of"):
        compiled(function, table, torch.tensor([0, 10]))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["fp32", "bf16"])
@pytest.mark.parametrize("settings", [(16, 1, 4, 3), (16, 1, 3, 1), (1, 2, 5, 2)], ids=str)
def test_convolutions_over_one_dim(settings, dtype):
    """1-d convolutions and their gradients, with groups, stride, kernel size and padding."""
    groups, stride, kernel, padding = settings
    x = values(2, 16, 37, dtype=dtype) / 50
    w, bias = values(32, 16 // groups, kernel, dtype=dtype) / 50, values(32, dtype=dtype) / 50

    def layer(x, w, bias):
        return F.silu(F.conv1d(x, w, bias, stride, padding, groups=groups))

    def step(layer, *tensors):
        inputs = [t.detach().requires_grad_() for t in tensors]
        y = layer(*inputs)
        y.square().sum().backward()
        return [y.detach(), *(t.grad for t in inputs)]

    torch._dynamo.reset()
    ours = step(torch.compile(layer, backend="ipex", dynamic=False), x, w, bias)
    reference = step(layer, x.double(), w.double(), bias.double())
    for got, eager, exact in zip(ours, step(layer, x, w, bias), reference, strict=True):
        assert got.shape == eager.shape
        assert (got.double() - exact).norm() <= max(1.1 * (eager.double() - exact).norm(), 1e-6 * exact.norm())

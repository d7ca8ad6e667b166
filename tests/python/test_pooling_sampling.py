"""Pooling, interpolation and grid sampling, native in forward and backward: modes, borders, layouts, empty and dynamic
sizes."""

import functools
import math

import pytest
import torch
import torch.nn.functional as F
from comparison import assert_close_to_eager, assert_near_in_norm, difference
from graphs import Call, assert_all

SIZES = {1: (2, 3, 17), 2: (2, 3, 13, 10), 3: (2, 3, 7, 6, 8)}


def bound(function, *arguments, **options):
    return lambda x, *more: function(x, *more, *arguments, **options)


def unpooled(rank):
    pool, unpool = getattr(F, f"max_pool{rank}d"), getattr(F, f"max_unpool{rank}d")

    def run(x):
        y, indices = pool(x, 2, 2, return_indices=True)
        return unpool(y, indices, 2, 2, output_size=x.shape)

    return run


def pools():
    for rank, shape in SIZES.items():
        options = {
            "max": ("max_pool{}d", (3, 2, 1), {}),
            "max with indices": ("max_pool{}d", (3, 2, 1), {"return_indices": True}),
            "max dilated ceil": ("max_pool{}d", (2, 2, 0), {"dilation": 2, "ceil_mode": True}),
            "avg": ("avg_pool{}d", (3, 2, 1), {}),
            "avg of equal windows": ("avg_pool{}d", (2,), {}),
            "avg that overlap": ("avg_pool{}d", (4, 1, 2), {}),
            "avg past the end": ("avg_pool{}d", (3, 2, 1), {"ceil_mode": True}),
            "avg without padding": ("avg_pool{}d", (3, 2, 1), {"ceil_mode": True, "count_include_pad": False}),
            "avg with gaps": ("avg_pool{}d", (2, 3), {}),
            "adaptive avg": ("adaptive_avg_pool{}d", (5,), {}),
            "adaptive avg wider": ("adaptive_avg_pool{}d", (19,), {}),
            "adaptive avg to one": ("adaptive_avg_pool{}d", (1,), {}),
            "adaptive max": ("adaptive_max_pool{}d", (4,), {}),
        }
        if rank > 1:
            options["avg divisor"] = ("avg_pool{}d", (3, 2, 1), {"divisor_override": 5})
        for label, (name, arguments, keywords) in options.items():
            function = getattr(F, name.format(rank))
            yield f"{label} {rank}d", bound(function, *arguments, **keywords), shape
        yield f"unpool {rank}d", unpooled(rank), shape
        lp = getattr(F, f"lp_pool{rank}d")
        yield f"lp {rank}d", lambda x, lp=lp: lp(x.abs() + 0.1, 3, 3, 2), shape
    yield "avg without batch", lambda x: F.avg_pool2d(x, 3, 2, 1), (3, 9, 8)
    yield "adaptive max without batch", lambda x: F.adaptive_max_pool2d(x, (4, 3)), (3, 9, 8)
    yield "avg of no images", lambda x: F.avg_pool2d(x, 2), (0, 3, 8, 8)
    yield "max of no images", lambda x: F.max_pool2d(x, 2), (0, 3, 8, 8)


def interpolations():
    for rank, modes in {1: ["linear"], 2: ["bilinear", "bicubic"], 3: ["trilinear"]}.items():
        for mode in ["nearest", "nearest-exact", "area", *modes]:
            for corners in (False, True) if mode in modes else (None,):
                for label, target in (("size", {"size": 7}), ("scale", {"scale_factor": 1.7})):
                    run = bound(F.interpolate, mode=mode, align_corners=corners, **target)
                    yield f"{mode} {rank}d {label} corners={corners}", run, SIZES[rank]


CASES = {label: (function, shape) for label, function, shape in [*pools(), *interpolations()]}


def drawn(shape, dtype=torch.float32):
    """Distinct values. (Which of several equal values is the maximum is tested in C++.)"""
    count = max(1, torch.Size(shape).numel())
    values = torch.randperm(count, generator=torch.Generator().manual_seed(3)).double()
    return (values[: torch.Size(shape).numel()] / count * 4 - 2).reshape(shape).to(dtype)


@pytest.mark.one_in(2)
@pytest.mark.parametrize("name", CASES)
def test_gradients(name, strict):
    function, shape = CASES[name]
    x = drawn(shape).requires_grad_()
    assert_all([Call(name, function, (x,))], functools.partial(difference, strides=True), gradients=True)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["fp32", "bf16"])
@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last], ids=["contiguous", "channels last"])
def test_the_last_of_several_nan(layout, dtype, compiled, strict):
    x = drawn((2, 20, 9, 8), dtype)
    x[torch.rand(x.shape, generator=torch.Generator().manual_seed(4)) < 0.3] = math.nan
    x = x.to(memory_format=layout)

    def run(x):
        deep, flat = x.unflatten(1, (4, 5)), x.flatten(2)
        return (
            F.max_pool2d(x, 3, 2, 1, return_indices=True), F.adaptive_max_pool2d(x, (4, 3), return_indices=True),
            F.max_pool3d(deep, 2, return_indices=True), F.adaptive_max_pool3d(deep, 3, return_indices=True),
            F.max_pool1d(flat, 4, return_indices=True), F.adaptive_max_pool1d(flat, 7, return_indices=True),
        )  # fmt: skip

    for ours, eager in zip(compiled(run)(x), run(x), strict=True):
        assert_close_to_eager(ours, eager)
        assert torch.equal(ours[1], eager[1])


@pytest.mark.one_in(2)
@pytest.mark.parametrize("name", CASES)
def test_float64(name, strict):
    function, shape = CASES[name]
    assert_all([Call(name, function, (drawn(shape, torch.float64),))])


def both_ways(function, x, dynamic=False):
    x = x.detach().requires_grad_()
    for dim in range(x.dim() if dynamic else 0):
        torch._dynamo.mark_dynamic(x, dim)
    y = function(x)
    y = y[0] if isinstance(y, tuple) else y
    weight = torch.linspace(-1, 1, y.numel(), dtype=torch.float64).reshape(y.shape).to(y.dtype)
    (y * weight).sum().backward()
    return y.detach(), x.grad


@pytest.mark.one_in(2)
@pytest.mark.parametrize("name", [n for n in CASES if "2d" in n])
def test_channels_last(name, compiled, strict):
    function, shape = CASES[name]
    x = drawn(shape).to(memory_format=torch.channels_last)
    assert_close_to_eager(both_ways(compiled(function), x), both_ways(function, x), strides=True)


# PyTorch specializes the length in max_pool1d.
@pytest.mark.one_in(2)
@pytest.mark.parametrize("name", [n for n in CASES if "no images" not in n and not (n[:3] == "max" and "1d" in n)])
def test_dynamic_sizes(name, compiled, strict):
    """One compilation for several sizes of every dim."""
    function, shape = CASES[name]
    run = compiled(function)
    for grow in (0, 3):
        x = drawn([size + grow for size in shape])
        ours, eager = both_ways(run, x, dynamic=True), both_ways(function, x)
        assert_close_to_eager(ours[0], eager[0], scale=4.0)
        assert_near_in_norm(ours[1:], eager[1:], bound=1e-5)


GRIDS = [
    (rank, mode, padding, corners)
    for rank, modes in ((2, ("bilinear", "nearest", "bicubic")), (3, ("bilinear", "nearest")))
    for mode in modes
    for padding in ("zeros", "border", "reflection")
    for corners in (False, True)
]


def grid_of(rank):
    generator = torch.Generator().manual_seed(1)
    return torch.randn(2, *(4, 5, 3)[:rank], rank, generator=generator)


@pytest.mark.one_in(2)
@pytest.mark.parametrize("rank, mode, padding, corners", GRIDS)
def test_grid_sample(rank, mode, padding, corners, strict):
    x, grid = drawn(SIZES[rank]).requires_grad_(), grid_of(rank).requires_grad_()
    function = bound(F.grid_sample, mode=mode, padding_mode=padding, align_corners=corners)
    # Coordinates are differences of nearly equal numbers, so eager's error has this size.
    assert_all([Call(mode, function, (x, grid))], functools.partial(difference, scale=8.0), gradients=True)


@pytest.mark.parametrize("mode", ["bilinear", "nearest", "bicubic"])
@pytest.mark.parametrize("padding", ["zeros", "border"])
def test_grid_sample_of_no_numbers(mode, padding, compiled, strict):
    function = bound(F.grid_sample, mode=mode, padding_mode=padding, align_corners=False)
    x, grid = torch.randn(1, 2, 8, 9), torch.rand(1, 5, 4, 2) * 3 - 1.5
    for place, value in enumerate((math.inf, -math.inf, math.nan, 1e30, -1e30, 3e9)):
        grid.view(-1)[3 * place] = value
    torch.testing.assert_close(compiled(function)(x, grid), function(x, grid), rtol=1e-4, atol=1e-4, equal_nan=True)


@pytest.mark.one_in(2)
@pytest.mark.parametrize("rank, mode, padding, corners", GRIDS)
def test_grid_sample_beside_infinities(rank, mode, padding, corners, compiled, strict):
    """Positions outside of the image read 0, not an element times 0, and get no gradient."""
    x, shape = drawn((1, 2, *(4, 5, 6)[:rank])), (1, *(1, 2, 40)[-rank:], rank)
    x.view(2, -1)[0, 0], x.view(2, -1)[1, 0] = math.inf, math.nan
    grid = torch.zeros(shape)
    grid.view(-1, rank)[:, 0] = torch.linspace(-2.03, 2.01, grid.numel() // rank)  # past both ends, and onto the last
    grid.view(-1, rank)[:, 1] = torch.linspace(0.31, 3.05, grid.numel() // rank)
    ones = torch.ones(1, 2, *shape[1:-1])
    specials = ones.clone()
    specials.view(2, -1)[0, 3], specials.view(2, -1)[1, -2] = math.inf, math.nan
    function = bound(F.grid_sample, mode=mode, padding_mode=padding, align_corners=corners)

    def both(function):
        results = []
        for gradient in (ones, specials):
            leaves = [x.clone().requires_grad_(), grid.clone().requires_grad_()]
            y = function(*leaves)
            results += [y.detach(), *torch.autograd.grad(y, leaves, gradient)]
        return results[:-1]  # eager's gradient of the grid multiplies each term by an infinity

    for ours, eager in zip(both(compiled(function)), both(function), strict=True):
        torch.testing.assert_close(ours, eager, rtol=1e-4, atol=1e-4, equal_nan=True)


@pytest.mark.parametrize("mode", ["bilinear", "nearest", "bicubic"])
def test_grid_sample_dynamic(mode, compiled, strict):
    function = bound(F.grid_sample, mode=mode, align_corners=False)
    run = compiled(function)
    for count in (2, 5):
        x, grid = drawn((count, 3, 8 + count, 9)), torch.rand(count, 4 + count, 5, 2) * 2.4 - 1.2
        leaves = [[x.clone().requires_grad_(), grid.clone().requires_grad_()] for _ in range(2)]
        for leaf in leaves[0]:
            torch._dynamo.mark_dynamic(leaf, [0, 1, 2] if leaf.shape[-1] == 2 else [0, 1, 2, 3])
        ours, eager = run(*leaves[0]), function(*leaves[1])
        assert_close_to_eager(ours, eager, scale=8.0)
        ours.square().sum().backward()
        eager.square().sum().backward()
        assert_near_in_norm([t.grad for t in leaves[0]], [t.grad for t in leaves[1]])

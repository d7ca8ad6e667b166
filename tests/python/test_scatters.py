"""Scatters: every reduction, with and without the old element, native in forward and backward. Several threads give the
same bits as one."""

import functools
import math

import pytest
import torch
from comparison import assert_close_to_eager, difference
from graphs import Call, assert_all

ROWS, WIDTH, COUNT = 9, 11, 7
REDUCTIONS = ("sum", "prod", "mean", "amax", "amin")


def randint(high, *shape):
    return torch.randint(0, high, shape, generator=torch.Generator().manual_seed(2))


def randn(*shape, dtype=torch.float32):
    values = torch.randn(shape, generator=torch.Generator().manual_seed(len(shape) + shape[0]), dtype=torch.float64)
    return (values if dtype.is_floating_point else values * 4).to(dtype)


WHERE, LINES = randint(ROWS, COUNT, WIDTH), randint(ROWS, COUNT)
MASK = randint(2, ROWS, WIDTH).bool()
# functions of x [ROWS, WIDTH] and y [COUNT, WIDTH]
CASES = {
    **{
        f"scatter_reduce {r} {self}": lambda x, y, r=r, self=self: x.scatter_reduce(0, WHERE, y, r, include_self=self)
        for r in REDUCTIONS
        for self in (True, False)
    },
    **{
        f"index_reduce {r} {self}": lambda x, y, r=r, self=self: x.index_reduce(0, LINES, y, r, include_self=self)
        for r in REDUCTIONS[1:]
        for self in (True, False)
    },
    "scatter_reduce of columns": lambda x, y: x.scatter_reduce(1, WHERE[:, :4], y[:, :4], "mean", include_self=False),
    "scatter_reduce of a number": lambda x, y: x[0, 0].scatter_reduce(0, LINES[0] * 0, y[0, 0], "sum"),
    "index_reduce of a number": lambda x, y: x[0, 0].index_reduce(0, LINES[:1] * 0, y[0, 0], "amax"),
    "scatter": lambda x, y: x.scatter(0, torch.arange(COUNT)[:, None].expand(-1, 4), y[:, :4]),
    "scatter of a number": lambda x, y: x.scatter(0, WHERE, 2.5) + y[0],
    "scatter_add": lambda x, y: x.scatter_add(0, WHERE, y),
    "scatter_add of columns": lambda x, y: x.scatter_add(1, WHERE % WIDTH, y),
    "index_add": lambda x, y: x.index_add(0, LINES, y, alpha=2),
    "index_add of columns": lambda x, y: x.index_add(1, LINES, y[:, :ROWS].t()),
    "index_copy": lambda x, y: x.index_copy(0, torch.tensor([0, 3, 5, 1, 2, 8, 7]), y),
    "index_fill": lambda x, y: x.index_fill(0, LINES, 3.0) + y[0],
    "index_put": lambda x, y: x.index_put((torch.tensor([0, 3, 5, 1, 2, 8, 7]),), y),
    "index_put of sums": lambda x, y: x.index_put((LINES,), y, accumulate=True),
    "index_put in two dims": lambda x, y: x.index_put((LINES, LINES), y[:, 0], accumulate=True),
    "index_put that counts": lambda x, y: x.index_put((torch.arange(ROWS)[:, None], LINES), y[0, :7], accumulate=True),
    "index that counts": lambda x, y: x[torch.arange(ROWS)[:, None], LINES] + x[torch.arange(ROWS), LINES[0]][:, None],
    "index by two counts": lambda x, y: x[torch.arange(ROWS), torch.arange(ROWS) % 5],
    "masked_scatter": lambda x, y: x.masked_scatter(MASK, torch.cat([y, y])),
    "masked_scatter of a row": lambda x, y: x.masked_scatter(MASK[:, :1], torch.cat([y, y])),
    "masked_fill": lambda x, y: x.masked_fill(MASK, 2.0) + y[0],
    "embedding": lambda x, y: torch.nn.functional.embedding(WHERE, x) + y[..., None],
    "embedding of frequencies": lambda x, y: torch.nn.functional.embedding(LINES, x, 3, scale_grad_by_freq=True) + y,
}


def calls(dtype, requires_grad):
    for name, function in CASES.items():
        if requires_grad and name.startswith("index_reduce"):
            continue  # eager's gradients of it fail for repeated indices
        x, y = (randn(n, WIDTH, dtype=dtype).requires_grad_(requires_grad) for n in (ROWS, COUNT))
        yield Call(f"{name} [{dtype}]", function, (x, y))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.int64, torch.int32])
def test_values(dtype, strict):
    assert_all(list(calls(dtype, False)), functools.partial(difference, strides=True), at_least=20)


def test_gradients(strict):
    assert_all(list(calls(torch.float32, True)), gradients=True, at_least=20)


@pytest.mark.parametrize("name", [n for n in CASES if "index that counts" not in n])
def test_dynamic_sizes(name, compiled, strict):
    function = CASES[name]
    run = compiled(lambda x, y: function(x * 1, y * 1), dynamic=True)
    x, y = randn(ROWS, WIDTH), randn(COUNT, WIDTH)
    assert_close_to_eager(run(x, y), function(x, y))


def test_empty(compiled, strict):
    none = torch.empty(0, dtype=torch.int64)

    def run(x):
        return x.index_add(0, none, x[:0]), x.scatter_add(0, none.view(0, 1), x[:0]), x[:0].index_add(0, none, x[:0])

    x = randn(ROWS, WIDTH)
    assert_close_to_eager(compiled(run)(x), run(x))


# Large enough to run on several threads: indexed rows, rows of one element, images.
def rows(x, index, source):
    return x.index_add(0, index, source)


def planes(x, index, source):
    return x.view(50, 20, -1).scatter_add(
        2, index[:320].view(1, 1, -1).expand(50, 20, -1) % 64, source.view(50, 20, -1)
    )


def columns(x, index, source):
    return x.scatter_add(0, (index[:, None] + torch.arange(64)) % 1000, source)


@pytest.mark.parametrize("function", [rows, planes, columns])
def test_threads_do_not_change_the_result(function, compiled, strict):
    x, index, source = randn(1000, 64), randint(1000, 5000), randn(5000, 64)
    threads = torch.get_num_threads()
    results = []
    try:
        for count in (2, 4, 3, 1):
            torch.set_num_threads(count)
            torch._dynamo.reset()
            results.append(compiled(function)(x, index, source))
    finally:
        torch.set_num_threads(threads)
    reference = function(x.double(), index, source.double())
    assert (results[0] - reference).norm() <= 1e-6 * reference.norm()
    for result in results[1:]:
        assert torch.equal(result, results[0])


def test_a_position_out_of_range(compiled):
    x, index, source = randn(1000, 64), randint(1000, 5000), randn(5000, 64)
    for wrong in (1000, -1):
        index[4321] = wrong
        with pytest.raises((IndexError, RuntimeError)) as eager:
            rows(x, index, source)
        with pytest.raises(eager.type, match=str(wrong)):
            compiled(rows)(x, index, source)


def test_a_position_counted_from_the_end(compiled, strict):
    def put(x, index, source):
        return x.index_put((index,), source, accumulate=True)

    x, index, source = randn(1000, 64), randint(1000, 5000), randn(5000, 64)
    index[4321] = -1000
    assert_close_to_eager(compiled(put)(x, index, source), put(x, index, source), scale=10.0)


@pytest.mark.parametrize(
    ("dtype", "size"),
    [
        (torch.uint8, 256), (torch.uint8, 258), (torch.int8, 128), (torch.int8, 130), (torch.bfloat16, 257),
        (torch.bfloat16, 259), (torch.float16, 2049), (torch.float16, 2051), (torch.int16, 300), (torch.bool, 2),
        (torch.bool, 5), (torch.float32, 300), (torch.int32, 300),
    ],
    ids=str,
)  # fmt: skip
def test_a_range_that_a_type_does_not_hold(dtype, size, compiled, strict):
    """The cast of the range wraps around or rounds, so it is no longer a range."""

    def run(x, j):
        i = torch.arange(size).to(dtype).long()
        halves = torch.arange(size).to(dtype).view(-1, 1).to(torch.int32).unsqueeze(0)
        back = (torch.arange(size) + 1).to(dtype).long().clamp(0, size - 1)
        return (
            x[i, j], x[j, i % 2], x[i], x[halves, torch.arange(2)], x.gather(0, i[:, None].expand(-1, 2)), x[back, j],
            x.index_put((i, j), torch.tensor(-1.0)), x.index_add(0, i, x), x.index_select(0, i),
            torch.nn.functional.embedding(i, x), x.scatter_add(0, i[:, None].expand(-1, 2), x),
        )  # fmt: skip

    x, j = torch.arange(size * 2.0).reshape(size, 2), torch.arange(size) % 2
    if dtype is torch.int8 and size > 128:  # below zero, which some of them refuse
        with pytest.raises(RuntimeError, match="index -128 is out of bounds for dimension 0 with size 130"):
            compiled(run)(x, j)

        def run(x, j):
            i = torch.arange(size).to(dtype).long()
            return x[i, j], x.index_put((i, j), torch.tensor(-1.0))

    assert_close_to_eager(compiled(run)(x, j), run(x, j))


def test_bits_of_a_range(compiled, strict):
    def run(x, j):
        return x[torch.arange(3).view(torch.int32), j]

    x, j = torch.arange(12.0).reshape(6, 2), torch.arange(6) % 2
    assert_close_to_eager(compiled(run)(x, j), run(x, j))


@pytest.mark.parametrize("shape", [(), (1,), (2, 3)])
def test_take_and_put_of_one_number(shape, compiled, strict):
    x, number = randn(2, 3).flatten()[: math.prod(shape)].reshape(shape).requires_grad_(), torch.tensor(2.5)
    index = torch.tensor(x.numel() - 1)
    for function in (lambda x: x.take(index), lambda x: x.put(index, number)):
        expected = function(x)
        actual = compiled(function)(x)
        assert_close_to_eager(actual, expected)
        (wanted,) = torch.autograd.grad(expected.sum(), x)
        (gradient,) = torch.autograd.grad(actual.sum(), x)
        assert_close_to_eager(gradient, wanted)

"""Programs beyond the call of a module: control flow, custom operators, modes, types. All results are compared with
eager. Derivatives are in test_derivatives.py."""

import copy
import random

import numpy as np
import pytest
import torch
from comparison import assert_close_to_eager


def same(compiled, function, *inputs, **arguments):
    """Runs `function` eagerly and compiled on copies of the inputs, and compares results and changed inputs."""
    ours, eager = copy.deepcopy(inputs), copy.deepcopy(inputs)
    expected = function(*eager)
    result = compiled(function, **arguments)(*ours)
    assert_close_to_eager(result, expected)
    assert_close_to_eager(ours, eager)
    return result


# ---- control flow and higher-order operators ----


def test_cond(compiled):
    def function(x):
        return torch.cond(x.sum() > 0, lambda v: v.sin(), lambda v: v.cos() + 1, (x,))

    same(compiled, function, torch.ones(4))
    same(compiled, function, -torch.ones(4))


def test_while_loop(compiled):
    from torch._higher_order_ops import while_loop

    def function(count, x):
        return while_loop(lambda i, v: i < 5, lambda i, v: (i + 1, v * 1.5 + 1), (count, x))

    same(compiled, function, torch.zeros((), dtype=torch.int64), torch.randn(3))


def test_scan(compiled):
    from torch._higher_order_ops.scan import scan

    def function(start, x):
        return scan(lambda c, v: (c * 0.5 + v, c * v), start, x)

    same(compiled, function, torch.randn(4), torch.randn(6, 4))


def test_map(compiled):
    from torch._higher_order_ops.map import map as torch_map

    same(compiled, lambda x, y: torch_map(lambda v, w: v.sin() * w, x, y), torch.randn(3, 4), torch.randn(4))


def test_cond_with_gradient(compiled):
    """Both branches, captured parameters, and nested branches."""
    w = torch.randn(4)

    def function(x, w):
        def positive(v):
            return torch.cond(v[0] > 1, lambda u: u.exp() * w, lambda u: u.sin() * w, (v,))

        return torch.cond(x.sum() > 0, positive, lambda v: v.cos() + w, (x * 2,)).sum()

    for x in (torch.full((4,), 0.2), torch.full((4,), 0.9), torch.full((4,), -1.0)):
        found, expected = [], []
        for run, result in ((compiled(function), found), (function, expected)):
            leaves = [x.clone().requires_grad_(), w.clone().requires_grad_()]
            run(*leaves).backward()
            result += [leaf.grad for leaf in leaves]
        assert_close_to_eager(found, expected)


def test_map_with_gradient(compiled):
    from torch._higher_order_ops.map import map as torch_map

    def gradients(run):
        x, y = (torch.linspace(-1, 1, n).requires_grad_() for n in (12, 4))
        run(x.view(3, 4), y).sum().backward()
        return x.grad, y.grad

    function = lambda x, y: torch_map(lambda v, w: v.sin() * w, x, y)  # noqa: E731
    assert_close_to_eager(gradients(compiled(function)), gradients(function))


def test_associative_scan(compiled):
    from torch._higher_order_ops import associative_scan

    def function(x):
        return associative_scan(lambda a, b: a * 0.9 + b, x, 0, combine_mode="generic")

    same(compiled, function, torch.randn(7, 3))


def test_library_op_that_mutates(compiled):
    @torch.library.custom_op("ipex_programs::accumulate", mutates_args={"total"})
    def accumulate(total: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        total += x
        return total.sum(0)

    @accumulate.register_fake
    def _(total, x):
        return total.new_empty(total.shape[1:])

    same(compiled, lambda t, x: (accumulate(t, x.exp()) * 2, t + 1), torch.zeros(3, 4), torch.randn(3, 4))


def test_library_op_of_several_results(compiled):
    """A custom op with several results, lists, numbers and optional arguments, and its own gradient."""
    with torch.library._scoped_library("ipex_programs_pieces", "FRAGMENT") as library:
        library.define("halves(Tensor[] parts, float scale, Tensor? shift=None) -> (Tensor, Tensor)")

        def halves(parts, scale, shift=None):
            whole = torch.cat(parts) * scale
            if shift is not None:
                whole = whole + shift
            return whole[: len(whole) // 2].clone(), whole[len(whole) // 2 :].clone()

        library.impl("halves", halves, "CompositeExplicitAutograd")
        op = torch.ops.ipex_programs_pieces.halves
        same(compiled, lambda x, y: op([x.exp(), y], 0.5), torch.randn(4), torch.randn(2))
        same(compiled, lambda x, y: op([x, y * 2], 2.0, x.sum())[1] + 1, torch.randn(4), torch.randn(2))


def test_op_that_mutates_two_views(compiled):
    """auto_functionalized: the base is written once for both views."""

    @torch.library.custom_op("ipex_programs::swap", mutates_args={"a", "b"})
    def swap(a: torch.Tensor, b: torch.Tensor) -> None:
        kept = a.clone()
        a.copy_(b)
        b.copy_(kept)

    def function(x):
        y = x + 1
        swap(y[0], y[2])
        return y * 2

    same(compiled, function, torch.randn(3, 4))


def test_graph_breaks(compiled):
    def function(x):
        y = x.exp()
        torch._dynamo.graph_break()
        if y.sum().item() > 0:
            y = y * 2
        return y + 1

    same(compiled, function, torch.randn(4))


def test_anomaly_mode(compiled):
    x = torch.randn(4, requires_grad=True)
    with torch.autograd.detect_anomaly(check_nan=True):
        compiled(lambda v: v.exp().sum())(x).backward()
    assert_close_to_eager(x.grad, x.detach().exp())


def test_deterministic_algorithms(compiled):
    index = torch.randint(0, 5, (100,))
    torch.use_deterministic_algorithms(True)
    try:
        function = lambda x: torch.zeros(5, 3).index_add(0, index, x)  # noqa: E731
        x = torch.randn(100, 3)
        first, second = (compiled(function)(x) for _ in range(2))
        assert torch.equal(first, second)
        assert_close_to_eager(first, function(x), scale=20.0)
    finally:
        torch.use_deterministic_algorithms(False)


# ---- types ----


@pytest.mark.parametrize("name", ["e4m3fn", "e5m2", "e4m3fnuz", "e5m2fnuz", "e8m0fnu"])
def test_float8_goes_through(name, compiled):
    dtype = getattr(torch, f"float8_{name}")

    def between_kernels(x, w):
        scale = x.abs().amax() / 200
        q = (x / scale).abs().to(dtype)
        joined = torch.cat([q, q])[3:, :5].t()
        return torch.relu((q.to(torch.float32) * scale) @ w), joined, joined.reshape(-1).view(torch.uint8).int() + 1

    x, w = torch.randn(8, 8), torch.randn(8, 8)
    same(compiled, lambda x: (x * 2).to(dtype).to(torch.float32) + 1, x)
    for ours, eager in zip(compiled(between_kernels)(x, w), between_kernels(x, w), strict=True):
        assert ours.dtype == eager.dtype and ours.stride() == eager.stride()
        torch.testing.assert_close(ours.float(), eager.float())


def test_tensor_subclass(compiled):
    from torch.testing._internal.two_tensor import TwoTensor

    function = lambda t: (t.sin() * 2).sum(0)  # noqa: E731
    t = TwoTensor(torch.randn(3, 4), torch.randn(3, 4))
    ours, eager = compiled(function)(t), function(t)
    assert isinstance(ours, TwoTensor)
    assert_close_to_eager([ours.a, ours.b], [eager.a, eager.b])


@pytest.mark.parametrize("dtype", (torch.float32, torch.float64, torch.bfloat16, torch.int64))
def test_random_numbers_of_python(compiled, dtype):
    """Dynamo traces them in the default type and passes float64. They are rounded as eager rounds a Python number."""

    def program(x):
        return x * random.uniform(0.5, 1.5), x + random.randint(1, 5), x + random.Random(3).random()

    optimized, x = compiled(program), torch.arange(1, 5).to(dtype)
    for seed in range(3):
        random.seed(seed)
        expected = program(x)
        random.seed(seed)
        for got, wanted in zip(optimized(x), expected, strict=True):
            torch.testing.assert_close(
                got, wanted, rtol=1e-12 if dtype is torch.float64 else None, atol=0 if dtype is torch.float64 else None
            )


def test_numbers_of_numpy_beside_doubles(compiled):
    """Dynamo passes them as tensors, a float32 unchanged, even if the other operand is float64."""
    optimized = compiled(lambda x, s: x * s)
    for value in (2.0, 3.0):
        x, s = torch.ones(4, dtype=torch.float64), np.float32(value)
        torch.testing.assert_close(optimized(x, s), x * s)


def test_random_number_beside_integers_and_doubles(compiled):
    def program(x, i):
        return x * random.uniform(0.5, 1.5), i * random.uniform(0.5, 1.5)

    optimized = compiled(program)
    arguments = torch.ones(4, dtype=torch.float64), torch.arange(4)
    random.seed(1)
    expected = program(*arguments)
    random.seed(1)
    for got, wanted in zip(optimized(*arguments), expected, strict=True):
        torch.testing.assert_close(got, wanted, rtol=1e-6, atol=0)

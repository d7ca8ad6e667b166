"""Dropout is a native kernel over eager's own random numbers: same mask, same bits, same state of generator after."""

import pytest
import torch

SHAPES = [(1,), (7,), (3, 105), (2, 3, 311), (4, 4, 64, 64)]


def run_twice(function, *arguments):
    """Two calls, so that the second starts amid a block of the generator; then what the generator gives next."""
    torch.manual_seed(5)
    results = [*function(*arguments), torch.rand(3), *function(*arguments)]
    return [*results, torch.get_rng_state()]


def assert_equal(ours, eagers):
    for mine, eager in zip(ours, eagers, strict=True):
        assert mine.dtype == eager.dtype and mine.stride() == eager.stride()
        assert torch.equal(mine, eager)


@pytest.mark.parametrize("p", [0.0, 0.1, 0.5, 1.0])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
def test_mask_and_values(dtype, p, compiled, strict):
    def function(*inputs):
        return [r for x in inputs for r in torch.native_dropout(x, p, True)]

    inputs = [torch.randn(shape).to(dtype) for shape in SHAPES]
    assert_equal(run_twice(compiled(function), *inputs), run_twice(function, *inputs))


def test_the_mask_follows_memory_and_not_dims(compiled, strict):
    def function(x, y):
        return [*torch.native_dropout(x, 0.3, True), *torch.native_dropout(y, 0.3, True)]

    inputs = torch.randn(2, 8, 5, 7).to(memory_format=torch.channels_last), torch.randn(33, 65).t()
    assert_equal(run_twice(compiled(function), *inputs), run_twice(function, *inputs))


def test_not_finite(compiled, strict):
    def function(x):
        return torch.native_dropout(x, 0.5, True)

    x = torch.tensor([torch.inf, -torch.inf, torch.nan, 1e38, 0.0, -0.0] * 50)
    ours, eagers = run_twice(compiled(function), x), run_twice(function, x)
    torch.testing.assert_close(ours[0], eagers[0], rtol=0, atol=0, equal_nan=True)


def test_gradient_and_any_size(compiled, strict):
    def function(x):
        y = torch.nn.functional.dropout(x, 0.25) * 3
        return y, torch.autograd.grad(y.sum(), x)[0]

    run = compiled(function, dynamic=True)
    for rows in (3, 311, 2, 625):
        x = torch.randn(rows, 5, requires_grad=True)
        assert_equal(run_twice(run, x), run_twice(function, x))


def test_in_evaluation(compiled, strict):
    layer = torch.nn.Dropout(0.5).eval()
    x = torch.randn(5)
    assert torch.equal(compiled(layer)(x), x)
    mine, mask = compiled(lambda x: torch.native_dropout(x, 0.5, False))(x)
    assert torch.equal(mine, x) and mask.all()

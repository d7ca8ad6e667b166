"""Products with many rows, which a kernel computes where it is faster than the library. They are compared with fp64,
for all layouts of the weights, for rows, columns and K that do not fill a tile, panel or block, and with fused
epilogues."""

import pytest
import torch
import torch.nn.functional as F
from comparison import assert_error_within, relative_error

SIZES = [(33, 130, 40), (96, 64, 64), (97, 66, 70), (128, 768, 200), (197, 130, 333), (600, 1024, 65), (130, 9000, 64)]


def operands(rows, terms, columns, by_column, dtype):
    torch.manual_seed(rows + terms + columns)
    x = torch.randn(rows, terms)
    w = torch.randn(columns, terms).t() if by_column else torch.randn(terms, columns)
    return [t.to(dtype) for t in (x, w, torch.randn(columns), torch.randn(rows, columns))]


def run(function, *inputs):
    torch._dynamo.reset()
    return torch.compile(function, backend="ipex", dynamic=False)(*inputs)


@pytest.mark.parametrize("by_column", [False, True], ids=["rows", "columns"])
@pytest.mark.parametrize("size", SIZES, ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["fp32", "bf16"])
def test_products(size, by_column, dtype):
    x, w, bias, residual = operands(*size, by_column, dtype)

    def function(x, w, bias, residual):
        return torch.mm(x, w), F.gelu(torch.addmm(bias, x, w)), torch.mm(x, w) + residual, x.t()

    wide = function(*(t.double() for t in (x, w, bias, residual)))
    ours = run(function, x, w, bias, residual)
    for result, eager, reference in zip(ours, function(x, w, bias, residual), wide, strict=True):
        if dtype == torch.bfloat16:
            assert_error_within(result, eager, reference)
        else:
            assert relative_error(result, reference) < 1e-6


def test_views_that_are_no_pairs():
    """Rows with an odd stride or offset, and an operand that is read again."""
    base = torch.randn(128, 131).bfloat16()
    w = torch.randn(64, 128).bfloat16()
    square = torch.randn(128, 128).bfloat16()

    def function(x, y):
        return torch.relu(x @ y)

    for x, y in ((base[:, 1:129], w.t()), (base[:, :128], w.t()), (square, square), (square, square.t())):
        assert_error_within(run(function, x, y), function(x, y), function(x.double(), y.double()))


def test_training_step():
    model = torch.nn.Sequential(torch.nn.Linear(128, 192), torch.nn.GELU(), torch.nn.Linear(192, 128))
    x = torch.randn(256, 128)

    def gradients(function, x):
        for p in model.parameters():
            p.grad = None
        with torch.autocast("cpu", torch.bfloat16):
            loss = function(x).float().square().mean()
        loss.backward()
        return [p.grad.clone() for p in model.parameters()]

    eager = gradients(model, x)
    torch._dynamo.reset()
    ours = gradients(torch.compile(model, backend="ipex", dynamic=False), x)
    reference = torch.autograd.grad(model.double()(x.double()).square().mean(), list(model.parameters()))
    assert_error_within(ours, eager, reference)

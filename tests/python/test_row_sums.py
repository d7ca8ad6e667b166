"""Column sums of values that the same kernel reads or stores by rows: enough rows to fuse the loops, widths that do not
fill a vector, several dims of rows, sums of stored and of recomputed values, and row results besides the sums."""

import pytest
import torch
import torch.nn.functional as F
from comparison import assert_error_within, relative_error


def layer_norm_gradients(x, w, b, g):
    return torch.ops.aten.native_layer_norm_backward(
        g, x, [x.shape[-1]], x.mean(-1, keepdim=True), torch.rsqrt(x.var(-1, keepdim=True, unbiased=False) + 1e-5),
        w, b, [True, True, True],
    )  # fmt: skip


def product_and_bias(x, w, b, g):
    y = x * g
    return y, y.sum(tuple(range(x.dim() - 1)))


def stored_softmax(x, w, b, g):
    y = F.softmax(x, -1)
    return y, y.flatten(0, -2).sum(0)


def rows_and_columns(x, w, b, g):
    return x.sum(-1), x.flatten(0, -2).sum(0), (x - x.mean(-1, keepdim=True)) * w


def repeated_chain(x, w, b, g):
    y = torch.relu(x) * g
    return y - y.mean(-1, keepdim=True), y.flatten(0, -2).sum(0)


def shifted_rows(x, w, b, g):
    y = F.softmax(x, -1)
    return y, y.flip(0).flatten(0, -2)[1:].sum(0)


FUNCTIONS = (layer_norm_gradients, product_and_bias, stored_softmax, rows_and_columns, repeated_chain, shifted_rows)
SHAPES = [(1024, 768), (1030, 515), (8, 256, 96), (700, 4100), (64, 33)]


@pytest.mark.one_in(2)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["fp32", "bf16"])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda f: f.__name__)
def test_row_sums(function, shape, dtype, monkeypatch):
    monkeypatch.setenv("IPEX_STRICT", "1")
    monkeypatch.setenv("IPEX_VERIFY", "1")
    torch.manual_seed(sum(shape))
    given = [torch.randn(s).to(dtype) for s in (shape, shape[-1:], shape[-1:], shape)]
    wide = function(*(t.double() for t in given))
    for dynamic in (False, True):
        torch._dynamo.reset()
        ours = torch.compile(function, backend="ipex", dynamic=dynamic)(*given)
        for result, eager, reference in zip(ours, function(*given), wide, strict=True):
            assert result.shape == eager.shape and result.dtype == eager.dtype
            if dtype == torch.bfloat16:
                assert_error_within(result, eager, reference)
            else:
                assert relative_error(result, reference) < max(2e-6, 1.1 * relative_error(eager, reference))


@pytest.mark.parametrize("size", [5, 8, 64])
def test_softmaxes_along_both_axes_in_turn(size, compiled, strict):
    """The rows of one softmax are the columns of the other, in a square matrix."""

    def function(x):
        for _ in range(3):
            x = torch.softmax(x, 1) + torch.softmax(x, 0)
        return x

    x = torch.randn(size, size, requires_grad=True)
    weight = torch.randn(size, size)
    results = []
    for call in (compiled(function), function):
        y = call(x)
        results.append((y.detach(), *torch.autograd.grad((y * weight).sum(), x)))
    torch.testing.assert_close(*results)

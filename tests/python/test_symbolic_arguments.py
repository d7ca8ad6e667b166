"""Symbolic integer arguments: one compilation serves all values, and native ops stay native.

The arguments are sizes that are marked dynamic, so that PyTorch raises an error if they are specialized, or sizes in a
function that is compiled with dynamic=True.
"""

import intel_extension_for_pytorch as ipex
import pytest
import torch
import torch.nn.functional as F
from conftest import BACKEND
from test_dynamic import Counting

aten = torch.ops.aten
MATRIX = torch.linspace(-3, 3, 12 * 18).view(12, 18).sin()
IMAGE = torch.linspace(-3, 3, 2 * 4 * 12 * 12).view(2, 4, 12, 12).sin()
WEIGHT = torch.linspace(-1, 1, 5 * 4 * 9).view(5, 4, 3, 3).cos()
TRANSPOSED = torch.linspace(-1, 1, 4 * 5 * 9).view(4, 5, 3, 3).cos()
ROWS = torch.arange(12)

NATIVE = {
    "pads": lambda n: [F.pad(MATRIX, (n, 1)), F.pad(MATRIX, (1, -n, n, 0)), F.pad(IMAGE, (0, 2, -n, n), value=2.5)],
    "pads of unknown sign": lambda n: [F.pad(MATRIX, (3 - n, 4 - n)), F.pad(MATRIX, (0, 0, n - 3, 3 - n), value=1.0)],
    "padding modes": lambda n: [F.pad(IMAGE, (n, 1, 1, n), mode=m) for m in ("reflect", "replicate", "circular")],
    "alpha": lambda n: [MATRIX.add(MATRIX, alpha=n), MATRIX.sub(2, alpha=n), torch.rsub(MATRIX, 2, alpha=n)],
    "alpha of a product": lambda n: [torch.addmm(MATRIX[:, :12], MATRIX, MATRIX.t(), alpha=n, beta=n)],
    "alpha of index_add": lambda n: [MATRIX.index_add(0, ROWS[:3], MATRIX[:3], alpha=n)],
    "numbers": lambda n: [MATRIX.clamp(-n, n), MATRIX.pow(n), F.celu(MATRIX, n), F.threshold(ROWS, n, 7)],
    "views": lambda n: [MATRIX.narrow(1, n, 4), MATRIX.narrow(1, 0, n), *MATRIX.split([n, 12 - n]), MATRIX.tril(n)],
    "copies": lambda n: [MATRIX.roll(n, 0), MATRIX.roll((n, -n), (0, 1)), MATRIX.repeat(n, 2)],
    "selections": lambda n: [*MATRIX.topk(n), *MATRIX.kthvalue(n)],
    "ranges": lambda n: [torch.arange(n, 30, n), torch.eye(n), torch.full((n,), n)],
    "sizes": lambda n: [F.interpolate(IMAGE, (n, 7)), F.interpolate(IMAGE, (n, 7), mode="bilinear")],
}  # fmt: skip
IN_ATEN = {
    "stride": lambda n: [F.conv2d(IMAGE, WEIGHT, stride=n)],
    "padding": lambda n: [F.conv2d(IMAGE, WEIGHT, padding=n)],
    "dilation": lambda n: [F.conv2d(IMAGE, WEIGHT, dilation=n)],
    "of a transposed convolution": lambda n: [F.conv_transpose2d(IMAGE, TRANSPOSED, stride=n, padding=1)],
    "correction": lambda n: [MATRIX.var(1, correction=n), MATRIX.std(0, correction=n)],
}


def by_size(function):
    """Converts a function of an int to one of a tensor's size, with arithmetic on the symbol before and after."""
    return lambda x: [y.sin() if y.is_floating_point() else y for y in function(x.shape[0])]


def results(function, marked, backend=BACKEND):
    """Results for three sizes, the number of compiled graphs, and the reports."""
    torch._dynamo.reset()
    counting = Counting(backend)
    compiled = torch.compile(function, backend=counting, dynamic=None if marked else True)
    found = []
    with ipex.record_reports() as reports:
        for n in (2, 3, 4):
            x = torch.ones(n)
            if marked:
                torch._dynamo.mark_dynamic(x, 0)
            found.append(compiled(x))
    return found, counting.graphs, reports


@pytest.mark.parametrize("marked", [True, False])
@pytest.mark.parametrize("name", NATIVE)
def test_native(name, marked, strict):
    function = by_size(NATIVE[name])
    expected, graphs, _ = results(function, marked, "eager")
    found, ours, _ = results(function, marked)
    torch.testing.assert_close(found, expected)
    assert ours == graphs
    assert ours == 1 or not marked


@pytest.mark.needs_ipex
@pytest.mark.parametrize("name", IN_ATEN)
def test_in_aten(name):
    """Settings that the library needs as constants: the op runs in ATen with the symbols' values. Nothing is
    specialized."""
    function = by_size(IN_ATEN[name])
    expected, graphs, _ = results(function, True, "eager")
    found, ours, reports = results(function, True)
    torch.testing.assert_close(found, expected)
    assert ours == graphs
    assert [r["eager"] for r in reports if r["eager"]] == []
    assert reports[0]["extern_why"]


def test_gradient_of_a_convolution():
    def function(x, w, n):
        return F.conv2d(x, w, dilation=n.shape[0], padding=n.shape[0])

    torch._dynamo.reset()
    compiled = torch.compile(function, backend=BACKEND)
    for n in (2, 3):
        size = torch.ones(n)
        torch._dynamo.mark_dynamic(size, 0)
        gradients = []
        for run in (function, compiled):
            x, w = IMAGE.clone().requires_grad_(), WEIGHT.clone().requires_grad_()
            gradients.append(torch.autograd.grad(run(x, w, size).sin().sum(), (x, w)))
        torch.testing.assert_close(gradients[1], gradients[0], rtol=1e-4, atol=1e-4)


VIEWS = {
    "steps": lambda x, n: (x[1::n], x[:, n::n] * 2),
    "of memory": lambda x, n: (x.as_strided((2, 2), (n, 1), x.storage_offset() + n),),
    "diagonal": lambda x, n: (x.diagonal(n), x[n:].unfold(0, n, n)),
    "beside a cut": lambda x, n: (x[n:], x[x > 0]),
    "beside an effect": lambda x, n: (x[n:].view(torch.int32), torch.linalg.inv(x[:2, :2]), torch.fft.fft(x)),
}


@pytest.mark.parametrize("name", VIEWS)
def test_views_of_an_input(name):
    """AOTAutograd recreates the views from the input, with symbolic geometry."""

    def function(x, size):
        return VIEWS[name](x, size.shape[0])

    torch._dynamo.reset()
    compiled = torch.compile(function, backend=BACKEND, dynamic=True)
    for n in (2, 3, 4):
        for x in (torch.randn(3, 9 + n, 20)[0], torch.randn(3, 9 + n, 20)[2]):
            for ours, eager in zip(compiled(x, torch.ones(n)), function(x, torch.ones(n)), strict=True):
                torch.testing.assert_close(ours, eager)
                assert ours.stride() == eager.stride()
                assert ours.data_ptr() == eager.data_ptr() or not eager._is_view()


DIVIDED = {
    "//": lambda x, n: x + 5 // n,
    "%": lambda x, n: x + 5 % n,
    "negative": lambda x, n: x * (7 // -n),
    "both": lambda x, n: x + sum(divmod(9, n)),
    "of a size": lambda x, n: x + x.shape[0] // n,
}


@pytest.mark.parametrize("name", DIVIDED)
def test_numbers_divided_by_zero(name):
    torch._dynamo.reset()
    compiled, x = torch.compile(DIVIDED[name], backend=BACKEND, dynamic=True), torch.ones(8)
    for n in (3, 2, -4, 5):
        torch.testing.assert_close(compiled(x, n), DIVIDED[name](x, n))
    with pytest.raises(ZeroDivisionError, match="by zero"):
        compiled(x, 0)


# ---- sizes that must agree between an operator's arguments ----

COMMON_SIZES = {
    "slice_scatter": (lambda x, y: aten.slice_scatter(x, y, 1, 1, None, 4), MATRIX, MATRIX[:, 1::4]),
    "slice_scatter to an end": (lambda x, y: aten.slice_scatter(x, y, 1, 1, -2, 3), MATRIX, MATRIX[:, 1:-2:3]),
    "slice_scatter of all": (lambda x, y: aten.slice_scatter(x, y, 0, -30, 40), MATRIX, MATRIX.cos()),
    "select_scatter": (lambda x, y: torch.select_scatter(x, y, 0, 1), MATRIX, MATRIX[2]),
    "diagonal_scatter above": (lambda x, y: torch.diagonal_scatter(x, y, 1), MATRIX, torch.ones(12)),
    "diagonal_scatter below": (lambda x, y: torch.diagonal_scatter(x, y, -2), MATRIX, torch.ones(10)),
    "index_add": (lambda x, y: x.index_add(0, torch.arange(3), y).cos(), MATRIX, MATRIX[:3].cos()),
    "index_copy": (lambda x, y: x.index_copy(0, torch.arange(3), y).cos(), MATRIX, MATRIX[:3].cos()),
    "index_put": (lambda x, y: aten.index_put(x, [None, torch.arange(4)], y), MATRIX, MATRIX[:, :4].cos()),
    "a select of a sum": (lambda x, y: (x + y).select(0, 1) + y.select(1, 2)[:1], MATRIX, MATRIX.cos()),
    "put": (lambda x, y: x.put(torch.arange(18).view(3, 6), y), MATRIX, MATRIX[3]),
}


@pytest.mark.parametrize("name", COMMON_SIZES)
def test_common_sizes(name, strict):
    function, x, y = COMMON_SIZES[name]
    torch._dynamo.reset()
    compiled = torch.compile(function, backend=BACKEND, dynamic=True)
    torch.testing.assert_close(compiled(x.clone(), y.clone()), function(x, y))

"""Sizes that must agree but that tracing does not compare. A call where they differ raises eager's error, and never
reads or writes out of bounds."""

import itertools

import pytest
import torch

CALLS = {
    "index_put": lambda a, b: torch.zeros(9).index_put((a.long(),), b),
    "accumulating index_put": lambda a, b: torch.zeros(9).index_put((a.long(),), b, accumulate=True),
    "index_put through a mask": lambda a, b: a.index_put((b > 2,), torch.tensor(0.0)),
    "put": lambda a, b: torch.zeros(9).put(a.long(), b),
    "index_add": lambda a, b: torch.zeros(9).index_add(0, a.long(), b),
    "index_copy": lambda a, b: torch.zeros(9).index_copy(0, a.long(), b),
    "index_reduce along": lambda a, b: torch.zeros(9).index_reduce(0, a.long(), b, "amax"),
    "index_reduce across": lambda a, b: a[:, None].expand(-1, 9).clone().index_reduce(
        1, torch.tensor([0, 2]), b[:, None].expand(-1, 2), "amin"),
    "scatter": lambda a, b: torch.zeros(9).scatter(0, a.long(), b),
    "scatter_add": lambda a, b: torch.zeros(9).scatter_add(0, a.long(), b),
    "slice_scatter": lambda a, b: torch.zeros(12).slice_scatter(b, 0, 1, 1 + a.shape[0]),
    "select_scatter": lambda a, b: torch.stack([a, a]).select_scatter(b, 0, 1),
    "diagonal_scatter": lambda a, b: torch.diag_embed(a).diagonal_scatter(b),
    "embedding gradient": lambda a, b: torch.ops.aten.embedding_dense_backward(
        a[:, None].expand(-1, 3), b.long(), 10, -1, False),
    "weights of a bag": lambda a, b: torch.nn.functional.embedding_bag(
        a.long()[None], torch.ones(10, 3), mode="sum", per_sample_weights=b[None]),
}  # fmt: skip


@pytest.mark.one_in(2)
@pytest.mark.parametrize("symbolic", ["first", "second", "both"])
@pytest.mark.parametrize("name", CALLS)
def test_as_in_eager(name, symbolic, compiled):
    call = CALLS[name]
    lengths = [(5, 3, 7, 1) if symbolic in (which, "both") else (5,) for which in ("first", "second")]
    run = None
    for first, second in itertools.product(*lengths):
        a, b = torch.arange(float(first)) + 0.5, torch.arange(float(second)) + 1
        if run is None:
            run = compiled(call)
            if symbolic != "second":
                torch._dynamo.maybe_mark_dynamic(a, 0)
            if symbolic != "first":
                torch._dynamo.maybe_mark_dynamic(b, 0)
        try:
            expected = call(a, b)
        except (RuntimeError, IndexError, ValueError):
            with pytest.raises((RuntimeError, IndexError, ValueError)):
                run(a, b)
        else:
            torch.testing.assert_close(run(a, b), expected)


@pytest.mark.parametrize("transposed", [False, True])
def test_gradient_of_a_convolution(transposed, compiled):
    def call(grad, x, w):
        return torch.ops.aten.convolution_backward(
            grad, x, w, [w.shape[0]], [1, 1], [0, 0], [1, 1], transposed, [0, 0], 1, [True, True, True]
        )

    run = compiled(call)
    x, w = torch.randn(2, 4, 9, 9), torch.randn(4, 4, 3, 3)
    right, wrong = (11, 7) if transposed else (7, 11)
    grad = torch.randn(2, 4, right, right)
    for ours, eager in zip(run(grad, x, w), call(grad, x, w), strict=True):
        torch.testing.assert_close(ours, eager, rtol=1e-4, atol=1e-3)
    for shape in ((2, 4, wrong, wrong), (2, 3, right, right), (1, 4, right, right)):
        for length in (shape, (*shape[:3], shape[3] + 1)):
            with pytest.raises(RuntimeError):
                call(torch.randn(length), x, w)
            with pytest.raises(RuntimeError):
                run(torch.randn(length), x, w)

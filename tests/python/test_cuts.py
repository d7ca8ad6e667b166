"""Graphs with an op that a Graph cannot represent are cut at it, and the parts before and after are compiled."""

import intel_extension_for_pytorch as ipex
import pytest
import torch
from conftest import BACKEND

X = torch.linspace(-3, 3, 24).view(4, 6)


def run(function, *arguments, **options):
    """The compiled results, and the reports."""
    torch._dynamo.reset()
    with ipex.record_reports() as reports:
        found = torch.compile(function, backend=BACKEND, fullgraph=True, **options)(*arguments)
    return found, reports


FROM_ITEM = {
    "an integer": (lambda x, n: torch.full((3,), n.item()) + x.sin()[0, :3], torch.tensor(3)),
    "an integer in another type": (
        lambda x, n: torch.full((3,), n.item(), dtype=torch.float64) + x.sin()[0, :3],
        torch.tensor(3),
    ),
    "a float": (lambda x, n: torch.full((3,), n.item()) + x.sin()[0, :3], torch.tensor(3.5)),
    "a float computed with": (lambda x, n: x.sin() * (n.item() * 2 + x.shape[0]), torch.tensor(3.5)),
    "a bound": (lambda x, n: x.sin().clamp(max=n.item()) + 1, torch.tensor(0.25)),
    "a filling": (lambda x, n: x.sin().masked_fill(x > 0, n.item()) + 1, torch.tensor(0.25)),
    "a boolean": (lambda x, n: torch.full((3,), n.item()) & (x.sin()[0, :3] > 0), torch.tensor(True)),
    "a size": (lambda x, n: torch.full((n.item(),), 2.5) + x.sin()[0, 0], torch.tensor(5)),
}


@pytest.mark.parametrize("name", FROM_ITEM)
@pytest.mark.parametrize("dynamic", [False, True])
def test_numbers_from_data(name, dynamic, strict):
    function, number = FROM_ITEM[name]
    with torch._dynamo.config.patch(capture_scalar_outputs=True):
        found, reports = run(function, X, number, dynamic=dynamic)
    torch.testing.assert_close(found, function(X, number))
    assert [r["eager"] for r in reports if r["eager"]] == []


REFUSED = {
    "a number from sizes": (lambda x: torch.histc(x.sin(), 5, 0, x.shape[0] / 3).cos(), ["aten.histc.default"]),
    "twice": (lambda x: torch.histc(torch.histc(x.sin(), 5, 0, x.shape[0] / 3).cos(), 3, 0, x.shape[1] / 7).sin(),
              ["aten.histc.default"] * 2),
    "after a cut": (lambda x: torch.histc(x[x > 0].sin(), 5, 0, x.shape[0] / 3).cos(),
                    ["aten.index.Tensor", "aten.histc.default"]),
    "a type of its own": (lambda x: (x.abs() * 9).to(torch.uint16).float().cos(), ["aten._to_copy.default"] * 2),
}  # fmt: skip


@pytest.mark.needs_ipex
@pytest.mark.parametrize("name", REFUSED)
def test_what_no_graph_holds(name):
    function, ops = REFUSED[name]
    with torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True):
        found, reports = run(function, X, dynamic=True)
    torch.testing.assert_close(found, function(X))
    assert [r["eager"] for r in reports if r["eager"]] == []
    assert sorted(op for r in reports for op in r["extern_ops"]) == sorted(ops)
    assert sum(r["kernel_steps"] for r in reports) >= 2


def test_with_gradients():
    def function(x):
        return (sum(torch.unbind(x.sin())) * torch.nonzero(x > 0).shape[0] / 50).cos()

    results = []
    with torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True):
        for call in (function, torch.compile(function, backend=BACKEND)):
            x = X.clone().requires_grad_()
            y = call(x)
            results.append((y, torch.autograd.grad(y.sum(), x)))
    torch.testing.assert_close(results[1], results[0])


@pytest.mark.needs_ipex
def test_memory_that_others_see():
    """as_strided over memory that a part of the graph would not share: the whole graph runs eagerly."""

    def function(x):
        return x[1:].as_strided((3, 3), (1, 2), 3).sin() * 2

    found, reports = run(function, X)
    torch.testing.assert_close(found, function(X))
    assert "reads the memory" in reports[0]["eager"]

"""Many calls compiled as one graph, past Dynamo.

The op matrix has thousands of cases. Dynamo would cost each of them 50-100 ms and add nothing to what they check, so a
batch of calls becomes one FX graph that goes straight to the backend, as Dynamo would hand it over. When a batch fails
to compile, halving finds the calls that are to blame.
"""

import operator
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from comparison import difference, first_line, tensors_of
from conftest import BACKEND
from torch._dynamo.backends.registry import lookup_backend
from torch._guards import TracingContext, tracing
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.node import map_aggregate
from torch.utils import _pytree as pytree

MAX_REPORTED = 6


@dataclass
class Call:
    label: str
    target: Callable[..., Any]
    args: tuple = ()
    kwargs: dict = field(default_factory=dict)
    expected: list[torch.Tensor] = field(default_factory=list)
    several: bool = False

    def accepted_by_eager(self):
        """Fills in the expected results; False where eager refuses this call or returns anything but tensors."""
        try:
            result = self.target(*self.args, **self.kwargs)
        except Exception:  # whatever eager rejects is no case of ours
            return False
        self.several = isinstance(result, (tuple, list))
        self.expected = list(result) if self.several else [result]
        return bool(self.expected) and all(type(t) is torch.Tensor for t in self.expected)


def graph_of(calls):
    """(GraphModule, inputs) with one placeholder per distinct tensor; results of all calls in one flat tuple."""
    graph = torch.fx.Graph()
    placeholders, inputs = {}, []
    for leaf in pytree.tree_leaves([(call.args, call.kwargs) for call in calls]):
        if isinstance(leaf, torch.Tensor) and id(leaf) not in placeholders:
            placeholders[id(leaf)] = graph.placeholder(f"arg{len(inputs)}")
            inputs.append(leaf)

    def to_node(value):
        return placeholders[id(value)] if isinstance(value, torch.Tensor) else value

    results = []
    for call in calls:
        args, kwargs = map_aggregate(call.args, to_node), map_aggregate(call.kwargs, to_node)
        node = graph.call_function(call.target, args, kwargs)
        if call.several:
            results += [graph.call_function(operator.getitem, (node, i)) for i in range(len(call.expected))]
        else:
            results.append(node)
    graph.output(tuple(results))
    return torch.fx.GraphModule({}, graph), inputs


def compile_graph(module, inputs):
    """The backend's compiled callable for an FX graph, as Dynamo would obtain it."""
    with tracing(TracingContext(FakeTensorMode(shape_env=None))):
        return lookup_backend(BACKEND)(module, inputs)


def run_compiled(calls):
    module, inputs = graph_of(calls)
    results = list(compile_graph(module, inputs)(*inputs))
    split = []
    for call in calls:
        split.append(results[: len(call.expected)])
        results = results[len(call.expected) :]
    return split


def gradients_of(results, inputs):
    """d(sum of results weighted by fixed random numbers) / d(inputs); None for an input without influence."""
    generator = torch.Generator().manual_seed(0)
    results = [r for r in results if r.requires_grad]
    weights = [torch.randn(r.shape, generator=generator, dtype=torch.float64).to(r.dtype) for r in results]
    return list(torch.autograd.grad(results, inputs, weights, allow_unused=True))


def failures(calls, compare=difference, gradients=False):
    """One line per failing call (the first few); empty when every call gives what eager gives."""
    if not calls:
        return []
    try:
        results = run_compiled(calls)
        pairs = []
        for call, ours in zip(calls, results, strict=True):
            pairs += [(call.label, a, b) for a, b in zip(ours, call.expected, strict=True)]
        if gradients:
            inputs = [t for t in tensors_of([(c.args, c.kwargs) for c in calls]) if t.requires_grad]
            ours = gradients_of(tensors_of(results), inputs)
            for call in calls:
                call.accepted_by_eager()
            eager = gradients_of(tensors_of([c.expected for c in calls]), inputs)
            owners = [c.label for c in calls for t in tensors_of((c.args, c.kwargs)) if t.requires_grad]
            pairs += zip([f"{owner} gradient" for owner in owners], ours, eager, strict=True)
        found = []
        for label, a, b in pairs:
            missing = a is None or b is None
            message = compare(a, b) if not missing else None if a is b else f"{a}, eager has {b}"
            if message is not None:
                found.append(f"{label}: {message}")
        return found
    except Exception as error:
        if len(calls) == 1:
            return [f"{calls[0].label}: {type(error).__name__}: {first_line(error)}"]
        half = len(calls) // 2
        found = failures(calls[:half], compare, gradients)
        return found if len(found) >= MAX_REPORTED else found + failures(calls[half:], compare, gradients)


def assert_all(calls, compare=difference, *, gradients=False, at_least=1):
    """Compiles and checks every call that eager accepts; at_least guards against a test of nothing."""
    calls = [call for call in calls if call.accepted_by_eager()]
    if gradients:
        calls = [call for call in calls if any(t.requires_grad for t in call.expected)]
    assert len(calls) >= at_least, f"eager accepts only {len(calls)} of the calls"
    found = failures(calls, compare, gradients)
    listed = "\n  ".join(found[:MAX_REPORTED])
    assert not found, f"{len(found)} failures among {len(calls)} calls, first ones:\n  {listed}"

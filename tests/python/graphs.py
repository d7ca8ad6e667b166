"""Compiles many calls as one graph, without Dynamo.

The op matrix has thousands of cases. Dynamo would take 50-100 ms for each and is not what they test. So a batch of
calls becomes one FX graph that is passed directly to the backend. If a batch fails, bisection finds the failing calls.
"""

import logging
import operator
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from comparison import difference, first_line, memory_order, tensors_of
from conftest import BACKEND
from torch._dynamo.backends.registry import lookup_backend
from torch._guards import TracingContext, tracing
from torch._subclasses.fake_tensor import DynamicOutputShapeException, FakeTensorMode
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
        """Computes the expected results; False if eager refuses the call or returns something other than tensors."""
        try:
            result = self.target(*self.args, **self.kwargs)
        except Exception:  # calls that eager rejects are not tested
            return False
        self.several = isinstance(result, (tuple, list))
        self.expected = list(result) if self.several else [result]
        return bool(self.expected) and all(type(t) is torch.Tensor for t in self.expected)

    def converted(self, convert):
        """The results of the call with every tensor argument converted, as a list."""
        args, kwargs = pytree.tree_map_only(torch.Tensor, convert, (self.args, self.kwargs))
        result = self.target(*args, **kwargs)
        return list(result) if self.several else [result]

    def in_fp64(self):
        return self.converted(lambda t: t.double() if t.is_floating_point() else t)

    def meta(self):
        """The result of PyTorch's shape functions for the call; None if they refuse it although eager accepts it."""
        mode = FakeTensorMode()
        logging.disable(logging.ERROR)
        try:
            with mode:
                return self.converted(mode.from_tensor)
        except Exception:
            return None
        finally:
            logging.disable(logging.NOTSET)


def graph_of(calls):
    """(GraphModule, inputs) with one placeholder per distinct tensor and a flat tuple of the results of all calls."""
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
    """The backend's compiled callable for an FX graph."""
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
    """d(sum of results weighted by fixed random numbers) / d(inputs); None for an input without a gradient."""
    generator = torch.Generator().manual_seed(0)
    results = [r for r in results if r.requires_grad]
    weights = [torch.randn(r.shape, generator=generator, dtype=torch.float64).to(r.dtype) for r in results]
    return list(torch.autograd.grad(results, inputs, weights, allow_unused=True))


def excused(call, position, ours, eager, compare):
    """Whether a difference from eager is caused by PyTorch itself.

    Its meta functions define a graph's dtypes and strides, and some disagree with its kernels. And where eager rounds
    or overflows in an intermediate result of a narrow type, a result closer to fp64 is accepted.
    """
    meta = call.meta()
    if meta is not None and (ours.dtype, memory_order(ours)) == (meta[position].dtype, memory_order(meta[position])):
        eager = torch.empty_strided(ours.shape, ours.stride(), dtype=ours.dtype).copy_(eager)
        if compare(ours, eager) is None:
            return True
    return eager.is_floating_point() and compare(ours, call.in_fp64()[position].to(eager)) is None


def failures(calls, compare=difference, gradients=False):
    """One line for each of the first failing calls; empty if all calls give eager's results."""
    if not calls:
        return []
    try:
        results = run_compiled(calls)
        found = []
        for call, ours in zip(calls, results, strict=True):
            for position, (a, b) in enumerate(zip(ours, call.expected, strict=True)):
                message = compare(a, b)
                if message is not None and not excused(call, position, a, b, compare):
                    found.append(f"{call.label}: {message}")
        if gradients:
            inputs = [t for t in tensors_of([(c.args, c.kwargs) for c in calls]) if t.requires_grad]
            ours = gradients_of(tensors_of(results), inputs)
            for call in calls:
                call.accepted_by_eager()
            eager = gradients_of(tensors_of([c.expected for c in calls]), inputs)
            owners = [c.label for c in calls for t in tensors_of((c.args, c.kwargs)) if t.requires_grad]
            for owner, a, b in zip(owners, ours, eager, strict=True):
                missing = a is None or b is None
                message = compare(a, b) if not missing else None if a is b else f"{a}, eager has {b}"
                if message is not None:
                    found.append(f"gradient of {owner}: {message}")
        return found
    except Exception as error:
        if len(calls) == 1:
            if calls[0].meta() is None or isinstance(error, DynamicOutputShapeException):
                return []  # PyTorch cannot trace this call
            return [f"{calls[0].label}: {type(error).__name__}: {first_line(error)}"]
        half = len(calls) // 2
        found = failures(calls[:half], compare, gradients)
        return found if len(found) >= MAX_REPORTED else found + failures(calls[half:], compare, gradients)


def assert_all(calls, compare=difference, *, gradients=False, at_least=1):
    """Compiles and checks every call that eager accepts. There must be `at_least` so many."""
    calls = [call for call in calls if call.accepted_by_eager()]
    if gradients:
        calls = [call for call in calls if any(t.requires_grad for t in call.expected)]
    assert len(calls) >= at_least, f"eager accepts only {len(calls)} of the calls"
    found = failures(calls, compare, gradients)
    listed = "\n  ".join(found[:MAX_REPORTED])
    assert not found, f"{len(found)} failures among {len(calls)} calls, first ones:\n  {listed}"

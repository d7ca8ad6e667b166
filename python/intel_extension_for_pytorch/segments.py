"""Graphs in which a size depends on data: cut where such a size comes into being, compiled in between.

nonzero, masked_select, item() and their like run in ATen, one by one. What stands between them is a graph of its own
whose symbols are all known when it is called: sizes of the arguments, and what the ATen calls found.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import fx

from . import compat
from .errors import GraphFallback

SYMBOLIC = (torch.SymInt, torch.SymFloat, torch.SymBool)


def depends_on_data(module: fx.GraphModule) -> bool:
    """Does any op of the graph make a size that the graph's inputs do not tell?"""
    known: set = set()
    for node in module.graph.nodes:
        found = compat.data_dependent_symbols(node.meta.get("val"))
        if node.op == "placeholder":
            known |= found
        elif found - known:
            return True
    return False


@dataclass
class Step:
    """Nodes that run one by one in ATen, or that are compiled as one graph."""

    in_aten: bool
    nodes: list[fx.Node] = field(default_factory=list)
    run: Callable | None = None
    arguments: list = field(default_factory=list)  # of `run`: nodes, or symbols
    results: list[fx.Node] = field(default_factory=list)
    dead: list[fx.Node] = field(default_factory=list)  # read for the last time here


def compile_segments(
    module: fx.GraphModule, static: frozenset[int], compile: Callable[[fx.GraphModule, list, frozenset[int]], Callable]
) -> tuple[Callable[[list[Any]], Any], list[str]]:
    """A callable of one argument list, and the ops that run in ATen. `compile(module, example_inputs,
    static_positions)` gives a callable of a segment."""
    placeholders = [n for n in module.graph.nodes if n.op == "placeholder"]
    output = next(iter(reversed(module.graph.nodes)))
    sources: dict[Any, tuple] = {}  # symbol: (node, "value" | "size" | "stride", dim)
    for node in placeholders:
        _add_sources(node, sources)
    steps = _cut(module, sources)
    last_reader = {read: i for i, step in enumerate(steps) for node in step.nodes for read in node.all_input_nodes}
    kept = set(output.all_input_nodes)
    for i, step in enumerate(steps):
        step.results = [n for n in step.nodes if n in kept or last_reader.get(n, -1) > i]
        if not step.in_aten:
            _compile_step(module, step, sources, {placeholders[k] for k in static}, compile)
    for node, last in last_reader.items():
        if node not in kept:
            steps[last].dead.append(node)
    formulas = _formulas([*(n for s in steps for n in s.nodes), output], sources)
    symbols_of: dict[fx.Node, list] = {}  # those whose source the node is
    for name, (node, _, _) in sources.items():
        symbols_of.setdefault(node, []).append(name)
    outputs = output.args[0]

    def run(arguments: list[Any]) -> Any:
        values: dict[fx.Node, Any] = {}
        symbols: dict[Any, int] = {}

        def define(node: fx.Node, value: Any) -> None:
            values[node] = value
            for name in symbols_of.get(node, ()):
                _, what, dim = sources[name]
                symbols[name] = value if what == "value" else value.shape[dim] if what == "size" else value.stride(dim)

        def read(node: fx.Node) -> Any:
            if node in values:
                return values[node]
            function, parameters = formulas[node]
            return function(*(symbols[p] for p in parameters))

        for node, value in zip(placeholders, arguments, strict=True):
            define(node, value)
        arguments.clear()
        for step in steps:
            if step.in_aten:
                for node in step.nodes:
                    define(node, node.target(*fx.map_arg(node.args, read), **fx.map_arg(node.kwargs, read)))
            else:
                given = [read(a) if isinstance(a, fx.Node) else symbols[a] for a in step.arguments]
                for node, value in zip(step.results, step.run(given), strict=True):
                    values[node] = value
            for node in step.dead:
                values.pop(node, None)
        return list(fx.map_arg(outputs, read))

    calls = [n for s in steps if s.in_aten for n in s.nodes if n.target is not operator.getitem]
    return run, [str(n.target) for n in calls if isinstance(n.meta.get("val"), (torch.Tensor, tuple, list))]


def _cut(module: fx.GraphModule, sources: dict[Any, tuple]) -> list[Step]:
    known = set(sources)
    steps: list[Step] = []
    in_aten: dict[fx.Node, Step] = {}

    def step(in_aten: bool) -> Step:
        if not steps or steps[-1].in_aten != in_aten:
            steps.append(Step(in_aten))
        return steps[-1]

    for node in module.graph.nodes:
        if node.op != "call_function":
            continue
        value = node.meta.get("val")
        made = compat.data_dependent_symbols(value) - known
        if made:
            known |= made
            in_aten[node] = step(in_aten=True)
            in_aten[node].nodes.append(node)
            _add_sources(node, sources)
        elif _is_formula(node):
            continue
        elif node.target is operator.getitem and node.args[0] in in_aten:
            in_aten[node.args[0]].nodes.append(node)
            _add_sources(node, sources)
        elif node.target is torch.ops.aten._assert_scalar.default:
            # As soon as what it asserts is known, not where it would cut the graph once more.
            for earlier in [s for s in steps if s.in_aten][-1:]:
                earlier.nodes.append(node)
        else:
            step(in_aten=False).nodes.append(node)
    return steps


def _add_sources(node: fx.Node, sources: dict[Any, tuple]) -> None:
    value = node.meta.get("val")
    if isinstance(value, torch.SymInt) and value.node.expr.is_Symbol:
        sources.setdefault(value.node.expr, (node, "value", 0))
    if isinstance(value, torch.Tensor):
        for what, sizes in (("size", value.shape), ("stride", value.stride())):
            for dim, size in enumerate(sizes):
                if isinstance(size, torch.SymInt) and size.node.expr.is_Symbol:
                    sources.setdefault(size.node.expr, (node, what, dim))


def _is_formula(node: fx.Node) -> bool:
    """A number, computed from symbols wherever it is needed."""
    return node.op == "call_function" and isinstance(node.meta.get("val"), (*SYMBOLIC, int, float, bool))


def _compile_step(
    module: fx.GraphModule, step: Step, sources: dict[Any, tuple], static: set[fx.Node], compile: Callable
) -> None:
    """The step's nodes as a graph of their own: what they read from outside, and every symbol they use, are inputs."""
    graph = fx.Graph()
    copies: dict[fx.Node, fx.Node] = {}
    examples: list[Any] = []
    positions: set[int] = set()
    inside = set(step.nodes)
    symbols: dict[Any, Any] = {}
    for node in step.nodes:
        for read in (node, *node.all_input_nodes):
            symbols.update(compat.symbols_in(read.meta.get("val")))
    for symbol in sorted(symbols, key=str):
        if symbol not in sources:
            raise GraphFallback(f"no value tells the size {symbol}")
        value = symbols[symbol]
        graph.placeholder(str(symbol)).meta["val"] = value
        step.arguments.append(symbol)
        examples.append(value)
    for node in step.nodes:
        for read in node.all_input_nodes:
            if read in copies or read in inside:
                continue
            is_attribute = read.op == "get_attr"
            copies[read] = graph.get_attr(read.target) if is_attribute else graph.placeholder(read.name)
            copies[read].meta = dict(read.meta)
            if is_attribute:
                continue
            if read in static:
                positions.add(len(examples))
            step.arguments.append(read)
            examples.append(read.meta["val"])
    for node in step.nodes:
        copies[node] = graph.node_copy(node, lambda n: copies[n])
    graph.output(tuple(copies[n] for n in step.results))
    step.run = compile(fx.GraphModule(module, graph), examples, frozenset(positions))


def _formulas(readers: Sequence[fx.Node], sources: dict[Any, tuple]) -> dict[fx.Node, tuple[Callable, list]]:
    """The numbers that these nodes read, as functions of symbols."""
    formulas: dict[fx.Node, tuple[Callable, list]] = {}
    for reader in readers:
        for node in reader.all_input_nodes:
            value = node.meta.get("val")
            if node in formulas or not _is_formula(node):
                continue
            if isinstance(value, SYMBOLIC):
                parameters = sorted(value.node.expr.free_symbols, key=str)
                if any(p not in sources for p in parameters):
                    raise GraphFallback(f"no value tells {value}")
                formulas[node] = (compat.symbolic_function(value.node.expr, parameters), parameters)
            else:
                formulas[node] = (lambda value=value: value, [])
    return formulas

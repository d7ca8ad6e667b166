"""Graphs that cannot be compiled as a whole: cut at some ops, and compiled in between.

These ops run in ATen, one by one: ops whose result size depends on data (nonzero, masked_select, item()), ops with
values that a Graph cannot represent (complex, fp8, sparse), callables that are not operators of the dispatcher, and
ops that the importer refused. Each part in between, a segment, becomes a graph of its own. All its symbols are known
when it is called, from the arguments and from the results of earlier ATen calls.
"""

from __future__ import annotations

import contextlib
import operator
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

import torch
from torch import fx

from .. import torch_private
from ..errors import GraphFallback
from ..torch_private import pytree
from .sizes import offset_in_elements
from .values import require_plain

SYMBOLIC = (torch.SymInt, torch.SymFloat, torch.SymBool)
DATA_DEPENDENT = "the size of its result depends on data"


def needs_cut(module: fx.GraphModule) -> bool:
    """Whether an op has to run outside of a Graph."""
    return first_cut(module) is not None


def first_cut(module: fx.GraphModule) -> tuple[fx.Node, str] | None:
    """The first op that has to run outside of a Graph, and why."""
    known: set = set()
    for node in module.graph.nodes:
        if node.op == "placeholder":
            known |= torch_private.data_dependent_symbols(node.meta.get("val"))
        elif node.op == "call_function" and (why := _why_in_aten(node, known)) is not None:
            return node, why
    return None


def _why_in_aten(node: fx.Node, known: set) -> str | None:
    """Why an op cannot be part of a Graph, or None; `known`: the symbols that inputs and earlier ops define."""
    value = node.meta.get("val")
    if torch_private.data_dependent_symbols(value) - known:
        return DATA_DEPENDENT
    tensors = [t for t in pytree.tree_leaves(value) if isinstance(t, torch.Tensor)]
    if node.target is operator.getitem:
        return None  # runs together with its operand
    if tensors and not isinstance(node.target, torch_private.OpOverload):
        return f"{node.target} is not an operator of the dispatcher"
    read = [n.meta.get("val") for n in node.all_input_nodes]
    try:
        for tensor in [*tensors, *(t for t in pytree.tree_leaves(read) if isinstance(t, torch.Tensor))]:
            require_plain(node, tensor)
    except GraphFallback as reason:
        return str(reason)
    return None


def mutated_positions(module: fx.GraphModule) -> list[int]:
    """Positions of the inputs that the graph writes to."""
    placeholders = [n for n in module.graph.nodes if n.op == "placeholder"]
    copies = [n for n in module.graph.nodes if n.op == "call_function" and n.target is torch.ops.aten.copy_.default]
    targets = {n.args[0] for n in copies}
    return [i for i, p in enumerate(placeholders) if p in targets]


@dataclass
class Step:
    """A group of nodes, either run one by one in ATen or compiled as one graph."""

    in_aten: bool
    why: list[str] = field(default_factory=list)  # per node: why it runs in ATen
    nodes: list[fx.Node] = field(default_factory=list)
    run: Callable | None = None
    arguments: list = field(default_factory=list)  # arguments of `run`: nodes or symbols
    results: list[fx.Node] = field(default_factory=list)
    written: list[int] = field(default_factory=list)  # positions of arguments that it writes to
    made: list[int] = field(default_factory=list)  # positions of arguments that ATen computed: they may be views
    dead: list[fx.Node] = field(default_factory=list)  # values that this step reads last

    def add(self, node: fx.Node, why: str) -> None:
        self.nodes.append(node)
        self.why.append(why)


def compile_segments(
    module: fx.GraphModule,
    static: frozenset[int],
    compile: Callable[[fx.GraphModule, list, frozenset[int]], Callable],
    user_outputs: int | None,
    refused: Mapping[fx.Node, str] = MappingProxyType({}),
    views: Mapping[int, int] = MappingProxyType({}),
) -> tuple[Callable[[list[Any]], Any], list[tuple[str, str]]]:
    """Cuts the module and compiles its segments. Returns a callable of one argument list, and the ops that run in ATen
    with the reason.

    `compile(module, example_inputs, static_positions)` compiles a segment. `refused`: ops that no segment can contain,
    with the reason. Outputs from `user_outputs` on are read by compiled code and get the traced strides. `views`:
    output -> input whose memory it must share; AOTAutograd recreates views of inputs by sizes, strides and offset."""
    placeholders = [n for n in module.graph.nodes if n.op == "placeholder"]
    output = next(iter(reversed(module.graph.nodes)))
    sources: dict[Any, tuple] = {}  # symbol: (node, "value" | "size" | "stride", dim)
    for node in placeholders:
        _add_sources(node, sources)
    steps = _cut(module, sources, refused)
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
    symbols_of: dict[fx.Node, list] = {}  # node -> symbols that it defines
    for name, (node, _, _) in sources.items():
        symbols_of.setdefault(node, []).append(name)
    outputs = output.args[0]
    in_aten = {n for s in steps if s.in_aten for n in s.nodes}
    traced_strides = {n: _known_strides(n) for n in in_aten}
    saved = outputs[user_outputs:] if user_outputs is not None else ()
    mutated = mutated_positions(module)
    geometries = {
        i: _geometry(outputs[i].meta["val"], placeholders[k].meta["val"], sources)
        for i, k in views.items()
        if isinstance(outputs[i], fx.Node)
        and isinstance(outputs[i].meta.get("val"), torch.Tensor)
        and not _is_view_by_aten(outputs[i], placeholders[k], in_aten)
    }

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
            if node.op == "get_attr":
                return operator.attrgetter(node.target)(module)
            function, parameters = formulas[node]
            return function(*(symbols[p] for p in parameters))

        def as_traced(node: fx.Node) -> Any:
            value, strides = read(node), traced_strides.get(node)
            if strides is None or value.stride() == strides:
                return value
            return torch.empty_strided(value.shape, strides, dtype=value.dtype).copy_(value)

        # AOTAutograd bumps the version counters itself.
        written = [arguments[i] for i in mutated]
        bases = {i: arguments[views[i]] for i in geometries}
        for node, value in zip(placeholders, arguments, strict=True):
            define(node, value)
        arguments.clear()
        for step in steps:
            if step.in_aten:
                with torch_private.without_version_bump(written) if written else contextlib.nullcontext():
                    for node in step.nodes:
                        define(node, node.target(*fx.map_arg(node.args, read), **fx.map_arg(node.kwargs, read)))
            else:
                given = [as_traced(a) if isinstance(a, fx.Node) else symbols[a] for a in step.arguments]
                # A compiled graph assumes that its arguments do not share memory.
                for i in step.made if step.written else ():
                    if any(_shares_memory(given[i], given[k]) for k in step.written):
                        given[i] = given[i].clone()
                for node, value in zip(step.results, step.run(given), strict=True):
                    values[node] = value
            for node in step.dead:
                values.pop(node, None)
        for node in saved:
            if node in traced_strides:
                values[node] = as_traced(node)
        results = list(fx.map_arg(outputs, read))
        for i, base in bases.items():
            results[i] = _view_of(base, results[i].dtype, geometries[i](symbols))
        return results

    reasons = [pair for s in steps if s.in_aten for pair in zip(s.nodes, s.why, strict=True)]
    return run, [(str(node.target), why) for node, why in reasons if why]


def _is_view_by_aten(node: Any, base: fx.Node, in_aten: Set[fx.Node]) -> bool:
    """Whether only ATen ops lead from the base to the node. Then it already shares the base's memory."""
    while node is not base:
        if node not in in_aten or not node.all_input_nodes:
            return False
        node = node.all_input_nodes[0]
    return True


def _geometry(view: torch.Tensor, base: torch.Tensor, sources: Mapping[Any, tuple]) -> Callable[[Mapping], list[int]]:
    """A function of the symbols that returns the view's sizes, its strides and its offset from the base in elements."""
    numbers = [*view.shape, *view.stride(), view.storage_offset() - offset_in_elements(base, view.dtype)]
    computed = [_formula(number, sources) for number in numbers]
    return lambda symbols: [function(*(symbols[p] for p in parameters)) for function, parameters in computed]


def _view_of(base: torch.Tensor, dtype: torch.dtype, geometry: Sequence[int]) -> torch.Tensor:
    rank = len(geometry) // 2
    begin = offset_in_elements(base, dtype) + geometry[-1]
    view = torch.empty(0, dtype=dtype)
    return view.set_(base.untyped_storage(), begin, geometry[:rank], geometry[rank:-1])


def _shares_memory(a: torch.Tensor, b: torch.Tensor) -> bool:
    return torch_private.memory_identity(a) == torch_private.memory_identity(b)


def _known_strides(node: fx.Node) -> tuple[int, ...] | None:
    """The traced strides, or None if they are symbolic. Compiled code relies on them; ATen's kernels may return
    others."""
    value = node.meta.get("val")
    if not isinstance(value, torch.Tensor) or value.layout is not torch.strided:
        return None
    strides = tuple(value.stride())
    return strides if all(isinstance(s, int) for s in strides) else None


def _cut(module: fx.GraphModule, sources: dict[Any, tuple], refused: Mapping[fx.Node, str]) -> list[Step]:
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
        why = refused.get(node) or _why_in_aten(node, known)
        if why is not None:
            known |= torch_private.data_dependent_symbols(value)
            in_aten[node] = step(in_aten=True)
            in_aten[node].add(node, why)
            _add_sources(node, sources)
        elif _is_formula(node):
            continue
        elif node.target is operator.getitem and node.args[0] in in_aten:
            in_aten[node.args[0]].add(node, "")
            _add_sources(node, sources)
        elif node.target is torch.ops.aten._assert_scalar.default:
            # Run it with the last step in ATen, after which its operand is known, instead of cutting the graph again.
            for earlier in [s for s in steps if s.in_aten][-1:]:
                earlier.add(node, "")
        else:
            step(in_aten=False).add(node, "")
    return steps


def _add_sources(node: fx.Node, sources: dict[Any, tuple]) -> None:
    value = node.meta.get("val")
    if isinstance(value, SYMBOLIC) and (symbol := torch_private.symbol_of(value)) is not None:
        sources.setdefault(symbol, (node, "value", 0))
    if isinstance(value, torch.Tensor):
        for what, sizes in (("size", value.shape), ("stride", value.stride())):
            for dim, size in enumerate(sizes):
                if isinstance(size, torch.SymInt) and size.node.expr.is_Symbol:
                    sources.setdefault(size.node.expr, (node, what, dim))


def _is_formula(node: fx.Node) -> bool:
    """Whether the node is a number. It is computed from symbols wherever it is needed."""
    return node.op == "call_function" and isinstance(node.meta.get("val"), (*SYMBOLIC, int, float, bool))


def _compile_step(
    module: fx.GraphModule, step: Step, sources: dict[Any, tuple], static: set[fx.Node], compile: Callable
) -> None:
    """Compiles the step's nodes as a graph. Its inputs are the symbols and the outside values that they use."""
    graph = fx.Graph()
    copies: dict[fx.Node, fx.Node] = {}
    examples: list[Any] = []
    positions: set[int] = set()
    inside = set(step.nodes)
    symbols: dict[Any, Any] = {}
    for node in step.nodes:
        for read in (node, *node.all_input_nodes):
            symbols.update(torch_private.symbols_in(read.meta.get("val")))
    for symbol in sorted(symbols, key=str):
        if symbol not in sources:
            raise GraphFallback(f"no value defines the size {symbol}")
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
            if isinstance(read.meta["val"], torch.Tensor) and read.op != "placeholder":
                step.made.append(len(examples))
            step.arguments.append(read)
            examples.append(read.meta["val"])
    targets = {n.args[0] for n in step.nodes if n.target is torch.ops.aten.copy_.default}
    step.written = [i for i, argument in enumerate(step.arguments) if argument in targets]
    for node in step.nodes:
        copies[node] = graph.node_copy(node, lambda n: copies[n])
    graph.output(tuple(copies[n] for n in step.results))
    step.run = compile(fx.GraphModule(module, graph), examples, frozenset(positions))


def _formulas(readers: Sequence[fx.Node], sources: dict[Any, tuple]) -> dict[fx.Node, tuple[Callable, list]]:
    """The numbers that these nodes read, each as a function of symbols."""
    formulas: dict[fx.Node, tuple[Callable, list]] = {}
    for reader in readers:
        for node in reader.all_input_nodes:
            if node not in formulas and _is_formula(node):
                formulas[node] = _formula(node.meta.get("val"), sources)
    return formulas


def _formula(number: Any, sources: Mapping[Any, tuple]) -> tuple[Callable, list]:
    """A number as a function, with the symbols that are its parameters."""
    if not isinstance(number, SYMBOLIC):
        return lambda: number, []
    parameters = sorted(number.node.expr.free_symbols, key=str)
    if any(p not in sources for p in parameters):
        raise GraphFallback(f"no value defines {number}")
    return torch_private.symbolic_function(number.node.expr, parameters), parameters

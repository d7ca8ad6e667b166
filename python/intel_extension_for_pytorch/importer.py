"""From an ATen FX graph to a Graph: every cast and every broadcast becomes a node of its own.

Eager is the oracle: what a rule produced must have the dtype and the shape that tracing recorded in
`node.meta["val"]`. An op without a rule, or one whose rule refuses, becomes an Extern node that calls ATen.
The rules are in ops.py; this file holds what they are written with.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import fx
from torch.utils import _pytree as pytree

from . import _C, compat, extern, time_limit
from .errors import CutNeeded, GraphFallback, MemoryFallback, Unsupported
from .sizes import Dim, Symbols, contiguous_strides, offset_in_elements, sub
from .types_without_kernels import lacks_kernel

DTYPE_NAMES = {
    torch.bool: "b1", torch.uint8: "u8", torch.int8: "i8", torch.int16: "i16", torch.int32: "i32",
    torch.int64: "i64", torch.float16: "f16", torch.bfloat16: "bf16", torch.float32: "f32", torch.float64: "f64",
}  # fmt: skip
# What Dynamo puts before the path of a module: L['self'].layer.0, L['fn'].0
MODULE_ROOT = re.compile(r"^L\['\w+'\]\.?")
_PYTORCH = os.path.dirname(torch.__file__)
HALF = (torch.float16, torch.bfloat16)


def traced_shape(node: Any) -> torch.Size:
    return node.meta["val"].shape


def traced_count(node: Any) -> int | torch.SymInt:
    """How many elements a traced tensor has. (torch.Size.numel() specialises symbols.)"""
    return math.prod(traced_shape(node))


def opmath(dtype: torch.dtype) -> torch.dtype:
    """The type that arithmetic on `dtype` is done in."""
    return torch.float32 if dtype in HALF else dtype


class Ref:
    """A value of the Graph under construction.

    `id` is the C++ handle. `owned` is false for a value that shares memory with another one only because a copy was
    left out (aten.clone): if the user gets to see it, the copy is made then.
    """

    __slots__ = ("dtype", "id", "owned", "shape")

    def __init__(self, id: int, dtype: torch.dtype, shape: tuple[Dim, ...], owned: bool = True) -> None:
        self.id = id
        self.dtype = dtype
        self.shape = shape
        self.owned = owned


@dataclass
class Derived:
    """An argument computed from sizes of the others at each call: an int, or a 0-d tensor of `dtype`."""

    expression: Any  # sympy
    parameters: list[Any]  # its symbols
    sources: list[tuple]  # of the parameters, as in Imported.symbols
    dtype: torch.dtype | None = None
    fits: torch.dtype | None = None  # only asked whether it fits this type, as eager asks

    def __post_init__(self) -> None:
        self._function = compat.symbolic_function(self.expression, self.parameters)

    def __reduce__(self) -> tuple:
        return Derived, (self.expression, self.parameters, self.sources, self.dtype, self.fits)

    def value(self, arguments: Sequence[Any]) -> int | torch.Tensor:
        found = self._function(*(read_source(arguments, *source) for source in self.sources))
        if self.fits is not None:
            if not fits(found, self.fits):
                raise RuntimeError(_overflow_of(self.fits))
            return 0
        return int(found) if self.dtype is None else torch.tensor(found, dtype=self.dtype)


def read_source(arguments: Sequence[Any], position: int, what: str, dim: int, divisor: int, offset: int) -> Any:
    value = arguments[position]
    given = value if what == "value" else value.shape[dim] if what == "size" else value.stride(dim)
    return given if isinstance(given, float) else (given - offset) // divisor


@dataclass
class Imported:
    """A Graph with what a call needs beside it: where sizes come from and what each output is."""

    graph: Any
    arguments: list[tuple] = field(default_factory=list)  # ("tensor", input) | ("integer",) | ("ignored",)
    symbols: list[tuple] = field(default_factory=list)  # (argument, "value" | "size" | "stride", dim, divisor, offset)
    outputs: list[tuple] = field(default_factory=list)  # see Importer._output and _alias
    externs: dict[str, str] = field(default_factory=dict)  # op -> why
    extern_sources: dict[str, str] = field(default_factory=dict)  # op -> where it is called first
    derived: list[Derived] = field(default_factory=list)  # the last arguments


def wrapped(value: float, dtype: torch.dtype) -> int:
    """A number as ATen converts it to an integer or bool type: truncated, then reduced to the type's bits."""
    if dtype is torch.bool:
        return int(value != 0)
    limits = torch.iinfo(dtype)
    span = 1 << limits.bits
    return (int(value) - limits.min) % span + limits.min


# As ATen's errors have them.
_CPP_NAMES = {
    torch.uint8: "uint8_t", torch.int8: "int8_t", torch.int16: "int16_t", torch.int32: "int", torch.int64: "int64_t",
    torch.float16: "c10::Half", torch.bfloat16: "c10::BFloat16", torch.float32: "float",
}  # fmt: skip


def _overflow_of(dtype: torch.dtype) -> str:
    return f"value cannot be converted to type {_CPP_NAMES[dtype]} without overflow"


def fits(value: float, dtype: torch.dtype) -> bool:
    """May ATen convert the number to that type (c10::overflows)?"""
    if (
        dtype in (torch.bool, torch.float64)
        or dtype.is_complex
        or (dtype.is_floating_point and not math.isfinite(value))
    ):
        return True
    low, high = limits_of(dtype)
    if not dtype.is_floating_point and not isinstance(value, int):
        low, high = torch.iinfo(dtype).min, float(high)
    return low <= value <= high


def limits_of(dtype: torch.dtype) -> tuple[float, float]:
    """Of the integers that ATen converts to that type. A negative one may become an unsigned one."""
    limits = torch.finfo(dtype) if dtype.is_floating_point else torch.iinfo(dtype)
    return limits.min or -limits.max, limits.max


class SizesMerged(Exception):
    """Guards have made one size of two, which what was imported so far spells apart."""


def import_graph(module: fx.GraphModule, example_inputs: Sequence[Any], **options: Any) -> Imported:
    """What an Importer makes of the graph, with the sizes that it found to need guards merged."""
    merged: dict[Any, Any] = {}
    values = (n.meta.get("val") for n in module.graph.nodes if n.op == "placeholder")
    with compat.no_guards(values, _decided_by_a_call):
        while True:
            try:
                return Importer(module, example_inputs, merged=merged, **options).run()
            except SizesMerged:
                continue


def _decided_by_a_call(expression: Any) -> Unsupported:
    return Unsupported(f"what it does depends on the value of {expression}, which only a call knows")


class Importer:
    """Imports one FX graph. `static` holds positions of inputs that are parameters or buffers; `user_outputs` is how
    many leading outputs keep the strides that tracing recorded; `input_views` says of outputs that are views of an
    argument, as it is after the call, of which one; `checks_divisors`: Python computes, at each call, sizes whose
    divisor may be 0."""

    def __init__(
        self,
        module: fx.GraphModule,
        example_inputs: Sequence[Any],
        *,
        static: frozenset[int] = frozenset(),
        user_outputs: int | None = None,
        input_views: dict[int, int] | None = None,
        merged: dict[Any, Any] | None = None,
        checks_divisors: bool = True,
    ) -> None:
        self.module = module
        self.example_inputs = example_inputs
        self.static = static
        self.user_outputs = user_outputs
        self.input_views = input_views or {}
        self.graph = _C.Graph()
        self.symbols = Symbols(
            self.graph.symbol, self._derive_size, {} if merged is None else merged, checks_divisors=checks_divisors
        )
        self.env: dict[fx.Node, Any] = {}
        self.result = Imported(self.graph)
        self.input_position: dict[fx.Node, int] = {}
        self.handed_on: dict[fx.Node, int] = {}  # inputs that are no tensors: argument
        self._placeholders = sum(node.op == "placeholder" for node in module.graph.nodes)
        self._derived_arguments: list[tuple] = []  # follow those of the placeholders
        self._inputs = 0  # of the graph
        self.mutations: dict[fx.Node, Ref] = {}
        self._scalars: dict[tuple, Ref] = {}
        self._derived_numbers: dict[Any, Ref] = {}
        self._fitting: set[tuple] = set()
        self._expanded: dict[tuple, Ref] = {}
        self._symbol_sources: dict[str, tuple] = {}
        self._source = ""
        self._refused: dict[fx.Node, str] = {}

    # ---- the walk ----

    def run(self) -> Imported:
        from .ops import rule_for

        placeholder = 0
        for node in self.module.graph.nodes:
            if node.op == "call_function":
                self._source = ""
                self.env[node] = self._call_or_refuse(node, rule_for(node.target))
            elif node.op == "placeholder":
                self._placeholder(node, placeholder)
                placeholder += 1
            elif node.op == "get_attr":
                self.env[node] = self._attribute(node)
            elif node.op == "output":
                if self._refused:
                    raise CutNeeded(self._refused)
                self._finish(node)
            else:
                raise GraphFallback(f"{node.op} {node.target} is not an ATen call")
        return self.result

    def _call_or_refuse(self, node: fx.Node, rule: Callable | None) -> Any:
        """What an op gives; where a Graph cannot hold it, a stand-in, so that one walk finds all such ops."""
        try:
            return self._call(node, rule)
        except MemoryFallback:
            raise
        except GraphFallback as reason:
            self._refused[node] = str(reason)
            return pytree.tree_map(self._stand_in, node.meta.get("val"))

    def _stand_in(self, value: Any) -> Any:
        if not isinstance(value, torch.Tensor):
            return value
        dtype, shape = value.dtype if value.dtype in DTYPE_NAMES else torch.float32, self.symbols.dims(value.shape)
        return Ref(self.graph.input("refused", DTYPE_NAMES[dtype], shape, None, False), dtype, shape)

    def _call(self, node: fx.Node, rule: Callable | None) -> Any:
        value = node.meta.get("val")
        if isinstance(value, (torch.SymInt, torch.SymFloat, torch.SymBool, int, float)):
            return value
        time_limit.doing(lambda: f"importing {node.target} ({node_source(node)})")
        self._source = node_source(node)
        self.graph.source(self._source)
        why = "no rule"
        if rule is not None:
            try:
                if lacks_kernel(node.target, [n.meta.get("val") for n in node.all_input_nodes]):
                    raise Unsupported("ATen has no kernel for this type")
                result = rule(self, node, *self.read(node.args), **self.read(node.kwargs))
                self._check(node, result, value)
                return result
            except Unsupported as refusal:
                why = str(refusal)
        return extern.call(self, node, why)

    def _check(self, node: fx.Node, result: Any, value: Any) -> None:
        """Eager is the oracle: dtype and shape must be the ones recorded by tracing."""
        if isinstance(result, Ref):
            if not isinstance(value, torch.Tensor):
                value = value[0] if isinstance(value, (tuple, list)) and len(value) == 1 else value
            if result.dtype is not value.dtype or result.shape != self.symbols.dims(value.shape):
                require_plain(node, value)
                raise Unsupported(
                    f"{node.target} imported as {result.dtype}{list(result.shape)}, "
                    f"eager gives {value.dtype}{list(value.shape)}"
                )
        elif isinstance(result, (list, tuple)):
            for r, v in zip(result, value, strict=True):
                if r is not None:
                    self._check(node, r, v)

    def read(self, arg: Any) -> Any:
        """An argument with FX nodes replaced by what they stand for."""
        if isinstance(arg, fx.Node):
            return self.env[arg]
        if isinstance(arg, (list, tuple)):
            return [self.read(a) for a in arg]
        if isinstance(arg, dict):
            return {k: self.read(a) for k, a in arg.items()}
        return arg

    # ---- inputs, constants, outputs ----

    def _placeholder(self, node: fx.Node, position: int) -> None:
        # The example input, not the node's metadata: its strides are the ones the forward graph really produced.
        value = self.example_inputs[position]
        traced = node.meta.get("val", value)
        if isinstance(traced, (torch.SymInt, int)) and not isinstance(traced, bool):
            self.env[node] = traced
            self._add_sources(traced, position, "value", 0)
            self.result.arguments.append(("integer",))
            return
        if isinstance(traced, (torch.SymFloat, torch.SymBool, float, bool)):
            self.env[node] = traced
            symbol = compat.symbol_told_by(traced) if isinstance(traced, torch.SymFloat) else None
            if symbol is not None:
                self._symbol_sources.setdefault(str(symbol), (position, "value", 0, 1, 0))
            self.result.arguments.append(("ignored",))
            return
        if not isinstance(value, torch.Tensor):
            # A device mesh, a process group: handed on at most.
            if any(user.op != "output" for user in node.users):
                raise GraphFallback(f"input {node.name} is a {type(value).__name__}")
            self.handed_on[node] = position
            self.env[node] = value
            self.result.arguments.append(("ignored",))
            return
        require_plain(node, value)
        sizes = traced.shape if isinstance(traced, torch.Tensor) else value.shape
        shape, strides = self.symbols.dims(sizes), self.symbols.strides(value.stride())
        for what, given in (("size", sizes), ("stride", value.stride())):
            for dim, size in enumerate(given):
                self._add_sources(size, position, what, dim)
        index = self._next_input()
        id = self.graph.input(
            node.name,
            DTYPE_NAMES[value.dtype],
            shape,
            None if strides == contiguous_strides(shape) else strides,
            position in self.static,
        )
        self.input_position[node] = index
        self.env[node] = Ref(id, value.dtype, shape)
        self.result.arguments.append(("tensor", index))

    def _add_sources(self, size: int | torch.SymInt, position: int, what: str, dim: int) -> None:
        for name, divisor, offset in self.symbols.names(size):
            self._symbol_sources.setdefault(name, (position, what, dim, divisor, offset))

    def _next_input(self) -> int:
        self._inputs += 1
        return self._inputs - 1

    def _attribute(self, node: fx.Node) -> Any:
        """A tensor that tracing lifted into the module: a literal of the model's code."""
        value: Any = self.module
        for part in node.target.split("."):
            value = getattr(value, part)
        if not isinstance(value, torch.Tensor):
            return value
        require_plain(node, value)
        with torch.utils._python_dispatch._disable_current_modes():
            data = value.detach().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
        id = self.graph.constant_data(data, DTYPE_NAMES[value.dtype], tuple(value.shape))
        return Ref(id, value.dtype, tuple(value.shape))

    def _finish(self, node: fx.Node) -> None:
        outputs = node.args[0] if isinstance(node.args[0], (list, tuple)) else [node.args[0]]
        visible = len(outputs) if self.user_outputs is None else self.user_outputs
        shared = self._shared_memory(outputs, visible)
        stored: dict[fx.Node, int] = {}  # whose memory others are views of: output of the graph
        position: dict[fx.Node, int] = {}
        for i, out in enumerate(outputs):
            base = shared.get(out)
            if i in self.input_views and isinstance(self.env.get(out), Ref):
                geometry = self._geometry(out.meta["val"], within=self.example_inputs[self.input_views[i]])
                self.result.outputs.append(("argument_view", self.input_views[i], *geometry))
            elif out in position:
                self.result.outputs.append(("same", position[out]))
            elif base is not None:
                self.result.outputs.append(self._alias(out, base, stored))
            else:
                self.result.outputs.append(self._output(out, i < visible))
            if isinstance(out, fx.Node):
                position.setdefault(out, i)
        for target, ref in self.mutations.items():
            self.graph.mutate(self.input_position[target], ref.id)
        self.result.arguments += self._derived_arguments
        self.result.symbols = [self._symbol_source(name) for name in self.graph.symbols()]

    def _shared_memory(self, outputs: Sequence[Any], visible: int) -> dict[fx.Node, fx.Node]:
        """Outputs in eager's memory of another output, one of which the user sees: the value that the memory is of.
        Inputs' memory is left out: the compiler knows views of those."""
        by_memory: dict[int, list[fx.Node]] = {}
        seen: set[int] = set()
        for i, out in enumerate(outputs):
            if isinstance(out, fx.Node) and isinstance(self.env[out], Ref):
                memory = compat.memory_identity(out.meta["val"])
                by_memory.setdefault(memory, []).append(out)
                if i < visible:
                    seen.add(memory)
        several = {m: nodes for m, nodes in by_memory.items() if m in seen and len(set(nodes)) > 1}
        shared: dict[fx.Node, fx.Node] = {}
        for owner in self.module.graph.nodes if several else ():
            value = owner.meta.get("val")
            nodes = several.pop(compat.memory_identity(value), []) if isinstance(value, torch.Tensor) else []
            if nodes and owner.op == "call_function" and isinstance(self.env[owner], Ref) and _begins(value):
                shared.update(dict.fromkeys(nodes, owner))
        return shared

    def _alias(self, node: fx.Node, base: fx.Node, stored: dict[fx.Node, int]) -> tuple:
        """("alias", graph output, dtype, sizes, strides, offset): a view of the memory of `base`."""
        if base not in stored:
            value = self.env[base]
            stored[base] = self.graph.output(self._own(value).id, self.symbols.strides(base.meta["val"].stride()))
        return ("alias", stored[base], *self._geometry(node.meta["val"]))

    def _geometry(
        self, seen: torch.Tensor, within: torch.Tensor | None = None
    ) -> tuple[str, tuple[Dim, ...], tuple[Dim, ...], Dim]:
        """dtype, sizes, strides, and how many elements the tensor begins after another one of the same memory."""
        sizes, strides = self.symbols.dims(seen.shape), self.symbols.dims(seen.stride())
        begin = self.symbols.dim(seen.storage_offset())
        if within is not None:
            begin = sub(begin, self.symbols.dim(offset_in_elements(within, seen.dtype)))
        return DTYPE_NAMES[seen.dtype], sizes, strides, begin

    def _own(self, value: Ref) -> Ref:
        return value if value.owned else self.pointwise_node("clone", [value], value.dtype, value.shape)

    def _output(self, node: Any, visible: bool) -> tuple:
        """("none",) | ("constant", value) | ("dim", text) | ("argument", position) |
        ("tensor", graph output, sizes, strides): sizes and strides are given where the graph's output is a slice of
        what the user sees (a broadcast dimension has stride 0 and is stored once), and where a dimension of extent 1
        has a stride, which the graph does not keep. Beside these: ("same", earlier output), and see _alias and
        ("argument_view", position, as in _alias)."""
        if node in self.handed_on:
            return ("argument", self.handed_on[node])
        value = self.env[node] if isinstance(node, fx.Node) else node
        if value is None:
            return ("none",)
        if isinstance(value, torch.SymInt):
            dim = self.symbols.dim(value)
            return ("dim", dim) if isinstance(dim, str) else ("constant", dim)
        if not isinstance(value, Ref):
            if isinstance(value, (int, float, bool)):
                return ("constant", value)
            if (thing := compat.traced_object(value)) is not None:
                return ("constant", thing)
            raise GraphFallback(f"output {node} is a {type(value).__name__}")
        if node in self.input_position:
            return ("argument", self.result.arguments.index(("tensor", self.input_position[node])))
        traced = node.meta["val"]
        # What only the backward pass sees needs memory of its own where the user could change it meanwhile.
        if visible or self.graph.is_of_input(value.id):
            value = self._own(value)
        sizes = strides = None
        layout = None
        if visible or self.symbols.hints:
            seen, layout = self.symbols.dims(traced.stride()), self.symbols.strides(traced.stride())
            repeated = [d for d, s in enumerate(layout) if s == 0 and value.shape[d] not in (0, 1)]
            if 1 in value.shape or repeated or seen != layout:
                sizes, strides = value.shape, seen
            if repeated:
                stored = tuple(1 if d in repeated else s for d, s in enumerate(value.shape))
                value = self.slice(value, [0] * len(stored), [1] * len(stored), stored)
                layout = tuple(1 if d in repeated else s for d, s in enumerate(layout))
        return ("tensor", self.graph.output(value.id, layout), sizes, strides)

    # ---- numbers computed from sizes ----

    def _derive_size(self, expr: Any, size: torch.SymInt) -> str:
        name = f"derived{len(self.result.derived)}"
        self._symbol_sources[name] = (self._derive(expr, size), "value", 0, 1, 0)
        self._derived_arguments.append(("integer",))
        self.symbols.declare(name, compat.size_hint(size, expr), compat.least_value(size, expr))
        return name

    def _derived_number(self, value: torch.SymFloat | torch.SymBool) -> Ref:
        """A 0-d input made at each call from what Python computes: eager's own arithmetic."""
        ref = self._derived_numbers.get(value.node.expr)
        if ref is None:
            dtype = torch.float64 if isinstance(value, torch.SymFloat) else torch.bool
            position = self._derive(value.node.expr, value, dtype)
            self._derived_arguments.append(("tensor", self._next_input()))
            id = self.graph.input(f"derived{position}", DTYPE_NAMES[dtype], (), None, False)
            ref = self._derived_numbers[value.node.expr] = Ref(id, dtype, ())
        return ref

    def _derive(self, expr: Any, of: Any, dtype: torch.dtype | None = None, fits: torch.dtype | None = None) -> int:
        """Adds an argument that is computed from the others; returns its position."""
        parameters = sorted(expr.free_symbols, key=str)
        sources = [self._symbol_source(str(symbol)) for symbol in parameters]
        self.result.derived.append(Derived(expr, parameters, sources, dtype, fits))
        return self._placeholders + len(self.result.derived) - 1

    def require_fit(self, value: Any, dtype: torch.dtype) -> None:
        """Eager refuses to convert a number to a type that it does not fit."""
        if isinstance(value, (torch.SymInt, torch.SymFloat)):
            key = (value.node.expr, dtype)
            if key not in self._fitting and not all(fits(b, dtype) for b in compat.bounds(value)):
                self._fitting.add(key)
                if isinstance(value, torch.SymInt):
                    extern.check(self, self._fits(value, dtype), _overflow_of(dtype))
                else:
                    self._derive(value.node.expr, value, fits=dtype)
                    self._derived_arguments.append(("ignored",))
        elif isinstance(value, (int, float)) and not fits(value, dtype):
            raise Unsupported(f"{value} does not fit {dtype}: ATen has the error")

    def _fits(self, size: torch.SymInt, dtype: torch.dtype) -> Ref:
        low, high = limits_of(dtype)
        value = self.size(self.symbols.dim(size))
        sides = (("ge", low), ("le", high))
        within = [self.pointwise_node(row, [value, self.scalar(n, torch.int64)], torch.bool, ()) for row, n in sides]
        return self.pointwise_node("logical_and", within, torch.bool, ())

    def _symbol_source(self, name: str) -> tuple:
        source = self._symbol_sources.get(name)
        if source is None:
            raise GraphFallback(f"no input gives the size {name}")
        return source

    # ---- what rules are written with ----

    def shape_of(self, node: fx.Node) -> tuple[Dim, ...]:
        return self.symbols.dims(node.meta["val"].shape)

    def emit(
        self, op: str, name: str, operands: Sequence[Ref], dtype: torch.dtype, shape: tuple[Dim, ...], **attrs: Any
    ) -> Ref:
        id = self.graph.add(op, name, [r.id for r in operands], [(DTYPE_NAMES[dtype], shape)], attrs)
        return Ref(id, dtype, shape)

    def emit_many(
        self, op: str, name: str, operands: Sequence[Ref], types: Sequence[tuple[torch.dtype, tuple]], **attrs: Any
    ) -> list[Ref]:
        id = self.graph.add(op, name, [r.id for r in operands], [(DTYPE_NAMES[d], s) for d, s in types], attrs)
        return self.results_of(id, types)

    @staticmethod
    def results_of(id: int, types: Sequence[tuple[torch.dtype, tuple]]) -> list[Ref]:
        """The results of a node; a handle is its node with the result's number in the upper half."""
        return [Ref(id + (i << 32), d, s) for i, (d, s) in enumerate(types)]

    def scalar(self, value: Any, dtype: torch.dtype) -> Ref:
        """A 0-d constant, or the value of a symbolic size."""
        if isinstance(value, torch.SymInt):
            return self.cast(self.size(self.symbols.dim(value)), dtype)
        elif isinstance(value, (torch.SymFloat, torch.SymBool)):
            return self.cast(self._derived_number(value), dtype)
        if dtype.is_floating_point:
            value = float(value)
            key = (dtype, value if value == value else "nan", math.copysign(1.0, value))
        else:
            value = wrapped(value, dtype)
            key = (dtype, value)
        ref = self._scalars.get(key)
        if ref is None:
            id = self.graph.constant(value, DTYPE_NAMES[dtype])
            ref = self._scalars[key] = Ref(id, dtype, ())
        return ref

    def number(self, value: Any, dtype: torch.dtype) -> Ref:
        """A scalar of a number that eager refuses where it does not fit."""
        self.require_fit(value, dtype)
        return self.scalar(value, dtype)

    def size(self, dim: Dim) -> Ref:
        """A size as a 0-d value."""
        if isinstance(dim, int):
            return self.scalar(dim, torch.int64)
        return self.emit("full", "", [], torch.int64, (), value=dim)

    def full(self, value: Any, dtype: torch.dtype, shape: tuple[Dim, ...]) -> Ref:
        return self.expand(self.scalar(value, dtype), shape)

    def cast(self, x: Ref, dtype: torch.dtype) -> Ref:
        if dtype not in DTYPE_NAMES:
            raise GraphFallback(f"{dtype} is no type of the compiler's graphs")
        return x if x.dtype is dtype else self.pointwise_node("cast", [x], dtype, x.shape)

    def pointwise_node(self, row: str, operands: Sequence[Ref], dtype: torch.dtype, shape: tuple) -> Ref:
        id = self.graph.pointwise(row, [self.expand(r, shape).id for r in operands], DTYPE_NAMES[dtype], shape)
        return Ref(id, dtype, shape)

    def expand(self, x: Ref, shape: tuple[Dim, ...], dims: Sequence[int] | None = None) -> Ref:
        """Broadcasts x; operand dim i becomes result dim dims[i] (default: aligned at the right)."""
        if x.shape == shape:
            return x
        if dims is None:
            lead = len(shape) - len(x.shape)
            dims = range(lead, len(shape))
        # A symbolic size that is repeated is 1 by a guard, one that is not is the result's: nothing in its expression
        # says so.
        hint = self.symbols.hint

        def stored_size(own: Dim, wanted: Dim) -> Dim:
            if own == wanted or None in (hint(own), hint(wanted)):
                return own
            if hint(own) == hint(wanted):
                return own if own == 1 else wanted
            return 1 if hint(own) == 1 else own

        stored = tuple(stored_size(n, shape[d]) for n, d in zip(x.shape, dims, strict=True))
        x = self.slice(x, [0] * len(stored), [1] * len(stored), stored)
        key = (x.id, shape, tuple(dims))
        ref = self._expanded.get(key)
        if ref is None:
            ref = self._expanded[key] = self.emit("expand", "", [x], x.dtype, shape, dims=list(dims))
        return self._view_of(x, ref)

    def reshape(self, x: Ref, shape: tuple[Dim, ...]) -> Ref:
        return x if x.shape == shape else self._view_of(x, self.emit("reshape", "", [x], x.dtype, shape))

    def permute(self, x: Ref, dims: Sequence[int]) -> Ref:
        dims = [d % len(x.shape) for d in dims]
        if dims == list(range(len(dims))):
            return x
        return self._view_of(x, self.emit("permute", "", [x], x.dtype, tuple(x.shape[d] for d in dims), dims=dims))

    def slice(self, x: Ref, starts: Sequence[Dim], steps: Sequence[int], shape: tuple[Dim, ...]) -> Ref:
        if shape == x.shape and all(s == 0 for s in starts) and all(s == 1 for s in steps):
            return x
        return self._view_of(x, self.emit("slice", "", [x], x.dtype, shape, starts=list(starts), steps=list(steps)))

    def slice_dim(self, x: Ref, dim: int, start: Dim, length: Dim, step: int = 1) -> Ref:
        starts: list[Dim] = [0] * len(x.shape)
        steps = [1] * len(x.shape)
        starts[dim], steps[dim] = start, step
        return self.slice(x, starts, steps, x.shape[:dim] + (length,) + x.shape[dim + 1 :])

    def iota(self, shape: tuple[Dim, ...], axis: int, start: Dim = 0, step: Dim = 1) -> Ref:
        return self.emit("iota", "", [], torch.int64, shape, axis=axis, start=start, step=step)

    def same_sizes(self, a: Sequence[Any], b: Sequence[Any]) -> None:
        """Two traced shapes must agree: tracing guards most such pairs, but not those of every op. Where no guard can
        say it, ATen has to compare them at each call."""
        pairs = zip(a, b, strict=False)
        unknown = [
            (m, n) for m, n in pairs if not compat.is_known(m == n) and self.symbols.dim(m) != self.symbols.dim(n)
        ]
        if len(a) != len(b) or not all(compat.guard_equal(m, n) for m, n in unknown):
            raise Unsupported(f"sizes {list(a)} and {list(b)} must agree, which only a call knows")
        for m, n in unknown:
            if not compat.is_known(m == n) and not self.symbols.merge(m, n):
                raise Unsupported(f"sizes {m} and {n} agree, but neither can be spelled as the other")
        if unknown:
            raise SizesMerged

    def copy(self, x: Ref) -> Ref:
        """A value that is x now, and memory of its own should the user get to see it."""
        return Ref(x.id, x.dtype, x.shape, owned=False)

    @staticmethod
    def _view_of(x: Ref, view: Ref) -> Ref:
        return view if x.owned else Ref(view.id, view.dtype, view.shape, owned=False)


def _begins(tensor: torch.Tensor) -> bool:
    """Does it lie where its memory does?"""
    offset = tensor.storage_offset()
    return isinstance(offset, int) and offset == 0


def require_plain(node: fx.Node, value: Any) -> None:
    """Raises GraphFallback unless the Graph's types can hold `value`."""
    if not isinstance(value, torch.Tensor):
        raise GraphFallback(f"{node.target} gives a {type(value).__name__}")
    if value.dtype in DTYPE_NAMES and compat.is_plain_tensor(value):
        return
    what = f"{value.dtype}" if value.dtype not in DTYPE_NAMES else f"{type(value).__name__} {value.layout}"
    raise GraphFallback(f"{node.target} ({node.name}) has a value of type {what} on {value.device}")


def node_source(node: fx.Node) -> str:
    """ "file.py:12 linear": the line of the model that the op comes from, not of PyTorch where that calls it; within
    PyTorch's own modules, which Dynamo traces without lines, "encoder.0 (Linear) linear": the module."""
    name = node.target._opname if isinstance(node.target, torch._ops.OpOverload) else node.name
    trace = node.meta.get("stack_trace")
    if not trace:
        modules = node.meta.get("nn_module_stack") or node.meta.get("fwd_nn_module_stack")
        if not modules:
            return name
        path, kind = next(reversed(modules.values()))
        return f"{MODULE_ROOT.sub('', path)} ({getattr(kind, '__name__', kind)}) {name}"
    at = innermost = trace.rfind('File "')
    while at >= 0 and trace.startswith(_PYTORCH, at + 6):
        at = trace.rfind('File "', 0, at)
    at = at if at >= 0 else innermost
    end = trace.find("\n", at)
    file, _, rest = trace[at + 6 : end].partition('", line ')
    return f"{file.rpartition('/')[2]}:{rest.partition(',')[0]} {name}"

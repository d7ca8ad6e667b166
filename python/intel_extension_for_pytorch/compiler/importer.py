"""The importer translates an ATen FX graph to a Graph, in which every cast and every broadcast is a node of its own.

The result of a rule must have the dtype and the shape that tracing recorded in `node.meta["val"]`. An op without a
rule, or whose rule raises Unsupported, becomes an Extern node that calls ATen. The rules are in rules/; they build
nodes with graph_writer.py.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import fx

from .. import torch_private
from ..errors import CutNeeded, GraphFallback, MemoryFallback, Unsupported
from ..torch_private import pytree
from . import extern, time_limit
from .derived import Derived
from .graph_writer import GraphWriter, SizesMerged
from .rules import rule_for
from .sizes import Dim, contiguous_strides, offset_in_elements, sub
from .types_without_kernels import lacks_kernel
from .values import DTYPE_NAMES, Ref, node_source, require_plain


@dataclass
class Imported:
    """A Graph and what a call needs besides: where sizes come from and what each output is."""

    graph: Any
    arguments: list[tuple] = field(default_factory=list)  # ("tensor", input) | ("integer",) | ("ignored",)
    symbols: list[tuple] = field(default_factory=list)  # (argument, "value" | "size" | "stride", dim, divisor, offset)
    outputs: list[tuple] = field(default_factory=list)  # see Importer._output and Importer._alias
    externs: dict[str, str] = field(default_factory=dict)  # op -> why
    extern_sources: dict[str, str] = field(default_factory=dict)  # op -> source line of its first call
    derived: list[Derived] = field(default_factory=list)  # the last of the arguments


def import_graph(module: fx.GraphModule, example_inputs: Sequence[Any], **options: Any) -> Imported:
    """Imports the graph; starts again whenever the import has found two sizes to be equal. `options`: see Importer."""
    merged: dict[Any, Any] = {}
    values = (n.meta.get("val") for n in module.graph.nodes if n.op == "placeholder")
    with torch_private.no_guards(values, _depends_on_call):
        while True:
            importer = Importer(module, example_inputs, merged=merged, **options)
            try:
                return importer.run()
            except SizesMerged:
                continue
            finally:
                vars(importer).clear()  # values refer to their writer: break the reference cycle


def _depends_on_call(expression: Any) -> Unsupported:
    return Unsupported(f"its behaviour depends on the value of {expression}, which is known only at a call")


class Importer(GraphWriter):
    """Imports one FX graph.

    `static`: positions of inputs that are parameters or buffers. `user_outputs`: how many leading outputs keep the
    traced strides. `input_views`: position of an output that is a view of an argument after the call -> position of
    that argument. `merged` and `checks_divisors`: as for GraphWriter.
    """

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
        placeholders = sum(node.op == "placeholder" for node in module.graph.nodes)
        super().__init__(placeholders, {} if merged is None else merged, checks_divisors=checks_divisors)
        self.module = module
        self.example_inputs = example_inputs
        self.static = static
        self.user_outputs = user_outputs
        self.input_views = input_views or {}
        self.env: dict[fx.Node, Any] = {}
        self.result = Imported(self.graph, derived=self.derived)
        self.input_position: dict[fx.Node, int] = {}
        self.passed_through: dict[fx.Node, int] = {}  # inputs that are not tensors -> argument position
        self.mutations: dict[fx.Node, Ref] = {}
        self._source = ""
        self._refused: dict[fx.Node, str] = {}

    # ---- traversal of the FX graph ----

    def run(self) -> Imported:
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
        """The result of an op. If a Graph cannot represent it, a placeholder, so that one walk finds all such ops."""
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
        return Ref(self, self.graph.input("refused", DTYPE_NAMES[dtype], shape, None, False), dtype, shape)

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
        """Requires the dtype and shape that tracing recorded."""
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
        # The example input has the strides that the forward graph really produced; the node's metadata may not.
        value = self.example_inputs[position]
        traced = node.meta.get("val", value)
        if isinstance(traced, (torch.SymInt, int)) and not isinstance(traced, bool):
            self.env[node] = traced
            self._add_sources(traced, position, "value", 0)
            self.result.arguments.append(("integer",))
            return
        if isinstance(traced, (torch.SymFloat, torch.SymBool, float, bool)):
            self.env[node] = traced
            symbol = torch_private.symbol_of(traced) if isinstance(traced, torch.SymFloat) else None
            if symbol is not None:
                self._symbol_sources.setdefault(str(symbol), (position, "value", 0, 1, 0))
            self.result.arguments.append(("ignored",))
            return
        if not isinstance(value, torch.Tensor):
            # For example a device mesh or a process group. A graph may only return it.
            if any(user.op != "output" for user in node.users):
                raise GraphFallback(f"input {node.name} is a {type(value).__name__}")
            self.passed_through[node] = position
            self.env[node] = value
            self.result.arguments.append(("ignored",))
            return
        require_plain(node, value)
        sizes = traced.shape if isinstance(traced, torch.Tensor) else value.shape
        shape, strides = self.symbols.dims(sizes), self.symbols.strides(value.stride())
        for what, given in (("size", sizes), ("stride", value.stride())):
            for dim, size in enumerate(given):
                self._add_sources(size, position, what, dim)
        index = self.next_input()
        id = self.graph.input(
            node.name,
            DTYPE_NAMES[value.dtype],
            shape,
            None if strides == contiguous_strides(shape) else strides,
            position in self.static,
        )
        self.input_position[node] = index
        self.env[node] = Ref(self, id, value.dtype, shape)
        self.result.arguments.append(("tensor", index))

    def _add_sources(self, size: int | torch.SymInt, position: int, what: str, dim: int) -> None:
        for name, divisor, offset in self.symbols.names(size):
            self._symbol_sources.setdefault(name, (position, what, dim, divisor, offset))

    def _attribute(self, node: fx.Node) -> Any:
        """A tensor attribute of the module: a constant in the model's code."""
        value: Any = self.module
        for part in node.target.split("."):
            value = getattr(value, part)
        if not isinstance(value, torch.Tensor):
            return value
        require_plain(node, value)
        with torch_private.without_modes():
            data = value.detach().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
        id = self.graph.constant_data(data, DTYPE_NAMES[value.dtype], tuple(value.shape))
        return Ref(self, id, value.dtype, tuple(value.shape))

    def _finish(self, node: fx.Node) -> None:
        outputs = node.args[0] if isinstance(node.args[0], (list, tuple)) else [node.args[0]]
        visible = len(outputs) if self.user_outputs is None else self.user_outputs
        shared = self._shared_memory(outputs, visible)
        stored: dict[fx.Node, int] = {}  # base value of views -> output of the graph
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
        self.result.arguments += self.derived_arguments
        self.result.symbols = [self.symbol_source(name) for name in self.graph.symbols()]

    def _shared_memory(self, outputs: Sequence[Any], visible: int) -> dict[fx.Node, fx.Node]:
        """Outputs that share memory in eager, where the user sees at least one of them -> the value that owns the
        memory. Views of inputs are left out: they are handled by input_views."""
        by_memory: dict[int, list[fx.Node]] = {}
        seen: set[int] = set()
        for i, out in enumerate(outputs):
            if isinstance(out, fx.Node) and isinstance(self.env[out], Ref):
                memory = torch_private.memory_identity(out.meta["val"])
                by_memory.setdefault(memory, []).append(out)
                if i < visible:
                    seen.add(memory)
        several = {m: nodes for m, nodes in by_memory.items() if m in seen and len(set(nodes)) > 1}
        shared: dict[fx.Node, fx.Node] = {}
        for owner in self.module.graph.nodes if several else ():
            value = owner.meta.get("val")
            nodes = several.pop(torch_private.memory_identity(value), []) if isinstance(value, torch.Tensor) else []
            if nodes and owner.op == "call_function" and isinstance(self.env[owner], Ref) and _starts_storage(value):
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
        """dtype, sizes, strides, and the offset in elements (relative to `within` if it is given)."""
        sizes, strides = self.symbols.dims(seen.shape), self.symbols.dims(seen.stride())
        begin = self.symbols.dim(seen.storage_offset())
        if within is not None:
            begin = sub(begin, self.symbols.dim(offset_in_elements(within, seen.dtype)))
        return DTYPE_NAMES[seen.dtype], sizes, strides, begin

    def _own(self, value: Ref) -> Ref:
        return value if value.owned else self.pointwise_node("clone", [value], value.dtype, value.shape)

    def _output(self, node: Any, visible: bool) -> tuple:
        """("none",) | ("constant", value) | ("dim", text) | ("argument", position) |
        ("tensor", graph output, sizes, strides). Other kinds are made elsewhere: ("same", earlier output), ("alias",
        ..) by _alias, and ("argument_view", position, geometry as in _alias).

        `sizes` and `strides` are None unless the graph's output differs from what the user sees: a broadcast dimension
        has stride 0 and is stored once, and the graph does not keep the stride of a dimension of extent 1."""
        if node in self.passed_through:
            return ("argument", self.passed_through[node])
        value = self.env[node] if isinstance(node, fx.Node) else node
        if value is None:
            return ("none",)
        if isinstance(value, torch.SymInt):
            dim = self.symbols.dim(value)
            return ("dim", dim) if isinstance(dim, str) else ("constant", dim)
        if not isinstance(value, Ref):
            if isinstance(value, (int, float, bool)):
                return ("constant", value)
            if (thing := torch_private.traced_object(value)) is not None:
                return ("constant", thing)
            raise GraphFallback(f"output {node} is a {type(value).__name__}")
        if node in self.input_position:
            return ("argument", self.result.arguments.index(("tensor", self.input_position[node])))
        traced = node.meta["val"]
        # The user must not share memory with other values. A value that only the backward pass reads needs memory of
        # its own if it is a view of an input, which the user could change in the meantime.
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


def _starts_storage(tensor: torch.Tensor) -> bool:
    """Whether the tensor starts at the beginning of its storage."""
    offset = tensor.storage_offset()
    return isinstance(offset, int) and offset == 0

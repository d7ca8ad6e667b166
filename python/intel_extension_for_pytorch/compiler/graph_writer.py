"""What import rules are written with: nodes of a Graph, one call each, and numbers that only a call knows."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import fx

from .. import _C, torch_private
from ..errors import GraphFallback, Unsupported
from . import extern
from .conversions import fits, limits_of, overflow_error, wrapped
from .derived import Derived
from .sizes import Dim, Symbols
from .values import DTYPE_NAMES, Ref


class SizesMerged(Exception):
    """Guards have made one size of two, which what was imported so far spells apart."""


class GraphWriter:
    """Writes one Graph. `placeholders`: how many arguments the FX graph has; `merged`: sizes that guards have made one;
    `checks_divisors`: Python computes, at each call, sizes whose divisor may be 0."""

    def __init__(self, placeholders: int, merged: dict[Any, Any], *, checks_divisors: bool = True) -> None:
        self.graph = _C.Graph()
        self.symbols = Symbols(self.graph.symbol, self._derive_size, merged, checks_divisors=checks_divisors)
        self.derived: list[Derived] = []  # arguments that follow those of the placeholders
        self.derived_arguments: list[tuple] = []  # the same, as in Imported.arguments
        self._placeholders = placeholders
        self._inputs = 0  # of the graph
        self._scalars: dict[tuple, Ref] = {}
        self._derived_numbers: dict[Any, Ref] = {}
        self._fitting: set[tuple] = set()
        self._expanded: dict[tuple, Ref] = {}
        self._symbol_sources: dict[str, tuple] = {}

    def next_input(self) -> int:
        self._inputs += 1
        return self._inputs - 1

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
            (m, n)
            for m, n in pairs
            if not torch_private.is_known(m == n) and self.symbols.dim(m) != self.symbols.dim(n)
        ]
        if len(a) != len(b) or not all(torch_private.guard_equal(m, n) for m, n in unknown):
            raise Unsupported(f"sizes {list(a)} and {list(b)} must agree, which only a call knows")
        for m, n in unknown:
            if not torch_private.is_known(m == n) and not self.symbols.merge(m, n):
                raise Unsupported(f"sizes {m} and {n} agree, but neither can be spelled as the other")
        if unknown:
            raise SizesMerged

    def copy(self, x: Ref) -> Ref:
        """A value that is x now, and memory of its own should the user get to see it."""
        return Ref(x.id, x.dtype, x.shape, owned=False)

    @staticmethod
    def _view_of(x: Ref, view: Ref) -> Ref:
        return view if x.owned else Ref(view.id, view.dtype, view.shape, owned=False)

    # ---- numbers computed from sizes ----

    def _derive_size(self, expr: Any, size: torch.SymInt) -> str:
        name = f"derived{len(self.derived)}"
        self._symbol_sources[name] = (self._derive(expr, size), "value", 0, 1, 0)
        self.derived_arguments.append(("integer",))
        self.symbols.declare(name, torch_private.size_hint(size, expr), torch_private.least_value(size, expr))
        return name

    def _derived_number(self, value: torch.SymFloat | torch.SymBool) -> Ref:
        """A 0-d input made at each call from what Python computes: eager's own arithmetic."""
        ref = self._derived_numbers.get(value.node.expr)
        if ref is None:
            dtype = torch.float64 if isinstance(value, torch.SymFloat) else torch.bool
            position = self._derive(value.node.expr, value, dtype)
            self.derived_arguments.append(("tensor", self.next_input()))
            id = self.graph.input(f"derived{position}", DTYPE_NAMES[dtype], (), None, False)
            ref = self._derived_numbers[value.node.expr] = Ref(id, dtype, ())
        return ref

    def _derive(self, expr: Any, of: Any, dtype: torch.dtype | None = None, fits: torch.dtype | None = None) -> int:
        """Adds an argument that is computed from the others; returns its position."""
        parameters = sorted(expr.free_symbols, key=str)
        sources = [self.symbol_source(str(symbol)) for symbol in parameters]
        self.derived.append(Derived(expr, parameters, sources, dtype, fits))
        return self._placeholders + len(self.derived) - 1

    def require_fit(self, value: Any, dtype: torch.dtype) -> None:
        """Eager refuses to convert a number to a type that it does not fit."""
        if isinstance(value, (torch.SymInt, torch.SymFloat)):
            key = (value.node.expr, dtype)
            if key not in self._fitting and not all(fits(b, dtype) for b in torch_private.bounds(value)):
                self._fitting.add(key)
                if isinstance(value, torch.SymInt):
                    extern.check(self, self._fits(value, dtype), overflow_error(dtype))
                else:
                    self._derive(value.node.expr, value, fits=dtype)
                    self.derived_arguments.append(("ignored",))
        elif isinstance(value, (int, float)) and not fits(value, dtype):
            raise Unsupported(f"{value} does not fit {dtype}: ATen has the error")

    def _fits(self, size: torch.SymInt, dtype: torch.dtype) -> Ref:
        low, high = limits_of(dtype)
        value = self.size(self.symbols.dim(size))
        sides = (("ge", low), ("le", high))
        within = [self.pointwise_node(row, [value, self.scalar(n, torch.int64)], torch.bool, ()) for row, n in sides]
        return self.pointwise_node("logical_and", within, torch.bool, ())

    def symbol_source(self, name: str) -> tuple:
        source = self._symbol_sources.get(name)
        if source is None:
            raise GraphFallback(f"no input gives the size {name}")
        return source

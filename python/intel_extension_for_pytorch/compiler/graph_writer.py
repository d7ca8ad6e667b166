"""GraphWriter, the builder of Graph nodes for import rules. It also handles numbers that are known only at a call."""

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
from .op_tables import accepts, pointwise_row
from .promotion import promote
from .sizes import Dim, Symbols
from .values import DTYPE_NAMES, Operand, Ref, opmath

# Row -> (positions, in_opmath). If the operands at these positions are numbers, eager converts them to the type of the
# tensors, or with in_opmath to the type of the arithmetic, and raises where they do not fit. Other numbers wrap around.
_CONVERTED = {
    "add_scaled": ((2,), False), "sub_scaled": ((2,), False), "pow": ((1,), False), "clamp": ((1, 2), False),
    "clamp_min": ((1,), False), "clamp_max": ((1,), False), "hardtanh": ((1, 2), False),
    "threshold": ((1, 2), False), "addcmul": ((3,), True), "addcdiv": ((3,), True), "leaky_relu": ((1,), True),
    "elu": ((1, 2, 3), True), "softplus": ((1, 2), True), "lerp": ((2,), True),
}  # fmt: skip
# Rows whose second operand eager does not round to fp16 or bf16 first, if it is a 0-d tensor.
_UNROUNDED_FACTOR = ("mul", "div", "div_trunc", "div_floor")


class SizesMerged(Exception):
    """A guard has made two sizes equal that the import so far spells differently: it must start again."""


class GraphWriter:
    """Writes one Graph. `placeholders`: the number of arguments of the FX graph; `merged`: sizes that guards have made
    equal; `checks_divisors`: sizes whose divisor may be 0 are computed in Python at each call."""

    def __init__(self, placeholders: int, merged: dict[Any, Any], *, checks_divisors: bool = True) -> None:
        self.graph = _C.Graph()
        self.symbols = Symbols(self.graph.symbol, self._derive_size, merged, checks_divisors=checks_divisors)
        self.derived: list[Derived] = []  # extra arguments, after those of the placeholders
        self.derived_arguments: list[tuple] = []  # the same, as in Imported.arguments
        self._placeholders = placeholders
        self._inputs = 0  # number of graph inputs
        self._scalars: dict[tuple, Ref] = {}
        self._derived_numbers: dict[Any, Ref] = {}
        self._fitting: set[tuple] = set()
        self._expanded: dict[tuple, Ref] = {}
        self._symbol_sources: dict[str, tuple] = {}

    def next_input(self) -> int:
        self._inputs += 1
        return self._inputs - 1

    # ---- nodes ----

    def shape_of(self, node: fx.Node) -> tuple[Dim, ...]:
        return self.symbols.dims(node.meta["val"].shape)

    def emit(
        self, op: str, name: str, operands: Sequence[Ref], dtype: torch.dtype, shape: tuple[Dim, ...], **attrs: Any
    ) -> Ref:
        id = self.graph.add(op, name, [r.id for r in operands], [(DTYPE_NAMES[dtype], shape)], attrs)
        return Ref(self, id, dtype, shape)

    def emit_many(
        self, op: str, name: str, operands: Sequence[Ref], types: Sequence[tuple[torch.dtype, tuple]], **attrs: Any
    ) -> list[Ref]:
        id = self.graph.add(op, name, [r.id for r in operands], [(DTYPE_NAMES[d], s) for d, s in types], attrs)
        return self.results_of(id, types)

    def results_of(self, id: int, types: Sequence[tuple[torch.dtype, tuple]]) -> list[Ref]:
        """The results of a node. A handle holds the node in its lower 32 bits and the result number in the upper."""
        return [Ref(self, id + (i << 32), d, s) for i, (d, s) in enumerate(types)]

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
            ref = self._scalars[key] = Ref(self, id, dtype, ())
        return ref

    def number(self, value: Any, dtype: torch.dtype) -> Ref:
        """A 0-d constant; Unsupported where the number does not fit, which eager refuses."""
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
            raise GraphFallback(f"{dtype} is not a type of the compiler's graphs")
        return x if x.dtype is dtype else self.pointwise_node("cast", [x], dtype, x.shape)

    # ---- arithmetic ----

    def pointwise(self, name: str, *operands: Operand, shape: tuple[Dim, ...] | None = None) -> Ref:
        """A row of the pointwise table over tensors and numbers, which are promoted and broadcast to `shape` (default:
        their broadcast shape)."""
        row = pointwise_row(name)
        if shape is None:
            shape = self.symbols.broadcast([o.shape for o in operands if isinstance(o, Ref)])
        if name == "where":
            condition = self.cast(operands[0], torch.bool)
            promoted = promote(operands[1:])
            return self.pointwise_node(
                name, [condition, *(self._operand(o, promoted, row) for o in operands[1:])], promoted, shape
            )
        promoted = promote(operands)
        if row.promotion == "int_to_float" and not promoted.is_floating_point:
            promoted = torch.get_default_dtype()
        if not accepts(row, promoted):
            raise Unsupported(f"pointwise.{name} has no {promoted} form")
        converted, of_arithmetic = _CONVERTED.get(name, ((), False))
        for position in converted:
            self.require_fit(operands[position], opmath(promoted) if of_arithmetic else promoted)
        result = torch.bool if row.promotion == "always_bool" else promoted
        refs = [self._operand(o, promoted, row) for o in operands]
        if name in _UNROUNDED_FACTOR and isinstance(operands[1], Ref) and not operands[1].shape:
            refs[1] = self.cast(operands[1], opmath(promoted))
        return self.pointwise_node(name, refs, result, shape)

    def _operand(self, operand: Operand | None, promoted: torch.dtype, row: Any) -> Ref:
        """One operand in the compute type. fp16 and bf16 tensors stay as they are, since arithmetic is in fp32 anyway.
        Where eager rounds a number to the promoted type first, so does this."""
        if isinstance(operand, Ref):
            if operand.dtype is promoted or opmath(operand.dtype) is promoted:
                return operand
            return self.cast(operand, promoted)
        if operand is None:
            raise Unsupported(f"pointwise.{row.name} needs all of its operands")
        number = self.scalar(operand, opmath(promoted))
        # In comparisons and remainders, eager converts the number to the tensors' type.
        rounds = row.promotion == "always_bool" or row.name in ("remainder", "fmod")
        return self.cast(self.cast(number, promoted), opmath(promoted)) if rounds else number

    def where(self, condition: Ref, x: Operand, y: Operand) -> Ref:
        return self.pointwise("where", condition, x, y)

    def reduce(self, name: str, x: Ref, axes: Sequence[int] | None = None, keepdim: bool = False) -> Ref:
        """A row of the reduction table over `axes` (default: all); the result has the dtype of x."""
        axes = list(range(len(x.shape)) if axes is None else axes)
        if not axes:
            return self.copy(x)
        return self.emit("reduce", name, [x], x.dtype, reduced_shape(x, axes, keepdim), axes=axes, keepdim=keepdim)

    def pointwise_node(self, row: str, operands: Sequence[Ref], dtype: torch.dtype, shape: tuple) -> Ref:
        id = self.graph.pointwise(row, [self.expand(r, shape).id for r in operands], DTYPE_NAMES[dtype], shape)
        return Ref(self, id, dtype, shape)

    # ---- indexing by data ----

    def gather(self, x: Ref, indices: Sequence[Ref], *, map: list[int], **attrs: Any) -> Ref:
        """Elements of x. The indices have the result's shape; `map` says how they address x: see rules/indexing.py."""
        return self.emit("gather", "", [x, *indices], x.dtype, indices[0].shape, map=map, **attrs)

    def scatter(self, x: Ref, indices: Sequence[Ref], src: Ref, *, map: list[int], combine: str, **attrs: Any) -> Ref:
        """x with `src` combined into it. The indices have the shape of src; `map` says how they address x."""
        return self.emit("scatter", "", [x, *indices, src], x.dtype, x.shape, map=map, combine=combine, **attrs)

    # ---- views ----

    def expand(self, x: Ref, shape: tuple[Dim, ...], dims: Sequence[int] | None = None) -> Ref:
        """Broadcasts x; operand dim i becomes result dim dims[i] (default: aligned at the right)."""
        if x.shape == shape:
            return x
        if dims is None:
            lead = len(shape) - len(x.shape)
            dims = range(lead, len(shape))
        # Guards decide whether a symbolic size is broadcast (it is 1) or equal to the result's size. Its expression
        # does not say which, so the hints are compared.
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
        """Requires two traced shapes to agree. Tracing guards this for most ops, but not for all. Unsupported where no
        guard can express it; ATen then compares the sizes at each call."""
        pairs = zip(a, b, strict=False)
        unknown = [
            (m, n)
            for m, n in pairs
            if not torch_private.is_known(m == n) and self.symbols.dim(m) != self.symbols.dim(n)
        ]
        if len(a) != len(b) or not all(torch_private.guard_equal(m, n) for m, n in unknown):
            raise Unsupported(f"sizes {list(a)} and {list(b)} must agree, which is known only at a call")
        for m, n in unknown:
            if not torch_private.is_known(m == n) and not self.symbols.merge(m, n):
                raise Unsupported(f"sizes {m} and {n} agree, but neither can be expressed by the other")
        if unknown:
            raise SizesMerged

    def copy(self, x: Ref) -> Ref:
        """x, to be copied to memory of its own if the user gets to see the result."""
        return Ref(self, x.id, x.dtype, x.shape, owned=False)

    def _view_of(self, x: Ref, view: Ref) -> Ref:
        return view if x.owned else Ref(self, view.id, view.dtype, view.shape, owned=False)

    # ---- numbers computed from sizes ----

    def _derive_size(self, expr: Any, size: torch.SymInt) -> str:
        name = f"derived{len(self.derived)}"
        self._symbol_sources[name] = (self._derive(expr, size), "value", 0, 1, 0)
        self.derived_arguments.append(("integer",))
        self.symbols.declare(name, torch_private.size_hint(size, expr), torch_private.lower_bound(size, expr))
        return name

    def _derived_number(self, value: torch.SymFloat | torch.SymBool) -> Ref:
        """A 0-d input that Python computes at each call, with the arithmetic of eager."""
        ref = self._derived_numbers.get(value.node.expr)
        if ref is None:
            dtype = torch.float64 if isinstance(value, torch.SymFloat) else torch.bool
            position = self._derive(value.node.expr, value, dtype)
            self.derived_arguments.append(("tensor", self.next_input()))
            id = self.graph.input(f"derived{position}", DTYPE_NAMES[dtype], (), None, False)
            ref = self._derived_numbers[value.node.expr] = Ref(self, id, dtype, ())
        return ref

    def _derive(self, expr: Any, of: Any, dtype: torch.dtype | None = None, fits: torch.dtype | None = None) -> int:
        """Adds a derived argument and returns its position."""
        parameters = sorted(expr.free_symbols, key=str)
        sources = [self.symbol_source(str(symbol)) for symbol in parameters]
        self.derived.append(Derived(expr, parameters, sources, dtype, fits))
        return self._placeholders + len(self.derived) - 1

    def require_fit(self, value: Any, dtype: torch.dtype) -> None:
        """Requires that the number fits the type, as eager does when it converts one. A symbolic number is checked at
        each call."""
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
            raise Unsupported(f"{value} does not fit {dtype}: ATen raises the error")

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


def reduced_shape(x: Ref, axes: Sequence[int], keepdim: bool) -> tuple[Dim, ...]:
    return tuple(1 if d in axes else s for d, s in enumerate(x.shape) if keepdim or d not in axes)

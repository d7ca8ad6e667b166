"""Sizes of a Graph: each is an int, or the text of an integer expression over the graph's symbols."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import torch

from .. import torch_private
from ..errors import GraphFallback

Dim = int | str

_LOWEST = -(2**62)  # lower bound of an integer about which nothing is known; leaves room for index arithmetic


class Symbols:
    """The symbols that a graph uses, in order of first use, with their values in the example inputs.

    `declare(name, hint, low)` is called before the first use of a symbol; `low` is its lower bound. `derive(expr,
    size)` names a new symbol for a size that Dims cannot express (int(s0 * 1.5)), or, with `checks_divisors`, whose
    divisor may be 0; Python computes it at each call. A symbol that guards know to be a multiple of k is written as k
    times another symbol, so that sizes divide without floors. `merged`: size -> the equal size that replaces it; see
    merge().
    """

    def __init__(
        self,
        declare: Callable[[str, int, int], None],
        derive: Callable[[Any, torch.SymInt], str],
        merged: dict[Any, Any],
        *,
        checks_divisors: bool = False,
    ) -> None:
        self._merged = merged
        self._checks_divisors = checks_divisors
        self.hints: dict[str, int] = {}
        self._declare = declare
        self._derive = derive
        self._dims: dict[Any, Dim] = {}
        self._values: dict[str, int] = {}
        self._multiples: dict[Any, Any] | None = None  # symbol -> k * other symbol
        self._wholes: dict[Any, tuple[Any, int]] = {}  # other symbol -> (symbol, k)

    def declare(self, name: str, hint: int, low: int) -> None:
        self.hints[name] = hint
        self._declare(name, hint, max(low, _LOWEST))

    def dim(self, size: int | torch.SymInt) -> Dim:
        """An int, or the text of a symbolic size. Adds no guard."""
        if type(size) is int:
            return size
        if isinstance(size, torch.SymInt):
            expr = size.node.expr
            if expr.is_Integer:
                return int(expr)
            dim = self._dims.get(expr)
            if dim is None:
                dim = self._dims[expr] = self._dim_of(expr, size)
            return dim
        return int(size)

    def merge(self, m: int | torch.SymInt, n: int | torch.SymInt) -> bool:
        """Records that one of two equal sizes is replaced by the other from the next import on. False where that is
        impossible."""
        one, other = (torch_private.expression(size).xreplace(self._merged) for size in (m, n))
        # Prefer to replace a symbol, but never by an expression that contains it: min(s0, s1) is replaced by s0.
        if other.is_Symbol and not one.has(other):
            one, other = other, one
        if other.has(one):
            one, other = other, one
        if one.is_Integer or other.has(one) or self._merged.get(one) == other:
            return False
        for expr, taken in self._merged.items():
            self._merged[expr] = taken.xreplace({one: other})
        self._merged[one] = other
        return True

    def _dim_of(self, expr: Any, size: torch.SymInt) -> Dim:
        if self._merged:
            expr = expr.xreplace(self._merged)
            if expr.is_Integer:
                return int(expr)
        hint = torch_private.size_hint(size, expr)
        if hint == 1 and not expr.is_Symbol and torch_private.is_known(size == 1):
            return 1  # because of a guard that was added after this size was traced
        text = self._print(expr, size)
        self._values[text] = hint
        return text

    def hint(self, dim: Dim) -> int | None:
        """The value of the size in the example inputs, or None for an expression that is not a traced size."""
        return dim if isinstance(dim, int) else self._values.get(dim)

    def dims(self, sizes: Any) -> tuple[Dim, ...]:
        return tuple([s if type(s) is int else self.dim(s) for s in sizes])

    def broadcast(self, shapes: Sequence[tuple[Dim, ...]]) -> tuple[Dim, ...]:
        """The broadcast shape. Tracing guarantees that it exists: of two sizes with different text, one is 1, or they
        are equal and the first is used."""
        result = shapes[0]
        for shape in shapes[1:]:
            if shape == result:
                continue
            missing = len(shape) - len(result)
            longer, other = (shape, result) if missing > 0 else (result, shape)
            lead = abs(missing)
            pairs = zip(longer[lead:], other, strict=True)
            result = (*longer[:lead], *(b if self.hint(a) == 1 else a for a, b in pairs))
        return result

    def _print(self, whole: Any, size: torch.SymInt) -> str:
        expr = whole.xreplace(self._known_multiples(size))
        for symbol in expr.free_symbols:
            if str(symbol) not in self.hints:
                of, k = self._wholes.get(symbol, (symbol, 1))
                self.declare(
                    str(symbol), torch_private.size_hint(size, of) // k, -(-torch_private.lower_bound(size, of) // k)
                )
        try:
            if self._checks_divisors and self._may_divide_by_zero(whole, size):
                raise GraphFallback(f"the size expression {whole} may divide by 0; Python raises the error for that")
            return print_expression(expr)
        except GraphFallback:
            return self._derive(whole, size)

    @staticmethod
    def _may_divide_by_zero(expr: Any, size: torch.SymInt) -> bool:
        divisions, modulos, *_ = _function_classes()
        divisors = [part.args[1] for part in expr.atoms(*divisions, *modulos)]
        return any(
            torch_private.lower_bound(size, d) <= 0 and torch_private.lower_bound(size, -d) <= 0 for d in divisors
        )

    def _known_multiples(self, size: torch.SymInt) -> dict[Any, Any]:
        if self._multiples is None:
            self._multiples = {}
            for symbol, k in torch_private.known_factors(size).items():
                if torch_private.lower_bound(size, symbol) < 1:
                    continue
                part = torch_private.positive_symbol(f"{symbol}_{k}")
                self._multiples[symbol] = k * part
                self._wholes[part] = (symbol, k)
        return self._multiples

    def names(self, size: int | torch.SymInt) -> list[tuple[str, int, int]]:
        """The symbols that an argument's size determines, as (name, k, offset): the size is k * symbol + offset."""
        if not isinstance(size, torch.SymInt):
            return []
        offset, multiple = size.node.expr.as_coeff_Add()  # torch.export can produce 2*s0 + 1
        factor, symbol = multiple.as_coeff_Mul()
        if not symbol.is_Symbol or not factor.is_Integer or factor < 1 or not offset.is_Integer:
            return []
        self._known_multiples(size)
        parts = [(str(part), k) for part, (of, k) in self._wholes.items() if of == symbol]
        return [(name, int(factor) * k, int(offset)) for name, k in [(str(symbol), 1), *parts]]

    def strides(self, strides: Any) -> tuple[Dim, ...]:
        """Like dims(), but without the max(1, s) of contiguous tensors, which matters only for empty tensors."""
        return tuple([s if type(s) is int else self.dim(torch_private.without_empty_case(s)) for s in strides])


def print_expression(expr: Any) -> str:
    """The text of a sympy integer expression in a Graph, with parentheses around nested ones."""
    if expr.is_Integer:
        return str(int(expr))
    if expr.is_Symbol:
        return str(expr)
    divisions, modulos, minima, maxima = _function_classes()
    if expr.is_Add:
        return _infix(" + ", expr.args)
    if expr.is_Mul:
        return _infix(" * ", expr.args)
    if expr.is_Pow and expr.exp.is_Integer and expr.exp > 0:
        return _infix(" * ", [expr.base] * int(expr.exp))
    if isinstance(expr, divisions):
        return _infix(" // ", expr.args)
    if isinstance(expr, modulos):
        return _infix(" % ", expr.args)
    if isinstance(expr, minima):
        return _fold("min", expr.args)
    if isinstance(expr, maxima):
        return _fold("max", expr.args)
    raise GraphFallback(f"the size expression {expr} cannot be expressed in a Graph")


def _infix(operator: str, args: Any) -> str:
    return "(" + operator.join(print_expression(a) for a in args) + ")"


def _fold(function: str, args: Any) -> str:
    text = print_expression(args[0])
    for arg in args[1:]:
        text = f"{function}({text}, {print_expression(arg)})"
    return text


@lru_cache(maxsize=1)
def _function_classes() -> tuple[tuple, tuple, tuple, tuple]:
    return *torch_private.symbolic_functions(), *torch_private.symbolic_extrema()


def numel(shape: tuple[Dim, ...]) -> Dim:
    product: Dim = 1
    for d in shape:
        product = mul(product, d)
    return product


def mul(a: Dim, b: Dim) -> Dim:
    if isinstance(a, int) and isinstance(b, int):
        return a * b
    if a == 1:
        return b
    if b == 1:
        return a
    return f"({a} * {b})"


def add(a: Dim, b: Dim) -> Dim:
    if isinstance(a, int) and isinstance(b, int):
        return a + b
    if a == 0:
        return b
    if b == 0:
        return a
    return f"({a} + {b})"


def sub(a: Dim, b: Dim) -> Dim:
    if isinstance(a, int) and isinstance(b, int):
        return a - b
    if b == 0:
        return a
    if a == b:
        return 0
    return f"({a} - {b})"


def offset_in_elements(tensor: torch.Tensor, dtype: torch.dtype) -> int | torch.SymInt:
    """The tensor's storage offset in elements of that type."""
    return tensor.storage_offset() * tensor.dtype.itemsize // dtype.itemsize


def contiguous_strides(shape: tuple[Dim, ...]) -> tuple[Dim, ...]:
    strides: list[Dim] = []
    step: Dim = 1
    for d in reversed(shape):
        strides.append(step)
        step = mul(step, max(d, 1) if isinstance(d, int) else d)
    return tuple(reversed(strides))

"""Symbolic sizes and numbers: their expressions, bounds, hints and guards."""

from __future__ import annotations

import contextlib
import math
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any
from unittest import mock

import torch


def size_hint(size: torch.SymInt | torch.SymFloat, expr: Any) -> int:
    """The value of `expr` in the example inputs, or a guess if it depends on data. `size`: any size of the same
    tracing."""
    return int(size.node.shape_env.optimization_hint(expr, fallback=64))


def lower_bound(size: torch.SymInt, expr: Any) -> int:
    """A lower bound of `expr`; -2^63 if nothing is known. `size`: any size of the same tracing."""
    low = size.node.shape_env.bound_sympy(expr).lower
    return int(low) if low.is_Integer else -(2**63)


def bounds(number: torch.SymInt | torch.SymFloat) -> tuple[float, float]:
    """The minimum and maximum of a symbolic number."""
    if isinstance(number, torch.SymFloat):
        return -sys.float_info.max, sys.float_info.max
    found = number.node.shape_env.bound_sympy(number.node.expr)
    low, high = found.lower, found.upper
    return int(low) if low.is_Integer else -(2**63), int(high) if high.is_Integer else 2**63 - 1


def known_factors(size: torch.SymInt) -> dict[Any, int]:
    """Symbol -> a number that divides it according to the guards: after `view(n // 7, 7)`, n is a multiple of 7.
    `size`: any size of the tracing."""
    import sympy
    from torch.utils._sympy.functions import FloorDiv, Mod

    facts = [guard.expr for guard in size.node.shape_env.guards if isinstance(guard.expr, sympy.Eq)]
    multiples = {side.args for fact in facts for side in fact.args if isinstance(side, Mod) and 0 in fact.args}
    factors: dict[Any, int] = {}

    def add(n: Any, k: Any) -> None:
        if n.is_Symbol and k.is_Integer and k > 1:
            factors[n] = math.lcm(factors.get(n, 1), int(k))

    for n, k in multiples:
        add(n, k)
    for fact in facts:
        for a, b in (fact.args, fact.args[::-1]):
            if not isinstance(a, FloorDiv):
                continue
            n, k = a.args
            if isinstance(k, FloorDiv) and (n, k) in multiples and k.args == (n, b):
                add(n, b)  # n // (n // b) == b and n // b divides n
            if isinstance(b, FloorDiv) and b.args == (n + k - 1, k):
                add(n, k)  # n / k rounded up and down are equal
    return factors


def positive_symbol(name: str) -> Any:
    import sympy

    return sympy.Symbol(name, integer=True, positive=True)


def data_dependent_symbols(value: Any) -> set:
    """Unbacked symbols in a traced value: numbers that depend on data, such as the number of non-zeros."""
    from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols

    return set(free_unbacked_symbols(value)) if value is not None else set()


def symbols_in(value: Any) -> dict[Any, torch.SymInt | torch.SymFloat]:
    """The symbols of a traced value's sizes and strides, or of a traced number, each as a SymInt or SymFloat."""
    from torch.utils._sympy.symbol import SymT, symbol_is_type

    numbers = [*value.shape, *value.stride()] if isinstance(value, torch.Tensor) else [value]
    found = {}
    for number in numbers:
        if isinstance(number, (torch.SymInt, torch.SymFloat, torch.SymBool)):
            environment = number.node.shape_env
            for symbol in number.node.expr.free_symbols:
                is_float = symbol_is_type(symbol, (SymT.FLOAT, SymT.UNBACKED_FLOAT))
                make = environment.create_symfloatnode if is_float else environment.create_symintnode
                found[symbol] = make(symbol, hint=None)
    return found


def symbol_of(number: Any) -> Any:
    """The symbol whose value a traced number is, or None. item() of a boolean tensor is traced as symbol == 1."""
    import sympy

    expr = number.node.expr
    if isinstance(expr, sympy.Eq) and expr.args[1] == 1:
        expr = expr.args[0]
    return expr if expr.is_Symbol else None


def relations_of_sizes(program: torch.export.ExportedProgram) -> list[tuple[str, Any]]:
    """Guards of an exported program that relate several sizes. Neither the program nor its ranges check them. Each is
    returned as text and as an integer expression that must be >= 0."""
    import sympy

    sizes = [s for n in program.graph.nodes if n.op == "placeholder" for s in getattr(n.meta.get("val"), "shape", ())]
    environments = [s.node.shape_env for s in sizes if isinstance(s, torch.SymInt)]
    found: dict[tuple[str, Any], None] = {}  # an ordered set
    for guard in environments[0].guards if environments else ():
        expr = guard.expr
        if len(expr.free_symbols) < 2:
            continue
        if isinstance(expr, (sympy.Le, sympy.Lt)):
            found[str(expr), expr.rhs - expr.lhs - int(isinstance(expr, sympy.Lt))] = None
        elif isinstance(expr, (sympy.Ge, sympy.Gt)):
            found[str(expr), expr.lhs - expr.rhs - int(isinstance(expr, sympy.Gt))] = None
        elif isinstance(expr, sympy.Eq):
            for difference in (expr.lhs - expr.rhs, expr.rhs - expr.lhs):
                found[f"{expr.lhs} == {expr.rhs}", difference] = None
    return list(found)


def is_known(condition: bool | torch.SymBool) -> bool:
    """Whether the condition is known to hold for all sizes. Adds no guard."""
    from torch.fx.experimental.symbolic_shapes import statically_known_true

    return statically_known_true(condition)


def guard_equal(m: int | torch.SymInt, n: int | torch.SymInt) -> bool:
    """Adds a guard that two sizes are equal. False if they differed in tracing, or if it is too late to add guards."""
    equal = m == n
    if isinstance(equal, bool) or equal.node.shape_env.frozen or not equal.node.has_hint():
        return False
    environment = equal.node.shape_env
    return equal.node.hint and bool(type(environment).evaluate_sym_node(environment, equal.node))


@contextlib.contextmanager
def no_guards(values: Iterable[Any], refuse: Callable[[Any], Exception]) -> Iterator[None]:
    """Inside the context, evaluating a symbolic number raises `refuse(expression)` unless its value is the same for all
    values of the symbols. PyTorch would add a guard instead. `values`: values of the tracing."""
    numbers = (n for v in values for n in ([*v.shape, *v.stride()] if isinstance(v, torch.Tensor) else [v]))
    symbolic = (n for n in numbers if isinstance(n, (torch.SymInt, torch.SymFloat, torch.SymBool)))
    environment = next((n.node.shape_env for n in symbolic if n.node.shape_env is not None), None)
    if environment is None:
        yield
        return

    def evaluate(node: Any, size_oblivious: bool = False, fallback_value: bool | None = None) -> Any:
        known = environment._maybe_evaluate_static(node.expr)
        if known is not None:
            return known
        if fallback_value is not None:
            return fallback_value
        raise refuse(node.expr)

    with mock.patch.object(environment, "evaluate_sym_node", evaluate):
        yield


def expression(number: int | torch.SymInt) -> Any:
    """A traced integer as a sympy expression."""
    import sympy

    return number.node.expr if isinstance(number, torch.SymInt) else sympy.Integer(number)


def positive(number: int | torch.SymInt) -> int | torch.SymInt:
    """max(number, 0)."""
    return torch.sym_max(number, 0) if isinstance(number, torch.SymInt) else max(number, 0)


def same_count(a: Sequence[int | torch.SymInt], b: Sequence[int | torch.SymInt]) -> bool:
    """Whether two traced shapes are known to have the same number of elements. Adds no guard."""
    return is_known(math.prod(a) == math.prod(b))


def convolution_shape(x: torch.Tensor, weight: torch.Tensor, *settings: Any) -> list[int | torch.SymInt]:
    """The shape of a convolution's result. settings: stride, padding, dilation, transposed, groups, output_padding
    (None unless transposed)."""
    from torch._meta_registrations import calc_conv_nd_return_shape

    return calc_conv_nd_return_shape(x, weight, *settings)


def without_empty_case(stride: torch.SymInt) -> torch.SymInt:
    """A stride with each max(1, s) replaced by s."""
    expr = stride.node.expr
    maxima = [m for m in expr.atoms(*symbolic_extrema()[1]) if len(m.args) == 2 and 1 in m.args]
    if not maxima:
        return stride
    plain = expr.subs({m: next(a for a in m.args if a != 1) for m in maxima})
    return stride.node.shape_env.create_symintnode(plain, hint=None)


def symbolic_function(expr: Any, parameters: Sequence[Any]) -> Callable:
    """A Python function of the symbols in `parameters` that computes a sympy expression over them."""
    import sympy
    from torch.utils._sympy.printers import PythonPrinter

    names = {symbol: sympy.Symbol(f"p{i}") for i, symbol in enumerate(parameters)}
    text = PythonPrinter().doprint(expr.xreplace(names))
    return eval(f"lambda {', '.join(map(str, names.values()))}: {text}", {"math": math, "torch": torch})


def symbolic_functions() -> tuple[tuple, tuple]:
    """The sympy function classes for floor division and for Python's modulo."""
    from torch.utils._sympy import functions

    divisions = (functions.FloorDiv, functions.CleanDiv)
    modulos = (functions.Mod, functions.PythonMod)
    return divisions, modulos


def symbolic_extrema() -> tuple[tuple, tuple]:
    """The sympy function classes for minimum and maximum."""
    import sympy
    from torch.utils._sympy import functions

    return (sympy.Min, functions.Min), (sympy.Max, functions.Max)

"""Formulas of the _foreach ops, which optimizers use: the op is applied to each tensor of the list."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .registry import Tensor, aten, formula

_FOREACH_OPS = (
    "abs", "acos", "add", "addcdiv", "addcmul", "asin", "atan", "ceil", "clamp_max", "clamp_min", "cos", "cosh", "div",
    "erf", "erfc", "exp", "expm1", "floor", "frac", "lerp", "lgamma", "log", "log10", "log1p", "log2", "max", "maximum",
    "minimum", "mul", "neg", "norm", "pow", "reciprocal", "round", "rsqrt", "sigmoid", "sign", "sin", "sinh", "sqrt",
    "sub", "tan", "tanh", "trunc",
)  # fmt: skip


_BASES = {
    "_foreach_maximum.Scalar": aten.clamp_min,
    "_foreach_maximum.ScalarList": aten.clamp_min,
    "_foreach_minimum.Scalar": aten.clamp_max,
    "_foreach_minimum.ScalarList": aten.clamp_max,
    "_foreach_norm.Scalar": lambda x, ord, dtype=None: aten.linalg_vector_norm(x, ord, dtype=dtype),
}


_BY_NAME = ("alpha", "value", "dtype")  # arguments that ATen's op on one tensor takes by name only


def _for_each(op: Any, base: Callable) -> Callable:
    arguments = op._schema.arguments
    defaults = {a.name: a.default_value for a in arguments if a.has_default_value()}
    names = [a.name for a in arguments]
    lists = {a.name for a in arguments if str(a.type).startswith("List")}
    # A list argument has the plural name: "scalars" for "value".
    by_name = [n for n in names if n in _BY_NAME or (n == "scalars" and base in (aten.addcmul, aten.addcdiv))]

    def decomposed(*args: Any, **kwargs: Any) -> list[Tensor]:
        given = {**defaults, **dict(zip(names, args, strict=False)), **kwargs}
        count = next(len(given[name]) for name in names if name in lists)
        result = []
        for i in range(count):
            each = {name: value[i] if name in lists else value for name, value in given.items()}
            keywords = {"value" if n == "scalars" else n: each[n] for n in by_name}
            result.append(base(*(each[n] for n in names if n not in by_name), **keywords))
        return result

    return decomposed


for _name in _FOREACH_OPS:
    _packet = getattr(aten, f"_foreach_{_name}")
    for _overload in _packet.overloads():
        _op = getattr(_packet, _overload)
        # Skip overloads with a tensor of numbers, one for each tensor of the list.
        if "out" in _overload or any(a.name == "scalars" and str(a.type) == "Tensor" for a in _op._schema.arguments):
            continue
        formula(_op)(_for_each(_op, _BASES.get(f"_foreach_{_name}.{_overload}", getattr(aten, _name))))

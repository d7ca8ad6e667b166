"""Which rule imports an ATen op: a rule written here or in the ops_* files, else the row of an op table.

A rule is a function (importer, node, *args) that emits Graph nodes and returns their values; it raises Unsupported for
what it cannot express, and the op becomes Extern.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from types import SimpleNamespace
from typing import Any

import torch

from ... import _C
from ...errors import Unsupported
from ..graph_writer import GraphWriter
from ..sizes import Dim
from ..values import Ref, opmath
from .registry import Rule


@lru_cache(maxsize=1)
def row_tables() -> tuple[dict[str, Any], dict[str, Any]]:
    """ATen name -> row, for pointwise ops and for reductions."""
    pointwise = {aten: row for row in _rows_by_name().values() for aten in row.aten.split()}
    reductions = {row["aten"]: SimpleNamespace(**row) for row in _C.reduction_rows()}
    return pointwise, {aten: row for names, row in reductions.items() for aten in names.split()}


_NUMBER_TYPES = ("number", "float", "int", "bool", "SymInt")


def pointwise_rule(target: Any, row: Any) -> Rule | None:
    """Rows whose operands are the op's arguments in order; anything else needs a rule of its own."""
    arguments = target._schema.arguments
    kinds = [_argument_kind(a) for a in arguments]
    if None in kinds or len(arguments) != row.arity:
        return None
    names = [a.name for a in arguments]
    defaults = [a.default_value if a.has_default_value() else None for a in arguments]

    def import_row(im: GraphWriter, node: Any, *args: Any, **kwargs: Any) -> Ref:
        operands = list(args)
        for i in range(len(operands), len(names)):
            operands.append(kwargs.get(names[i], defaults[i]))
        return pointwise(im, node, row, operands)

    return import_row


def _argument_kind(argument: Any) -> str | None:
    kind = str(argument.type)
    if kind == "Tensor":
        return "tensor"
    return "number" if kind in _NUMBER_TYPES else None


def row_named(name: str) -> Any:
    return _rows_by_name()[name]


@lru_cache(maxsize=1)
def _rows_by_name() -> dict[str, Any]:
    return {row["name"]: SimpleNamespace(**row) for row in _C.pointwise_rows()}


def pointwise(im: GraphWriter, node: Any, row: Any, operands: list[Any]) -> Ref:
    """Emits a row over tensors and numbers: operands cast to the compute type, broadcast to the result's shape."""
    shape = im.shape_of(node)
    return pointwise_as(im, row, operands, shape)


def emit_row(im: GraphWriter, name: str, shape: Sequence[Dim], *operands: Any) -> Ref:
    """The row of that name over tensors and numbers, broadcast to `shape`."""
    return pointwise_as(im, row_named(name), list(operands), tuple(shape))


def pointwise_as(im: GraphWriter, row: Any, operands: list[Any], shape: tuple) -> Ref:
    if row.name == "where":
        condition = im.cast(operands[0], torch.bool)
        promoted = promote(operands[1:])
        refs = [condition, *(_operand(im, o, promoted, row) for o in operands[1:])]
        return im.pointwise_node("where", refs, promoted, shape)
    promoted = promote(operands)
    if row.promotion == "int_to_float" and not promoted.is_floating_point:
        promoted = torch.get_default_dtype()
    if not accepts(row, promoted):
        raise Unsupported(f"pointwise.{row.name} has no {promoted} form")
    converted, of_arithmetic = _CONVERTED.get(row.name, ((), False))
    for position in converted:
        im.require_fit(operands[position], opmath(promoted) if of_arithmetic else promoted)
    result = torch.bool if row.promotion == "always_bool" else promoted
    refs = [_operand(im, o, promoted, row) for o in operands]
    if row.name in _UNROUNDED_FACTOR and isinstance(operands[1], Ref) and not operands[1].shape:
        refs[1] = im.cast(operands[1], opmath(promoted))
    return im.pointwise_node(row.name, refs, result, shape)


# Operands that eager converts, where they are numbers, to the type of the tensors or that of their arithmetic, and
# refuses where they do not fit; other numbers it reduces to the type's bits.
_CONVERTED = {
    "add_scaled": ((2,), False), "sub_scaled": ((2,), False), "pow": ((1,), False), "clamp": ((1, 2), False),
    "clamp_min": ((1,), False), "clamp_max": ((1,), False), "hardtanh": ((1, 2), False),
    "threshold": ((1, 2), False), "addcmul": ((3,), True), "addcdiv": ((3,), True), "leaky_relu": ((1,), True),
    "elu": ((1, 2, 3), True), "softplus": ((1, 2), True), "lerp": ((2,), True),
}  # fmt: skip
# Rows by which eager multiplies or divides halves with a 0-d tensor as it is, not rounded to their type first.
_UNROUNDED_FACTOR = ("mul", "div", "div_trunc", "div_floor")


def accepts(row: Any, dtype: torch.dtype) -> bool:
    if dtype is torch.bool:
        return row.booleans
    return row.floats if dtype.is_floating_point else row.integers


def _operand(im: GraphWriter, operand: Any, promoted: torch.dtype, row: Any) -> Ref:
    """One operand in the compute type. A half tensor may meet fp32 ones: arithmetic is in fp32 either way; what eager
    rounds to the promoted type first, is rounded here too."""
    if isinstance(operand, Ref):
        if operand.dtype is promoted or opmath(operand.dtype) is promoted:
            return operand
        return im.cast(operand, promoted)
    if operand is None:
        raise Unsupported(f"pointwise.{row.name} needs all of its operands")
    number = im.scalar(operand, opmath(promoted))
    # Eager compares with a number of the tensors' type, and takes a remainder by one.
    rounds = row.promotion == "always_bool" or row.name in ("remainder", "fmod")
    return im.cast(im.cast(number, promoted), opmath(promoted)) if rounds else number


_CATEGORY_RANK = {torch.bool: 0}


def promote(operands: list[Any]) -> torch.dtype:
    """torch.result_type over values and Python numbers: dimensioned tensors outrank 0-d ones, which outrank numbers."""
    dimensioned = zero_dim = number = None
    for operand in operands:
        if isinstance(operand, Ref):
            if operand.shape:
                dimensioned = _join(dimensioned, operand.dtype)
            else:
                zero_dim = _join(zero_dim, operand.dtype)
        elif operand is not None:
            number = _join(number, _number_dtype(operand))
    result = _combine(dimensioned, _combine(zero_dim, number))
    if result is None:
        raise Unsupported("no operand to take a dtype from")
    return result


def _number_dtype(value: Any) -> torch.dtype:
    if isinstance(value, (bool, torch.SymBool)):
        return torch.bool
    if isinstance(value, (int, torch.SymInt)):
        return torch.int64
    if isinstance(value, (float, torch.SymFloat)):
        return torch.get_default_dtype()
    raise Unsupported(f"a {type(value).__name__} is not an operand")


def _join(a: torch.dtype | None, b: torch.dtype) -> torch.dtype:
    return b if a is None or a is b else torch.promote_types(a, b)


def _combine(high: torch.dtype | None, low: torch.dtype | None) -> torch.dtype | None:
    if high is None or low is None:
        return low if high is None else high
    if high.is_floating_point:
        return high
    if high is torch.bool or low.is_floating_point:
        return torch.promote_types(high, low)
    return high

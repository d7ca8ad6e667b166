"""Import rules made from rows of the pointwise table."""

from __future__ import annotations

from typing import Any

from ..graph_writer import GraphWriter
from ..values import Ref
from .registry import Rule

_NUMBER_TYPES = ("number", "float", "int", "bool", "SymInt")


def pointwise_rule(target: Any, row: Any) -> Rule | None:
    """The rule of a row whose operands are the op's arguments in order, or None: the op then needs its own rule."""
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
        return pointwise(im, node, row.name, *operands)

    return import_row


def _argument_kind(argument: Any) -> str | None:
    kind = str(argument.type)
    if kind == "Tensor":
        return "tensor"
    return "number" if kind in _NUMBER_TYPES else None


def pointwise(im: GraphWriter, node: Any, name: str, *operands: Any) -> Ref:
    """The named row over tensors and numbers, with the traced shape of the node."""
    return im.pointwise(name, *operands, shape=im.shape_of(node))

"""Finds the import rule of an ATen op: a rule of this package, or else a row of an op table.

A rule is a function (writer, node, *args) that writes Graph nodes and returns their values. It raises Unsupported where
it cannot express the op, which then becomes an Extern node.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from functools import cache
from typing import Any

from ... import torch_private
from ...errors import Unsupported
from ..graph_writer import GraphWriter
from ..op_tables import row_tables
from ..schema import named_arguments
from ..values import Ref
from . import arithmetic, bags, indexing, library, losses, norms, pointwise, pooling, softmax, sorting, views  # noqa: F401
from .reductions import reduction_rule
from .registry import RULES, Rule
from .rows import pointwise_rule


def native_names() -> set[str]:
    """ATen base names and overloads that have a rule or a row. They must not be decomposed."""
    return set(RULES).union(*row_tables())


@cache
def rule_for(target: Any) -> Rule | None:
    """The rule of an op, or None if it has none and becomes Extern."""
    if target is operator.getitem:
        return _getitem
    if not isinstance(target, torch_private.OpOverload):
        return None
    namespace, _, base = target._schema.name.partition("::")
    if namespace in ("prims", "_c10d_functional"):
        return RULES.get(f"{namespace}.{base}")
    if namespace != "aten":
        return None
    found = _aten_rule(target, base)
    return _requires_same_dtype(found, target, _SAME_DTYPE[base]) if found and base in _SAME_DTYPE else found


def _aten_rule(target: Any, base: str) -> Rule | None:
    overload = f"{base}.{target._overloadname}"
    pointwise_rows, reduction_rows = row_tables()
    for name in (overload, base):
        if name in RULES:
            return RULES[name]
        if name in reduction_rows:
            return reduction_rule(target, reduction_rows[name])
        if name in pointwise_rows:
            return pointwise_rule(target, pointwise_rows[name])
    return None


# Operands that must have the same dtype in ATen. Tracing does not check this.
_SAME_DTYPE = {
    "index_add": ("self", "source"), "index_copy": ("self", "source"), "index_reduce": ("self", "source"),
    "put": ("self", "source"), "index_put": ("self", "values"), "_unsafe_index_put": ("self", "values"),
    "heaviside": ("self", "values"), "addmm": ("self", "mat1"), "baddbmm": ("self", "batch1"),
    "_embedding_bag": ("weight", "per_sample_weights"), "_embedding_bag_forward_only": ("weight", "per_sample_weights"),
    "_softmax_backward_data": ("grad_output", "output"), "_log_softmax_backward_data": ("grad_output", "output"),
}  # fmt: skip


def _requires_same_dtype(rule: Rule, target: Any, names: Sequence[str]) -> Rule:
    """Wraps a rule: if these operands differ in dtype, the op becomes Extern, and ATen raises the error."""

    def import_one_type(im: GraphWriter, node: Any, *args: Any, **kwargs: Any) -> Any:
        given = named_arguments(target, args, kwargs)
        if len({given[name].dtype for name in names if isinstance(given[name], Ref)}) > 1:
            raise Unsupported(f"{names[0]} and {names[1]} of different types")
        return rule(im, node, *args, **kwargs)

    return import_one_type


def _getitem(im: GraphWriter, node: Any, values: Any, index: int) -> Any:
    return values[index]

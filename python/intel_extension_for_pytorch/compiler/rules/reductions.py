"""Import rules made from rows of the reduction and scan tables."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import torch

from ... import _C, torch_private
from ...errors import Unsupported
from .. import extern
from ..graph_writer import GraphWriter, reduced_shape
from ..op_tables import accepts, row_tables
from ..schema import named_arguments
from ..values import Ref, traced_count
from .registry import Rule, rule


def reduction_rule(target: Any, row: Any) -> Rule:
    integers_widen = row.name in ("sum", "prod")

    def import_reduction(im: GraphWriter, node: Any, *args: Any, **kwargs: Any) -> Any:
        given = named_arguments(target, args, kwargs)
        x = given["self"]
        dtype = given.get("dtype")
        if dtype is not None:
            x = x.to(dtype)
        elif integers_widen and not x.dtype.is_floating_point:
            x = x.to(torch.int64)
        taken = row
        if integers_widen and x.dtype is torch.bool:
            taken = row_tables()[1]["any" if row.name == "sum" else "all"]
        if not accepts(taken, x.dtype):
            raise Unsupported(f"reduce.{row.name} has no {x.dtype} form")
        return reduce(im, node, taken, x, given.get("dim"), given.get("keepdim", False))

    return import_reduction


def reduced(im: GraphWriter, x: Ref, dim: Any, keepdim: bool) -> tuple[Ref, list[int], bool]:
    """Operand, axes and keepdim of a reduction over `dim` (None or empty: all dimensions). A 0-d value becomes a vector
    of one element, whose dimension is not kept."""
    rank = len(x.shape)
    if rank == 0:
        return x.reshape((1,)), [0], False
    dims = [dim] if isinstance(dim, int) else list(dim or range(rank))
    return x, sorted({d % rank for d in dims}), keepdim


def reduce(im: GraphWriter, node: Any, row: Any, x: Ref, dim: Any, keepdim: bool) -> Any:
    """Emits a reduction of x over `dim` (None or empty: all dimensions)."""
    x, axes, keepdim = reduced(im, x, dim, keepdim)
    if row.name in ("max_with_index", "min_with_index") and any(x.shape[d] == 0 for d in axes):
        raise Unsupported(f"{node.target} of no elements")
    shape = reduced_shape(x, axes, keepdim)
    attrs: dict[str, Any] = {"axes": axes, "keepdim": keepdim}
    value = node.meta["val"]
    if row.results == 1:
        return im.emit("reduce", row.name, [x], _reduced_dtype(row, x, value.dtype), shape, **attrs)
    types = [(v.dtype, shape) for v in value]
    return im.emit_many("reduce", row.name, [x], types, **attrs)


def _reduced_dtype(row: Any, x: Ref, traced: torch.dtype) -> torch.dtype:
    if row.name in ("argmax", "argmin"):
        return torch.int64
    if row.promotion == "always_bool":
        return torch.bool if x.dtype is not torch.uint8 else traced
    return x.dtype


@rule("max.default", "min.default")
def _max_of_all(im: GraphWriter, node: Any, x: Ref) -> Ref:
    op = node.target._schema.name[6:]
    name = "amax" if op == "max" else "amin"
    hint = "Specify the reduction dim with the 'dim' argument."
    require_elements(
        im, node, traced_count(node.args[0]),
        f"{op}(): Expected reduction dim to be specified for input.numel() == 0. {hint}",
    )  # fmt: skip
    return im.reduce(name, x)


def require_elements(im: GraphWriter, node: Any, count: Any, message: str) -> None:
    """Raises eager's error where a reduction without a neutral element has no elements."""
    if torch_private.is_known(count > 0):
        return
    if isinstance(count, int):
        raise Unsupported(f"{node.target} of no elements")
    extern.check(im, im.pointwise("gt", im.size(im.symbols.dim(count)), 0), message)


def _scan_rule(row: Any) -> Rule:
    """The rule of a row of the scan table. Sums and products of integers are int64."""

    def import_scan(im: GraphWriter, node: Any, x: Ref, dim: int, dtype: Any = None) -> Any:
        if dtype is None and row.promotion == "default" and not x.dtype.is_floating_point:
            dtype = torch.int64
        if dtype is not None:
            x = x.to(dtype)
        if not accepts(row, x.dtype):
            raise Unsupported(f"scan.{row.name} has no {x.dtype} form")
        rows = x if x.shape else x.reshape((1,))
        types = [(x.dtype, rows.shape), (torch.int64, rows.shape)][: row.results]
        results = im.emit_many("scan", row.name, [rows], types, axis=dim % len(rows.shape))
        results = [r.reshape(x.shape) for r in results]
        return results if row.results > 1 else results[0]

    return import_scan


for _row in _C.scan_rows():
    rule(*_row["aten"].split())(_scan_rule(SimpleNamespace(**_row)))

"""Import rules of what orders a dimension or searches in one that is ordered: values and indices of graph op Sort."""

from __future__ import annotations

from typing import Any

import torch

from ... import torch_private
from ...errors import Unsupported
from ..graph_writer import GraphWriter
from ..sizes import Dim, numel
from ..values import Ref
from .reductions import reduce
from .registry import rule
from .rows import promote, row_tables

# Of so many elements and more ATen selects one by a heap, which keeps the first of equal ones, as max does; in shorter
# rows it may be any of them (kernels/sort_row.h).
_HEAP_SHARE = 64


def _is_half(x: Ref) -> bool:
    """A kernel does not round what it computes of such a type on the way, and of rounded numbers more are equal."""
    return x.dtype in (torch.float16, torch.bfloat16)


def _sort(
    im: GraphWriter, kind: str, x: Ref, dim: int, extent: Dim | None = None, *,
    descending: bool = False, ordered: bool = True, **k: Dim,
) -> list[Ref]:  # fmt: skip
    """Values and indices; `extent` of them along dim, all if None. A 0-d x is a row of one."""
    rows = x if x.shape else im.reshape(x, (1,))
    axis = dim % len(rows.shape)
    shape = rows.shape if extent is None else rows.shape[:axis] + (extent,) + rows.shape[axis + 1 :]
    types = [(x.dtype, shape), (torch.int64, shape)]
    results = im.emit_many("sort", kind, [rows], types, axis=axis, descending=descending, ordered=ordered, **k)
    return results if x.shape else [im.reshape(r, ()) if r.shape == (1,) else r for r in results]


def _pick(im: GraphWriter, kind: str, x: Ref, dim: int, keepdim: bool, **k: Dim) -> list[Ref]:
    """One element of each row, and where it is."""
    if x.shape and x.shape[dim] == 0:
        raise Unsupported(f"{kind} of no elements")
    results = _sort(im, kind, x, dim, 1, **k)
    if keepdim or not x.shape:
        return results
    dim %= len(x.shape)
    return [im.reshape(r, x.shape[:dim] + x.shape[dim + 1 :]) for r in results]


@rule("sort.default")
def _sort_default(im: GraphWriter, node: Any, x: Ref, dim: int = -1, descending: bool = False) -> list[Ref]:
    return _sort(im, "all", x, dim, descending=descending, ordered=False)


@rule("sort.stable")
def _sort_stable(
    im: GraphWriter, node: Any, x: Ref, *, stable: bool | None = None, dim: int = -1, descending: bool = False
) -> list[Ref]:
    return _sort(im, "all", x, dim, descending=descending, ordered=bool(stable))


@rule("topk")
def _topk(im: GraphWriter, node: Any, x: Ref, k: Any, dim: int = -1, largest: bool = True, sorted: bool = True) -> Any:
    if not x.shape:
        k = 1
    elif (
        torch_private.is_known(k == 1)
        and largest
        and isinstance(x.shape[dim], int)
        and x.shape[dim] >= _HEAP_SHARE
        and not _is_half(x)
    ):
        return reduce(im, node, row_tables()[1]["max.dim"], x, dim, True)
    return _sort(im, "top", x, dim, im.symbols.dim(k), descending=largest, ordered=sorted)


@rule("kthvalue")
def _kthvalue(im: GraphWriter, node: Any, x: Ref, k: Any, dim: int = -1, keepdim: bool = False) -> list[Ref]:
    return _pick(im, "kth", x, dim, keepdim, k=im.symbols.dim(k - 1))


@rule("median.dim", "nanmedian.dim", "mode")
def _pick_along(im: GraphWriter, node: Any, x: Ref, dim: int = -1, keepdim: bool = False) -> list[Ref]:
    return _pick(im, node.target._schema.name[6:], x, dim, keepdim)


@rule("median.default", "nanmedian.default")
def _median_of_all(im: GraphWriter, node: Any, x: Ref) -> Ref:
    flat = im.reshape(x, (numel(x.shape),))
    return _pick(im, node.target._schema.name[6:], flat, 0, False)[0]


@rule("searchsorted.Tensor", "searchsorted.Scalar")
def _searchsorted(
    im: GraphWriter, node: Any, boundaries: Ref, values: Any, *, out_int32: bool = False, right: bool = False,
    side: str | None = None, sorter: Ref | None = None,
) -> Ref:  # fmt: skip
    right = right or side == "right"
    if not isinstance(values, Ref):
        values = im.scalar(values, promote([boundaries, values]))
    if values.dtype is not boundaries.dtype:
        common = promote([boundaries, values])
        boundaries, values = im.cast(boundaries, common), im.cast(values, common)
    dtype = torch.int32 if out_int32 else torch.int64
    if sorter is not None:
        return im.emit("search", "", [boundaries, values, sorter], dtype, values.shape, right=right)
    return search(im, boundaries, values, dtype, right=right)


def search(im: GraphWriter, boundaries: Ref, values: Ref, dtype: torch.dtype, *, right: bool) -> Ref:
    """How many elements of its sorted row come before each value; with `right`, those equal to it too."""
    length = boundaries.shape[0] if len(boundaries.shape) == 1 else 0
    if isinstance(length, int) and 0 < length < 2**31 and not _is_half(values):
        return im.cast(_search_in_one_row(im, boundaries, length, values, right), dtype)
    return im.emit("search", "", [boundaries, values], dtype, values.shape, right=right)


def _search_in_one_row(im: GraphWriter, row: Ref, size: int, values: Ref, right: bool) -> Ref:
    """How many elements of the row come before each value. ATen's binary search, NaN in the row included, which is in
    no order and sends it to the right: the same probes, without branches, so that a kernel searches for a vector of
    values at once. What is left of the row when a step begins has one of two lengths, `least` and `most`."""
    shape = values.shape

    def number(value: int) -> Ref:
        return im.expand(im.scalar(value, torch.int32), shape)

    def op(name: str, *operands: Ref, dtype: torch.dtype = torch.int32) -> Ref:
        return im.pointwise_node(name, operands, dtype, shape)

    start, length, least, most = number(0), number(size), size, size
    while most > 0:
        half = op("bitwise_right_shift", length, number(1))
        middle = op("add", start, half)
        # Within the row while there is something left of it, which prove_indices has to be shown.
        probe = op("maximum", op("minimum", middle, number(size - 1)), number(0))
        key = im.emit("gather", "", [row, im.cast(probe, torch.int64)], row.dtype, shape, map=[-1])
        found = op("gt" if right else "ge", key, values, dtype=torch.bool)
        goes_on = op("logical_not", found, dtype=torch.bool)
        if least == 0:
            goes_on = op("logical_and", goes_on, op("gt", length, number(0), dtype=torch.bool), dtype=torch.bool)
        start = op("where", goes_on, op("add", middle, number(1)), start)
        length = op("where", goes_on, op("sub", op("sub", length, half), number(1)), half)
        least, most = max(0, (least - 1) // 2), most // 2
    return start


@rule("bucketize.Tensor", "bucketize.Scalar")
def _bucketize(
    im: GraphWriter, node: Any, values: Any, boundaries: Ref, *, out_int32: bool = False, right: bool = False
) -> Ref:
    return _searchsorted(im, node, boundaries, values, out_int32=out_int32, right=right)

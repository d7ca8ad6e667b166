"""Import rules of sort, topk, kthvalue, median, mode and searchsorted, by the graph ops Sort and Search."""

from __future__ import annotations

from typing import Any

import torch

from ... import torch_private
from ...errors import Unsupported
from ..graph_writer import GraphWriter
from ..op_tables import row_tables
from ..promotion import promote
from ..sizes import Dim, numel
from ..values import Ref
from .reductions import reduce
from .registry import rule

# For top-1 of this many elements or more, ATen uses a heap, which returns the first of equal elements, as max does. In
# shorter rows it may return any of them (kernels/sort_row.h).
_MIN_HEAP_LENGTH = 64


def _is_half(x: Ref) -> bool:
    """Whether x is fp16 or bf16. Kernels do not round intermediate values of these types, but rounding would make more
    of them equal."""
    return x.dtype in (torch.float16, torch.bfloat16)


def _sort(
    im: GraphWriter, kind: str, x: Ref, dim: int, extent: Dim | None = None, *,
    descending: bool = False, ordered: bool = True, **k: Dim,
) -> list[Ref]:  # fmt: skip
    """Values and indices, `extent` of them along dim (None: all). A 0-d x is treated as a vector of one element."""
    rows = x if x.shape else x.reshape((1,))
    axis = dim % len(rows.shape)
    shape = rows.shape if extent is None else rows.shape[:axis] + (extent,) + rows.shape[axis + 1 :]
    types = [(x.dtype, shape), (torch.int64, shape)]
    results = im.emit_many("sort", kind, [rows], types, axis=axis, descending=descending, ordered=ordered, **k)
    return results if x.shape else [r.reshape(()) if r.shape == (1,) else r for r in results]


def _select_one(im: GraphWriter, kind: str, x: Ref, dim: int, keepdim: bool, **k: Dim) -> list[Ref]:
    """One element of each row, and its index."""
    if x.shape and x.shape[dim] == 0:
        raise Unsupported(f"{kind} of no elements")
    results = _sort(im, kind, x, dim, 1, **k)
    if keepdim or not x.shape:
        return results
    dim %= len(x.shape)
    return [r.reshape(x.shape[:dim] + x.shape[dim + 1 :]) for r in results]


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
        and x.shape[dim] >= _MIN_HEAP_LENGTH
        and not _is_half(x)
    ):
        return reduce(im, node, row_tables()[1]["max.dim"], x, dim, True)
    return _sort(im, "top", x, dim, im.symbols.dim(k), descending=largest, ordered=sorted)


@rule("kthvalue")
def _kthvalue(im: GraphWriter, node: Any, x: Ref, k: Any, dim: int = -1, keepdim: bool = False) -> list[Ref]:
    return _select_one(im, "kth", x, dim, keepdim, k=im.symbols.dim(k - 1))


@rule("median.dim", "nanmedian.dim", "mode")
def _select_along(im: GraphWriter, node: Any, x: Ref, dim: int = -1, keepdim: bool = False) -> list[Ref]:
    return _select_one(im, node.target._schema.name[6:], x, dim, keepdim)


@rule("median.default", "nanmedian.default")
def _median_of_all(im: GraphWriter, node: Any, x: Ref) -> Ref:
    flat = x.reshape((numel(x.shape),))
    return _select_one(im, node.target._schema.name[6:], flat, 0, False)[0]


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
        boundaries, values = boundaries.to(common), values.to(common)
    dtype = torch.int32 if out_int32 else torch.int64
    if sorter is not None:
        return im.emit("search", "", [boundaries, values, sorter], dtype, values.shape, right=right)
    return search(im, boundaries, values, dtype, right=right)


def search(im: GraphWriter, boundaries: Ref, values: Ref, dtype: torch.dtype, *, right: bool) -> Ref:
    """The insertion point of each value in its sorted row; with `right`, behind equal elements."""
    length = boundaries.shape[0] if len(boundaries.shape) == 1 else 0
    if isinstance(length, int) and 0 < length < 2**31 and not _is_half(values):
        return _search_in_one_row(im, boundaries, length, values, right).to(dtype)
    return im.emit("search", "", [boundaries, values], dtype, values.shape, right=right)


def _search_in_one_row(im: GraphWriter, row: Ref, size: int, values: Ref, right: bool) -> Ref:
    """search() in a single row, as branch-free pointwise ops, so that a kernel searches for a vector of values at once.
    It makes the same probes as ATen's binary search, so it agrees with it if the row contains NaN, which compares
    false. Before each step the rest of the row has one of two lengths, `shorter` and `longer`."""
    shape = values.shape

    def number(value: int) -> Ref:
        return im.scalar(value, torch.int32).expand(shape)

    start, length, shorter, longer = number(0), number(size), size, size
    while longer > 0:
        half = im.pointwise("bitwise_right_shift", length, number(1))
        middle = start + half
        # The middle is within the row while the rest is not empty. The clamps show that to bounds-check elimination.
        probe = im.pointwise("maximum", im.pointwise("minimum", middle, number(size - 1)), number(0))
        key = im.gather(row, [probe.to(torch.int64)], map=[-1])
        found = im.pointwise("gt" if right else "ge", key, values)
        goes_on = im.pointwise("logical_not", found)
        if shorter == 0:
            goes_on = im.pointwise("logical_and", goes_on, im.pointwise("gt", length, number(0)))
        start = im.where(goes_on, middle + number(1), start)
        length = im.where(goes_on, length - half - number(1), half)
        shorter, longer = max(0, (shorter - 1) // 2), longer // 2
    return start


@rule("bucketize.Tensor", "bucketize.Scalar")
def _bucketize(
    im: GraphWriter, node: Any, values: Any, boundaries: Ref, *, out_int32: bool = False, right: bool = False
) -> Ref:
    return _searchsorted(im, node, boundaries, values, out_int32=out_int32, right=right)

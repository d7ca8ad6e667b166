"""Import rules of what orders a dimension or searches in one that is ordered: values and indices of graph op Sort."""

from __future__ import annotations

from typing import Any

import torch

from .errors import Unsupported
from .importer import Importer, Ref
from .ops import promote, rule
from .sizes import Dim, numel


def _sort(
    im: Importer, kind: str, x: Ref, dim: int, extent: Dim | None = None, *,
    descending: bool = False, ordered: bool = True, **k: Dim,
) -> list[Ref]:  # fmt: skip
    """Values and indices; `extent` of them along dim, all if None. A 0-d x is a row of one."""
    rows = x if x.shape else im.reshape(x, (1,))
    axis = dim % len(rows.shape)
    shape = rows.shape if extent is None else rows.shape[:axis] + (extent,) + rows.shape[axis + 1 :]
    types = [(x.dtype, shape), (torch.int64, shape)]
    results = im.emit_many("sort", kind, [rows], types, axis=axis, descending=descending, ordered=ordered, **k)
    return results if x.shape else [im.reshape(r, ()) if r.shape == (1,) else r for r in results]


def _pick(im: Importer, kind: str, x: Ref, dim: int, keepdim: bool, **k: Dim) -> list[Ref]:
    """One element of each row, and where it is."""
    if x.shape and x.shape[dim] == 0:
        raise Unsupported(f"{kind} of no elements")
    results = _sort(im, kind, x, dim, 1, **k)
    if keepdim or not x.shape:
        return results
    dim %= len(x.shape)
    return [im.reshape(r, x.shape[:dim] + x.shape[dim + 1 :]) for r in results]


@rule("sort.default")
def _sort_default(im: Importer, node: Any, x: Ref, dim: int = -1, descending: bool = False) -> list[Ref]:
    return _sort(im, "all", x, dim, descending=descending, ordered=False)


@rule("sort.stable")
def _sort_stable(
    im: Importer, node: Any, x: Ref, *, stable: bool | None = None, dim: int = -1, descending: bool = False
) -> list[Ref]:
    return _sort(im, "all", x, dim, descending=descending, ordered=bool(stable))


@rule("topk")
def _topk(im: Importer, node: Any, x: Ref, k: Any, dim: int = -1, largest: bool = True, sorted: bool = True) -> Any:
    if not x.shape:
        k = 1
    return _sort(im, "top", x, dim, im.symbols.dim(k), descending=largest, ordered=sorted)


@rule("kthvalue")
def _kthvalue(im: Importer, node: Any, x: Ref, k: Any, dim: int = -1, keepdim: bool = False) -> list[Ref]:
    return _pick(im, "kth", x, dim, keepdim, k=im.symbols.dim(k - 1))


@rule("median.dim", "nanmedian.dim", "mode")
def _pick_along(im: Importer, node: Any, x: Ref, dim: int = -1, keepdim: bool = False) -> list[Ref]:
    return _pick(im, node.target._schema.name[6:], x, dim, keepdim)


@rule("median.default", "nanmedian.default")
def _median_of_all(im: Importer, node: Any, x: Ref) -> Ref:
    flat = im.reshape(x, (numel(x.shape),))
    return _pick(im, node.target._schema.name[6:], flat, 0, False)[0]


@rule("searchsorted.Tensor", "searchsorted.Scalar")
def _searchsorted(
    im: Importer, node: Any, boundaries: Ref, values: Any, *, out_int32: bool = False, right: bool = False,
    side: str | None = None, sorter: Ref | None = None,
) -> Ref:  # fmt: skip
    right = right or side == "right"
    if not isinstance(values, Ref):
        values = im.scalar(values, boundaries.dtype)
    if values.dtype is not boundaries.dtype:
        common = promote([boundaries, values])
        boundaries, values = im.cast(boundaries, common), im.cast(values, common)
    operands = [boundaries, values] + ([sorter] if sorter is not None else [])
    dtype = torch.int32 if out_int32 else torch.int64
    return im.emit("search", "", operands, dtype, values.shape, right=right)


@rule("bucketize.Tensor", "bucketize.Scalar")
def _bucketize(
    im: Importer, node: Any, values: Any, boundaries: Ref, *, out_int32: bool = False, right: bool = False
) -> Ref:
    return _searchsorted(im, node, boundaries, values, out_int32=out_int32, right=right)

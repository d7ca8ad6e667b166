"""Import rules of embedding bags: rows are gathered and reduced in one kernel.

Bags of equal length, which an index matrix defines, are a reduction over a dimension. Others become the graph op
Segment, a loop from each bag's begin to its end.
"""

from __future__ import annotations

import math
from typing import Any

import torch

from ... import torch_private
from ...errors import Unsupported
from ..graph_writer import GraphWriter
from ..sizes import Dim, add, sub
from ..values import Ref, opmath, traced_shape
from .indexing import as_index
from .registry import rule
from .sorting import search

_SUM, _MEAN, _MAX = 0, 1, 2  # modes of an embedding bag


@rule("_embedding_bag")
def _embedding_bag(
    im: GraphWriter,
    node: Any,
    weight: Ref,
    indices: Ref,
    offsets: Ref,
    scale_grad_by_freq: bool = False,
    mode: int = _SUM,
    sparse: bool = False,
    per_sample_weights: Ref | None = None,
    include_last_offset: bool = False,
    padding_idx: int = -1,
) -> list[Ref]:
    step = _bag_length(node)
    if step is not None and not include_last_offset and padding_idx < 0 and mode in (_SUM, _MEAN):
        return _bags_of_one_length(im, node, weight, indices, per_sample_weights, mode, step)
    output, bag_of, sizes, largest = node.meta["val"]
    length, width = indices.shape[0], weight.shape[1]
    index = as_index(im, indices)
    bags = im.symbols.dims(output.shape)[0]
    begins, ends = _bounds(im, _checked_offsets(im, node, offsets, length), length, bags, include_last_offset)

    at = index.expand((length, width), [0])
    rows = im.gather(weight, [at], map=[-1, 1], wrap=False, error="bag")
    rows = rows.to(opmath(weight.dtype))
    if per_sample_weights is not None:
        rows = rows * per_sample_weights.to(rows.dtype).expand(rows.shape, [0])
    count = ends - begins
    if padding_idx >= 0:
        kept = im.pointwise("ne", index, padding_idx)
        neutral = im.scalar(-math.inf if mode == _MAX else 0, rows.dtype)
        rows = im.where(kept.expand(rows.shape, [0]), rows, neutral)
        ones = kept.to(torch.int64)
        count = im.emit("segment", "sum", [ones, begins, ends], torch.int64, (bags,))

    found = im.full(0, torch.int64, (bags, width))
    filled = im.pointwise("gt", count, 0).expand((bags, width), [0])
    types = [(rows.dtype, (bags, width)), (torch.int64, (bags, width))]
    if mode == _MAX:
        numbers = im.where(im.pointwise("isnan", rows), -math.inf, rows)
        total, position = im.emit_many("segment", "max_with_index", [numbers, begins, ends], types)
        if length != 0:
            # ATen starts with the first row and replaces it by larger ones, so only a NaN in the first row counts.
            first = begins
            if padding_idx >= 0:
                beyond = torch.iinfo(torch.int64).max
                kept_at = im.where(kept, im.iota((length,), 0), beyond)
                first = im.emit("segment", "amin", [kept_at, begins, ends], torch.int64, (bags,))
            first = first.expand((bags, width), [0])
            first = im.where(filled, first, found)
            of_first = im.gather(rows, [first], map=[-1, 1])
            larger = im.pointwise("gt", total, of_first)
            total = im.where(larger, total, of_first)
            position = im.where(larger, position, first)
            of_position = im.gather(index, [position], map=[-1])
            found = im.where(filled, of_position, found)
        total = im.where(filled, total, im.scalar(0, rows.dtype))
    else:
        total = im.emit("segment", "sum", [rows, begins, ends], rows.dtype, (bags, width))
        if mode == _MEAN:
            total = total / im.pointwise("clamp_min", count, 1).to(rows.dtype).expand((bags, width), [0])
    bag = (
        im.full(0, torch.int64, (0,))
        if im.symbols.dims(bag_of.shape) == (0,)
        else _bag_of_each_index(im, begins, length)
    )
    if mode == _SUM:  # the gradient does not read the sizes, and ATen leaves them zero
        count = im.full(0, torch.int64, (bags,))
    last = found if mode == _MAX else count
    return [
        total.to(output.dtype),
        bag.to(bag_of.dtype),
        count.to(sizes.dtype),
        last.to(largest.dtype),
    ]


@rule("_embedding_bag_backward")
def _embedding_bag_backward(
    im: GraphWriter,
    node: Any,
    gradient: Ref,
    indices: Ref,
    offsets: Ref,
    bag_of: Ref,
    bag_sizes: Ref,
    largest: Ref,
    rows: Any,
    scale_grad_by_freq: bool,
    mode: int,
    sparse: bool,
    per_sample_weights: Ref | None,
    padding_idx: int = -1,
) -> Ref:
    """Adds the gradient of each index's bag to the index's row: [bags, width] -> [rows, width]."""
    if sparse:
        raise Unsupported("a sparse gradient")
    if scale_grad_by_freq:
        raise Unsupported("scale_grad_by_freq, for which ATen uses the counts of other rows (`counts[indices[i]]`)")
    shape = im.symbols.dims(node.meta["val"].shape)
    (bags, width), length, wide = gradient.shape, indices.shape[0], opmath(gradient.dtype)
    if mode == _MAX:
        filled = im.pointwise("gt", im.slice_dim(bag_sizes, 0, 0, bags), 0).expand((bags, width), [0])
        added = im.where(filled, gradient.to(wide), im.scalar(0, wide))
        return _sum_of_rows(im, shape, im.slice_dim(largest, 0, 0, bags), added, gradient.dtype)
    bag = _bag_of_each_index(im, as_index(im, offsets), length)
    at = bag.expand((length, width), [0])
    added = im.gather(gradient, [at], map=[-1, 1]).to(wide)
    if mode == _MEAN:
        size = im.gather(bag_sizes, [bag], map=[-1])
        added = added / size.to(wide).expand(at.shape, [0])
    if per_sample_weights is not None:
        added = added * per_sample_weights.to(wide).expand(at.shape, [0])
    index = as_index(im, indices)
    if padding_idx >= 0:
        kept = im.pointwise("ne", index, padding_idx).expand(at.shape, [0])
        added = im.where(kept, added, im.scalar(0, wide))
    return _sum_of_rows(im, shape, index.expand(at.shape, [0]), added, gradient.dtype)


@rule("_embedding_bag_per_sample_weights_backward")
def _weights_backward(
    im: GraphWriter, node: Any, gradient: Ref, table: Ref, indices: Ref, offsets: Ref, bag_of: Ref, mode: int,
    padding_idx: int = -1,
) -> Ref:  # fmt: skip
    """Each weight's gradient is the dot product of its row and its bag's gradient, [length]. Only for mode sum."""
    (length,), width, wide = indices.shape, gradient.shape[1], opmath(gradient.dtype)
    index, bag = as_index(im, indices), _bag_of_each_index(im, as_index(im, offsets), length)
    of_bag, of_row = (
        im.gather(source, [row.expand((length, width), [0])], map=[-1, 1], wrap=False).to(wide)
        for source, row in ((gradient, bag), (table, index))
    )
    total = (of_bag * of_row).sum([1])
    if padding_idx >= 0:
        kept = im.pointwise("ne", index, padding_idx)
        total = im.where(kept, total, im.scalar(0, wide))
    return total.to(gradient.dtype)


def _bag_of_each_index(im: GraphWriter, begins: Ref, length: Dim) -> Ref:
    """The bag of each index: the last one that begins at or before it. Of bags with equal begins, only the last has
    elements."""
    following = search(im, begins, im.iota((length,), 0), torch.int64, right=True)
    return following - 1


def _sum_of_rows(im: GraphWriter, shape: tuple[Dim, ...], index: Ref, added: Ref, dtype: torch.dtype) -> Ref:
    """Zeros of `shape` with each row of `added` added at its index."""
    zeros = im.full(0, added.dtype, shape)
    return im.scatter(zeros, [index], added, map=[-1, 1], combine="add", wrap=False).to(dtype)


def _checked_offsets(im: GraphWriter, node: Any, offsets: Ref, length: Dim) -> Ref:
    """Offsets with checks: the first must be 0, the last at most `length`. The checks are gathers from ranges of just
    the allowed values."""
    offsets = as_index(im, offsets)
    (count,) = offsets.shape
    if not torch_private.is_known(traced_shape(node.args[2])[0] > 0):
        return offsets

    first, last = (im.slice_dim(offsets, 0, at, 1) for at in (0, sub(count, 1)))
    parts = [_checked_positions(im, im.full(0, torch.int64, (1,)), first, "first_offset")]
    if count == 1:
        return parts[0]
    if count != 2:
        parts.append(im.slice_dim(offsets, 0, 1, sub(count, 2)))
    parts.append(_checked_positions(im, im.iota((add(length, 1),), 0), last, "last_offset"))
    return im.emit("cat", "", parts, torch.int64, (count,), axis=0)


def _bounds(im: GraphWriter, offsets: Ref, length: Dim, bags: Dim, include_last_offset: bool) -> tuple[Ref, Ref]:
    """The begin and end of each bag, with a check that no length is negative."""
    if include_last_offset:
        begins, ends = im.slice_dim(offsets, 0, 0, bags), im.slice_dim(offsets, 0, 1, bags)
    else:
        begins, ends = offsets, im.size(length).expand((1,))
        if bags == 1:
            return begins, ends
        following = im.slice_dim(offsets, 0, 1, sub(bags, 1))
        ends = im.emit("cat", "", [following, ends], torch.int64, (bags,), axis=0)
    lengths = ends - begins
    lengths = _checked_positions(im, im.iota((add(length, 1),), 0), lengths, "bag_length")
    return begins, begins + lengths


def _checked_positions(im: GraphWriter, positions: Ref, index: Ref, error: str) -> Ref:
    """`index`, with a check that each is a valid position in `positions`, which is a range."""
    return im.gather(positions, [index], map=[-1], wrap=False, error=error)


def _bags_of_one_length(
    im: GraphWriter, node: Any, weight: Ref, indices: Ref, per_sample_weights: Ref | None, mode: int, step: Any
) -> list[Ref]:
    output, bag_of, sizes, last = node.meta["val"]
    bags, length = im.symbols.dims(node.args[1].args[0].meta["val"].shape)
    width = weight.shape[1]
    shape = (bags, length, width)
    at = as_index(im, indices).reshape((bags, length)).expand(shape, [0, 1])
    rows = im.gather(weight, [at], map=[-1, 2], wrap=False, error="bag")
    if per_sample_weights is not None:
        scale = per_sample_weights.reshape((bags, length)).expand(shape, [0, 1])
        rows = rows.to(opmath(rows.dtype)) * scale.to(opmath(rows.dtype))
    total = im.reduce("mean" if mode == _MEAN else "sum", rows, [1])
    # ATen does not compute the bag of each index where its own backward does not need it.
    known = im.symbols.dims(bag_of.shape) != (0,)
    counted = step if mode == _MEAN else 0  # not computed for sums either
    bag = im.iota((bags, length), 0).reshape(indices.shape) if known else im.full(0, torch.int64, (0,))
    return [
        total.reshape(im.symbols.dims(output.shape)).to(output.dtype),
        bag.to(bag_of.dtype),
        im.full(counted, sizes.dtype, im.symbols.dims(sizes.shape)),
        im.full(counted, last.dtype, im.symbols.dims(last.shape)),
    ]


def _bag_length(node: Any) -> int | torch.SymInt | None:
    """The common length of bags that are the rows of an index matrix, or None. PyTorch passes such a matrix as a flat
    view of it and offsets that are a range."""
    indices, offsets = node.args[1:3]
    if indices.target is not torch.ops.aten.view.default or offsets.target is not torch.ops.aten.arange.start_step:
        return None
    matrix = indices.args[0].meta["val"]
    if matrix.dim() != 2 or offsets.args[0] != 0:
        return None
    # A step of 1 is omitted from the arguments.
    end, step = (a.meta["val"] if isinstance(a, torch.fx.Node) else a for a in (*offsets.args, 1)[1:3])
    rows_begin_bags = torch_private.same_count((step,), (matrix.shape[1],)) and torch_private.same_count(
        (end,), matrix.shape
    )
    return step if rows_begin_bags else None

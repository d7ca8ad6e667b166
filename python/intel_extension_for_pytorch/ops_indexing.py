"""Import rules of what reads or writes at indices that are data: gather and scatter with explicit index operands.

A `map` names, for each dimension of the indexed tensor, where its coordinate comes from: k >= 0 is dimension k of the
result (gather) or of the source (scatter), -(j + 1) is index operand j.
"""

from __future__ import annotations

from typing import Any

import torch

from . import compat
from .errors import Unsupported
from .importer import Importer, Ref, opmath
from .ops import pointwise_as, reduce_axes, row_named, rule
from .sizes import Dim, numel

_INDEX_TYPES = (torch.int64, torch.int32, torch.int16, torch.int8)


def _index(im: Importer, x: Ref) -> Ref:
    if x.dtype not in _INDEX_TYPES:
        raise Unsupported(f"an index of {x.dtype}")
    return im.cast(x, torch.int64)


# ---- gather ----


@rule("embedding")
def _embedding(im: Importer, node: Any, weight: Ref, indices: Ref, *options: Any, **more: Any) -> Ref:
    shape = (*indices.shape, weight.shape[1])
    rows = im.expand(_index(im, indices), shape, range(len(indices.shape)))
    return im.emit("gather", "", [weight, rows], weight.dtype, shape, map=[-1, len(shape) - 1])


_SUM, _MEAN = 0, 1  # modes of an embedding bag


@rule("_embedding_bag", "_embedding_bag_forward_only")
def _embedding_bag(
    im: Importer,
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
    """Bags of one length, as an index matrix gives them: rows gathered and summed in one kernel."""
    step = _bag_length(node)
    if step is None or include_last_offset or padding_idx >= 0 or mode not in (_SUM, _MEAN):
        raise Unsupported("bags of different lengths, their maximum, or padding")
    output, bag_of, sizes, last = node.meta["val"]
    bags, length = im.symbols.dims(node.args[1].args[0].meta["val"].shape)
    width = weight.shape[1]
    shape = (bags, length, width)
    at = im.expand(im.reshape(_index(im, indices), (bags, length)), shape, [0, 1])
    rows = im.emit("gather", "", [weight, at], weight.dtype, shape, map=[-1, 2])
    if per_sample_weights is not None:
        scale = im.expand(im.reshape(per_sample_weights, (bags, length)), shape, [0, 1])
        rows = im.pointwise_node("mul", [im.cast(rows, opmath(rows.dtype)), im.cast(scale, opmath(rows.dtype))],
                                 opmath(rows.dtype), shape)  # fmt: skip
    total = reduce_axes(im, "mean" if mode == _MEAN else "sum", rows, [1])
    # ATen leaves the bag of each index out where its own backward can do without.
    known = im.symbols.dims(bag_of.shape) != (0,)
    bag = im.reshape(im.iota((bags, length), 0), indices.shape) if known else im.full(0, torch.int64, (0,))
    return [
        im.cast(im.reshape(total, im.symbols.dims(output.shape)), output.dtype),
        im.cast(bag, bag_of.dtype),
        im.expand(im.scalar(step, sizes.dtype), im.symbols.dims(sizes.shape)),
        im.full(0, last.dtype, im.symbols.dims(last.shape)),
    ]


def _bag_length(node: Any) -> int | torch.SymInt | None:
    """The common length of bags given as the rows of a matrix: indices its flat view, offsets a range over it."""
    indices, offsets = node.args[1:3]
    if indices.target is not torch.ops.aten.view.default or offsets.target is not torch.ops.aten.arange.start_step:
        return None
    matrix = indices.args[0].meta["val"]
    if matrix.dim() != 2 or offsets.args[0] != 0:
        return None
    end, step = (a.meta["val"] if isinstance(a, torch.fx.Node) else a for a in offsets.args[1:3])
    rows_begin_bags = compat.same_count((step,), (matrix.shape[1],)) and compat.same_count((end,), matrix.shape)
    return step if rows_begin_bags else None


@rule("index_select")
def _index_select(im: Importer, node: Any, x: Ref, dim: int, index: Ref) -> Ref:
    if not x.shape:
        return im.copy(x)
    dim %= len(x.shape)
    index = im.reshape(_index(im, index), (numel(index.shape),))
    shape = x.shape[:dim] + index.shape + x.shape[dim + 1 :]
    at = im.expand(index, shape, [dim])
    return im.emit("gather", "", [x, at], x.dtype, shape, map=_along(x, dim))


@rule("gather")
def _gather(im: Importer, node: Any, x: Ref, dim: int, index: Ref, sparse_grad: bool = False) -> Ref:
    if not x.shape:
        return im.copy(im.reshape(x, index.shape))
    index = im.reshape(_index(im, index), index.shape or (1,))
    dim %= len(x.shape)
    result = im.emit("gather", "", [x, index], x.dtype, index.shape, map=_along(x, dim))
    return im.reshape(result, im.shape_of(node))


def _along(x: Ref, dim: int) -> list[int]:
    return [-1 if d == dim else d for d in range(len(x.shape))]


@rule("index.Tensor", "_unsafe_index.Tensor")
def _index_tensor(im: Importer, node: Any, x: Ref, indices: list[Ref | None]) -> Ref:
    operands, map, shape = _advanced_index(im, x, indices)
    return im.emit("gather", "", [x, *operands], x.dtype, shape, map=map)


def _advanced_index(im: Importer, x: Ref, indices: list[Ref | None]) -> tuple[list[Ref], list[int], tuple[Dim, ...]]:
    """NumPy's rule: the indices broadcast together and stand where they are, if adjacent, else in front."""
    indices = [*indices, *[None] * (len(x.shape) - len(indices))]
    positions = [d for d, i in enumerate(indices) if i is not None]
    index_shape = _broadcast([indices[d].shape for d in positions])
    adjacent = positions == list(range(positions[0], positions[-1] + 1))
    lead = positions[0] if adjacent else 0
    kept = [d for d in range(len(x.shape)) if d not in positions]
    before, after = kept[:lead], kept[lead:]
    shape = (*(x.shape[d] for d in before), *index_shape, *(x.shape[d] for d in after))
    place = {d: i for i, d in enumerate(before)}
    place |= {d: lead + len(index_shape) + i for i, d in enumerate(after)}
    operands, map = [], []
    for d in range(len(x.shape)):
        if d in place:
            map.append(place[d])
            continue
        index = _index(im, indices[d])
        first = lead + len(index_shape) - len(index.shape)
        operands.append(im.expand(index, shape, range(first, first + len(index.shape))))
        map.append(-len(operands))
    return operands, map, shape


def _broadcast(shapes: list[tuple[Dim, ...]]) -> tuple[Dim, ...]:
    rank = max(len(s) for s in shapes)
    result: list[Dim] = [1] * rank
    for shape in shapes:
        for i, size in enumerate(shape, rank - len(shape)):
            if size != 1:
                if result[i] not in (1, size):
                    raise Unsupported(f"indices of shapes {shapes}")
                result[i] = size
    return tuple(result)


# ---- scatter ----


@rule("index_put", "_unsafe_index_put")
def _index_put(
    im: Importer, node: Any, x: Ref, indices: list[Ref | None], values: Ref, accumulate: bool = False, *unsafe: Any
) -> Ref:
    given = [i for i in indices if i is not None]
    if not given:
        raise Unsupported("index_put without an index")
    if len(given) == 1 and given[0].dtype is torch.bool:
        return _masked_put(im, x, indices, given[0], values, accumulate)
    operands, map, shape = _advanced_index(im, x, indices)
    values = im.expand(im.cast(values, x.dtype), shape)
    return _scatter(im, x, operands, values, map, "add" if accumulate else "set")


def _masked_put(im: Importer, x: Ref, indices: list, mask: Ref, values: Ref, accumulate: bool) -> Ref:
    """x[mask] = number: a selection."""
    if accumulate or indices[0] is None or numel(values.shape) != 1:
        raise Unsupported("index_put through a mask with several values")
    rank = len(x.shape)
    mask = im.expand(mask, x.shape, range(len(mask.shape)))
    value = im.expand(im.reshape(im.cast(values, x.dtype), (1,) * rank), x.shape)
    return im.pointwise_node("where", [mask, value, x], x.dtype, x.shape)


def _scatter(im: Importer, x: Ref, indices: list[Ref], src: Ref, map: list[int], combine: str) -> Ref:
    """Sums of halves accumulate in fp32, rounded once."""
    wide = opmath(x.dtype) if combine in ("add", "mul") else x.dtype
    operands = [im.cast(x, wide), *indices, im.cast(src, wide)]
    return im.cast(im.emit("scatter", "", operands, wide, x.shape, map=map, combine=combine), x.dtype)


@rule("scatter.src", "scatter.value", "scatter_add")
def _scatter_set(im: Importer, node: Any, x: Ref, dim: int, index: Ref, src: Any) -> Ref:
    combine = "add" if node.target._schema.name == "aten::scatter_add" else "set"
    return _scatter_along(im, x, dim, index, src, combine)


@rule("scatter.reduce", "scatter.value_reduce")
def _scatter_combine(im: Importer, node: Any, x: Ref, dim: int, index: Ref, src: Any, *, reduce: str) -> Ref:
    return _scatter_along(im, x, dim, index, src, {"add": "add", "multiply": "mul"}[reduce])


@rule("scatter_reduce.two")
def _scatter_reduce(
    im: Importer, node: Any, x: Ref, dim: int, index: Ref, src: Ref, reduce: str, include_self: bool = True
) -> Ref:
    combine = {"sum": "add", "prod": "mul", "amax": "max", "amin": "min"}.get(reduce)
    if combine is None or not include_self:
        raise Unsupported(f"scatter_reduce {reduce} include_self={include_self}")
    return _scatter_along(im, x, dim, index, src, combine)


def _scatter_along(im: Importer, x: Ref, dim: int, index: Ref, src: Any, combine: str) -> Ref:
    if not x.shape:  # one element, addressed as a vector of one
        source = im.reshape(src, (1,)) if isinstance(src, Ref) else src
        return im.reshape(_scatter_along(im, im.reshape(x, (1,)), 0, im.reshape(index, (1,)), source, combine), ())
    if not index.shape:
        raise Unsupported("scatter at a 0-d index into a tensor of several dims")
    dim %= len(x.shape)
    index = _index(im, index)
    if isinstance(src, Ref):
        src = im.cast(src, x.dtype)
        src = im.slice(src, [0] * len(src.shape), [1] * len(src.shape), index.shape)
    else:
        src = im.full(src, x.dtype, index.shape)
    return _scatter(im, x, [index], src, _along(x, dim), combine)


@rule("embedding_dense_backward")
def _embedding_dense_backward(
    im: Importer, node: Any, grad: Ref, indices: Ref, num_weights: Any, padding_idx: Any, scale_by_freq: bool
) -> Ref:
    if scale_by_freq:
        raise Unsupported("embedding gradient scaled by frequency")
    dtype = opmath(grad.dtype)
    src = im.cast(grad, dtype)
    index = _index(im, indices)
    if isinstance(padding_idx, int) and padding_idx >= 0:
        kept = pointwise_as(im, row_named("ne"), [index, padding_idx], index.shape)
        kept = im.expand(kept, grad.shape, range(len(index.shape)))
        src = im.pointwise_node("where", [kept, src, im.scalar(0, dtype)], dtype, grad.shape)
    rows = im.expand(index, grad.shape, range(len(index.shape)))
    shape = im.shape_of(node)
    zeros = im.full(0, dtype, shape)
    map = [-1, len(grad.shape) - 1]
    sums = im.emit("scatter", "", [zeros, rows, src], dtype, shape, map=map, combine="add")
    return im.cast(sums, grad.dtype)


@rule("max_pool2d_with_indices_backward")
def _max_pool2d_backward(
    im: Importer, node: Any, grad: Ref, x: Ref, kernel: Any, stride: Any, padding: Any, dilation: Any, ceil: bool,
    indices: Ref,
) -> Ref:  # fmt: skip
    """Each gradient goes to the position its maximum came from: an addition into the flattened image."""
    lead = x.shape[:-2]
    shape = (*lead, numel(x.shape[-2:]))
    flat = (*lead, numel(grad.shape[-2:]))
    dtype = opmath(grad.dtype)
    src = im.reshape(im.cast(grad, dtype), flat)
    at = im.reshape(indices, flat)
    map = [*range(len(lead)), -1]
    sums = im.emit("scatter", "", [im.full(0, dtype, shape), at, src], dtype, shape, map=map, combine="add")
    return im.cast(im.reshape(sums, x.shape), grad.dtype)


# ---- windows and diagonals ----


@rule("unfold")
def _unfold(im: Importer, node: Any, x: Ref, dim: int, size: int, step: int) -> Ref:
    """Windows along dim, their elements in a new last dimension: element dim * step + last of x."""
    result = im.shape_of(node)
    rows = x if x.shape else im.reshape(x, (1,))
    shape = result if x.shape else (1, size)
    dim %= len(rows.shape)
    windows, elements = im.iota(shape, dim, 0, step), im.iota(shape, len(shape) - 1)
    at = im.pointwise_node("add", [windows, elements], torch.int64, shape)
    return im.reshape(im.emit("gather", "", [rows, at], x.dtype, shape, map=_along(rows, dim)), result)


@rule("diagonal_scatter")
def _diagonal_scatter(im: Importer, node: Any, x: Ref, src: Ref, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Ref:
    """src's last dimension runs along the diagonal of dim1 and dim2."""
    rank = len(x.shape)
    dims = (dim1 % rank, dim2 % rank)
    last = len(src.shape) - 1
    indices = [im.iota(src.shape, last, max(start, 0)) for start in (-offset, offset)]
    others = iter(range(last))
    map = [-1 - dims.index(d) if d in dims else next(others) for d in range(rank)]
    return _scatter(im, x, indices, im.cast(src, x.dtype), map, "set")


@rule("put")
def _put(im: Importer, node: Any, x: Ref, index: Ref, source: Ref, accumulate: bool = False) -> Ref:
    """x as one row."""
    count = (numel(index.shape),)
    flat = im.reshape(x, (numel(x.shape),))
    at, values = im.reshape(_index(im, index), count), im.reshape(im.cast(source, x.dtype), count)
    return im.reshape(_scatter(im, flat, [at], values, [-1], "add" if accumulate else "set"), x.shape)


@rule("replication_pad1d_backward", "replication_pad2d_backward", "replication_pad3d_backward")
def _replication_pad_backward(im: Importer, node: Any, grad: Ref, x: Ref, padding: Any) -> Ref:
    """Each gradient goes to the element it was copied from: its position, clamped to x."""
    sizes = node.meta["val"].shape
    dtype = opmath(grad.dtype)
    map, indices = list(range(len(x.shape))), []
    for i, low in enumerate(padding[::2]):
        d = len(x.shape) - 1 - i
        at = im.iota(grad.shape, d, -low)
        indices.append(pointwise_as(im, row_named("clamp"), [at, 0, sizes[d] - 1], grad.shape))
        map[d] = -len(indices)
    sums = _scatter(im, im.full(0, dtype, x.shape), indices, im.cast(grad, dtype), map, "add")
    return im.cast(sums, grad.dtype)

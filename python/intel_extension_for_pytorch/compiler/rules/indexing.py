"""Import rules of ops that read or write at indices: the graph ops gather and scatter, with index operands.

A `map` says where the coordinate in each dimension of the indexed tensor comes from: k >= 0 is the coordinate in
dimension k of the result (gather) or of the source (scatter); -(j + 1) is the value of index operand j. `error` names
the row of runtime/index_errors.def with the exception that eager raises for an index out of range.
"""

from __future__ import annotations

import math
from typing import Any

import torch

from ... import torch_private
from ...errors import Unsupported
from ..graph_writer import GraphWriter
from ..sizes import Dim, numel
from ..values import Ref, opmath, traced_count, traced_shape
from .registry import rule

_INDEX_TYPES = (torch.int64, torch.int32, torch.int16, torch.int8)


def as_index(im: GraphWriter, x: Ref) -> Ref:
    if x.dtype not in _INDEX_TYPES:
        raise Unsupported(f"an index of {x.dtype}")
    return x.to(torch.int64)


# ---- gather ----


@rule("embedding")
def _embedding(im: GraphWriter, node: Any, weight: Ref, indices: Ref, *options: Any, **more: Any) -> Ref:
    shape = (*indices.shape, weight.shape[1])
    rows = as_index(im, indices).expand(shape, range(len(indices.shape)))
    map = [-1, len(shape) - 1]
    return im.gather(weight, [rows], map=map, wrap=False, error="select")


@rule("index_select")
def _index_select(im: GraphWriter, node: Any, x: Ref, dim: int, index: Ref) -> Ref:
    index = as_index(im, index).reshape((numel(index.shape),))
    if not x.shape:
        row = x.reshape((1,))
        result = im.gather(row, [index], map=[-1], wrap=False, error="select")
        return result.reshape(())
    dim %= len(x.shape)
    shape = x.shape[:dim] + index.shape + x.shape[dim + 1 :]
    at = index.expand(shape, [dim])
    # ATen has a kernel of its own for dimension 1.
    error = "select_column" if dim == 1 else "select"
    return im.gather(x, [at], map=along(x, dim), wrap=False, error=error)


@rule("take")
def _take(im: GraphWriter, node: Any, x: Ref, index: Ref) -> Ref:
    """Elements of the flattened x."""
    flat = x.reshape((numel(x.shape),))
    return im.gather(flat, [as_index(im, index)], map=[-1], error="take")


@rule("gather")
def _gather(im: GraphWriter, node: Any, x: Ref, dim: int, index: Ref, sparse_grad: bool = False) -> Ref:
    if not x.shape:
        x, dim = x.reshape((1,)), 0
    index = as_index(im, index).reshape(index.shape or (1,))
    dim %= len(x.shape)
    result = im.gather(x, [index], map=along(x, dim), wrap=False, error="element")
    return result.reshape(im.shape_of(node))


def along(x: Ref, dim: int) -> list[int]:
    """The map of a gather or scatter that indexes one dimension."""
    return [-1 if d == dim else d for d in range(len(x.shape))]


@rule("index.Tensor", "_unsafe_index.Tensor")
def _index_tensor(im: GraphWriter, node: Any, x: Ref, indices: list[Ref | None]) -> Ref:
    operands, map, shape = _advanced_index(im, x, indices, node.args[1])
    return im.gather(x, [*operands], map=map, **_counted_dims(indices, len(x.shape)))


def _counted_dims(indices: list[Ref | None], rank: int) -> dict[str, list[int]]:
    """Eager's error messages number only the dimensions that have an index."""
    dims = list(range(rank))
    for number, d in enumerate(d for d, index in enumerate(indices) if index is not None):
        dims[d] = number
    return {} if dims == list(range(rank)) else {"error_dims": dims}


def _advanced_index(
    im: GraphWriter, x: Ref, indices: list[Ref | None], sources: list[Any]
) -> tuple[list[Ref], list[int], tuple[Dim, ...]]:
    """NumPy's advanced indexing. The indices are broadcast; their dimensions stay in place if the indices are adjacent,
    else they come first. An index that is just a range (x[arange(n).view(n, 1), y]) becomes no operand: that dimension
    is mapped directly."""
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
    counted = {}
    for d in positions:
        along = _counts_along(im, sources[d], x.shape[d])
        if along is not None:
            counted[d] = lead + len(index_shape) - len(indices[d].shape) + along
    if len(counted) == len(positions) or len(set(counted.values())) < len(counted):
        counted = {}
    place |= counted
    operands, map = [], []
    for d in range(len(x.shape)):
        if d in place:
            map.append(place[d])
            continue
        index = as_index(im, indices[d])
        first = lead + len(index_shape) - len(index.shape)
        operands.append(index.expand(shape, range(first, first + len(index.shape))))
        map.append(-len(operands))
    return operands, map, shape


_SAME_ELEMENTS = ("view", "reshape", "_unsafe_view", "unsqueeze", "alias", "clone", "_to_copy", "convert_element_type")


def _counts_along(im: GraphWriter, index: Any, size: Dim) -> int | None:
    """The only dimension of an index tensor, if the tensor is 0, 1, .. size - 1 along it; else None."""
    shape = im.shape_of(index)
    dims = [d for d, s in enumerate(shape) if s != 1]
    if len(dims) != 1 or shape[dims[0]] != size or index.meta["val"].dtype not in _INDEX_TYPES:
        return None
    while _base_name(index) in _SAME_ELEMENTS and index.target is not torch.ops.aten.view.dtype:
        if not _holds_range(index.meta["val"].dtype, size):
            return None
        index = index.args[0]
    if _base_name(index) == "arange":
        start, step = (index.args[0] if len(index.args) > 1 else 0), (index.args[2] if len(index.args) > 2 else 1)
    elif _base_name(index) == "iota":
        start, step = index.kwargs["start"], index.kwargs["step"]
    else:
        return None
    return dims[0] if (start, step) == (0, 1) and index.meta["val"].dtype is torch.int64 else None


def _holds_range(dtype: torch.dtype, size: Dim) -> bool:
    """Whether the type can hold each of 0, 1, .. size - 1."""
    if dtype is torch.int64 or not isinstance(size, int):
        return dtype is torch.int64
    if dtype is torch.bool:
        return size <= 2
    return size - 1 <= (2 / torch.finfo(dtype).eps if dtype.is_floating_point else torch.iinfo(dtype).max)


def _base_name(node: Any) -> str:
    return node.target._schema.name.partition("::")[2] if isinstance(node.target, torch_private.OpOverload) else ""


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
    im: GraphWriter, node: Any, x: Ref, indices: list[Ref | None], values: Ref, accumulate: bool = False, *unsafe: Any
) -> Ref:
    given = [i for i in indices if i is not None]
    if not given:
        raise Unsupported("index_put without an index")
    if len(given) == 1 and given[0].dtype is torch.bool:
        return _masked_put(im, node, x, indices, given[0], values, accumulate)
    operands, map, shape = _advanced_index(im, x, indices, node.args[1])
    if any(size not in (wanted, 1) for size, wanted in zip(reversed(values.shape), reversed(shape), strict=False)):
        _guard_broadcast(im, node, values, shape)
    values = values.to(x.dtype).expand(shape)
    return _scatter(
        im, x, operands, values, map, "add" if accumulate else "set", **_counted_dims(indices, len(x.shape))
    )


def _guard_broadcast(im: GraphWriter, node: Any, values: Ref, shape: tuple[Dim, ...]) -> None:
    """Guards that the symbolic sizes of the values and the indexed elements agree, which tracing does not check."""
    places = _traced_places(node)
    traced = traced_shape(node.args[2])
    pairs = zip(reversed(traced), reversed(places), reversed(values.shape), reversed(shape), strict=False)
    for size, place, dim, wanted in pairs:
        if dim not in (wanted, 1):
            im.same_sizes([size], [place])
    raise Unsupported(f"index_put of values of shape {list(values.shape)} at elements of shape {list(shape)}")


def _traced_places(node: Any) -> list[Any]:
    """The shape of x[indices] as traced sizes; see _advanced_index."""
    into = traced_shape(node.args[0])
    indices = [*node.args[1], *[None] * (len(into) - len(node.args[1]))]
    positions = [d for d, i in enumerate(indices) if i is not None]
    shapes = [traced_shape(indices[d]) for d in positions]
    rank = max(map(len, shapes))
    places: list[Any] = [1] * rank
    for shape in shapes:
        for d, size in enumerate(shape, rank - len(shape)):
            if torch_private.is_known(places[d] == 1):
                places[d] = size
    adjacent = positions == list(range(positions[0], positions[-1] + 1))
    lead = positions[0] if adjacent else 0
    kept = [size for size, index in zip(into, indices, strict=True) if index is None]
    return [*kept[:lead], *places, *kept[lead:]]


def _masked_put(im: GraphWriter, node: Any, x: Ref, indices: list, mask: Ref, values: Ref, accumulate: bool) -> Ref:
    """x[mask] = number, as a selection."""
    source = node.args[1][0]
    if accumulate or indices[0] is None or numel(values.shape) != 1:
        raise Unsupported("index_put through a mask with several values")
    rank = len(x.shape)
    im.same_sizes(traced_shape(source), traced_shape(node.args[0])[: len(mask.shape)])
    mask = mask.expand(x.shape, range(len(mask.shape)))
    value = values.to(x.dtype).reshape((1,) * rank).expand(x.shape)
    return im.where(mask, value, x)


def _scatter(
    im: GraphWriter,
    x: Ref,
    indices: list[Ref],
    src: Ref,
    map: list[int],
    combine: str,
    *,
    wrap: bool = True,
    **error: Any,
) -> Ref:
    """A scatter. Sums and products of fp16 and bf16 accumulate in fp32 and are rounded once."""
    wide = opmath(x.dtype) if combine in ("add", "mul") else x.dtype
    result = im.scatter(x.to(wide), indices, src.to(wide), map=map, combine=combine, wrap=wrap, **error)
    return result.to(x.dtype)


@rule("scatter.src", "scatter.value", "scatter_add")
def _scatter_set(im: GraphWriter, node: Any, x: Ref, dim: int, index: Ref, src: Any) -> Ref:
    combine = "add" if node.target._schema.name == "aten::scatter_add" else "set"
    return _scatter_along(im, x, dim, index, src, combine)


@rule("scatter.reduce", "scatter.value_reduce")
def _scatter_combine(im: GraphWriter, node: Any, x: Ref, dim: int, index: Ref, src: Any, *, reduce: str) -> Ref:
    return _scatter_along(im, x, dim, index, src, {"add": "add", "multiply": "mul"}[reduce])


@rule("scatter_reduce.two")
def _scatter_reduce(
    im: GraphWriter, node: Any, x: Ref, dim: int, index: Ref, src: Ref, reduce: str, include_self: bool = True
) -> Ref:
    if not x.shape:
        vector, at, values = (r.reshape((1,)) for r in (x, index, src))
        return _scatter_reduce(im, node, vector, 0, at, values, reduce, include_self).reshape(())
    if not index.shape:
        raise Unsupported("scatter at a 0-d index into a tensor of several dims")
    src = im.slice(src, [0] * len(src.shape), [1] * len(src.shape), index.shape)
    map = along(x, dim % len(x.shape))
    return _reduce_into(im, x, as_index(im, index), src, map, reduce, include_self, "element")


@rule("index_reduce")
def _index_reduce(
    im: GraphWriter, node: Any, x: Ref, dim: int, index: Ref, src: Ref, reduce: str, *, include_self: bool = True
) -> Ref:
    rows, at, src, map = _rows_at(im, node, x, dim, index, src)
    return _reduce_into(im, rows, at, src, map, reduce, include_self, "select").reshape(x.shape)


@rule("index_add", "index_copy")
def _index_add(im: GraphWriter, node: Any, x: Ref, dim: int, index: Ref, src: Ref, *, alpha: Any = 1) -> Ref:
    """PyTorch decomposes these to index_put, which accepts negative indices where these ops raise."""
    rows, at, src, map = _rows_at(im, node, x, dim, index, src)
    im.require_fit(alpha, x.dtype)
    if not torch_private.is_known(alpha == 1):
        src = src * alpha
    combine, error = "set", "copy"
    if "add" in node.target._schema.name:
        # The error depends on the kernel that ATen uses: a scatter for several dimensions without scaling.
        combine, error = "add", "element" if len(x.shape) > 1 and torch_private.is_known(alpha == 1) else "select"
    return _scatter(im, rows, [at], src, map, combine, wrap=False, error=error).reshape(x.shape)


@rule("index_fill")
def _index_fill(im: GraphWriter, node: Any, x: Ref, dim: int, index: Ref, value: Any) -> Ref:
    """Negative indices count from the end."""
    rows = x if x.shape else x.reshape((1,))
    dim %= len(rows.shape)
    shape = (*rows.shape[:dim], numel(index.shape), *rows.shape[dim + 1 :])
    at = as_index(im, index).reshape((numel(index.shape),)).expand(shape, [dim])
    src = value.to(x.dtype) if isinstance(value, Ref) else im.number(value, x.dtype)
    return _scatter(im, rows, [at], src.expand(shape), along(rows, dim), "set").reshape(x.shape)


def _rows_at(im: GraphWriter, node: Any, x: Ref, dim: int, index: Ref, src: Ref) -> tuple[Ref, Ref, Ref, list[int]]:
    """For index_add and similar ops: x, the index of each element of src along dim, src, and the map. A 0-d x becomes a
    vector of one element."""
    if index.dtype not in (torch.int64, torch.int32):
        raise Unsupported(f"an index of {index.dtype}, which ATen refuses")
    count = (numel(index.shape),)
    if not x.shape:
        im.same_sizes([1], [traced_count(node.args[3])])
        x, src, dim = x.reshape((1,)), src.reshape(count), 0
    else:
        dim %= len(x.shape)
        into, values = (traced_shape(node.args[i]) for i in (0, 3))
        im.same_sizes([*into[:dim], traced_count(node.args[2]), *into[dim + 1 :]], values)
    return x, as_index(im, index).reshape(count).expand(src.shape, [dim]), src, along(x, dim)


def _reduce_into(
    im: GraphWriter, x: Ref, index: Ref, src: Ref, map: list[int], reduce: str, include_self: bool, error: str
) -> Ref:
    """x, with each element reduced with the elements of src that are scattered to it (without its old value, unless
    `include_self`)."""
    combine = {"sum": "add", "mean": "add", "prod": "mul", "amax": "max", "amin": "min"}[reduce]
    indexed: dict[str, Any] = {"map": map, "wrap": False, "error": error}
    wide = opmath(x.dtype) if combine in ("add", "mul") else x.dtype
    dtype = x.dtype
    start = x = x.to(wide)
    src = src.to(dtype).to(wide)
    if not include_self:
        neutral = im.full(_neutral(combine, wide), wide, index.shape)
        start = im.scatter(x, [index], neutral, combine="set", **indexed)
    result = im.scatter(start, [index], src, combine=combine, **indexed)
    if reduce == "mean":
        one = im.full(1, torch.int64, index.shape)
        counts = im.full(int(include_self), torch.int64, x.shape)
        counts = im.scatter(counts, [index], one, combine="add", **indexed)
        counts = im.pointwise("clamp_min", counts, 1)
        row = "div" if wide.is_floating_point else "div_floor"
        result = im.pointwise(row, result, counts.to(wide))
    return result.to(dtype)


def _neutral(combine: str, dtype: torch.dtype) -> Any:
    """The neutral element of the combination."""
    if combine in ("add", "mul"):
        return int(combine == "mul")
    if dtype is torch.bool:
        return combine == "min"
    if dtype.is_floating_point:
        return -math.inf if combine == "max" else math.inf
    limits = torch.iinfo(dtype)
    return limits.min if combine == "max" else limits.max


def _scatter_along(im: GraphWriter, x: Ref, dim: int, index: Ref, src: Any, combine: str) -> Ref:
    if not x.shape:  # treat it as a vector of one element
        source = src.reshape((1,)) if isinstance(src, Ref) else src
        return _scatter_along(im, x.reshape((1,)), 0, index.reshape((1,)), source, combine).reshape(())
    if not index.shape:
        raise Unsupported("scatter at a 0-d index into a tensor of several dims")
    dim %= len(x.shape)
    index = as_index(im, index)
    if isinstance(src, Ref):
        src = src.to(x.dtype)
        src = im.slice(src, [0] * len(src.shape), [1] * len(src.shape), index.shape)
    else:
        src = im.number(src, x.dtype).expand(index.shape)
    return _scatter(im, x, [index], src, along(x, dim), combine, wrap=False, error="element")


@rule("embedding_dense_backward")
def _embedding_dense_backward(
    im: GraphWriter, node: Any, grad: Ref, indices: Ref, num_weights: Any, padding_idx: Any, scale_by_freq: bool
) -> Ref:
    im.same_sizes(traced_shape(node.args[0])[:-1], traced_shape(node.args[1]))
    dtype = opmath(grad.dtype)
    src = grad.to(dtype)
    index = as_index(im, indices)
    if scale_by_freq:
        src = _over_frequency(im, src, index, im.shape_of(node)[0])
    if not torch_private.is_known(padding_idx < 0):
        kept = im.pointwise("ne", index, padding_idx)
        kept = kept.expand(grad.shape, range(len(index.shape)))
        src = im.where(kept, src, im.scalar(0, dtype))
    rows = index.expand(grad.shape, range(len(index.shape)))
    shape = im.shape_of(node)
    zeros = im.full(0, dtype, shape)
    map = [-1, len(grad.shape) - 1]
    sums = im.scatter(zeros, [rows], src, map=map, combine="add", wrap=False)
    return sums.to(grad.dtype)


def _over_frequency(im: GraphWriter, src: Ref, index: Ref, rows: Dim) -> Ref:
    """src[i] / the number of occurrences of index[i]."""
    flat = index.reshape((numel(index.shape),))
    ones = im.full(1, torch.int64, flat.shape)
    zeros = im.full(0, torch.int64, (rows,))
    counts = im.scatter(zeros, [flat], ones, map=[-1], combine="add", wrap=False)
    count = im.gather(counts, [index], map=[-1], wrap=False)
    count = count.to(src.dtype).expand(src.shape, range(len(index.shape)))
    return src / count


# ---- windows and diagonals ----


@rule("unfold")
def _unfold(im: GraphWriter, node: Any, x: Ref, dim: int, size: int, step: int) -> Ref:
    """Windows along dim, with their elements in a new last dimension: index dim * step + last of x."""
    result = im.shape_of(node)
    rows = x if x.shape else x.reshape((1,))
    shape = result if x.shape else (1, size)
    dim %= len(rows.shape)
    windows, elements = im.iota(shape, dim, 0, step), im.iota(shape, len(shape) - 1)
    at = windows + elements
    return im.gather(rows, [at], map=along(rows, dim)).reshape(result)


@rule("diagonal_scatter")
def _diagonal_scatter(
    im: GraphWriter, node: Any, x: Ref, src: Ref, offset: int = 0, dim1: int = 0, dim2: int = 1
) -> Ref:
    """src's last dimension runs along the diagonal of dim1 and dim2."""
    rank = len(x.shape)
    dims = (dim1 % rank, dim2 % rank)
    into, given = (traced_shape(n) for n in node.args[:2])
    rows, columns = (into[d] for d in dims)
    along = torch.sym_min(rows + min(offset, 0), columns - max(offset, 0))
    im.same_sizes([*(s for d, s in enumerate(into) if d not in dims), torch_private.positive(along)], given)
    last = len(src.shape) - 1
    indices = [im.iota(src.shape, last, max(start, 0)) for start in (-offset, offset)]
    others = iter(range(last))
    map = [-1 - dims.index(d) if d in dims else next(others) for d in range(rank)]
    return _scatter(im, x, indices, src.to(x.dtype), map, "set")


@rule("put")
def _put(im: GraphWriter, node: Any, x: Ref, index: Ref, source: Ref, accumulate: bool = False) -> Ref:
    """Writes to the flattened x."""
    im.same_sizes([traced_count(node.args[1])], [traced_count(node.args[2])])
    count = (numel(index.shape),)
    flat = x.reshape((numel(x.shape),))
    at, values = as_index(im, index).reshape(count), source.to(x.dtype).reshape(count)
    combine = "add" if accumulate else "set"
    return _scatter(im, flat, [at], values, [-1], combine, error="take").reshape(x.shape)


@rule("replication_pad1d_backward", "replication_pad2d_backward", "replication_pad3d_backward")
def _replication_pad_backward(im: GraphWriter, node: Any, grad: Ref, x: Ref, padding: Any) -> Ref:
    """Adds each gradient to the element that was replicated: its position clamped to x."""
    sizes = node.meta["val"].shape
    dtype = opmath(grad.dtype)
    map, indices = list(range(len(x.shape))), []
    for i, low in enumerate(padding[::2]):
        d = len(x.shape) - 1 - i
        at = im.iota(grad.shape, d, -low)
        indices.append(im.pointwise("clamp", at, 0, sizes[d] - 1))
        map[d] = -len(indices)
    sums = _scatter(im, im.full(0, dtype, x.shape), indices, grad.to(dtype), map, "add")
    return sums.to(grad.dtype)

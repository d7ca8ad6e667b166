"""Import rules of ops without arithmetic: views, copies, concatenation, padding and creation."""

from __future__ import annotations

from typing import Any

import torch

from ... import torch_private
from ...errors import GraphFallback, Unsupported
from ..graph_writer import GraphWriter
from ..sizes import Dim, add, contiguous_strides, numel, sub
from ..values import DTYPE_NAMES, HALF, Ref, traced_shape
from .indexing import along
from .registry import rule

# ---- views ----


# Extern calls of collectives return when the result is complete, so wait_tensor does nothing.
@rule("alias", "detach", "lift", "lift_fresh", "_c10d_functional.wait_tensor")
def _alias(im: GraphWriter, node: Any, x: Ref) -> Ref:
    return x


@rule("clone", "contiguous", "lift_fresh_copy", "alias_copy", "detach_copy")
def _clone(im: GraphWriter, node: Any, x: Ref, **options: Any) -> Ref:
    return im.copy(x)


@rule("view.default", "reshape", "_unsafe_view", "_reshape_alias", "squeeze", "unsqueeze", "flatten")
def _reshape(im: GraphWriter, node: Any, x: Ref, *arguments: Any) -> Ref:
    return x.reshape(im.shape_of(node))


_WORDS = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}  # size in bytes -> integer type


@rule("view.dtype")
def _view_as(im: GraphWriter, node: Any, x: Ref, dtype: torch.dtype) -> Ref:
    """Reinterprets the memory. If the element sizes differ, elements of the last dimension are split or joined, low
    parts first."""
    if x.dtype is dtype:
        return x
    if dtype not in DTYPE_NAMES or torch.bool in (x.dtype, dtype):
        raise Unsupported(f"a view of {x.dtype} as {dtype}")
    shape, ratio = im.shape_of(node), dtype.itemsize / x.dtype.itemsize
    if ratio == 1:
        return _reinterpreted(im, x, dtype)
    part, whole = (_WORDS[f(x.dtype.itemsize, dtype.itemsize)] for f in (min, max))
    bits, parts = 8 * part.itemsize, whole.itemsize // part.itemsize
    words = _reinterpreted(im, x, _WORDS[x.dtype.itemsize])
    if ratio < 1:
        wide = (*x.shape, parts)
        words, places = words.expand(wide, range(len(x.shape))), im.iota((parts,), 0, 0, bits).to(whole)
        cut = im.pointwise("bitwise_right_shift", words, places).to(part)
        return _reinterpreted(im, cut.reshape(shape), dtype)
    joined = None
    for i in range(parts):
        place = im.slice_dim(words, len(shape) - 1, i, shape[-1], parts).to(whole)
        if i < parts - 1:
            place = im.pointwise("bitwise_and", place, (1 << bits) - 1)
        place = im.pointwise("bitwise_left_shift", place, i * bits)
        joined = place if joined is None else im.pointwise("bitwise_or", joined, place)
    return _reinterpreted(im, joined, dtype)


def _reinterpreted(im: GraphWriter, x: Ref, dtype: torch.dtype) -> Ref:
    return x if x.dtype is dtype else im.pointwise_node("reinterpret", [x], dtype, x.shape)


@rule("permute")
def _permute(im: GraphWriter, node: Any, x: Ref, dims: list[int]) -> Ref:
    return im.permute(x, dims)


@rule("transpose.int")
def _transpose(im: GraphWriter, node: Any, x: Ref, dim0: int, dim1: int) -> Ref:
    dims = list(range(len(x.shape)))
    if dims:
        dims[dim0], dims[dim1] = dims[dim1], dims[dim0]
    return im.permute(x, dims)


@rule("t")
def _t(im: GraphWriter, node: Any, x: Ref) -> Ref:
    return im.permute(x, [1, 0]) if len(x.shape) == 2 else x


@rule("expand")
def _expand(im: GraphWriter, node: Any, x: Ref, size: Any, implicit: bool = False) -> Ref:
    return x.expand(im.shape_of(node))


@rule("slice.Tensor")
def _slice(im: GraphWriter, node: Any, x: Ref, dim: int = 0, start: Any = None, end: Any = None, step: Any = 1) -> Ref:
    """A slice, or a gather if the step is symbolic: slices of a Graph have constant steps."""
    dim %= len(x.shape)
    shape, first, every = im.shape_of(node), _start(im, node, start, dim), im.symbols.dim(step)
    if isinstance(every, int):
        return im.slice_dim(x, dim, first, shape[dim], every)
    index = im.iota(shape, dim, start=first, step=every)
    return im.gather(x, [index], map=along(x, dim))


def _start(im: GraphWriter, node: Any, start: Any, dim: int) -> Dim:
    """The start of a slice of the node's first operand, in [0, size]. A negative one counts from the end."""
    if start is None:
        return 0
    return im.symbols.dim(_clamped_bound(start, traced_shape(node.args[0])[dim]))


def _clamped_bound(at: Any, size: Any) -> Any:
    """A bound of a slice, as a traced number in [0, size]."""
    if torch_private.is_known(at < 0):
        at = at + size
        if not torch_private.is_known(at >= 0):
            at = torch_private.positive(at)
    elif not torch_private.is_known(at >= 0):
        raise Unsupported("a slice bound whose sign is known only at a call")
    return at if torch_private.is_known(at <= size) else torch.sym_min(at, size)


def _slice_length(size: Any, start: Any, end: Any, step: int) -> Any:
    """The number of elements of a slice of `size`, as a traced size."""
    first = 0 if start is None else _clamped_bound(start, size)
    last = size if end is None else _clamped_bound(end, size)
    return (torch_private.positive(last - first) + step - 1) // step


@rule("select.int")
def _select(im: GraphWriter, node: Any, x: Ref, dim: int, index: Any) -> Ref:
    dim %= len(x.shape)
    picked = im.slice_dim(x, dim, _start(im, node, index, dim), 1)
    return picked.reshape(x.shape[:dim] + x.shape[dim + 1 :])


@rule("split.Tensor", "split_with_sizes", "unsafe_split.Tensor", "chunk")
def _split(im: GraphWriter, node: Any, x: Ref, sizes: Any, dim: int = 0) -> list[Ref]:
    dim %= len(x.shape)
    parts, start = [], 0
    for value in node.meta["val"]:
        length = im.symbols.dims(value.shape)[dim]
        parts.append(im.slice_dim(x, dim, start, length))
        start = add(start, length)
    return parts


@rule("unbind.int")
def _unbind(im: GraphWriter, node: Any, x: Ref, dim: int = 0) -> list[Ref]:
    dim %= len(x.shape)
    shape = x.shape[:dim] + x.shape[dim + 1 :]
    return [im.slice_dim(x, dim, i, 1).reshape(shape) for i in range(len(node.meta["val"]))]


@rule("diagonal")
def _diagonal(im: GraphWriter, node: Any, x: Ref, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Ref:
    rank = len(x.shape)
    dim1, dim2 = dim1 % rank, dim2 % rank
    shape = im.shape_of(node)
    axis = len(shape) - 1
    rows = im.iota(shape, axis, start=max(-offset, 0))
    columns = im.iota(shape, axis, start=max(offset, 0))
    others = iter(range(axis))
    map = [-1 if d == dim1 else -2 if d == dim2 else next(others) for d in range(rank)]
    return im.gather(x, [rows, columns], map=map)


@rule("as_strided")
def _as_strided(im: GraphWriter, node: Any, x: Ref, size: Any, stride: Any, storage_offset: Any = None) -> Ref:
    """Of a dense operand with dims in any order: a permuted reshape if the strides are those of one, else a gather."""
    source = node.args[0].meta["val"]
    _require_inside(source, size, stride, storage_offset)
    shape, strides, offset = im.shape_of(node), im.symbols.dims(stride), _offset_in(im, source, storage_offset)
    flat = im.permute(x, _memory_order(source)).reshape((numel(x.shape),))
    if all(isinstance(d, int) for d in (*shape, *strides, *x.shape, offset)):
        inner = sorted(range(len(shape)), key=lambda d: (-strides[d], shape[d]))
        sizes = tuple(shape[d] for d in inner)
        dense = all(shape[d] == 1 or strides[d] == s for d, s in zip(inner, contiguous_strides(sizes), strict=True))
        if dense and offset == 0 and numel(shape) <= numel(x.shape):
            whole = flat if numel(shape) == numel(x.shape) else im.slice_dim(flat, 0, 0, numel(shape))
            return im.permute(whole.reshape(sizes), [inner.index(d) for d in range(len(shape))])
    elif (offset, strides) == (0, contiguous_strides(shape)) and torch_private.same_count(source.shape, size):
        return flat.reshape(shape)
    return im.gather(flat, [_positions(im, shape, strides, offset)], map=[-1])


@rule("as_strided_scatter")
def _as_strided_scatter(
    im: GraphWriter, node: Any, x: Ref, values: Ref, size: Any, stride: Any, storage_offset: Any = None
) -> Ref:
    """x with `values` at the elements that as_strided would read."""
    source = node.args[0].meta["val"]
    _require_inside(source, size, stride, storage_offset)
    order = _memory_order(source)
    in_memory = im.permute(x, order)
    flat = in_memory.reshape((numel(x.shape),))
    at = _positions(im, values.shape, im.symbols.dims(stride), _offset_in(im, source, storage_offset))
    written = im.scatter(flat, [at], values.to(x.dtype), map=[-1], combine="set")
    return im.permute(written.reshape(in_memory.shape), [order.index(d) for d in range(len(order))])


def _memory_order(source: torch.Tensor) -> list[int]:
    order = torch_private.memory_order(source)
    if order is None:
        raise Unsupported(f"memory with gaps or overlaps: strides {source.stride()} of {source.shape}")
    return order


def _require_inside(source: torch.Tensor, size: Any, stride: Any, storage_offset: Any) -> None:
    """Unsupported where some elements may be in the storage but not in the source."""
    begin = 0 if storage_offset is None else storage_offset - source.storage_offset()
    last = begin + sum((n - 1) * s for n, s in zip(size, stride, strict=True))
    inside = torch_private.is_known(begin >= 0) and torch_private.is_known(last < source.numel())
    if not inside and not any(torch_private.is_known(n == 0) for n in size):
        raise Unsupported("elements of the storage that its operand does not have")


def _offset_in(im: GraphWriter, source: torch.Tensor, storage_offset: Any) -> Dim:
    """The offset in the source of a view at `storage_offset` of the storage (None: where the source starts)."""
    if storage_offset is None:
        return 0
    return sub(im.symbols.dim(storage_offset), im.symbols.dim(source.storage_offset()))


def _copied(view: Any) -> Any:
    """The rule of a `*_copy` op: the view, copied if the user gets to see it."""

    def copy(im: GraphWriter, node: Any, *arguments: Any, **options: Any) -> Any:
        result = view(im, node, *arguments, **options)
        return [im.copy(part) for part in result] if isinstance(result, list) else im.copy(result)

    return copy


rule("view_copy.default", "_reshape_copy", "squeeze_copy", "unsqueeze_copy")(_copied(_reshape))
rule("permute_copy")(_copied(_permute))
rule("transpose_copy.int")(_copied(_transpose))
rule("t_copy")(_copied(_t))
rule("expand_copy")(_copied(_expand))
rule("slice_copy.Tensor")(_copied(_slice))
rule("select_copy.int")(_copied(_select))
rule("split_copy.Tensor", "split_with_sizes_copy")(_copied(_split))
rule("unbind_copy.int")(_copied(_unbind))
rule("diagonal_copy")(_copied(_diagonal))
rule("as_strided_copy")(_copied(_as_strided))


def _positions(im: GraphWriter, shape: tuple[Dim, ...], strides: tuple[Dim, ...], offset: Dim) -> Ref:
    """Positions in flat memory: offset + sum of index * stride."""
    if isinstance(offset, int):
        index = im.full(offset, torch.int64, shape)
    elif shape:
        index = im.iota(shape, 0, start=offset, step=0)
    else:
        raise Unsupported("one element at a symbolic offset")
    for axis, step in enumerate(strides):
        if shape[axis] != 1 and step != 0:
            along = im.iota(shape, axis, step=step)
            index = index + along
    return index


@rule("copy")
def _copy(im: GraphWriter, node: Any, x: Ref, source: Ref, non_blocking: bool = False) -> Ref:
    """The value that x would have after copy_."""
    return im.copy(source.to(x.dtype).expand(x.shape))


@rule("flip")
def _flip(im: GraphWriter, node: Any, x: Ref, dims: list[int]) -> Ref:
    flipped = {d % len(x.shape) for d in dims} if x.shape else set()
    starts = [sub(s, 1) if d in flipped else 0 for d, s in enumerate(x.shape)]
    steps = [-1 if d in flipped else 1 for d in range(len(x.shape))]
    return im.copy(im.slice(x, starts, steps, x.shape))


@rule("roll")
def _roll(im: GraphWriter, node: Any, x: Ref, shifts: Any, dims: Any = ()) -> Ref:
    if not x.shape:
        return im.copy(x)
    rolled = x if dims else x.reshape((numel(x.shape),))
    for shift, dim in zip(shifts, dims or (0,), strict=True):
        rolled = _rolled(im, rolled, dim % len(rolled.shape), im.symbols.dim(shift))
    return im.copy(rolled.reshape(x.shape))


def _rolled(im: GraphWriter, x: Ref, dim: int, shift: Dim) -> Ref:
    """x with its last `shift` elements along dim moved to the front."""
    size = x.shape[dim]
    if size == 0:
        return x
    last = shift % size if isinstance(shift, int) and isinstance(size, int) else f"({shift} % {size})"
    if last == 0:
        return x
    first = sub(size, last)
    return _joined(im, [im.slice_dim(x, dim, first, last), im.slice_dim(x, dim, 0, first)], dim, x.shape)


@rule("repeat")
def _repeat(im: GraphWriter, node: Any, x: Ref, repeats: Any) -> Ref:
    counts = im.symbols.dims(repeats)
    lead = len(counts) - len(x.shape)
    inner = (1,) * lead + x.shape
    paired = tuple(s for c, d in zip(counts, inner, strict=True) for s in (c, d))
    tiled = x.expand(paired, [2 * (lead + d) + 1 for d in range(len(x.shape))])
    return im.copy(tiled.reshape(im.shape_of(node)))


# ---- concatenation and replacement ----


@rule("cat", "concat", "concatenate")
def _cat(im: GraphWriter, node: Any, tensors: list[Ref], dim: int = 0) -> Ref:
    value = node.meta["val"]
    parts = [t.to(value.dtype) for t in tensors if t.shape != (0,)]
    if not parts:
        return im.copy(tensors[0].to(value.dtype))
    return _joined(im, parts, dim % len(parts[0].shape), im.shape_of(node))


def _joined(im: GraphWriter, parts: list[Ref], axis: int, shape: tuple[Dim, ...]) -> Ref:
    if len(parts) == 1:
        return im.copy(parts[0])
    return im.emit("cat", "", parts, parts[0].dtype, shape, axis=axis)


@rule("stack")
def _stack(im: GraphWriter, node: Any, tensors: list[Ref], dim: int = 0) -> Ref:
    dtype = node.meta["val"].dtype
    axis = dim % (len(tensors[0].shape) + 1)
    shape = tensors[0].shape[:axis] + (1,) + tensors[0].shape[axis:]
    return _joined(im, [t.to(dtype).reshape(shape) for t in tensors], axis, im.shape_of(node))


@rule("slice_scatter")
def _slice_scatter(
    im: GraphWriter, node: Any, x: Ref, src: Ref, dim: int = 0, start: Any = None, end: Any = None, step: Any = 1
) -> Ref:
    dim %= len(x.shape)
    into, given = (list(traced_shape(n)) for n in node.args[:2])
    into[dim] = _slice_length(into[dim], start, end, step)
    im.same_sizes(into, given)
    first = _start(im, node, start, dim)
    src = src.to(x.dtype)
    length = src.shape[dim]
    src = src.expand(x.shape[:dim] + (length,) + x.shape[dim + 1 :])
    if not torch_private.is_known(step == 1):
        index = im.iota(src.shape, dim, start=first, step=im.symbols.dim(step))
        return im.scatter(x, [index], src, map=along(x, dim), combine="set")
    return _replace(im, x, src, dim, first, length)


@rule("select_scatter")
def _select_scatter(im: GraphWriter, node: Any, x: Ref, src: Ref, dim: int, index: Any) -> Ref:
    dim %= len(x.shape)
    into, given = (traced_shape(n) for n in node.args[:2])
    im.same_sizes([*into[:dim], *into[dim + 1 :]], given)
    first = _start(im, node, index, dim)
    src = src.to(x.dtype).reshape(x.shape[:dim] + (1,) + x.shape[dim + 1 :])
    return _replace(im, x, src, dim, first, 1)


def _replace(im: GraphWriter, x: Ref, src: Ref, dim: int, first: Dim, length: Dim) -> Ref:
    """x with [first, first + length) of one dimension replaced by src, as a concatenation of up to three parts."""
    last = add(first, length)
    tail = sub(x.shape[dim], last)
    parts = [src]
    if first != 0:
        parts.insert(0, im.slice_dim(x, dim, 0, first))
    if tail != 0:
        parts.append(im.slice_dim(x, dim, last, tail))
    return _joined(im, parts, dim, x.shape)


@rule("constant_pad_nd")
def _constant_pad(im: GraphWriter, node: Any, x: Ref, pad: Any, value: Any = 0) -> Ref:
    rank = len(x.shape)
    low, high = [0] * rank, [0] * rank
    for i in range(len(pad) // 2):
        low[rank - 1 - i], high[rank - 1 - i] = pad[2 * i], pad[2 * i + 1]
    filling = im.number(value, x.dtype)
    for d, (before, after) in enumerate(zip(low, high, strict=True)):
        if not (isinstance(before, int) and isinstance(after, int)):
            x = _padded(im, x, d, traced_shape(node.args[0])[d], before, after, filling)
            low[d] = high[d] = 0
    if not any(low) and not any(high):
        return im.copy(x)
    return im.emit("pad", "", [x, filling], x.dtype, im.shape_of(node), low=low, high=high)


def _padded(im: GraphWriter, x: Ref, dim: int, size: Any, before: Any, after: Any, filling: Ref) -> Ref:
    """x with symbolic padding (or cropping, if negative) at both ends of a dimension of traced size `size`."""
    length = im.symbols.dim(size + before + after)
    shape = x.shape[:dim] + (length,) + x.shape[dim + 1 :]
    if not all(torch_private.is_known(n >= 0) for n in (before, after)):
        return _moved(im, x, dim, size, before, filling, shape)
    ends = [filling.expand((*x.shape[:dim], im.symbols.dim(n), *x.shape[dim + 1 :])) for n in (before, after)]
    return _joined(im, [part for part in (ends[0], x, ends[1]) if part.shape[dim] != 0], dim, shape)


def _moved(im: GraphWriter, x: Ref, dim: int, size: Any, by: Any, filling: Ref, shape: tuple[Dim, ...]) -> Ref:
    """x shifted along a dimension by an amount of unknown sign. Elements without a counterpart are `filling`."""
    if not torch_private.is_known(size >= 1):
        raise Unsupported("padding or cropping of a dimension that may be empty")
    place = im.iota(shape, dim, im.symbols.dim(-by))
    last = im.size(im.symbols.dim(size - 1))
    above, below = im.pointwise("ge", place, im.scalar(0, torch.int64)), im.pointwise("le", place, last)
    at = im.pointwise("clamp", place, im.scalar(0, torch.int64), last)
    moved = im.gather(x, [at], map=along(x, dim))
    return im.where(im.pointwise("logical_and", above, below), moved, filling)


# ---- creation ----


@rule("full", "new_full", "full_like", "scalar_tensor")
def _full(im: GraphWriter, node: Any, first: Any, *arguments: Any, **options: Any) -> Ref:
    value = first if node.target._schema.name == "aten::scalar_tensor" else arguments[-1]
    return _filled(im, node, value)


@rule("ones", "new_ones", "ones_like")
def _ones(im: GraphWriter, node: Any, *arguments: Any, **options: Any) -> Ref:
    return _filled(im, node, 1)


@rule("zeros", "new_zeros", "zeros_like", "zero")
@rule("empty.memory_format", "empty_strided", "empty_like", "new_empty", "new_empty_strided", "empty_permuted")
def _zeros(im: GraphWriter, node: Any, *arguments: Any, **options: Any) -> Ref:
    """Zeros; also for tensors that eager leaves uninitialised."""
    return _filled(im, node, 0)


def _filled(im: GraphWriter, node: Any, value: Any) -> Ref:
    dtype = node.meta["val"].dtype
    if dtype not in DTYPE_NAMES:
        raise GraphFallback(f"{node.target} makes a tensor of {dtype}")
    if isinstance(value, Ref):
        return value.reshape(()).to(dtype).expand(im.shape_of(node))
    # scalar_tensor converts numbers that do not fit fp16 or bf16 to infinities.
    if dtype not in HALF or node.target._schema.name != "aten::scalar_tensor":
        im.require_fit(value, dtype)
    if dtype is torch.bool and isinstance(value, (int, float)):
        value = bool(value)
    elif isinstance(value, float) and not dtype.is_floating_point:
        value = int(value)
    return im.copy(im.full(value, dtype, im.shape_of(node)))


@rule("arange", "prims.iota")
def _arange(im: GraphWriter, node: Any, *arguments: Any, **options: Any) -> Ref:
    dtype = node.meta["val"].dtype
    if dtype is torch.bool:
        raise Unsupported("a range of booleans")
    shape = im.shape_of(node)
    if node.target._schema.name == "prims::iota":
        start, step = options["start"], options["step"]
    else:
        start = arguments[0] if len(arguments) > 1 else 0
        step = arguments[2] if len(arguments) > 2 else options.get("step", 1)
    if not dtype.is_floating_point:  # eager truncates start and step first
        start, step = (int(v) if isinstance(v, float) else v for v in (start, step))
    if isinstance(start, (int, torch.SymInt)) and isinstance(step, (int, torch.SymInt)):
        return im.iota(shape, 0, im.symbols.dim(start), im.symbols.dim(step)).to(dtype)
    # Eager computes start + step * i in double for every floating-point result.
    index = im.iota(shape, 0).to(torch.float64)
    scaled = index * im.scalar(step, torch.float64)
    moved = scaled + im.scalar(start, torch.float64)
    return moved.to(dtype)

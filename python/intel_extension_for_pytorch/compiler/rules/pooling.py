"""Import rules of pooling, forward and backward, with sliding or adaptive windows.

The gradient of average pooling is a pooling too: it sums over the windows that cover an element. So is the gradient of
max pooling, restricted to the windows whose maximum the element is. If many windows overlap, a scatter of each gradient
to the position of its maximum is cheaper.
"""

from __future__ import annotations

import math
from typing import Any

import torch

from ... import torch_private
from ...errors import Unsupported
from ..graph_writer import GraphWriter
from ..sizes import Dim, numel
from ..values import Ref, opmath, traced_shape
from .library import per_dim
from .registry import rule


def _pool(
    im: GraphWriter, x: Ref, types: list[tuple[torch.dtype, tuple[Dim, ...]]], kernel: list[int], *,
    stride: list[int] | None = None, padding: list[int] | None = None, dilation: list[int] | None = None,
    ceil_mode: bool = False, include_pad: bool = True, divisor: int = 0, index: Ref | None = None, **attrs: Any,
) -> list[Ref]:  # fmt: skip
    """Pooling of x [.., C, spatial..]. An image without a batch dimension gets one."""
    operands = [x] if index is None else [x, index]
    rank = len(kernel)
    attrs |= {
        "kernel": kernel,
        "stride": stride or kernel,
        "padding": padding or [0] * rank,
        "dilation": dilation or [1] * rank,
        "ceil_mode": ceil_mode,
        "count_include_pad": include_pad,
        "divisor": divisor,
    }
    if len(x.shape) != rank + 1:
        return im.emit_many("pool", "", operands, types, **attrs)
    batched = [r.reshape((1, *r.shape)) for r in operands]
    results = im.emit_many("pool", "", batched, [(d, (1, *s)) for d, s in types], **attrs)
    return [r.reshape(s) for r, (_, s) in zip(results, types, strict=True)]


def _spatial_rank(node: Any) -> int:
    """The number of spatial dims in the op's name: 3 for "aten::avg_pool3d_backward"."""
    name = node.target._schema.name
    return int(name[name.index("pool") + 4])


def _results(im: GraphWriter, node: Any) -> list[tuple[torch.dtype, tuple[Dim, ...]]]:
    values = node.meta["val"]
    values = values if isinstance(values, (tuple, list)) else [values]
    return [(v.dtype, im.symbols.dims(v.shape)) for v in values]


def _floating(x: Ref) -> None:
    if not x.dtype.is_floating_point:
        raise Unsupported(f"average pooling of {x.dtype}")


# ---- sliding windows ----


@rule("max_pool2d_with_indices.default", "max_pool3d_with_indices.default")
def _max_pool(
    im: GraphWriter, node: Any, x: Ref, kernel: Any, stride: Any = (), padding: Any = 0, dilation: Any = 1,
    ceil_mode: bool = False,
) -> list[Ref]:  # fmt: skip
    rank = _spatial_rank(node)
    return _pool(
        im, x, _results(im, node), per_dim(kernel, rank), kind="max", stride=per_dim(stride, rank),
        padding=per_dim(padding, rank), dilation=per_dim(dilation, rank), ceil_mode=bool(ceil_mode), include_pad=False,
    )  # fmt: skip


@rule("avg_pool1d.default", "avg_pool2d.default", "avg_pool3d.default")
def _avg_pool(
    im: GraphWriter, node: Any, x: Ref, kernel: Any, stride: Any = (), padding: Any = 0, ceil_mode: bool = False,
    count_include_pad: bool = True, divisor: int | None = None,
) -> Ref:  # fmt: skip
    _floating(x)
    rank = _spatial_rank(node)
    return _pool(
        im, x, _results(im, node), per_dim(kernel, rank), kind="avg", stride=per_dim(stride, rank),
        padding=per_dim(padding, rank), ceil_mode=bool(ceil_mode), include_pad=bool(count_include_pad),
        divisor=divisor or 0,
    )[0]  # fmt: skip


@rule("avg_pool2d_backward.default", "avg_pool3d_backward.default")
def _avg_pool_backward(
    im: GraphWriter, node: Any, grad: Ref, x: Ref, kernel: Any, stride: Any, padding: Any, ceil_mode: bool,
    count_include_pad: bool, divisor: int | None,
) -> Ref:  # fmt: skip
    """Each element gets a share of the gradient of every window that covers it."""
    _floating(x)
    rank = _spatial_rank(node)
    kernel, padding = per_dim(kernel, rank), per_dim(padding, rank)
    stride = per_dim(stride, rank) or kernel
    source = grad
    if not divisor and (ceil_mode or (any(padding) and not count_include_pad)):
        divisor = 1
        lengths = [
            _window_length(im, grad, x, len(x.shape) - rank + d, k, s, p, count_include_pad)
            for d, (k, s, p) in enumerate(zip(kernel, stride, padding, strict=True))
        ]
        source = _divided_by_lengths(im, grad, lengths)
    covered = _pool(
        im, source, [(source.dtype, x.shape)], kernel, kind="avg", window="covering", stride=stride, padding=padding,
        divisor=divisor or math.prod(kernel),
    )[0]  # fmt: skip
    return covered.to(grad.dtype)


def _window_length(
    im: GraphWriter, grad: Ref, x: Ref, d: int, kernel: int, stride: int, padding: int, include_pad: bool
) -> Ref:
    """The length along dim d of each result's window inside the tensor (padded, if `include_pad`): int64, grad's
    shape."""

    def of(row: str, *operands: Any) -> Ref:
        return im.pointwise(row, *operands)

    begin = im.iota(grad.shape, d, -padding, stride)
    size = im.size(x.shape[d])
    end = of("minimum", of("add", begin, kernel), of("add", size, padding))
    if not include_pad:
        begin, end = of("clamp_min", begin, 0), of("minimum", end, size)
    return of("sub", end, begin)


def _divided_by_lengths(im: GraphWriter, grad: Ref, lengths: list[Ref]) -> Ref:
    """grad / the product of the lengths, in the type of the arithmetic."""
    wide = opmath(grad.dtype)
    count = lengths[0]
    for length in lengths[1:]:
        count = count * length
    return grad.to(wide) / count.to(wide)


# ---- adaptive windows ----


def _window_size(sizes: tuple[Dim, ...], out: tuple[Dim, ...]) -> list[int] | None:
    """The common length of the windows along each dim, or None if they differ."""
    if all(isinstance(s, int) and isinstance(o, int) and o > 0 and s % o == 0 for s, o in zip(sizes, out, strict=True)):
        return [s // o for s, o in zip(sizes, out, strict=True)]
    return None


@rule("_adaptive_avg_pool2d.default", "_adaptive_avg_pool3d.default")
def _adaptive_avg_pool(im: GraphWriter, node: Any, x: Ref, output_size: Any) -> Ref:
    _floating(x)
    rank = _spatial_rank(node)
    checked = traced_shape(node.args[0])[-2 if rank == 2 else 1 :]  # ATen refuses zeros among these sizes
    if not all(torch_private.is_known(size > 0) for size in checked):
        raise Unsupported("an average of possibly no elements")
    types = _results(im, node)
    kernel = _window_size(x.shape[-rank:], types[0][1][-rank:])
    if kernel is not None:
        return _pool(im, x, types, kernel, kind="avg")[0]
    return _pool(im, x, types, [1] * rank, kind="avg", window="adaptive")[0]


@rule("_adaptive_avg_pool2d_backward.default", "_adaptive_avg_pool3d_backward.default")
def _adaptive_avg_pool_backward(im: GraphWriter, node: Any, grad: Ref, x: Ref) -> Ref:
    """The results that read an element are those in the adaptive window of this element over the results."""
    _floating(x)
    rank = _spatial_rank(node)
    lead, sizes, out = x.shape[:-rank], x.shape[-rank:], grad.shape[-rank:]
    kernel = _window_size(sizes, out)
    wide = opmath(grad.dtype)
    if kernel is not None:
        share = grad.to(wide) / im.scalar(math.prod(kernel), wide)
        paired = (*lead, *(n for o, k in zip(out, kernel, strict=True) for n in (o, k)))
        dims = [*range(len(lead)), *(len(lead) + 2 * d for d in range(rank))]
        return share.expand(paired, dims).reshape(x.shape).to(grad.dtype)
    lengths = [_adaptive_length(im, grad, x.shape[d], d) for d in range(len(lead), len(x.shape))]
    shares = _divided_by_lengths(im, grad, lengths)
    types = [(wide, x.shape)]
    return _pool(im, shares, types, [1] * rank, kind="avg", window="adaptive", divisor=1)[0].to(grad.dtype)


def _adaptive_length(im: GraphWriter, grad: Ref, size: Dim, d: int) -> Ref:
    """ceil((p + 1) * size / outputs) - floor(p * size / outputs) for each result p along dim d."""

    def of(row: str, *operands: Any) -> Ref:
        return im.pointwise(row, *operands)

    outputs = im.size(grad.shape[d])
    begin = im.iota(grad.shape, d, 0, size)
    last = of("add", begin, of("sub", im.size(size), 1))
    return of("add", of("sub", of("div_floor", last, outputs), of("div_floor", begin, outputs)), 1)


@rule("adaptive_max_pool2d.default", "adaptive_max_pool3d.default")
def _adaptive_max_pool(im: GraphWriter, node: Any, x: Ref, output_size: Any) -> list[Ref]:
    rank = _spatial_rank(node)
    types = _results(im, node)
    kernel = _window_size(x.shape[-rank:], types[0][1][-rank:])
    if kernel is not None:
        return _pool(im, x, types, kernel, kind="max", include_pad=False)
    return _pool(im, x, types, [1] * rank, kind="max", window="adaptive")


# ---- gradient of max pooling ----


_MAX_WINDOWS = 9  # windows that may cover an element; above it, a scatter is cheaper


@rule("max_pool2d_with_indices_backward", "max_pool3d_with_indices_backward")
def _max_pool_backward(
    im: GraphWriter, node: Any, grad: Ref, x: Ref, kernel: Any, stride: Any, padding: Any, dilation: Any,
    ceil_mode: bool, indices: Ref,
) -> Ref:  # fmt: skip
    """Each element gets the gradients of the windows whose maximum it is."""
    rank = _spatial_rank(node)
    kernel = per_dim(kernel, rank)
    stride = per_dim(stride, rank) or kernel
    windows = math.prod(-(-k // s) for k, s in zip(kernel, stride, strict=True))
    if any(d != 1 for d in per_dim(dilation, rank)) or windows > _MAX_WINDOWS:
        return _scatter_to_maxima(im, node, grad, x, indices)
    return _pool(
        im, grad, [(grad.dtype, x.shape)], kernel, kind="avg", window="covering", stride=stride,
        padding=per_dim(padding, rank), divisor=1, index=indices,
    )[0]  # fmt: skip


@rule("adaptive_max_pool2d_backward", "adaptive_max_pool3d_backward")
def _adaptive_max_pool_backward(im: GraphWriter, node: Any, grad: Ref, x: Ref, indices: Ref) -> Ref:
    return _scatter_to_maxima(im, node, grad, x, indices)


def _scatter_to_maxima(im: GraphWriter, node: Any, grad: Ref, x: Ref, indices: Ref) -> Ref:
    """Adds each gradient at the position of its maximum in the flattened image."""
    rank = _spatial_rank(node)
    lead = x.shape[:-rank]
    shape = (*lead, numel(x.shape[-rank:]))
    flat = (*lead, numel(grad.shape[-rank:]))
    dtype = opmath(grad.dtype)
    src = grad.to(dtype).reshape(flat)
    at = indices.reshape(flat)
    map = [*range(len(lead)), -1]
    sums = im.scatter(im.full(0, dtype, shape), [at], src, map=map, combine="add")
    return sums.reshape(x.shape).to(grad.dtype)

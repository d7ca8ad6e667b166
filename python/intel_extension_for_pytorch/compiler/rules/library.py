"""Import rules of matrix products, attention, convolutions and LSTM layers."""

from __future__ import annotations

import math
from typing import Any

import torch

from ... import torch_private
from ...errors import Unsupported
from ..graph_writer import GraphWriter
from ..values import Ref, opmath
from .registry import rule

_MATMUL_TYPES = (torch.float32, torch.bfloat16, torch.float16)


# ---- matrix products ----


def _matmul(im: GraphWriter, a: Ref, b: Ref, bias: Ref | None = None, dtype: torch.dtype | None = None) -> Ref:
    operands = [a, b] if bias is None else [a, b, bias]
    if any(r.dtype is not a.dtype for r in operands) or a.dtype not in _MATMUL_TYPES:
        raise Unsupported(f"a matrix product of {a.dtype} and {b.dtype}")
    shape = (*a.shape[:-1], b.shape[-1])
    if 0 in a.shape or 0 in b.shape:  # an empty sum: 0, or what is added to it
        return im.copy(im.full(0, dtype or a.dtype, shape) if bias is None else bias.expand(shape))
    return im.emit("matmul", "", operands, dtype or a.dtype, shape, bias=bias is not None, post=[])


@rule("mm.default", "bmm.default")
def _mm(im: GraphWriter, node: Any, a: Ref, b: Ref) -> Ref:
    return _matmul(im, a, b)


@rule("addmm.default", "baddbmm.default")
def _addmm(im: GraphWriter, node: Any, bias: Ref, a: Ref, b: Ref, *, beta: Any = 1, alpha: Any = 1) -> Ref:
    if torch_private.is_known(beta == 1) and torch_private.is_known(alpha == 1):
        return _matmul(im, a, b, bias)
    wide = opmath(a.dtype)
    product = _scaled(im, _matmul(im, a, b, None, wide), alpha, _skips_product(im, a, b))
    if not torch_private.is_known(beta == 0):
        bias = _scaled(im, bias.to(wide), beta, left_out=True)
        product = product + bias
    return product.to(a.dtype)


def _scaled(im: GraphWriter, value: Ref, factor: Any, left_out: bool | Ref) -> Ref:
    """`value` times a number. `left_out`: if the factor is 0, the result is 0 even for infinities and NaN."""
    if torch_private.is_known(factor == 1):
        return value
    if left_out is True and torch_private.is_known(factor == 0):
        return im.full(0, value.dtype, value.shape)
    number = im.scalar(factor, value.dtype)
    scaled = value * number
    if left_out is False or torch_private.is_known(factor != 0):
        return scaled
    is_zero = im.pointwise("eq", number, 0)
    if left_out is not True:
        is_zero = im.pointwise("logical_and", is_zero, left_out)
    return im.where(is_zero, 0.0, scaled)


# ATen calls the library for products in a batch with at least this many multiplications, and runs loops below it.
_MIN_LIBRARY_MULTIPLICATIONS = 400


def _skips_product(im: GraphWriter, a: Ref, b: Ref) -> bool | Ref:
    """Whether eager skips the product if alpha is 0. The library does so for f32."""
    if a.dtype is not torch.float32 or len(a.shape) == 2:
        return a.dtype is torch.float32
    sizes = (*a.shape[1:], b.shape[-1])
    if all(isinstance(size, int) for size in sizes):
        return math.prod(sizes) >= _MIN_LIBRARY_MULTIPLICATIONS
    multiplications = math.prod(map(im.size, sizes[1:]), start=im.size(sizes[0]))
    return im.pointwise("ge", multiplications, _MIN_LIBRARY_MULTIPLICATIONS)


# ---- attention ----


def _attention_operands(im: GraphWriter, q: Ref, k: Ref, v: Ref, dropout: float, mask: Ref | None) -> list[Ref]:
    """q, k, v and the mask in the graph's layout: [batch, heads, rows, columns]."""
    if dropout != 0:
        raise Unsupported("attention with dropout")
    if not q.dtype.is_floating_point or any(r.dtype is not q.dtype for r in (k, v)):
        raise Unsupported(f"attention of {q.dtype}, {k.dtype} and {v.dtype}")
    if any(len(r.shape) != 4 or 0 in r.shape for r in (q, k, v)):
        raise Unsupported("attention of tensors that are not 4-d or have no elements")
    if not isinstance(q.shape[3], int) or any(not isinstance(r.shape[1], int) for r in (q, k, v)):
        raise Unsupported("attention with a symbolic number of heads or columns")
    if q.shape[1] % k.shape[1] or k.shape[1] != v.shape[1]:
        raise Unsupported(f"attention of {q.shape[1]} query heads with {k.shape[1]} key and {v.shape[1]} value heads")
    if mask is None:
        return [q, k, v]
    if not mask.dtype.is_floating_point:
        raise Unsupported(f"attention with a mask of {mask.dtype}")
    return [q, k, v, mask.expand((*q.shape[:3], k.shape[2]))]


def _attention_scale(q: Ref, scale: float | None) -> float:
    return q.shape[3] ** -0.5 if scale is None else float(scale)


@rule("_scaled_dot_product_flash_attention_for_cpu.default")
def _attention(
    im: GraphWriter, node: Any, q: Ref, k: Ref, v: Ref, dropout_p: float = 0.0, is_causal: bool = False, *,
    attn_mask: Ref | None = None, scale: float | None = None,
) -> list[Ref | None]:  # fmt: skip
    operands = _attention_operands(im, q, k, v, dropout_p, attn_mask)
    types = [(q.dtype, q.shape)]
    if any(user.args[1] == 1 and user.users for user in node.users):
        types.append((opmath(q.dtype), q.shape[:3]))
    attrs = {"causal": bool(is_causal), "scale": _attention_scale(q, scale)}
    results = im.emit_many("attention", "", operands, types, **attrs)
    return [*results, *[None] * (2 - len(results))]


@rule("_scaled_dot_product_flash_attention_for_cpu_backward.default")
def _attention_backward(
    im: GraphWriter, node: Any, grad: Ref, q: Ref, k: Ref, v: Ref, out: Ref, logsumexp: Ref, dropout_p: float,
    is_causal: bool, *, attn_mask: Ref | None = None, scale: float | None = None,
) -> list[Ref]:  # fmt: skip
    operands = _attention_operands(im, q, k, v, dropout_p, attn_mask)
    if grad.dtype is not q.dtype or out.dtype is not q.dtype or logsumexp.dtype is not opmath(q.dtype):
        raise Unsupported(f"the gradient of attention of {q.dtype} from {grad.dtype}, {out.dtype}, {logsumexp.dtype}")
    operands = [grad, *operands[:3], out, logsumexp, *operands[3:]]
    types = [(r.dtype, r.shape) for r in (q, k, v)]
    attrs = {"causal": bool(is_causal), "scale": _attention_scale(q, scale)}
    return im.emit_many("attention_backward", "", operands, types, **attrs)


# ---- convolution ----


def _conv_attrs(
    stride: Any, padding: Any, dilation: Any, transposed: bool, output_padding: Any, groups: int, rank: int
) -> dict[str, Any]:
    return {
        "stride": per_dim(stride, rank),
        "padding": per_dim(padding, rank),
        "dilation": per_dim(dilation, rank),
        "output_padding": per_dim(output_padding, rank),
        "transposed": bool(transposed),
        "groups": int(groups),
    }


def per_dim(values: Any, rank: int) -> list[int]:
    """One setting of a window per dimension. int() refuses symbols, which the library does not accept."""
    values = [values] if isinstance(values, int) else [int(v) for v in values]
    return values * rank if len(values) == 1 else values


def _check_conv(x: Ref, *others: Ref) -> int:
    """The number of spatial dimensions; Unsupported for a convolution that the library does not accept."""
    rank = len(x.shape) - 2
    if not 1 <= rank <= 3:
        raise Unsupported(f"a convolution over {rank} dimensions")
    if x.dtype not in _MATMUL_TYPES or any(o.dtype is not x.dtype for o in others):
        raise Unsupported(f"a convolution of {x.dtype}")
    if any(0 in r.shape for r in (x, *others)):
        raise Unsupported("a convolution without elements")
    return rank


@rule("convolution.default")
def _convolution(
    im: GraphWriter, node: Any, x: Ref, w: Ref, bias: Ref | None, stride: Any, padding: Any, dilation: Any,
    transposed: bool, output_padding: Any, groups: int,
) -> Ref:  # fmt: skip
    operands = [x, w] if bias is None else [x, w, bias]
    rank = _check_conv(*operands)
    attrs = _conv_attrs(stride, padding, dilation, transposed, output_padding, groups, rank)
    return im.emit("conv", "", operands, x.dtype, im.shape_of(node), bias=bias is not None, post=[], **attrs)


def _check_shapes(im: GraphWriter, node: Any, *settings: Any) -> None:
    """Checks the gradient's shape. Autograd always passes the result's shape; a direct call of the op may not."""
    grad, x, w = (n.meta["val"] for n in node.args[:3])
    transposed, groups = settings[3:5]
    im.same_sizes(x.shape[1:2], [w.shape[0] if transposed else w.shape[1] * groups])
    im.same_sizes(torch_private.convolution_shape(x, w, *settings), grad.shape)


@rule("convolution_backward.default")
def _convolution_backward(
    im: GraphWriter, node: Any, grad: Ref, x: Ref, w: Ref, bias_sizes: Any, stride: Any, padding: Any, dilation: Any,
    transposed: bool, output_padding: Any, groups: int, output_mask: list[bool],
) -> list[Ref | None]:  # fmt: skip
    rank = _check_conv(x, w, grad)
    _check_shapes(im, node, stride, padding, dilation, transposed, groups, output_padding if transposed else None)
    attrs = _conv_attrs(stride, padding, dilation, transposed, output_padding, groups, rank)
    need_x, need_w, need_bias = output_mask
    operands = [grad, x, w]
    data = weights = bias = None
    if need_x:
        data = im.emit("conv_backward", "", operands, x.dtype, x.shape, which="data", **attrs)
    if need_w:
        weights = im.emit("conv_backward", "", operands, w.dtype, w.shape, which="weights", **attrs)
    if need_bias:
        bias = grad.sum([0, *range(2, rank + 2)])
    return [data, weights, bias]


# ---- LSTM ----

_LSTM = 2  # the mode of ATen's recurrent layers that is an LSTM


@rule("mkldnn_rnn_layer.default")
def _lstm_layer(
    im: GraphWriter, node: Any, x: Ref, w_input: Ref, w_hidden: Ref, b_input: Ref, b_hidden: Ref, h: Ref, c: Ref,
    reverse: bool, batch_sizes: list[int], mode: int, hidden_size: int, num_layers: int, has_biases: bool,
    bidirectional: bool, batch_first: bool, train: bool,
) -> list[Ref | None]:  # fmt: skip
    """One layer in one direction. It runs in f32 if autocast left operands of different types. b_input and b_hidden are
    ignored without has_biases."""
    if mode != _LSTM or num_layers != 1 or batch_sizes or bidirectional or batch_first or train:
        raise Unsupported("a recurrent layer other than a single LSTM layer in one direction for inference")
    if any(user.args[1] == 3 and user.users for user in node.users):
        raise Unsupported("an LSTM layer that keeps its workspace for gradients")
    if any(r.dtype not in _MATMUL_TYPES for r in (x, w_input, w_hidden, h, c)):
        raise Unsupported(f"an LSTM layer of {x.dtype}")
    if any(0 in r.shape for r in (x, h)):
        raise Unsupported("an LSTM layer without elements")
    dtypes = {r.dtype for r in (x, w_input, w_hidden, h)}
    dtype = x.dtype if len(dtypes) == 1 else torch.float32
    state = (x.shape[1], hidden_size)
    operands = [r.to(dtype) for r in (x, w_input, w_hidden, h.reshape(state))]
    operands.append(c.reshape(state).to(torch.float32))
    if has_biases:
        operands.append(b_input.to(torch.float32) + b_hidden.to(torch.float32))
    types = [(dtype, (*x.shape[:2], hidden_size)), (dtype, state), (torch.float32, state)]
    y, h_last, c_last = im.emit_many("lstm", "", operands, types, reverse=bool(reverse), bias=has_biases)
    states = [last.reshape(r.shape).to(r.dtype) for last, r in ((h_last, h), (c_last, c))]
    return [y.to(x.dtype), *states, None]

"""Import rules of variances, batch norm and layer norm (forward and backward), and of dropout's gradient.

A norm becomes a reduction that computes its statistics, followed by pointwise ops: the same ops as in PyTorch's
decompositions. Importing them here is a hundred times as fast as decomposing them under AOTAutograd's tracing, and a
network has a norm in each of its layers.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch

from ... import torch_private
from ...errors import Unsupported
from ..graph_writer import GraphWriter, reduced_shape
from ..schema import named_arguments
from ..sizes import Dim
from ..types_without_kernels import norm_types_agree
from ..values import Ref, opmath, traced_shape
from .reductions import reduced
from .registry import rule


def _var_mean(im: GraphWriter, x: Ref, axes: list[int], *, keepdim: bool, correction: float) -> list[Ref]:
    types = [(x.dtype, reduced_shape(x, axes, keepdim))] * 2
    return im.emit_many("reduce", "var_mean", [x], types, axes=axes, keepdim=keepdim, correction=correction)


def _statistics(im: GraphWriter, x: Ref, axes: list[int], eps: float) -> tuple[Ref, Ref, Ref]:
    """Biased variance, mean and 1 / standard deviation over `axes` (keepdim)."""
    variance, mean = _var_mean(im, x, axes, keepdim=True, correction=0.0)
    return variance, mean, im.pointwise("rsqrt", variance + eps)


def _require_types(x: Ref, *parameters: Ref | None) -> None:
    if not norm_types_agree(x.dtype, [p.dtype for p in parameters if p is not None]):
        raise Unsupported(f"a normalisation of {x.dtype} with parameters that ATen refuses")


def _require_elements(x: Ref, training: bool) -> None:
    if training and 0 in x.shape:
        raise Unsupported("batch norm of no elements in training, which ATen refuses")


def _count(im: GraphWriter, sizes: Sequence[Dim]) -> float | Ref:
    """The product of sizes: a number, or a float64 value if a size is symbolic."""
    count: float | Ref = float(math.prod(s for s in sizes if isinstance(s, int)))
    for size in (s for s in sizes if not isinstance(s, int)):
        count = im.size(size).to(torch.float64) * count
    return count


def _quotient(im: GraphWriter, a: float | Ref, b: float | Ref, dtype: torch.dtype) -> float | Ref:
    """a / b in double precision, as a number or a 0-d value of `dtype`."""
    if isinstance(a, Ref) or isinstance(b, Ref):
        a, b = (x.to(torch.float64) if isinstance(x, Ref) else im.scalar(x, torch.float64) for x in (a, b))
        return (a / b).to(dtype)
    return a / b if b else math.inf


def _by_channel(x: Ref, like: Ref) -> Ref:
    """Reshapes x, one value per channel, to broadcast with a value that has channels in dimension 1."""
    channels = like.shape[1]
    return x.to(opmath(like.dtype)).reshape((channels,) + (1,) * (len(like.shape) - 2))


def _scaled(x: Ref, weight: Ref | None, bias: Ref | None) -> Ref:
    if weight is not None:
        x = x * weight
    return x + bias if bias is not None else x


# ---- variances ----


@rule("var", "std", "var_mean", "std_mean")
def _variance(im: GraphWriter, node: Any, *args: Any, **kwargs: Any) -> Any:
    """Eager accumulates in fp64. Here squares of fp32 and bf16 are fp64, too; those of fp16 fit into fp32."""
    given = named_arguments(node.target, args, kwargs)
    x, dim, keepdim, name = given["self"], given.get("dim"), given.get("keepdim", False), node.target._schema.name[6:]
    correction = given.get("correction")
    if correction is None:
        correction = 1.0 if given.get("unbiased") is None else float(given["unbiased"])
    if not x.dtype.is_floating_point:
        raise Unsupported(f"reduce.{name} has no {x.dtype} form")
    operand, axes, keepdim = reduced(im, x, dim, keepdim)
    squares_in_double = x.dtype in (torch.float32, torch.bfloat16)
    if squares_in_double and all(_is_positive(s) for s in traced_shape(node.all_input_nodes[0])):
        variance, mean = _double_variance(im, operand, axes, keepdim, float(correction))
    else:
        values = operand.to(torch.float64 if squares_in_double else opmath(x.dtype))
        variance, mean = _var_mean(im, values, axes, keepdim=keepdim, correction=float(correction))
    if name.startswith("std"):
        variance = im.pointwise("sqrt", variance)
    results = [v.to(x.dtype) for v in (variance, mean)]
    return results if name.endswith("_mean") else results[0]


def _is_positive(size: int | torch.SymInt) -> bool:
    """Whether the size is positive at every call."""
    return (size if isinstance(size, int) else torch_private.lower_bound(size, size.node.expr)) > 0


def _double_variance(im: GraphWriter, x: Ref, axes: list[int], keepdim: bool, correction: float) -> tuple[Ref, Ref]:
    """Variance and mean in fp64 of fp32 or bf16 numbers, in one pass, from the sums of their distances to the first
    element of the row and of the squares of these distances. The sum of squares about an element of the row is at most
    n times that about the mean, for a row of n elements (Chan, Golub and LeVeque, Algorithms for computing the sample
    variance, 1983). So fp64 leaves the precision of fp32 after cancellation, wherever the row lies."""
    wide, rank = torch.float64, len(x.shape)
    stored = reduced_shape(x, axes, keepdim=True)
    first = im.slice(x, [0] * rank, [1] * rank, stored).to(wide)
    apart = x.to(wide) - first
    total = apart.sum(axes, keepdim=True)
    squares = (apart * apart).sum(axes, keepdim=True)
    count = _count(im, [x.shape[d] for d in axes])
    mean = total / count
    about = squares - total * mean
    if isinstance(count, Ref):
        divisor = im.pointwise("maximum", count - correction, 0.0)
    else:
        divisor = max(count - correction, 0.0)
    variance = im.pointwise("maximum", about, 0.0) / divisor
    mean = mean + first
    shape = reduced_shape(x, axes, keepdim)
    return variance.reshape(shape), mean.reshape(shape)


# ---- batch norm ----


@rule("_native_batch_norm_legit_no_training")
def _batch_norm_inference(
    im: GraphWriter, node: Any, x: Ref, weight: Ref | None, bias: Ref | None, mean: Ref, variance: Ref, momentum: float,
    eps: float,
) -> list[Ref]:  # fmt: skip
    _require_types(x, weight, bias, mean, variance)
    nothing = im.full(0, x.dtype, (0,))
    return [_with_running_statistics(im, x, weight, bias, mean, variance, eps), nothing, nothing]


def _with_running_statistics(
    im: GraphWriter, x: Ref, weight: Ref | None, bias: Ref | None, mean: Ref, variance: Ref, eps: float
) -> Ref:
    wide = opmath(x.dtype)
    mean, variance = mean.to(wide), variance.to(wide)
    scale = im.pointwise("reciprocal", im.pointwise("sqrt", variance + eps))
    y = (x.to(wide) - _by_channel(mean, x)) * _by_channel(scale, x)
    weight, bias = (_by_channel(p, x) if p is not None else None for p in (weight, bias))
    return _scaled(y, weight, bias).to(x.dtype)


def _with_batch_statistics(im: GraphWriter, x: Ref, weight: Ref | None, bias: Ref | None, eps: float) -> list[Ref]:
    """The result normalised by the statistics of x itself, and each channel's mean, 1 / standard deviation and biased
    variance."""
    values, channels = x.to(opmath(x.dtype)), (x.shape[1],)
    variance, mean, scale = _statistics(im, values, [d for d in range(len(x.shape)) if d != 1], eps)
    y = (values - mean) * scale
    weight, bias = (_by_channel(p, x) if p is not None else None for p in (weight, bias))
    return [_scaled(y, weight, bias).to(x.dtype), *(v.reshape(channels) for v in (mean, scale, variance))]


@rule("_native_batch_norm_legit.no_stats")
def _batch_norm_of_batch(
    im: GraphWriter,
    node: Any,
    x: Ref,
    weight: Ref | None,
    bias: Ref | None,
    training: bool,
    momentum: float,
    eps: float,
) -> list[Ref]:
    if not training:
        raise Unsupported("batch norm without statistics")
    _require_types(x, weight, bias)
    _require_elements(x, training)
    y, mean, scale, _ = _with_batch_statistics(im, x, weight, bias, eps)
    return [y, *(v.to(t.dtype) for v, t in zip((mean, scale), node.meta["val"][1:], strict=True))]


@rule("_native_batch_norm_legit_functional")
def _batch_norm(
    im: GraphWriter, node: Any, x: Ref, weight: Ref | None, bias: Ref | None, running_mean: Ref, running_variance: Ref,
    training: bool, momentum: float, eps: float,
) -> list[Ref]:  # fmt: skip
    """The result, the mean and 1 / standard deviation for the backward pass, and the updated running statistics."""
    _require_types(x, weight, bias, running_mean, running_variance)
    _require_elements(x, training)
    traced = node.meta["val"]
    if not training:
        y = _with_running_statistics(im, x, weight, bias, running_mean, running_variance, eps)
        nothing = im.full(0, x.dtype, (0,))
        # In PyTorch's shape function, they have the type of the arithmetic.
        kept = [im.copy(r.to(t.dtype)) for r, t in zip((running_mean, running_variance), traced[3:], strict=True)]
        return [y, nothing, nothing, *kept]
    wide = opmath(x.dtype)
    count = _count(im, [s for d, s in enumerate(x.shape) if d != 1])
    y, mean, scale, variance = _with_batch_statistics(im, x, weight, bias, eps)
    unbiased = variance * _quotient(im, count, count - 1.0, wide)

    def moved(old: Ref, new: Ref, result: torch.Tensor) -> Ref:
        return (new * momentum + old * (1 - momentum)).to(result.dtype)

    new_mean, new_variance = moved(running_mean, mean, traced[3]), moved(running_variance, unbiased, traced[4])
    return [y, mean.to(traced[1].dtype), scale.to(traced[2].dtype), new_mean, new_variance]


@rule("native_batch_norm_backward")
def _batch_norm_backward(
    im: GraphWriter, node: Any, gradient: Ref, x: Ref, weight: Ref | None, running_mean: Ref | None,
    running_variance: Ref | None, mean: Ref | None, scale: Ref | None, training: bool, eps: float, wanted: list[bool],
) -> list[Ref | None]:  # fmt: skip
    wide = opmath(x.dtype)
    others = [d for d in range(len(x.shape)) if d != 1]
    stored = reduced_shape(x, others, keepdim=True)
    parameters = x.dtype if weight is None else weight.dtype
    gradient, values = gradient.to(wide), x.to(wide)
    if not training:
        mean, variance = running_mean, running_variance.to(wide)
        scale = im.pointwise("rsqrt", variance + eps)
    mean, scale = mean.to(wide), scale.to(wide)
    centred = values - mean.reshape(stored)
    total = gradient.sum(others)
    # Sum products with normalised values: with centred values the sum could overflow.
    normal = centred * scale.reshape(stored)
    along = (gradient * normal).sum(others)
    weighted = scale if weight is None else scale * weight.to(wide)
    dx = gradient
    if training:
        share = _quotient(im, 1.0, _count(im, [x.shape[d] for d in others]), wide)
        slope = along * share * scale
        dx = dx - centred * slope.reshape(stored) - (total * share).reshape(stored)
    dx = dx * weighted.reshape(stored)
    return [
        dx.to(x.dtype),
        along.to(parameters) if wanted[1] else None,
        total.to(parameters) if wanted[2] else None,
    ]


# ---- layer norm ----


@rule("native_layer_norm")
def _layer_norm(
    im: GraphWriter, node: Any, x: Ref, normalized: list[Any], weight: Ref | None, bias: Ref | None, eps: float
) -> list[Ref]:
    _require_types(x, weight, bias)
    wide, axes = opmath(x.dtype), list(range(len(x.shape) - len(normalized), len(x.shape)))
    values = x.to(wide)
    _, mean, scale = _statistics(im, values, axes, eps)
    y = (values - mean) * scale
    weight, bias = (p.to(wide) if p is not None else None for p in (weight, bias))
    return [v.to(x.dtype) for v in (_scaled(y, weight, bias), mean, scale)]


@rule("native_layer_norm_backward")
def _layer_norm_backward(
    im: GraphWriter, node: Any, gradient: Ref, x: Ref, normalized: list[Any], mean: Ref, scale: Ref, weight: Ref | None,
    bias: Ref | None, wanted: list[bool],
) -> list[Ref | None]:  # fmt: skip
    wide, rank = opmath(x.dtype), len(x.shape)
    inner, outer = list(range(rank - len(normalized), rank)), list(range(rank - len(normalized)))
    tail = x.shape[inner[0] :]
    if 0 in x.shape:
        wanted_weight, wanted_bias = wanted[1] and weight is not None, wanted[2] and bias is not None
        return [
            im.full(0, x.dtype, x.shape) if wanted[0] else None,
            im.full(0, weight.dtype, tail) if wanted_weight else None,
            im.full(0, bias.dtype, tail) if wanted_bias else None,
        ]
    gradient, values, mean, scale = (v.to(wide) for v in (gradient, x, mean, scale))
    normal = (values - mean) * scale
    dx = None
    if wanted[0]:
        count = _count(im, tail)
        count = count.to(wide) if isinstance(count, Ref) else count
        slope = gradient if weight is None else gradient * weight.to(wide)
        along = (slope * normal).sum(inner, keepdim=True)
        dx = slope * count - slope.sum(inner, keepdim=True) - normal * along
        dx = (scale / count * dx).to(x.dtype)
    dw = db = None
    if wanted[1] and weight is not None:
        dw = (gradient * normal).sum(outer).to(weight.dtype)
    if wanted[2] and bias is not None:
        db = gradient.sum(outer).to(bias.dtype)
    return [dx, dw, db]


@rule("native_dropout_backward")
def _dropout_backward(im: GraphWriter, node: Any, gradient: Ref, mask: Ref, scale: float) -> Ref:
    return gradient * (mask.to(gradient.dtype) * scale)

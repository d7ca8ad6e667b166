"""Import rules of pointwise ops whose operands need preparation, and of ops that only copy, fill or change the type."""

from __future__ import annotations

from typing import Any

import torch

from ...errors import Unsupported
from .. import extern
from ..graph_writer import GraphWriter
from ..values import Ref, opmath
from .registry import rule
from .rows import pointwise


@rule("clamp")
def _clamp(im: GraphWriter, node: Any, x: Any, min: Any = None, max: Any = None) -> Ref:
    if min is None:
        return pointwise(im, node, "clamp_max", x, max)
    if max is None:
        return pointwise(im, node, "clamp_min", x, min)
    return pointwise(im, node, "clamp", x, min, max)


@rule("gelu")
def _gelu(im: GraphWriter, node: Any, x: Any, approximate: str = "none") -> Ref:
    return pointwise(im, node, "gelu_tanh" if approximate == "tanh" else "gelu", x)


@rule("gelu_backward")
def _gelu_backward(im: GraphWriter, node: Any, grad: Any, x: Any, approximate: str = "none") -> Ref:
    row = "gelu_tanh_backward" if approximate == "tanh" else "gelu_backward"
    return pointwise(im, node, row, grad, x)


@rule("leaky_relu_backward")
def _leaky_relu_backward(im: GraphWriter, node: Any, grad: Any, x: Any, slope: Any, is_result: bool) -> Ref:
    return pointwise(im, node, "leaky_relu_backward", grad, x, slope)


@rule("elu_backward")
def _elu_backward(
    im: GraphWriter, node: Any, grad: Any, alpha: Any, scale: Any, input_scale: Any, is_result: bool, x: Any
) -> Ref:
    row = "elu_backward_result" if is_result else "elu_backward"
    return pointwise(im, node, row, grad, alpha, scale, input_scale, x)


@rule("round.decimals")
def _round_decimals(im: GraphWriter, node: Any, x: Any, decimals: int) -> Ref:
    if not x.dtype.is_floating_point:
        raise Unsupported("round to decimals of an integer tensor")
    return pointwise(im, node, "round_decimals", x, float(decimals))


@rule("nan_to_num")
def _nan_to_num(im: GraphWriter, node: Any, x: Any, nan: Any = None, posinf: Any = None, neginf: Any = None) -> Ref:
    if not x.dtype.is_floating_point:
        return im.copy(x)
    limits = torch.finfo(x.dtype)
    defaults = [(nan, 0.0), (posinf, limits.max), (neginf, limits.min)]
    numbers = [default if given is None else given for given, default in defaults]
    return pointwise(im, node, "nan_to_num", x, *numbers)


@rule("logit")
def _logit(im: GraphWriter, node: Any, x: Any, eps: Any = None) -> Ref:
    if eps is not None:
        low, high = eps, 1.0 - eps  # if low > high, ATen tests against low first
        clamped = im.pointwise("clamp_max", x, high)
        x = im.where(im.pointwise("lt", x, low), low, clamped)
    return pointwise(im, node, "logit", x)


@rule("celu")
def _celu(im: GraphWriter, node: Any, x: Any, alpha: Any = 1.0) -> Ref:
    return pointwise(im, node, "elu", x, alpha, 1.0, 1.0 / alpha)


@rule("nextafter")
def _nextafter(im: GraphWriter, node: Any, x: Ref, y: Ref) -> Ref:
    dtype = node.meta["val"].dtype
    row = {torch.bfloat16: "nextafter_bf16", torch.float16: "nextafter_f16"}.get(dtype, "nextafter")
    return pointwise(im, node, row, x.to(dtype), y.to(dtype))


@rule("frexp.Tensor")
def _frexp(im: GraphWriter, node: Any, x: Ref) -> list[Ref]:
    mantissa = im.pointwise("frexp_mantissa", x)
    exponent = im.pointwise("frexp_exponent", x)
    return [mantissa, exponent.to(torch.int32)]


@rule("log_sigmoid_forward")
def _log_sigmoid_forward(im: GraphWriter, node: Any, x: Ref) -> list[Ref]:
    """The result, and exp(-|x|), which the backward op reads."""
    power = x
    for name in ("abs", "neg", "exp"):
        power = im.pointwise(name, power)
    return [im.pointwise("log_sigmoid", x), power]


@rule("polygamma")
def _polygamma(im: GraphWriter, node: Any, n: int, x: Ref) -> Ref:
    if n > 30:
        raise Unsupported(f"polygamma of order {n}")
    return pointwise(im, node, "polygamma", x, float(n))


@rule("_assert_async")
def _assert_async(im: GraphWriter, node: Any, condition: Ref, *message: str) -> None:
    extern.check(im, condition, *message)


@rule("_functional_assert_async")
def _functional_assert_async(im: GraphWriter, node: Any, condition: Ref, *rest: Any) -> Ref:
    *message, token = rest
    extern.check(im, condition, *message)
    return token


@rule("native_dropout.default")
def _native_dropout(im: GraphWriter, node: Any, x: Ref, p: Any, train: bool | None) -> list[Ref]:
    if not isinstance(p, (int, float)) or not x.dtype.is_floating_point:
        raise Unsupported("dropout of integers, or with a probability from data")
    if train is False or 0 in x.shape:
        return [im.copy(x), im.full(True, torch.bool, x.shape)]
    mask = extern.random_mask(im, node, node.meta["val"][1], 1.0 - p)
    wide = opmath(x.dtype)
    # A product, not a selection: dropped infinities and NaN become NaN, as in eager.
    kept = x.to(wide) * mask.to(wide)
    scale = im.scalar(0.0 if p == 1 else 1.0 / (1.0 - p), x.dtype).to(wide)  # rounded to x's type, as in eager
    return [(kept * scale).to(x.dtype), mask]


@rule("maximum", "minimum", "max.other", "min.other")
def _max_of_two(im: GraphWriter, node: Any, x: Any, y: Any) -> Ref:
    row = "maximum" if node.target._schema.name[6:].startswith("max") else "minimum"
    return pointwise(im, node, row, x, y)


@rule("_to_copy")
def _to_copy(im: GraphWriter, node: Any, x: Ref, dtype: Any = None, **options: Any) -> Ref:
    return im.copy(x) if dtype is None or dtype is x.dtype else x.to(dtype)


@rule("prims.convert_element_type")
def _convert_element_type(im: GraphWriter, node: Any, x: Ref, dtype: torch.dtype) -> Ref:
    return im.copy(x) if dtype is x.dtype else x.to(dtype)


@rule("prims.fma")  # Dynamo emits it for lerp_ and addcmul_
def _fma(im: GraphWriter, node: Any, x: Any, y: Any, z: Any) -> Ref:
    return pointwise(im, node, "fma", x, y, z)


@rule("hardtanh")
def _hardtanh(im: GraphWriter, node: Any, x: Ref, min_val: Any = -1, max_val: Any = 1) -> Ref:
    return pointwise(im, node, "hardtanh", x, *_converted_like(im, x, min_val, max_val, first=torch.int64))


@rule("threshold")
def _threshold(im: GraphWriter, node: Any, x: Ref, threshold: Any, value: Any) -> Ref:
    return pointwise(im, node, "threshold", x, *_converted_like(im, x, threshold, value))


@rule("threshold_backward")
def _threshold_backward(im: GraphWriter, node: Any, grad: Ref, x: Ref, threshold: Any) -> Ref:
    dtype = node.meta["val"].dtype
    operands = [grad.to(dtype), x.to(dtype)] if dtype.is_floating_point else [grad, x]
    return pointwise(im, node, "threshold_backward", *operands, *_converted_like(im, x, threshold))


def _converted_like(im: GraphWriter, x: Ref, *numbers: Any, first: torch.dtype | None = None) -> list[Any]:
    """Numbers converted to the type of x, as eager does before it compares. For integers, they must fit `first`
    (default: x's type)."""
    if x.dtype.is_floating_point:
        return list(numbers)
    for number in numbers:
        im.require_fit(number, first or x.dtype)
    return [n if isinstance(n, torch.SymInt) else int(n) for n in numbers]


@rule("_efficientzerotensor")
def _zero_tensor(im: GraphWriter, node: Any, size: Any, **options: Any) -> Ref:
    return im.copy(im.full(0, node.meta["val"].dtype, im.shape_of(node)))


@rule("fill")
def _fill(im: GraphWriter, node: Any, x: Ref, value: Any) -> Ref:
    filling = value.to(x.dtype) if isinstance(value, Ref) else im.number(value, x.dtype)
    return im.copy(filling.expand(x.shape))

"""Import rules of add, sub, div and pow, for cases that are not a single row of the op table."""

from __future__ import annotations

from typing import Any

import torch

from ... import torch_private
from ...errors import Unsupported
from ..graph_writer import GraphWriter
from ..values import Ref
from .registry import rule
from .rows import pointwise


@rule("add", "sub")
def _add_sub(im: GraphWriter, node: Any, x: Any, y: Any, alpha: Any = 1) -> Ref:
    base = node.target._schema.name[6:]
    _refuse_booleans(node, base, x, y, alpha)
    if torch_private.is_known(alpha == 1):
        return pointwise(im, node, base, x, y)
    if node.meta["val"].dtype is torch.bool:
        y = y if alpha else im.full(False, torch.bool, ())
        return pointwise(im, node, base, x, y)
    return pointwise(im, node, base + "_scaled", x, y, alpha)


@rule("rsub")
def _rsub(im: GraphWriter, node: Any, x: Any, y: Any, alpha: Any = 1) -> Ref:
    _refuse_booleans(node, "sub", x, y, alpha)
    if torch_private.is_known(alpha == 1):
        return pointwise(im, node, "sub", y, x)
    return pointwise(im, node, "sub_scaled", y, x, alpha)


def _refuse_booleans(node: Any, operation: str, x: Any, y: Any, alpha: Any) -> None:
    """ATen does not subtract booleans, and takes a boolean factor only in a sum of booleans."""
    types = [v.dtype if isinstance(v, Ref) else type(v) for v in (x, y)]
    if operation == "sub" and any(t in (torch.bool, bool) for t in types):
        raise Unsupported("a difference of booleans")
    if isinstance(alpha, bool) and node.meta["val"].dtype is not torch.bool:
        raise Unsupported("a boolean factor")


@rule("div.Tensor_mode", "div.Scalar_mode")
def _div_mode(im: GraphWriter, node: Any, x: Any, y: Any, rounding_mode: str | None = None) -> Ref:
    row = {None: "div", "trunc": "div_trunc", "floor": "div_floor"}[rounding_mode]
    return pointwise(im, node, row, x, y)


@rule("pow.Tensor_Scalar")
def _pow(im: GraphWriter, node: Any, x: Ref, exponent: Any) -> Ref:
    if not node.meta["val"].dtype.is_floating_point and isinstance(exponent, int) and exponent < 0:
        raise Unsupported("a negative power of integers: ATen raises the error")
    if x.dtype is torch.float16 and exponent in (0.5, -0.5):
        # For other types ATen uses sqrt, which differs from pow for -0 and -inf.
        signless = im.pointwise("logical_or", im.pointwise("eq", x, 0), im.pointwise("isinf", x))
        x = im.where(signless, im.pointwise("abs", x), x)
    return pointwise(im, node, "pow", x, exponent)

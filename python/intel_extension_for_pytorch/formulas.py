"""Decompositions that PyTorch does not have: ATen ops as pointwise ops, reductions and matrix products."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable
from functools import partial
from typing import Any

import torch

from . import compat
from .errors import InternalError
from .importer import fits

aten = torch.ops.aten
Tensor = torch.Tensor

FORMULAS: dict[Any, Callable] = {}
NONE, MEAN = 0, 1  # among ATen's reductions of a loss


def formula(op: Any) -> Callable[[Callable], Callable]:
    """Registers a function as what an ATen overload is made of. An overload has one."""

    def register(function: Callable) -> Callable:
        if op in FORMULAS:
            raise InternalError(f"{op} has two formulas")
        FORMULAS[op] = function
        return function

    return register


def of_one_type(decomposition: Callable, accepted: tuple[torch.dtype, ...] = ()) -> Callable:
    """A decomposition for operands of one type, one of `accepted` where some are named. ATen refuses others, which
    tracing does not: the op is left whole, as it has the error."""

    def decomposed(*arguments: Any, **by_name: Any) -> Any:
        types = {a.dtype for a in (*arguments, *by_name.values()) if isinstance(a, Tensor)}
        if len(types) > 1 or (accepted and not types.issubset(accepted)):
            return NotImplemented
        return decomposition(*arguments, **by_name)

    return decomposed


@formula(aten._weight_norm_interface_backward.default)
def _weight_norm_backward(gradient: Tensor, v: Tensor, g: Tensor, norms: Tensor, dim: int) -> tuple[Tensor, Tensor]:
    """Of v * g / norms: along v the norm cancels, across it the gradient is scaled."""
    axes = [d for d in range(v.dim()) if d != dim % v.dim()]
    wide = torch.promote_types(v.dtype, torch.float32)
    gradient, direction, scale, norm = (t.to(wide) for t in (gradient, v, g, norms))
    direction = direction / norm
    along = (gradient * direction).sum(axes, keepdim=True)
    return ((gradient - direction * along) * (scale / norm)).to(v.dtype), along.to(g.dtype)


@formula(aten.native_group_norm.default)
def _group_norm(
    x: Tensor, weight: Tensor | None, bias: Tensor | None, batch: int, channels: int, length: int, groups: int,
    eps: float,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """With the statistics of layer norm: eager computes both in fp32, where its variances of fp32 are in fp64."""
    if not norm_types_agree(x.dtype, [p.dtype for p in (weight, bias) if p is not None]):
        return NotImplemented
    values = x.to(torch.promote_types(x.dtype, torch.float32))
    rows = values.reshape(batch, groups, channels // groups, length)
    _, mean, scale = aten.native_layer_norm(rows, rows.shape[2:], None, None, eps)
    factor = scale if weight is None else scale * weight.reshape(1, groups, -1, 1)
    shift = -mean * factor
    if bias is not None:
        shift = shift + bias.reshape(1, groups, -1, 1)
    by_channel = (batch, channels) + (1,) * (x.dim() - 2)
    factor, shift = (t.expand(batch, groups, channels // groups, 1).reshape(by_channel) for t in (factor, shift))
    y = values * factor + shift
    kept = next((p.dtype for p in (weight, bias) if p is not None), x.dtype)
    return y.to(x.dtype), mean.reshape(batch, groups).to(kept), scale.reshape(batch, groups).to(kept)


def _has_range(dtype: torch.dtype | None, *ends: float | Tensor) -> bool:
    """Whether ATen makes a range of this type with these ends: all that they may be have to fit."""
    if dtype is torch.bool:
        return False
    dtype = dtype or torch.get_default_dtype()
    return dtype.is_complex or all(_fits(end, dtype) for end in ends)


def _fits(value: float | Tensor | torch.SymInt | torch.SymFloat, dtype: torch.dtype) -> bool:
    if isinstance(value, Tensor):
        return torch.promote_types(value.dtype, dtype) is dtype
    known = compat.bounds(value) if isinstance(value, (torch.SymInt, torch.SymFloat)) else (value,)
    return isinstance(value, complex) or all(fits(number, dtype) for number in known)


@formula(aten.linspace.default)
@formula(aten.linspace.Tensor_Tensor)
@formula(aten.linspace.Tensor_Scalar)
@formula(aten.linspace.Scalar_Tensor)
def _linspace(
    start: float | Tensor, end: float | Tensor, steps: int, *, dtype: torch.dtype | None = None, **options: Any
) -> Tensor:
    """Of integers as ATen does it: the ends truncated, what lies between in double from the nearer end, truncated."""
    if not _has_range(dtype, start, end):
        return NotImplemented
    if dtype is None or dtype.is_floating_point or dtype.is_complex or steps < 2:
        return torch._refs.linspace(start, end, steps, dtype=dtype, **options)
    first, last = (
        v.to(dtype).long() if isinstance(v, Tensor) else torch.full((), int(v)).to(dtype).long() for v in (start, end)
    )
    step, fma = (last - first).double() / (steps - 1), compat.rounded_once()
    index = torch.arange(steps, dtype=torch.float64)
    before_middle = fma(index, step, first.double())
    after_middle = fma(index - (steps - 1), step, last.double())
    return torch.where(index < steps // 2, before_middle, after_middle).to(dtype)


@formula(aten.logspace.default)
@formula(aten.logspace.Tensor_Tensor)
@formula(aten.logspace.Tensor_Scalar)
@formula(aten.logspace.Scalar_Tensor)
def _logspace(
    start: float | Tensor, end: float | Tensor, steps: int, base: float = 10.0, *, dtype: torch.dtype | None = None,
    **options: Any,
) -> Tensor:  # fmt: skip
    if not _has_range(dtype, start, end):
        return NotImplemented
    return torch._refs.logspace(start, end, steps, base, dtype=dtype, **options)


def _drawn_in_order(op: Any) -> None:
    """ATen draws these numbers into contiguous memory, whatever the layout of its operands; tracing takes that for the
    result's."""

    @formula(op)
    def drawn(*arguments: Any, **by_name: Any) -> Any:
        ordered = [a.contiguous() if isinstance(a, Tensor) else a for a in arguments]
        if all(a is b for a, b in zip(ordered, arguments, strict=True)):
            return NotImplemented
        return op(*ordered, **by_name)


for _op in (
    aten.normal.Tensor_Tensor, aten.normal.Tensor_float, aten.normal.float_Tensor, aten.poisson.default,
    aten._standard_gamma.default,
):  # fmt: skip
    _drawn_in_order(_op)


@formula(aten.eye.m)
def _eye(n: int, m: int, *, dtype: torch.dtype | None = None, **options: Any) -> Tensor:
    """PyTorch's own compares indices in the narrowest unsigned type, of which ATen has no range."""
    return (torch.arange(n)[:, None] == torch.arange(m)).to(dtype or torch.get_default_dtype())


@formula(aten.eye.default)
def _square_eye(n: int, **options: Any) -> Tensor:
    return _eye(n, n, **options)


@formula(aten.roll.default)
def _roll(x: Tensor, shifts: list[int], dims: list[int] = ()) -> Tensor:
    """Of an image in channels_last, whose memory format ATen keeps and tracing would not; the rest has a rule."""
    if not dims or x.is_contiguous() or torch._prims_common.suggest_memory_format(x) is not torch.channels_last:
        return NotImplemented
    axes = [(0, 3, 1, 2)[d] for d in dims]  # of N, H, W, C
    return aten.roll.default(x.permute(0, 2, 3, 1), shifts, axes).permute(0, 3, 1, 2)


@formula(aten.smooth_l1_loss_backward.default)
def _smooth_l1_backward(gradient: Tensor, x: Tensor, target: Tensor, reduction: int, beta: float) -> Tensor:
    """PyTorch's own takes the sign of a difference that is NaN, which is 0."""
    if 0 in x.shape:
        return torch.zeros_like(x)
    wide = torch.promote_types(x.dtype, torch.float32)
    gradient, difference = gradient.to(wide), x.to(wide) - target.to(wide)
    if reduction == MEAN:
        gradient = gradient * (1.0 / x.numel())
    slope = torch.where(difference >= beta, gradient, gradient * difference / beta)
    return torch.where(difference <= -beta, -gradient, slope).to(x.dtype)


@formula(aten.nll_loss_backward.default)
@formula(aten.nll_loss2d_backward.default)
def _nll_loss_backward(
    gradient: Tensor, x: Tensor, target: Tensor, weight: Tensor | None, reduction: int, ignore_index: int,
    total_weight: Tensor,
) -> Tensor:  # fmt: skip
    """Minus the gradient at each target and 0 elsewhere, asked for element by element: PyTorch's own scatters into
    zeros, which is a tensor of the logits' size more in memory."""
    channels = 1 if x.dim() > 1 else 0
    wide = torch.promote_types(x.dtype, torch.float32)
    gradient = gradient.to(wide)
    if reduction == MEAN:
        gradient = gradient / total_weight.to(wide)
    if x.dim() == 1 and target.dim() > 0:
        target = target[0]
    target = target.unsqueeze(channels)
    shape = [1] * x.dim()
    shape[channels] = x.shape[channels]
    if x.dim() > gradient.dim() > 0:
        gradient = gradient.unsqueeze(channels)
    if weight is not None:
        gradient = gradient * weight.to(wide).reshape(shape)
    chosen = (torch.arange(x.shape[channels]).reshape(shape) == target) & (target != ignore_index)
    return torch.where(chosen, -gradient, 0).expand(x.shape).to(x.dtype)


# ---- integers divided by zero ----

_checked = threading.local()  # .op: the division whose divisors have just been checked


def _divide(op: Any, x: Any, y: Any, **options: Any) -> Tensor:
    """The op itself, behind a check that raises as eager does. The check is an op of its own: it raises where nobody
    reads the quotient, too."""
    if getattr(_checked, "op", None) is op or options.get("rounding_mode", "") is None:
        return NotImplemented
    nonzero = _nonzero(x, y)
    if nonzero is None:
        return NotImplemented
    aten._assert_async.msg(nonzero, "ZeroDivisionError")
    _checked.op = op
    try:
        return op(x, y, **options)
    finally:
        _checked.op = None


for _op in (
    aten.div.Scalar_mode, aten.div.Tensor_mode, aten.floor_divide.Scalar, aten.floor_divide.default, aten.fmod.Scalar,
    aten.fmod.Tensor, aten.remainder.Scalar, aten.remainder.Scalar_Tensor, aten.remainder.Tensor,
):  # fmt: skip
    formula(_op)(partial(_divide, _op))


def _nonzero(x: Any, y: Any) -> Tensor | None:
    """Whether no element of x / y is divided by zero, a tensor; None where that needs no check."""
    plain = [1 if isinstance(v, torch.SymInt) else v for v in (x, y)]
    if any(isinstance(v, (float, torch.SymFloat, torch.SymBool)) for v in plain):
        return None
    dtype = torch.result_type(*plain)
    if dtype.is_floating_point or dtype.is_complex or dtype is torch.bool:
        return None
    if not isinstance(y, Tensor):
        if not isinstance(y, torch.SymInt):
            y = int(y) % (1 << torch.iinfo(dtype).bits)  # as it is in that type
        if compat.is_known(y != 0):
            return None
        y = torch.scalar_tensor(y, dtype=torch.int64)
    nonzero = (y.to(dtype) != 0).all()
    if compat.is_known(y.numel() == 1):  # tracing would raise for a constant at once: it knows what one number is
        nonzero = nonzero | torch.zeros((), dtype=torch.bool)
    count = x.numel() if isinstance(x, Tensor) else 1
    # Where x is empty nothing is divided, whatever it is broadcast with.
    return nonzero if compat.is_known(count != 0) else nonzero | (torch.scalar_tensor(count, dtype=torch.int64) == 0)


# ---- distances between the rows of matrices ----

_MATRIX_ROWS = 25  # above it ATen takes euclidean distances from a matrix product


@formula(aten._cdist_forward.default)
@partial(of_one_type, accepted=(torch.float32, torch.float64))
def _cdist(x: Tensor, y: Tensor, p: float, compute_mode: int | None) -> Tensor:
    """[..., P, M] and [..., R, M] give [..., P, R]."""
    many = x.shape[-2] > _MATRIX_ROWS or y.shape[-2] > _MATRIX_ROWS
    if p == 2 and (compute_mode == 1 or (not compute_mode and many)):
        batch = torch.broadcast_shapes(x.shape[:-2], y.shape[:-2])
        return aten._euclidean_dist(x.expand(*batch, *x.shape[-2:]), y.expand(*batch, *y.shape[-2:]))
    difference = x.unsqueeze(-2) - y.unsqueeze(-3)
    if x.shape[-1] == 0:
        return difference.sum(-1)
    return difference.abs().amax(-1) if math.isinf(p) else torch.linalg.vector_norm(difference, p, dim=-1)


@formula(aten._cdist_backward.default)
def _cdist_backward(gradient: Tensor, x: Tensor, y: Tensor, p: float, distance: Tensor) -> Tensor:
    difference = x.unsqueeze(-2) - y.unsqueeze(-3)
    return _distance_gradient(gradient.unsqueeze(-1), difference, distance.unsqueeze(-1), p).sum(-2)


@formula(aten._pdist_forward.default)
def _pdist(x: Tensor, p: float = 2) -> Tensor:
    """[N, M] gives the distances of rows i < j, in that order."""
    i, j = torch.triu_indices(x.shape[0], x.shape[0], 1)
    return torch.linalg.vector_norm(x[i] - x[j], p, dim=-1)


@formula(aten._pdist_backward.default)
def _pdist_backward(gradient: Tensor, x: Tensor, p: float, distance: Tensor) -> Tensor:
    i, j = torch.triu_indices(x.shape[0], x.shape[0], 1)
    change = _distance_gradient(gradient.unsqueeze(-1), x[i] - x[j], distance.unsqueeze(-1), p)
    return torch.zeros_like(x).index_add(0, i, change).index_add(0, j, change, alpha=-1)


def _distance_gradient(gradient: Tensor, difference: Tensor, distance: Tensor, p: float) -> Tensor:
    """Of the p-norm of `difference`; 0 where the norm has no slope."""
    if p == 0:
        return gradient * torch.zeros_like(difference)
    if p == 1:
        return gradient * difference.sign()
    if math.isinf(p):
        return gradient * torch.where(difference.abs() == distance, difference.sign(), 0.0)
    slope = difference.sign() * (difference.abs() / distance).pow(p - 1)
    flat = distance == 0
    if p < 1:
        flat = flat | (difference == 0)
    return torch.where(flat, 0.0, gradient * slope)


# ---- normalisations ----


def norm_types_agree(x: torch.dtype, parameters: list[torch.dtype]) -> bool:
    """ATen takes weights, biases and running statistics of x's type or, beside a half type, all of them of f32."""
    half = x in (torch.float16, torch.bfloat16)
    return all(p is x for p in parameters) or (half and all(p is torch.float32 for p in parameters))


def has_wide_parameters(x: Tensor, *arguments: Any) -> bool:
    """Whether x is of a half type and the tensors beside it of f32."""
    parameters = [a.dtype for a in arguments if isinstance(a, Tensor)]
    return bool(parameters) and parameters[0] is not x.dtype and norm_types_agree(x.dtype, parameters)


# ---- sums of products ----


@formula(aten.addbmm.default)
def _addbmm(x: Tensor, a: Tensor, b: Tensor, *, beta: float = 1, alpha: float = 1) -> Tensor:
    """The sum over the batch is part of the inner dimension of one product."""
    wide, high = a.permute(1, 0, 2).reshape(a.shape[1], -1), b.reshape(-1, b.shape[2])
    return torch.addmm(x, wide, high, beta=beta, alpha=alpha)


@formula(aten.addmv.default)
def _addmv(x: Tensor, a: Tensor, v: Tensor, *, beta: float = 1, alpha: float = 1) -> Tensor:
    """With alpha = 0 the library that eager calls leaves the product out, infinities and all."""
    if alpha != 0 or x.dtype not in (torch.float32, torch.float64):
        op = aten.addmv.default
        return compat.registered_decompositions([op])[op](x, a, v, beta=beta, alpha=alpha)
    return beta * x.expand(a.shape[:1]) if beta != 0 else x.new_zeros(a.shape[:1])


@formula(aten._trilinear.default)
def _trilinear(
    x: Tensor, y: Tensor, z: Tensor, expand_x: list[int], expand_y: list[int], expand_z: list[int], sumdim: list[int],
    unroll_dim: int = 1,
) -> Tensor:  # fmt: skip
    x, y, z = _unsqueezed(x, expand_x), _unsqueezed(y, expand_y), _unsqueezed(z, expand_z)
    return (x * y * z).sum(sumdim, dtype=x.dtype) if sumdim else x * y * z


def _unsqueezed(x: Tensor, dims: list[int]) -> Tensor:
    for d in dims:
        x = x.unsqueeze(d)
    return x


# ---- orthogonal polynomials of a degree that the program says ----

_Recurrence = Callable[[Tensor, int, Tensor, Tensor], Tensor]
_MOST_STEPS = 6  # beyond it ATen takes Chebyshev polynomials from cosines


def _chebyshev(x: Tensor, k: int, p: Tensor, before: Tensor) -> Tensor:
    return 2 * x * p - before


# ATen name: the polynomial of degree 1, and that of degree k + 1 from those of degree k and k - 1.
_POLYNOMIALS: dict[str, tuple[Callable[[Tensor], Tensor], _Recurrence]] = {
    "chebyshev_polynomial_t": (lambda x: x, _chebyshev),
    "chebyshev_polynomial_u": (lambda x: 2 * x, _chebyshev),
    "chebyshev_polynomial_v": (lambda x: 2 * x - 1, _chebyshev),
    "chebyshev_polynomial_w": (lambda x: 2 * x + 1, _chebyshev),
    "hermite_polynomial_h": (lambda x: 2 * x, lambda x, k, p, before: 2 * x * p - 2 * k * before),
    "hermite_polynomial_he": (lambda x: x, lambda x, k, p, before: x * p - k * before),
    "laguerre_polynomial_l": (lambda x: 1 - x, lambda x, k, p, before: ((2 * k + 1 - x) * p - k * before) / (k + 1)),
    "legendre_polynomial_p": (lambda x: x, lambda x, k, p, before: ((2 * k + 1) * x * p - k * before) / (k + 1)),
}


def _polynomial(name: str, x: Tensor, n: float) -> Tensor:
    shifted = name.startswith("shifted_")
    first, following = _POLYNOMIALS[name.removeprefix("shifted_")]
    if n > _MOST_STEPS:
        return NotImplemented
    x = x if x.is_floating_point() else x.to(torch.get_default_dtype())
    x = 2 * x - 1 if shifted else x
    if n < 1:
        return torch.full_like(x, n >= 0)
    before, p = torch.ones_like(x), first(x)
    for k in range(1, int(n)):
        before, p = p, following(x, k, p, before)
    return p


for _name in (*_POLYNOMIALS, *(f"shifted_{name}" for name in _POLYNOMIALS if name.startswith("chebyshev"))):
    formula(getattr(aten, f"special_{_name}").n_scalar)(partial(_polynomial, _name))


# ---- copies ----


@formula(aten.narrow_copy.default)
def _narrow_copy(x: Tensor, dim: int, start: int, length: int) -> Tensor:
    return x.narrow(dim, start, length).clone()


# ---- pooling ----


@formula(aten.max_unpool2d.default)
@formula(aten.max_unpool3d.default)
def _max_unpool(x: Tensor, indices: Tensor, output_size: list[int], *unread: Any) -> Tensor:
    """Values at their positions in each plane, 0 elsewhere; in the memory order of x, which PyTorch's own forgets."""
    spatial = len(output_size)
    planes = x.new_zeros(*x.shape[:-spatial], math.prod(output_size))
    result = planes.scatter(-1, indices.flatten(-spatial), x.flatten(-spatial)).unflatten(-1, output_size)
    channels_last = x.dim() == 4 and x.is_contiguous(memory_format=torch.channels_last) and not x.is_contiguous()
    return result.contiguous(memory_format=torch.channels_last) if channels_last else result


# ---- where a mask says ----


@formula(aten.masked_fill.Scalar)
def _masked_fill(x: Tensor, mask: Tensor, value: float) -> Tensor:
    """PyTorch's own leaves the number to an op that makes infinities of what is too large for a half."""
    if isinstance(value, (int, float)) and not fits(value, x.dtype):
        return NotImplemented
    op = aten.masked_fill.Scalar
    return compat.registered_decompositions([op])[op](x, mask, value)


def _order_in_mask(mask: Tensor) -> Tensor:
    """For each element of the mask, flat, how many before it are set."""
    count = mask.reshape(-1).to(torch.int64)
    return count.cumsum(0) - count


@formula(aten.masked_scatter.default)
def _masked_scatter(x: Tensor, mask: Tensor, source: Tensor) -> Tensor:
    """Elements of `source`, in order, where the mask is set."""
    x, mask = torch.broadcast_tensors(x, mask)
    count = math.prod(source.shape)
    if compat.is_known(count == 0):
        return x.clone()
    given = source if source.dim() == 1 else source.reshape(-1)
    if not compat.is_known(count > 0):  # something to read where the mask is not set
        given = torch.cat([given, given.new_zeros(1)])
    order = torch.where(mask.reshape(-1), _order_in_mask(mask), 0)
    return torch.where(mask, given.gather(0, order).view(x.shape), x)


@formula(aten.masked_scatter_backward.default)
def _masked_scatter_backward(gradient: Tensor, mask: Tensor, sizes: list[int]) -> Tensor:
    """Of `source`: the gradients where the mask is set, in order; the rest of it has none."""
    count = math.prod(sizes)
    if count == 0:
        return gradient.new_zeros(sizes)
    gradient, mask = torch.broadcast_tensors(gradient, mask)
    chosen = mask.reshape(-1)
    order = torch.where(chosen, _order_in_mask(mask), 0)
    given = torch.where(chosen, gradient.reshape(-1), 0)
    return gradient.new_zeros(count).scatter_add(0, order, given).view(sizes)


# ---- embedding bags ----


@formula(aten._embedding_bag_forward_only.default)
def _embedding_bag_forward_only(
    weight: Tensor, indices: Tensor, offsets: Tensor, scale_by_frequency: bool = False, mode: int = 0,
    sparse: bool = False, weights: Tensor | None = None, include_last_offset: bool = False, padding_idx: int = -1,
) -> tuple[Tensor, ...]:  # fmt: skip
    """What training computes. PyTorch's shape function counts the last offset as a bag, which ATen does in sums alone,
    of whose bags it says nothing then."""
    result, bag_of, sizes, largest = aten._embedding_bag.default(
        weight, indices, offsets, scale_by_frequency, mode, sparse, weights, include_last_offset, padding_idx
    )
    if mode == 0 and include_last_offset:
        sizes, largest = torch.zeros_like(offsets), torch.zeros_like(offsets)
    return result, bag_of, sizes, largest


@formula(aten._embedding_bag_backward.default)
def _embedding_bag_backward(
    gradient: Tensor, indices: Tensor, offsets: Tensor, bag_of: Tensor, bag_sizes: Tensor, largest: Tensor,
    rows: int, scale_by_frequency: bool, mode: int, sparse: bool, *options: Any,
) -> Tensor:  # fmt: skip
    """The op itself without what its mode does not read, which the forward pass then need not make. ATen, which a
    failure of compilation would call, finds the bags of indices by `offsets` as well where it is given none."""
    unread = (bag_of, largest) if mode == 1 else (bag_of, bag_sizes, largest)
    if (
        sparse
        or scale_by_frequency
        or mode == 2
        or all(isinstance(t.shape[0], int) and t.shape[0] == 0 for t in unread)
    ):
        return NotImplemented
    nothing = indices[:0]
    sizes = bag_sizes if mode == 1 else nothing
    return aten._embedding_bag_backward.default(
        gradient, indices, offsets, nothing, sizes, nothing, rows, scale_by_frequency, mode, sparse, *options
    )


# ---- lists of tensors (optimizers): the op on each of them ----

_OF_EACH = (
    "abs", "acos", "add", "addcdiv", "addcmul", "asin", "atan", "ceil", "clamp_max", "clamp_min", "cos", "cosh", "div",
    "erf", "erfc", "exp", "expm1", "floor", "frac", "lerp", "lgamma", "log", "log10", "log1p", "log2", "max", "maximum",
    "minimum", "mul", "neg", "norm", "pow", "reciprocal", "round", "rsqrt", "sigmoid", "sign", "sin", "sinh", "sqrt",
    "sub", "tan", "tanh", "trunc",
)  # fmt: skip
_BASES = {
    "_foreach_maximum.Scalar": aten.clamp_min,
    "_foreach_maximum.ScalarList": aten.clamp_min,
    "_foreach_minimum.Scalar": aten.clamp_max,
    "_foreach_minimum.ScalarList": aten.clamp_max,
    "_foreach_norm.Scalar": lambda x, ord, dtype=None: aten.linalg_vector_norm(x, ord, dtype=dtype),
}
_BY_NAME = ("alpha", "value", "dtype")  # arguments that ATen's op on one tensor takes by name only


def _of_each(op: Any, base: Callable) -> Callable:
    arguments = op._schema.arguments
    defaults = {a.name: a.default_value for a in arguments if a.has_default_value()}
    names = [a.name for a in arguments]
    lists = {a.name for a in arguments if str(a.type).startswith("List")}
    # A list of numbers is called like its plural.
    by_name = [n for n in names if n in _BY_NAME or (n == "scalars" and base in (aten.addcmul, aten.addcdiv))]

    def decomposed(*args: Any, **kwargs: Any) -> list[Tensor]:
        given = {**defaults, **dict(zip(names, args, strict=False)), **kwargs}
        count = next(len(given[name]) for name in names if name in lists)
        result = []
        for i in range(count):
            each = {name: value[i] if name in lists else value for name, value in given.items()}
            keywords = {"value" if n == "scalars" else n: each[n] for n in by_name}
            result.append(base(*(each[n] for n in names if n not in by_name), **keywords))
        return result

    return decomposed


for _name in _OF_EACH:
    _packet = getattr(aten, f"_foreach_{_name}")
    for _overload in _packet.overloads():
        _op = getattr(_packet, _overload)
        # A tensor of numbers, one for each tensor of the list, is indexed by ATen.
        if "out" in _overload or any(a.name == "scalars" and str(a.type) == "Tensor" for a in _op._schema.arguments):
            continue
        formula(_op)(_of_each(_op, _BASES.get(f"_foreach_{_name}.{_overload}", getattr(aten, _name))))

"""Which rule imports an ATen op: a rule written here or in the ops_* files, else the row of an op table.

A rule is a function (importer, node, *args) that emits Graph nodes and returns their values; it raises Unsupported for
what it cannot express, and the op becomes Extern.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from functools import cache, lru_cache
from types import SimpleNamespace
from typing import Any

import torch

from . import _C, compat, extern
from .errors import InternalError, Unsupported
from .importer import Importer, Ref, opmath, traced_count
from .sizes import Dim

Rule = Callable[..., Any]
_RULES: dict[str, Rule] = {}


def rule(*names: str) -> Callable[[Rule], Rule]:
    """Registers a rule for ATen base names ("add") or overloads ("max.dim"). A name has one."""

    def register(function: Rule) -> Rule:
        for name in names:
            if name in _RULES:
                raise InternalError(f"{name} has two import rules")
            _RULES[name] = function
        return function

    return register


@lru_cache(maxsize=1)
def _tables() -> tuple[dict[str, Any], dict[str, Any]]:
    """ATen name -> row, for pointwise ops and for reductions."""
    pointwise = {aten: row for row in _rows_by_name().values() for aten in row.aten.split()}
    reductions = {row["aten"]: SimpleNamespace(**row) for row in _C.reduction_rows()}
    return pointwise, {aten: row for names, row in reductions.items() for aten in names.split()}


def native_names() -> set[str]:
    """ATen base names and overloads that have a rule or a row: these must not be decomposed."""
    _load_rules()
    return set(_RULES).union(*_tables())


@lru_cache(maxsize=1)
def _load_rules() -> None:
    from . import (  # noqa: F401
        ops_arithmetic,
        ops_bags,
        ops_indexing,
        ops_library,
        ops_losses,
        ops_norms,
        ops_pooling,
        ops_softmax,
        ops_sorting,
        ops_views,
    )

    for row in _C.scan_rows():
        rule(*row["aten"].split())(_scan_rule(SimpleNamespace(**row)))


@cache
def rule_for(target: Any) -> Rule | None:
    """The rule of an op, or None: Extern."""
    _load_rules()
    if target is operator.getitem:
        return _getitem
    if not isinstance(target, torch._ops.OpOverload):
        return None
    namespace, _, base = target._schema.name.partition("::")
    if namespace in ("prims", "_c10d_functional"):
        return _RULES.get(f"{namespace}.{base}")
    if namespace != "aten":
        return None
    found = _aten_rule(target, base)
    return _of_one_type(found, target, _OF_ONE_TYPE[base]) if found and base in _OF_ONE_TYPE else found


def _aten_rule(target: Any, base: str) -> Rule | None:
    overload = f"{base}.{target._overloadname}"
    pointwise, reductions = _tables()
    for name in (overload, base):
        if name in _RULES:
            return _RULES[name]
        if name in reductions:
            return _reduction_rule(target, reductions[name])
        if name in pointwise:
            return _pointwise_rule(target, pointwise[name])
    return None


# Operands that ATen takes of one type alone, which tracing does not compare.
_OF_ONE_TYPE = {
    "index_add": ("self", "source"), "index_copy": ("self", "source"), "index_reduce": ("self", "source"),
    "put": ("self", "source"), "index_put": ("self", "values"), "_unsafe_index_put": ("self", "values"),
    "heaviside": ("self", "values"), "addmm": ("self", "mat1"), "baddbmm": ("self", "batch1"),
    "_embedding_bag": ("weight", "per_sample_weights"), "_embedding_bag_forward_only": ("weight", "per_sample_weights"),
    "_softmax_backward_data": ("grad_output", "output"), "_log_softmax_backward_data": ("grad_output", "output"),
}  # fmt: skip


def _of_one_type(rule: Rule, target: Any, names: Sequence[str]) -> Rule:
    """The rule where these operands are of one type; ATen has the error for others."""

    def import_one_type(im: Importer, node: Any, *args: Any, **kwargs: Any) -> Any:
        given = named_arguments(target, args, kwargs)
        if len({given[name].dtype for name in names if isinstance(given[name], Ref)}) > 1:
            raise Unsupported(f"{names[0]} and {names[1]} of different types")
        return rule(im, node, *args, **kwargs)

    return import_one_type


def _getitem(im: Importer, node: Any, values: Any, index: int) -> Any:
    return values[index]


# ---- pointwise rows ----

_NUMBER_TYPES = ("number", "float", "int", "bool", "SymInt")


def _pointwise_rule(target: Any, row: Any) -> Rule | None:
    """Rows whose operands are the op's arguments in order; anything else needs a rule of its own."""
    arguments = target._schema.arguments
    kinds = [_argument_kind(a) for a in arguments]
    if None in kinds or len(arguments) != row.arity:
        return None
    names = [a.name for a in arguments]
    defaults = [a.default_value if a.has_default_value() else None for a in arguments]

    def import_row(im: Importer, node: Any, *args: Any, **kwargs: Any) -> Ref:
        operands = list(args)
        for i in range(len(operands), len(names)):
            operands.append(kwargs.get(names[i], defaults[i]))
        return pointwise(im, node, row, operands)

    return import_row


def _argument_kind(argument: Any) -> str | None:
    kind = str(argument.type)
    if kind == "Tensor":
        return "tensor"
    return "number" if kind in _NUMBER_TYPES else None


def row_named(name: str) -> Any:
    return _rows_by_name()[name]


@lru_cache(maxsize=1)
def _rows_by_name() -> dict[str, Any]:
    return {row["name"]: SimpleNamespace(**row) for row in _C.pointwise_rows()}


def pointwise(im: Importer, node: Any, row: Any, operands: list[Any]) -> Ref:
    """Emits a row over tensors and numbers: operands cast to the compute type, broadcast to the result's shape."""
    shape = im.shape_of(node)
    return pointwise_as(im, row, operands, shape)


def emit_row(im: Importer, name: str, shape: Sequence[Dim], *operands: Any) -> Ref:
    """The row of that name over tensors and numbers, broadcast to `shape`."""
    return pointwise_as(im, row_named(name), list(operands), tuple(shape))


def pointwise_as(im: Importer, row: Any, operands: list[Any], shape: tuple) -> Ref:
    if row.name == "where":
        condition = im.cast(operands[0], torch.bool)
        promoted = promote(operands[1:])
        refs = [condition, *(_operand(im, o, promoted, row) for o in operands[1:])]
        return im.pointwise_node("where", refs, promoted, shape)
    promoted = promote(operands)
    if row.promotion == "int_to_float" and not promoted.is_floating_point:
        promoted = torch.get_default_dtype()
    if not _accepts(row, promoted):
        raise Unsupported(f"pointwise.{row.name} has no {promoted} form")
    converted, of_arithmetic = _CONVERTED.get(row.name, ((), False))
    for position in converted:
        im.require_fit(operands[position], opmath(promoted) if of_arithmetic else promoted)
    result = torch.bool if row.promotion == "always_bool" else promoted
    refs = [_operand(im, o, promoted, row) for o in operands]
    if row.name in _UNROUNDED_FACTOR and isinstance(operands[1], Ref) and not operands[1].shape:
        refs[1] = im.cast(operands[1], opmath(promoted))
    return im.pointwise_node(row.name, refs, result, shape)


# Operands that eager converts, where they are numbers, to the type of the tensors or that of their arithmetic, and
# refuses where they do not fit; other numbers it reduces to the type's bits.
_CONVERTED = {
    "add_scaled": ((2,), False), "sub_scaled": ((2,), False), "pow": ((1,), False), "clamp": ((1, 2), False),
    "clamp_min": ((1,), False), "clamp_max": ((1,), False), "hardtanh": ((1, 2), False),
    "threshold": ((1, 2), False), "addcmul": ((3,), True), "addcdiv": ((3,), True), "leaky_relu": ((1,), True),
    "elu": ((1, 2, 3), True), "softplus": ((1, 2), True), "lerp": ((2,), True),
}  # fmt: skip

# Rows by which eager multiplies or divides halves with a 0-d tensor as it is, not rounded to their type first.
_UNROUNDED_FACTOR = ("mul", "div", "div_trunc", "div_floor")


def _accepts(row: Any, dtype: torch.dtype) -> bool:
    if dtype is torch.bool:
        return row.booleans
    return row.floats if dtype.is_floating_point else row.integers


def _operand(im: Importer, operand: Any, promoted: torch.dtype, row: Any) -> Ref:
    """One operand in the compute type. A half tensor may meet fp32 ones: arithmetic is in fp32 either way; what eager
    rounds to the promoted type first, is rounded here too."""
    if isinstance(operand, Ref):
        if operand.dtype is promoted or opmath(operand.dtype) is promoted:
            return operand
        return im.cast(operand, promoted)
    if operand is None:
        raise Unsupported(f"pointwise.{row.name} needs all of its operands")
    number = im.scalar(operand, opmath(promoted))
    # Eager compares with a number of the tensors' type, and takes a remainder by one.
    rounds = row.promotion == "always_bool" or row.name in ("remainder", "fmod")
    return im.cast(im.cast(number, promoted), opmath(promoted)) if rounds else number


_CATEGORY_RANK = {torch.bool: 0}


def promote(operands: list[Any]) -> torch.dtype:
    """torch.result_type over values and Python numbers: dimensioned tensors outrank 0-d ones, which outrank numbers."""
    dimensioned = zero_dim = number = None
    for operand in operands:
        if isinstance(operand, Ref):
            if operand.shape:
                dimensioned = _join(dimensioned, operand.dtype)
            else:
                zero_dim = _join(zero_dim, operand.dtype)
        elif operand is not None:
            number = _join(number, _number_dtype(operand))
    result = _combine(dimensioned, _combine(zero_dim, number))
    if result is None:
        raise Unsupported("no operand to take a dtype from")
    return result


def _number_dtype(value: Any) -> torch.dtype:
    if isinstance(value, (bool, torch.SymBool)):
        return torch.bool
    if isinstance(value, (int, torch.SymInt)):
        return torch.int64
    if isinstance(value, (float, torch.SymFloat)):
        return torch.get_default_dtype()
    raise Unsupported(f"a {type(value).__name__} is not an operand")


def _join(a: torch.dtype | None, b: torch.dtype) -> torch.dtype:
    return b if a is None or a is b else torch.promote_types(a, b)


def _combine(high: torch.dtype | None, low: torch.dtype | None) -> torch.dtype | None:
    if high is None or low is None:
        return low if high is None else high
    if high.is_floating_point:
        return high
    if high is torch.bool or low.is_floating_point:
        return torch.promote_types(high, low)
    return high


# ---- pointwise ops whose operands have to be arranged first ----


@rule("clamp")
def _clamp(im: Importer, node: Any, x: Any, min: Any = None, max: Any = None) -> Ref:
    if min is None:
        return pointwise(im, node, row_named("clamp_max"), [x, max])
    if max is None:
        return pointwise(im, node, row_named("clamp_min"), [x, min])
    return pointwise(im, node, row_named("clamp"), [x, min, max])


@rule("gelu")
def _gelu(im: Importer, node: Any, x: Any, approximate: str = "none") -> Ref:
    return pointwise(im, node, row_named("gelu_tanh" if approximate == "tanh" else "gelu"), [x])


@rule("gelu_backward")
def _gelu_backward(im: Importer, node: Any, grad: Any, x: Any, approximate: str = "none") -> Ref:
    row = "gelu_tanh_backward" if approximate == "tanh" else "gelu_backward"
    return pointwise(im, node, row_named(row), [grad, x])


@rule("leaky_relu_backward")
def _leaky_relu_backward(im: Importer, node: Any, grad: Any, x: Any, slope: Any, is_result: bool) -> Ref:
    return pointwise(im, node, row_named("leaky_relu_backward"), [grad, x, slope])


@rule("elu_backward")
def _elu_backward(
    im: Importer, node: Any, grad: Any, alpha: Any, scale: Any, input_scale: Any, is_result: bool, x: Any
) -> Ref:
    row = "elu_backward_result" if is_result else "elu_backward"
    return pointwise(im, node, row_named(row), [grad, alpha, scale, input_scale, x])


@rule("round.decimals")
def _round_decimals(im: Importer, node: Any, x: Any, decimals: int) -> Ref:
    if not x.dtype.is_floating_point:
        raise Unsupported("round to decimals of an integer tensor")
    return pointwise(im, node, row_named("round_decimals"), [x, float(decimals)])


@rule("nan_to_num")
def _nan_to_num(im: Importer, node: Any, x: Any, nan: Any = None, posinf: Any = None, neginf: Any = None) -> Ref:
    if not x.dtype.is_floating_point:
        return im.copy(x)
    limits = torch.finfo(x.dtype)
    defaults = [(nan, 0.0), (posinf, limits.max), (neginf, limits.min)]
    numbers = [default if given is None else given for given, default in defaults]
    return pointwise(im, node, row_named("nan_to_num"), [x, *numbers])


@rule("logit")
def _logit(im: Importer, node: Any, x: Any, eps: Any = None) -> Ref:
    if eps is not None:
        low, high, shape = eps, 1.0 - eps, x.shape  # where they cross, ATen asks for the lower one first
        clamped = emit_row(im, "clamp_max", shape, x, high)
        x = emit_row(im, "where", shape, emit_row(im, "lt", shape, x, low), low, clamped)
    return pointwise(im, node, row_named("logit"), [x])


@rule("celu")
def _celu(im: Importer, node: Any, x: Any, alpha: Any = 1.0) -> Ref:
    return pointwise(im, node, row_named("elu"), [x, alpha, 1.0, 1.0 / alpha])


@rule("nextafter")
def _nextafter(im: Importer, node: Any, x: Ref, y: Ref) -> Ref:
    dtype = node.meta["val"].dtype
    row = {torch.bfloat16: "nextafter_bf16", torch.float16: "nextafter_f16"}.get(dtype, "nextafter")
    return pointwise(im, node, row_named(row), [im.cast(x, dtype), im.cast(y, dtype)])


@rule("frexp.Tensor")
def _frexp(im: Importer, node: Any, x: Ref) -> list[Ref]:
    mantissa = pointwise_as(im, row_named("frexp_mantissa"), [x], x.shape)
    exponent = pointwise_as(im, row_named("frexp_exponent"), [x], x.shape)
    return [mantissa, im.cast(exponent, torch.int32)]


@rule("log_sigmoid_forward")
def _log_sigmoid_forward(im: Importer, node: Any, x: Ref) -> list[Ref]:
    """And exp(-|x|), which the backward reads."""
    power = x
    for name in ("abs", "neg", "exp"):
        power = pointwise_as(im, row_named(name), [power], x.shape)
    return [pointwise_as(im, row_named("log_sigmoid"), [x], x.shape), power]


@rule("polygamma")
def _polygamma(im: Importer, node: Any, n: int, x: Ref) -> Ref:
    if n > 30:
        raise Unsupported(f"polygamma of order {n}")
    return pointwise(im, node, row_named("polygamma"), [x, float(n)])


@rule("_assert_async")
def _assert_async(im: Importer, node: Any, condition: Ref, *message: str) -> None:
    extern.check(im, condition, *message)


@rule("_functional_assert_async")
def _functional_assert_async(im: Importer, node: Any, condition: Ref, *rest: Any) -> Ref:
    *message, token = rest
    extern.check(im, condition, *message)
    return token


@rule("native_dropout.default")
def _native_dropout(im: Importer, node: Any, x: Ref, p: Any, train: bool | None) -> list[Ref]:
    if not isinstance(p, (int, float)) or not x.dtype.is_floating_point:
        raise Unsupported("dropout of integers, or with a probability from data")
    if train is False or 0 in x.shape:
        return [im.copy(x), im.full(True, torch.bool, x.shape)]
    mask = extern.random_mask(im, node, node.meta["val"][1], 1.0 - p)
    wide = opmath(x.dtype)
    # A product, not a choice: what is dropped of infinities and NaN is NaN, as in eager.
    kept = im.pointwise_node("mul", [im.cast(x, wide), im.cast(mask, wide)], wide, x.shape)
    scale = im.cast(im.scalar(0.0 if p == 1 else 1.0 / (1.0 - p), x.dtype), wide)  # eager rounds it, too
    return [im.cast(im.pointwise_node("mul", [kept, scale], wide, x.shape), x.dtype), mask]


@rule("maximum", "minimum", "max.other", "min.other")
def _extreme_of_two(im: Importer, node: Any, x: Any, y: Any) -> Ref:
    row = "maximum" if node.target._schema.name[6:].startswith("max") else "minimum"
    return pointwise(im, node, row_named(row), [x, y])


@rule("_to_copy")
def _to_copy(im: Importer, node: Any, x: Ref, dtype: Any = None, **options: Any) -> Ref:
    return im.copy(x) if dtype is None or dtype is x.dtype else im.cast(x, dtype)


@rule("prims.convert_element_type")
def _convert_element_type(im: Importer, node: Any, x: Ref, dtype: torch.dtype) -> Ref:
    return im.copy(x) if dtype is x.dtype else im.cast(x, dtype)


@rule("prims.fma")  # what Dynamo makes of lerp_ and addcmul_
def _fma(im: Importer, node: Any, x: Any, y: Any, z: Any) -> Ref:
    return pointwise(im, node, row_named("fma"), [x, y, z])


@rule("hardtanh")
def _hardtanh(im: Importer, node: Any, x: Ref, min_val: Any = -1, max_val: Any = 1) -> Ref:
    return pointwise(im, node, row_named("hardtanh"), [x, *_in_type_of(im, x, min_val, max_val, first=torch.int64)])


@rule("threshold")
def _threshold(im: Importer, node: Any, x: Ref, threshold: Any, value: Any) -> Ref:
    return pointwise(im, node, row_named("threshold"), [x, *_in_type_of(im, x, threshold, value)])


@rule("threshold_backward")
def _threshold_backward(im: Importer, node: Any, grad: Ref, x: Ref, threshold: Any) -> Ref:
    dtype = node.meta["val"].dtype
    operands = [im.cast(grad, dtype), im.cast(x, dtype)] if dtype.is_floating_point else [grad, x]
    return pointwise(im, node, row_named("threshold_backward"), [*operands, *_in_type_of(im, x, threshold)])


def _in_type_of(im: Importer, x: Ref, *numbers: Any, first: torch.dtype | None = None) -> list[Any]:
    """Numbers that eager converts to the tensor's type, or of integers to another one first, before it compares."""
    if x.dtype.is_floating_point:
        return list(numbers)
    for number in numbers:
        im.require_fit(number, first or x.dtype)
    return [n if isinstance(n, torch.SymInt) else int(n) for n in numbers]


@rule("_efficientzerotensor")
def _zero_tensor(im: Importer, node: Any, size: Any, **options: Any) -> Ref:
    return im.copy(im.full(0, node.meta["val"].dtype, im.shape_of(node)))


@rule("fill")
def _fill(im: Importer, node: Any, x: Ref, value: Any) -> Ref:
    filling = im.cast(value, x.dtype) if isinstance(value, Ref) else im.number(value, x.dtype)
    return im.copy(im.expand(filling, x.shape))


# ---- reductions and scans ----


def named_arguments(target: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> dict[str, Any]:
    """Arguments by the names that the op's schema gives them, with its defaults."""
    schema = target._schema.arguments
    defaults = {a.name: a.default_value for a in schema if a.has_default_value()}
    return {**defaults, **dict(zip((a.name for a in schema), args, strict=False)), **kwargs}


def _reduction_rule(target: Any, row: Any) -> Rule:
    integers_widen = row.name in ("sum", "prod")

    def import_reduction(im: Importer, node: Any, *args: Any, **kwargs: Any) -> Any:
        given = named_arguments(target, args, kwargs)
        x = given["self"]
        dtype = given.get("dtype")
        if dtype is not None:
            x = im.cast(x, dtype)
        elif integers_widen and not x.dtype.is_floating_point:
            x = im.cast(x, torch.int64)
        taken = row
        if integers_widen and x.dtype is torch.bool:
            taken = _tables()[1]["any" if row.name == "sum" else "all"]
        if not _accepts(taken, x.dtype):
            raise Unsupported(f"reduce.{row.name} has no {x.dtype} form")
        return reduce(im, node, taken, x, given.get("dim"), given.get("keepdim", False))

    return import_reduction


def reduced(im: Importer, x: Ref, dim: Any, keepdim: bool) -> tuple[Ref, list[int], bool]:
    """What a reduction over `dim` (None or empty: every dimension) reads, over which axes, and whether it keeps them. A
    value without dimensions has one, which is not kept."""
    rank = len(x.shape)
    if rank == 0:
        return im.reshape(x, (1,)), [0], False
    dims = [dim] if isinstance(dim, int) else list(dim or range(rank))
    return x, sorted({d % rank for d in dims}), keepdim


def reduce(im: Importer, node: Any, row: Any, x: Ref, dim: Any, keepdim: bool) -> Any:
    """Emits a reduction of x over `dim` (None or empty: every dimension)."""
    x, axes, keepdim = reduced(im, x, dim, keepdim)
    if row.name in ("max_with_index", "min_with_index") and any(x.shape[d] == 0 for d in axes):
        raise Unsupported(f"{node.target} of nothing")
    shape = tuple(1 if d in axes else s for d, s in enumerate(x.shape) if keepdim or d not in axes)
    attrs: dict[str, Any] = {"axes": axes, "keepdim": keepdim}
    value = node.meta["val"]
    if row.results == 1:
        return im.emit("reduce", row.name, [x], _reduced_dtype(row, x, value.dtype), shape, **attrs)
    types = [(v.dtype, shape) for v in value]
    return im.emit_many("reduce", row.name, [x], types, **attrs)


def _reduced_dtype(row: Any, x: Ref, traced: torch.dtype) -> torch.dtype:
    if row.name in ("argmax", "argmin"):
        return torch.int64
    if row.promotion == "always_bool":
        return torch.bool if x.dtype is not torch.uint8 else traced
    return x.dtype


@rule("max.default", "min.default")
def _extreme_of_all(im: Importer, node: Any, x: Ref) -> Ref:
    op = node.target._schema.name[6:]
    name = "amax" if op == "max" else "amin"
    hint = "Specify the reduction dim with the 'dim' argument."
    require_elements(
        im, node, traced_count(node.args[0]),
        f"{op}(): Expected reduction dim to be specified for input.numel() == 0. {hint}",
    )  # fmt: skip
    return reduce_axes(im, name, x, list(range(len(x.shape))))


def require_elements(im: Importer, node: Any, count: Any, message: str) -> None:
    """Eager's error where a reduction without a neutral element has nothing to reduce."""
    if compat.is_known(count > 0):
        return
    if isinstance(count, int):
        raise Unsupported(f"{node.target} of nothing")
    extern.check(im, emit_row(im, "gt", (), im.size(im.symbols.dim(count)), 0), message)


def reduce_axes(im: Importer, row: str, x: Ref, axes: list[int], keepdim: bool = False) -> Ref:
    """A reduction over `axes` that keeps the dtype."""
    if not axes:
        return im.copy(x)
    shape = tuple(1 if d in axes else s for d, s in enumerate(x.shape) if keepdim or d not in axes)
    return im.emit("reduce", row, [x], x.dtype, shape, axes=axes, keepdim=keepdim)


def _scan_rule(row: Any) -> Rule:
    """A row of the scan table; sums and products of integers are i64."""

    def import_scan(im: Importer, node: Any, x: Ref, dim: int, dtype: Any = None) -> Any:
        if dtype is None and row.promotion == "default" and not x.dtype.is_floating_point:
            dtype = torch.int64
        if dtype is not None:
            x = im.cast(x, dtype)
        if not _accepts(row, x.dtype):
            raise Unsupported(f"scan.{row.name} has no {x.dtype} form")
        rows = x if x.shape else im.reshape(x, (1,))
        types = [(x.dtype, rows.shape), (torch.int64, rows.shape)][: row.results]
        results = im.emit_many("scan", row.name, [rows], types, axis=dim % len(rows.shape))
        results = [im.reshape(r, x.shape) for r in results]
        return results if row.results > 1 else results[0]

    return import_scan

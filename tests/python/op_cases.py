"""The op matrix: op x dtype x layout, with arguments generated from the schema of each ATen overload.

It includes all overloads with torch's tags for core pointwise ops and core reductions, and all ATen names in the
backend's op tables, so that a new table row is tested automatically. VARIANTS lists arguments whose useful values do
not follow from the schema (a rounding mode, a clamp range).
"""

import functools
import itertools

import torch
from graphs import Call

INTEGERS = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)
FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
DTYPES = (torch.bool, *INTEGERS, *FLOATS)

# Pairs of different dtypes, with different categories, sizes and signedness.
MIXED = (
    (torch.float32, torch.int64),
    (torch.bfloat16, torch.float32),
    (torch.bfloat16, torch.float16),
    (torch.uint8, torch.int8),
    (torch.bool, torch.int64),
    (torch.int32, torch.bool),
    (torch.float64, torch.float32),
)

VARIANTS = {
    "add.Tensor": [{}, {"alpha": 3}],
    "sub.Tensor": [{}, {"alpha": 2}],
    "add.Scalar": [{"other": 2}, {"other": 0.5}],
    "clamp": [{"min": -1, "max": 2}, {"min": 0}, {"max": 1}, {"min": -0.5, "max": 0.25}, {"min": 3, "max": 1}],
    "div.Tensor_mode": [{"rounding_mode": mode} for mode in (None, "trunc", "floor")],
    "div.Scalar_mode": [
        {"other": other, "rounding_mode": mode} for other in (3, -0.75) for mode in (None, "trunc", "floor")
    ],
    "elu": [{}, {"alpha": 0.5, "scale": 1.5, "input_scale": 2.0}],
    "gelu": [{"approximate": "none"}, {"approximate": "tanh"}],
    "hardtanh": [{}, {"min_val": -0.25, "max_val": 3}],
    "hardtanh_backward": [{"min_val": -1, "max_val": 1}, {"min_val": 0.5, "max_val": 2}],
    "softplus_backward": [{"beta": 1, "threshold": 20}, {"beta": 2, "threshold": 2}],
    "leaky_relu": [{}, {"negative_slope": -0.5}],
    "pow.Tensor_Scalar": [{"exponent": e} for e in (0, 1, 2, 3, -1, -2, 0.5, -0.5, 2.5, float("nan"), float("inf"))],
    "pow.Scalar": [{"self": base} for base in (0, 1, 2, 3, -2, 0.5, float("inf"))],
    "round.decimals": [{"decimals": 2}, {"decimals": -1}],
    "var.correction": [{}, {"correction": 0}, {"dim": [0]}, {"dim": [-1], "correction": 2, "keepdim": True}],
    "var.dim": [{"dim": [0]}, {"dim": [-1], "unbiased": False, "keepdim": True}],
    "sum.dim_IntList": [{"dim": None}, {"dim": [0]}, {"dim": [-1], "keepdim": True}, {"dim": [0, 2]},
                        {"dim": [1], "dtype": torch.float32}],
    "prod.dim_int": [{"dim": 0}, {"dim": -1, "keepdim": True}],
}  # fmt: skip

# Ops where the sign of a zero differs between eager's vector and scalar code.
UNFIXED_ZERO_SIGN = {
    "maximum", "minimum", "clamp", "clamp_min", "clamp_max", "fmax", "fmin", "relu", "relu6", "hardtanh", "remainder",
    "pow", "div", "lerp", "log_sigmoid_backward", "logaddexp2",
}  # fmt: skip

# Ops where eager's vector and scalar code handle NaN or infinities differently.
UNFIXED_SPECIALS = {
    "hardswish_backward", "hardtanh_backward", "hardshrink_backward", "softshrink_backward", "gelu",
}  # fmt: skip

DIVISION = {"div", "remainder", "fmod", "floor_divide", "true_divide"}


def overload(qualified):
    name, _, suffix = qualified.partition(".")
    return getattr(getattr(torch.ops.aten, name), suffix or "default")


def text_name(op):
    """The overload's name as in the tables and VARIANTS: "add.Tensor", "gelu"."""
    return str(op).removeprefix("aten.").removesuffix(".default")


def is_functional(op):
    mutates = op._schema.is_mutable or any(a.is_out for a in op._schema.arguments)
    return not mutates and all(str(r.type) == "Tensor" for r in op._schema.returns)


def is_alias(op):
    """True for ops that ATen decomposes before any compiler sees them (greater, __and__): a few cases suffice."""
    return op.has_kernel_for_dispatch_key(torch.DispatchKey.CompositeImplicitAutograd)


@functools.cache
def core_overloads(tag):
    """Overloads of the installed ATen with the core tag and `tag`, without out= forms."""
    found = []
    for qualified in sorted(torch._C._dispatch_get_all_op_names()):
        if not qualified.startswith("aten::"):
            continue
        try:
            op = overload(qualified.removeprefix("aten::"))
        except AttributeError:
            continue
        if {torch.Tag.core, tag} <= set(op.tags) and is_functional(op):
            found.append(op)
    return found


@functools.cache
def table_rows(kind):
    """Rows of the op table "pointwise", "reduction" or "scan"; none if another backend is under test."""
    try:
        from intel_extension_for_pytorch import _C
    except ImportError:
        return []
    return list(getattr(_C, f"{kind}_rows")())


@functools.cache
def row_overloads(kind):
    """Functional overloads of all ATen names in the tables. A base name stands for all of its overloads."""
    found = []
    for row in table_rows(kind):
        for name in row["aten"].split():
            base, _, suffix = name.partition(".")
            packet = getattr(torch.ops.aten, base)
            overloads = [suffix] if suffix else packet.overloads()
            found += [op for op in (getattr(packet, o) for o in overloads) if is_functional(op)]
    return found


@functools.cache
def importer_names():
    """ATen base names with their own import rule: views, concatenation, indexing, library calls."""
    try:
        from intel_extension_for_pytorch.compiler.rules import native_names
    except ImportError:
        return set()
    return {name.partition(".")[0] for name in native_names()}


def tensor_arguments(op):
    return [a for a in op._schema.arguments if str(a.type) in ("Tensor", "Optional[Tensor]")]


def takes_only(op, *types):
    allowed = {"Tensor", "Optional[Tensor]", *types}
    return all(str(a.type) in allowed or a.has_default_value() for a in op._schema.arguments)


def pointwise_overloads():
    ops = core_overloads(torch.Tag.pointwise) + row_overloads("pointwise")
    return sorted({op for op in ops if tensor_arguments(op) and takes_only(op, *REQUIRED)}, key=str)


def reduction_overloads():
    ops = core_overloads(torch.Tag.reduction) + row_overloads("reduction")
    return sorted({op for op in ops if len(tensor_arguments(op)) == 1 and takes_only(op, *REQUIRED)}, key=str)


def scan_overloads():
    return sorted({op for op in row_overloads("scan") if takes_only(op, *REQUIRED)}, key=str)


# Values for arguments without a default, by schema type.
REQUIRED = {
    "number": (2, -3, 0.5),
    "float": (0.5, 2.0),
    "int": (0, -1),
    "List[int]": ([0], [-1]),
    "Optional[List[int]]": (None, [0], [-1]),
    "bool": (False, True),
    "Optional[str]": (None,),
}


def variants(op):
    """Dicts of non-tensor arguments to test."""
    if text_name(op) in VARIANTS:
        return VARIANTS[text_name(op)]
    names, choices = [], []
    for argument in op._schema.arguments:
        kind = str(argument.type)
        if kind in ("Tensor", "Optional[Tensor]"):
            continue
        if not argument.has_default_value():
            names.append(argument.name)
            choices.append(REQUIRED[kind])
        elif argument.name in ("dim", "keepdim"):
            names.append(argument.name)
            choices.append((argument.default_value, *{"dim": (0, -1), "keepdim": (True,)}[argument.name]))
    return [dict(zip(names, values, strict=True)) for values in itertools.product(*choices)] or [{}]


@functools.cache
def special_values(dtype, operands=1):
    """Special values. With several operands, none is so large or small that a product or quotient of two overflows."""
    if dtype == torch.bool:
        return torch.tensor([True, False])
    if not dtype.is_floating_point:
        info = torch.iinfo(dtype)
        around = [0, 1, 2, 3, 7, 31, 100, info.max - 1, info.max, info.min, info.min + 1]
        around += [-1, -2, -7] if info.min < 0 else []
        return torch.tensor(around, dtype=dtype)
    info = torch.finfo(dtype)
    values = [0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 1.5, 2.5, -2.5, 3.0, -7.25, 20.0, -20.0, 88.0, -100.0, 1e-3, -1e-3]
    large = info.max if operands == 1 else info.max**0.5 / 100
    small = info.tiny if operands == 1 else 1 / large
    values += [small, large, -large, float("inf"), float("-inf"), float("nan")]
    return torch.tensor(values, dtype=torch.float64).to(dtype)


def random_values(dtype, shape, generator):
    if dtype == torch.bool:
        return torch.rand(shape, generator=generator) > 0.5
    if not dtype.is_floating_point:
        low = 0 if dtype == torch.uint8 else -9
        return torch.randint(low, 10, shape, generator=generator).to(dtype)
    return (torch.randn(shape, generator=generator, dtype=torch.float64) * 2).to(dtype)


def special_grid(dtypes, operands=None):
    """One tensor per dtype. Together they contain every pair of special values of the first two."""
    pools = [special_values(dtype, operands or len(dtypes)) for dtype in dtypes]
    counts = [len(pool) for pool in pools]
    total = counts[0] * (counts[1] if len(counts) > 1 else 1) + 5
    index = torch.arange(total)
    picks = [index, index // counts[0], index // (counts[0] * 2) + index, index * 3]
    return [pool[pick % count] for pool, count, pick in zip(pools, counts, picks, strict=False)]


def layouts(dtypes, operands=None, seed=0):
    """(label, one tensor per dtype): the operands of a call in each layout. An operand may be a scalar."""
    generator = torch.Generator().manual_seed(seed)
    make = functools.partial(random_values, generator=generator)
    count = len(dtypes)
    yield "special", special_grid(dtypes, operands)
    yield "contiguous", [make(d, (9, 67)) for d in dtypes]
    yield "transposed", [make(d, (33, 17)).t() for d in dtypes]
    yield "strided", [make(d, (6, 5, 40)).permute(1, 0, 2)[::2, 1:, 3::2] for d in dtypes]
    yield "broadcast", [make(d, ((7, 1), (1, 19), (19,), (7, 19))[i % 4]) for i, d in enumerate(dtypes)]
    yield "expanded", [make(d, (7, 1)).expand(7, 19) for d in dtypes]
    yield "0-d", [make(d, ()) for d in dtypes]
    yield "empty", [make(d, (0, 5)) for d in dtypes]
    if count > 1:
        yield "0-d other", [make(d, () if i == 1 else (5, 18)) for i, d in enumerate(dtypes)]
        yield "one transposed", [make(d, (18, 21)).t() if i else make(d, (21, 18)) for i, d in enumerate(dtypes)]


def keep_division_defined(op, tensors):
    """Avoids calls that are errors or undefined in eager: integer division by zero, division of the lowest value by -1,
    and the gcd of the lowest value."""
    if op._schema.name in ("aten::gcd", "aten::lcm"):
        return [t if t.dtype not in INTEGERS[1:] else t.clamp(min=torch.iinfo(t.dtype).min + 1) for t in tensors]
    if op._schema.name.removeprefix("aten::") not in DIVISION or len(tensors) < 2:
        return tensors
    dividend, divisor = tensors[:2]
    if not (dividend.dtype.is_floating_point or divisor.dtype.is_floating_point):
        divisor = torch.where(divisor == 0, torch.ones_like(divisor), divisor)
        if dividend.dtype in INTEGERS and dividend.dtype != torch.uint8:
            lowest = torch.iinfo(dividend.dtype).min
            dividend = torch.where(dividend == lowest, torch.full_like(dividend, lowest + 1), dividend)
    return [dividend, divisor, *tensors[2:]]


FEW_LAYOUTS = ("special", "contiguous", "transposed", "0-d")


def calls_of(op, dtypes, which_layouts=None):
    """Calls in all layouts with the first variant of the other arguments, and in a few layouts with other variants."""
    names = [argument.name for argument in tensor_arguments(op)]
    scalars = sum(str(a.type) == "number" for a in op._schema.arguments)
    for layout, operands in layouts(dtypes, len(dtypes) + scalars):
        if which_layouts is not None and layout not in which_layouts:
            continue
        if layout == "special" and op._schema.name.removeprefix("aten::") in UNFIXED_SPECIALS:
            continue
        tensors = keep_division_defined(op, operands)
        for variant in variants(op) if layout in FEW_LAYOUTS else variants(op)[:1]:
            arguments = {**dict(zip(names, tensors, strict=True)), **variant}
            kinds = ",".join(str(t.dtype).removeprefix("torch.") for t in tensors)
            yield call_by_name(op, arguments, f"{text_name(op)} [{kinds}] {layout} {variant or ''}")


def call_by_name(op, arguments, label):
    """Calls the op with positional arguments where the schema allows it, since not all paths accept keywords."""
    args, kwargs = [], {}
    for argument in op._schema.arguments:
        if argument.name not in arguments:
            if argument.kwarg_only:
                continue
            if not argument.has_default_value():
                raise AssertionError(f"{op}: no value for {argument.name}")
            args.append(argument.default_value)
        elif argument.kwarg_only:
            kwargs[argument.name] = arguments[argument.name]
        else:
            args.append(arguments[argument.name])
    return Call(label, op, tuple(args), kwargs)


def pointwise_calls(op):
    count = len(tensor_arguments(op))
    condition_first = op._schema.arguments[0].name == "condition"
    few = is_alias(op)
    for dtype in (torch.bool, torch.int64, torch.bfloat16, torch.float32) if few else DTYPES:
        operands = (torch.bool if condition_first else dtype, *[dtype] * (count - 1))
        yield from calls_of(op, operands, FEW_LAYOUTS if few else None)
    # Backward ops are only called with one dtype. For others, ATen and its shape functions disagree.
    if count > 1 and not few and "_backward" not in op._schema.name:
        for first, second in MIXED:
            dtypes = (torch.bool, first, second)[:count] if condition_first else (first, *[second] * (count - 1))
            yield from calls_of(op, dtypes, ("special", "broadcast", "0-d other"))


def reduction_layouts(dtype):
    generator = torch.Generator().manual_seed(1)
    make = functools.partial(random_values, dtype, generator=generator)
    yield "special", special_grid([dtype])[0].reshape(-1)
    yield "contiguous", make((3, 21, 37))
    yield "long", make((2, 1, 5003))
    yield "transposed", make((19, 6, 17)).permute(2, 0, 1)
    yield "strided", make((6, 9, 40))[::2, 1:, 3::3]
    yield "expanded", make((5, 1, 18)).expand(5, 4, 18)
    yield "0-d", make(())
    yield "one", make((1, 1, 1))
    yield "empty", make((0, 4, 5))
    yield "empty result", make((4, 0, 5))


def reduction_calls(op):
    for dtype in DTYPES:
        for layout, tensor in reduction_layouts(dtype):
            for variant in variants(op):
                kind = str(dtype).removeprefix("torch.")
                yield call_by_name(op, {"self": tensor, **variant}, f"{text_name(op)} [{kind}] {layout} {variant}")

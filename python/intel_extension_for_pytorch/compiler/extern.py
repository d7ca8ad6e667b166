"""Ops that stay ATen calls (Extern nodes): how their arguments are encoded, and which of them are expected.

kernels/extern_call.cpp reads the arguments of an Extern node as a JSON array in schema order: {"t": i} is tensor
operand i, {"dim": "s0*2"} a symbolic size, {"f": "inf"} a non-finite number; {"dtype": "f32"}, {"memory_format":
"channels_last"}, {"device": "cpu"} and {"layout": "strided"} are what they say. Numbers, strings, booleans, null and
lists stand for themselves.
"""

from __future__ import annotations

import json
import logging
import math
from typing import Any

import torch
from torch import fx

from .. import _C, torch_private
from ..errors import GraphFallback, MemoryFallback, Unsupported
from .schema import in_schema_order
from .values import DTYPE_NAMES, Ref, node_source, require_plain

log = logging.getLogger("ipex")

CHECK = "ipex::check.default"  # implemented in kernels/check.h, without ATen

# Ops that may always run in ATen: random numbers come from eager's own generator code. IPEX_STRICT=1 refuses every
# other Extern op except those of this package, which have a kernel: in the `ipex::` namespace, and _KERNELS.
EXPECTED = frozenset(
    {
        "bernoulli",
        "cauchy",
        "exponential",
        "geometric",
        "log_normal",
        "multinomial",
        "native_dropout",
        "normal",
        "normal_functional",
        "poisson",
        "rand",
        "rand_like",
        "randint",
        "randint_like",
        "randn",
        "randn_like",
        "randperm",
        "rrelu_with_noise_functional",
        "uniform",
    }
)
_KERNELS = frozenset({"torch_ipex::merged_embeddingbag_update.default"})
# Checks that already hold when a graph is compiled, or that guards repeat. They are dropped.
_NO_EFFECT = frozenset(
    {"_assert_scalar", "_assert_tensor_metadata", "sym_constrain_range", "sym_constrain_range_for_size"}
)
# Ops whose result depends on memory outside their operand: gaps, or the rest of the storage.
_READS_STORAGE = frozenset({"as_strided", "as_strided_copy", "as_strided_scatter"})

_warned: set[str] = set()


def call(im: Any, node: fx.Node, why: str) -> Any:
    """Imports `node` as an Extern node. GraphFallback where a graph cannot call the op: it is cut there."""
    target = node.target
    if not isinstance(target, torch_private.OpOverload):
        raise GraphFallback(f"{target} is not an operator of the dispatcher")
    schema = target._schema
    name = schema.name.partition("::")[2]
    if schema.name == "aten::copy_":
        return _mutation(im, node)
    if name in _NO_EFFECT:
        return None
    if name in _READS_STORAGE:
        raise MemoryFallback(f"{target} reads the memory behind its operand ({why})")
    if schema.is_mutable:
        raise MemoryFallback(f"{target} writes to its operands")
    values = node.meta["val"]
    flat = list(values) if isinstance(values, (tuple, list)) else [values]
    if not flat or any(isinstance(v, (list, tuple)) for v in flat):
        raise GraphFallback(f"{target} returns no tensors, or lists of them")
    for argument in node.all_input_nodes:
        if isinstance(argument.meta.get("val"), torch.Tensor):
            require_plain(argument, argument.meta["val"])
    for value in flat:
        if value is not None:
            require_plain(node, value)
    operands: list[Any] = []
    args = im.read(node.args)
    kwargs = im.read(node.kwargs)
    spelled = [_spell(im, node, v, operands) for v in in_schema_order(schema, args, kwargs)]
    strides = _operand_strides(im, node) if _relies_on_strides(target, operands) else []
    refs = _emit(im, node, f"{schema.name}.{target._overloadname}", spelled, operands, strides, flat, why)
    return refs if isinstance(values, (tuple, list)) else refs[0]


def random_mask(im: Any, node: fx.Node, mask: torch.Tensor, p: float) -> Any:
    """Booleans with the shape of `mask`, true with probability p: those that eager's `mask.bernoulli_(p)` draws,
    without its serial loop."""
    spelled = [_spell(im, node, v, []) for v in (list(mask.shape), list(mask.stride()), p)]
    return _emit(im, node, "ipex::bernoulli.default", spelled, [], [], [mask], "eager's random numbers")[0]


def check(im: Any, condition: Any, message: str | None = None) -> None:
    """Emits a check: a call raises RuntimeError if `condition`, a tensor of one element, is zero. The message defaults
    to ATen's."""
    if message is None:
        message = "Expected Tensor with single nonzero value, but got zero"
    if any(size != 1 for size in condition.shape):
        raise Unsupported("a condition with several elements")
    args = json.dumps([{"t": 0}, message or "Assertion is failed"])
    condition = im.cast(condition, torch.bool)
    im.graph.extern_call(CHECK, [condition.id], [("b1", (0,))], [(1,)], args, "raises eager's error", [0], [])


def _emit(
    im: Any, node: fx.Node, op: str, spelled: list, operands: list, strides: list[tuple], values: list, why: str
) -> list[Any]:
    """Emits the Extern node; `values` are the traced results, None for one that is absent."""
    note(op, why)
    im.result.externs[op] = why
    im.result.extern_sources.setdefault(op, node_source(node))
    present = [v for v in values if v is not None]
    types = [(v.dtype, im.symbols.dims(v.shape)) for v in present]
    id = im.graph.extern_call(
        op,
        [r.id for r in operands],
        [(DTYPE_NAMES[d], s) for d, s in types],
        [im.symbols.strides(v.stride()) for v in present],
        json.dumps(spelled),
        why,
        [i for i, v in enumerate(values) if v is not None],
        strides,
    )
    results = iter(im.results_of(id, types))
    return [None if v is None else next(results) for v in values]


def _relies_on_strides(op: Any, operands: list[Any]) -> bool:
    """Whether the result depends on the operands' strides. ATen ops do if they read through a data pointer: oneDNN ops,
    and ops for which a caller would have made a copy that is left out here. Random ops draw in memory order. Ops of
    other libraries are assumed to."""
    name = op._schema.name
    by_pointer = "mkldnn" in name or any(not operand.owned for operand in operands)
    return not name.startswith("aten::") or by_pointer or torch.Tag.nondeterministic_seeded in op.tags


def _operand_strides(im: Any, node: fx.Node) -> list[tuple]:
    """The traced strides of each operand."""
    given = torch_private.pytree.tree_leaves(in_schema_order(node.target._schema, node.args, node.kwargs))
    values = [a.meta["val"] for a in given if isinstance(a, fx.Node)]
    return [im.symbols.strides(v.stride()) for v in values if isinstance(v, torch.Tensor)]


def note(op: str, why: str) -> None:
    """Warns once per op; an error under IPEX_STRICT=1 unless the op is expected."""
    namespace, _, name = op.partition("::")
    expected = namespace == "ipex" or op in _KERNELS or (namespace == "aten" and name.partition(".")[0] in EXPECTED)
    if not expected and _C.flag("IPEX_STRICT"):
        raise Unsupported(f"{op} has no native lowering ({why}), and IPEX_STRICT=1 is set")
    if op not in _warned:
        _warned.add(op)
        log.log(logging.INFO if expected else logging.WARNING, "%s runs in ATen: %s", op, why)


def _mutation(im: Any, node: fx.Node) -> Any:
    """Imports copy_ into an input. The input is written once, at the end of the run."""
    target, source = node.args[0], im.read(node.args[1])
    if target not in im.input_position:
        raise MemoryFallback(f"{node.name} writes to {target}, which is not an input")
    into = im.env[target]
    value = im.expand(im.cast(source, into.dtype), into.shape)
    im.mutations[target] = value
    return value


def _spell(im: Any, node: fx.Node, value: Any, operands: list[Any]) -> Any:
    if isinstance(value, Ref):
        operands.append(value)
        return {"t": len(operands) - 1}
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else {"f": str(value)}
    if isinstance(value, torch.SymInt):
        dim = im.symbols.dim(value)
        return dim if isinstance(dim, int) else {"dim": dim}
    if isinstance(value, (list, tuple)):
        return [_spell(im, node, v, operands) for v in value]
    if isinstance(value, torch.dtype) and value in DTYPE_NAMES:
        return {"dtype": DTYPE_NAMES[value]}
    if isinstance(value, torch.memory_format):
        return {"memory_format": str(value).partition(".")[2]}
    if isinstance(value, torch.device) and value.type == "cpu":
        return {"device": "cpu"}
    if value is torch.strided:
        return {"layout": "strided"}
    raise GraphFallback(f"{node.target} has an argument of type {type(value).__name__}")

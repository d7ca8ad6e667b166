"""The partitioner: which values a forward pass saves for its backward pass.

It takes PyTorch's minimum cut and removes values that are cheap to recompute. The cut saves every operand of a product
or convolution of the backward pass, even if the values it is computed from are saved too: GELU's result and its
argument, or a normalised tensor, the tensor and its statistics. Recomputing such a value reads memory that is read
anyway; saving it occupies memory between the passes (Chen et al., Training Deep Nets with Sublinear Memory Cost, 2016).
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import fx

from .. import _C, torch_private

aten = torch.ops.aten

_MIN_BYTES = 1 << 20  # smaller values stay saved: a kernel to recompute them costs more than their memory
_MAX_OPS = 12  # ops to recompute one value
_MAX_BYTES_READ = 3  # bytes read to recompute one byte
_MAX_BYTES_COPIED = 1 << 16  # size of a parameter that is saved only for this, such as a norm's bias

_VIEWS = frozenset((
    "alias", "_unsafe_view", "expand", "permute", "reshape", "select", "slice", "squeeze", "t", "transpose",
    "unsqueeze", "view",
))  # fmt: skip
# Ops whose kernels are bound by memory bandwidth.
_CHEAP = frozenset(row["name"] for row in _C.pointwise_rows() if row["recomputable"])
_NORMS = frozenset(("_native_batch_norm_legit_functional", "native_layer_norm"))
_WHOLE_NUMBERS = (torch.uint8, torch.int16, torch.int32)


def partition(joint: fx.GraphModule, inputs: Any, **options: Any) -> tuple[fx.GraphModule, fx.GraphModule]:
    """The `partition_fn` of AOTAutograd: splits the joint graph into a forward and a backward graph."""
    return torch_private.min_cut_partition(_review)(joint, inputs, **options)


def _review(graph: fx.Graph, cut: torch_private.Cut) -> list[fx.Node]:
    """The values to save, given those of the minimum cut."""
    saved = dict.fromkeys(cut.saved)
    position = {node: i for i, node in enumerate(graph.nodes)}
    norms: dict[fx.Node, None] = {}
    for value in sorted(cut.saved, key=position.__getitem__):
        if not _is_large_tensor(value) or _is_result(value) or cut.must_save(value):
            continue
        recipe = _recipe_of(value, saved.keys() - {value}, cut)
        if recipe is not None:
            del saved[value]
            saved.update(dict.fromkeys(recipe.leaves))
            norms.update(dict.fromkeys(recipe.norms))
    for norm in norms:
        _normalise_by_statistics(graph, norm)
    # Save copies of arguments that the graph changes, and of parameters that the user may change before the backward
    # pass (eager PyTorch allows that).
    changeable = (cut.written & saved.keys()) | (saved.keys() - set(cut.saved))
    return [_copied(graph, v) if v in changeable else _narrowed(graph, v, cut) for v in saved]


def _copied(graph: fx.Graph, argument: fx.Node) -> fx.Node:
    """A copy of an argument. Both passes read the copy instead."""
    users = [user for user in argument.users if user.op != "output" and not torch_private.writes(user)]
    with graph.inserting_before(next(node for node in graph.nodes if node.op != "placeholder")):
        copy = _node(graph, argument.meta["val"], aten.clone.default, argument)
    for user in users:
        user.replace_input_with(argument, copy)
    return copy


# ---- recomputation ----


@dataclass
class _Recipe:
    """How to recompute a value."""

    leaves: dict[fx.Node, None] = field(default_factory=dict)  # saved values and small parameters
    ops: set[fx.Node] = field(default_factory=set)
    norms: dict[fx.Node, None] = field(default_factory=dict)  # norms whose result it uses


def _recipe_of(value: fx.Node, saved: set[fx.Node], cut: torch_private.Cut) -> _Recipe | None:
    """How to recompute `value` from saved values and parameters by few cheap ops. None where that is not possible, or
    where it would read only parameters (their casts and transposes are computed once)."""
    recipe = _Recipe()
    waiting, seen = [value], set()
    while waiting:
        node = waiting.pop()
        if node in seen:
            continue
        seen.add(node)
        if node in cut.written:
            return None
        if node in saved or (cut.is_static(node) and torch_private.bytes_of(node) <= _MAX_BYTES_COPIED):
            recipe.leaves[node] = None
            continue
        kind = _base_name(node)
        if kind in _VIEWS or kind == "_to_copy":  # kernels cast what they load and store
            waiting += node.all_input_nodes
            continue
        recipe.ops.add(node)
        if kind in _CHEAP:
            waiting += node.all_input_nodes
        elif _is_normalised(node):
            recipe.norms[node.args[0]] = None
            waiting += _parts_of_norm(node.args[0])
        else:
            return None
        if len(recipe.ops) + 3 * len(recipe.norms) > _MAX_OPS:
            return None
    read = sum(torch_private.bytes_of(leaf) for leaf in recipe.leaves)
    if read > _MAX_BYTES_READ * torch_private.bytes_of(value) or all(map(cut.is_static, recipe.leaves)):
        return None
    return recipe


def _base_name(node: fx.Node) -> str:
    """The name of an ATen op without its overload. Ops of other libraries keep their namespace, so they match none of
    the names above."""
    target = node.target
    return target._schema.name.removeprefix("aten::") if isinstance(target, torch_private.OpOverload) else ""


def _is_large_tensor(node: fx.Node) -> bool:
    return (
        node.op == "call_function"
        and isinstance(node.meta.get("val"), torch.Tensor)
        and torch_private.bytes_of(node) >= _MIN_BYTES
    )


def _is_result(node: fx.Node) -> bool:
    """Whether the value shares memory with a result of the whole graph. Then saving it costs nothing."""
    while _base_name(node) in _VIEWS:
        node = node.args[0]
    waiting = [node]
    while waiting:
        for user in waiting.pop().users:
            if user.op == "output":
                return True
            if _base_name(user) in _VIEWS:
                waiting.append(user)
    return False


# ---- norms ----


def _is_normalised(node: fx.Node) -> bool:
    """Whether the node is the first result of a norm whose second and third are its statistics in full precision."""
    if node.target is not operator.getitem or node.args[1] != 0 or _base_name(node.args[0]) not in _NORMS:
        return False
    norm = node.args[0]
    training = _base_name(norm) == "native_layer_norm" or norm.args[5]
    y, x = node.meta["val"], norm.args[0].meta["val"]
    precision = torch.promote_types(y.dtype, torch.float32)
    # Arithmetic keeps the strides of x. Symbolic strides are compared as text, which adds no guard.
    same_layout = [str(s) for s in x.stride()] == [str(s) for s in y.stride()]
    return training and same_layout and norm.meta["val"][1].dtype is precision and len(_statistics_of(norm)) == 2


def _statistics_of(norm: fx.Node) -> list[fx.Node]:
    """Mean and 1 / standard deviation, as far as the graph uses them."""
    results = {user.args[1]: user for user in norm.users if user.target is operator.getitem}
    return [results[i] for i in (1, 2) if i in results]


def _parameters_of(norm: fx.Node) -> tuple[fx.Node | None, fx.Node | None]:
    at = 2 if _base_name(norm) == "native_layer_norm" else 1
    return norm.args[at], norm.args[at + 1]


def _parts_of_norm(norm: fx.Node) -> list[fx.Node]:
    """The operands that compute a norm's result once its statistics are known."""
    return [norm.args[0], *_statistics_of(norm), *(p for p in _parameters_of(norm) if p is not None)]


def _normalise_by_statistics(graph: fx.Graph, norm: fx.Node) -> None:
    """Replaces a norm's result by (x - mean) * scale * weight + bias, in both passes. The backward pass then needs no
    reduction. The forward pass compiles both forms to the same kernel."""
    result = next(user for user in norm.users if user.target is operator.getitem and user.args[1] == 0)
    mean, scale = _statistics_of(norm)
    for statistic in (mean, scale):  # directly behind the norm, before all readers of its result
        norm.append(statistic)
    wide, narrow = mean.meta["val"].dtype, result.meta["val"].dtype
    of_layer = _base_name(norm) == "native_layer_norm"
    by_channel = [-1, *[1] * (result.meta["val"].dim() - 2)]
    seen = None if of_layer else mean.meta["val"].view(by_channel)

    def aligned(parameter: fx.Node) -> fx.Node:
        parameter = _converted(graph, parameter, wide)
        return parameter if of_layer else _node(graph, seen, aten.view.default, parameter, by_channel)

    with graph.inserting_before(result.next):
        y = _converted(graph, norm.args[0], wide)
        weight, bias = _parameters_of(norm)
        steps = ((aten.sub, mean), (aten.mul, scale), (aten.mul, weight), (aten.add, bias))
        for op, operand in steps:
            if operand is not None:
                y = _node(graph, y.meta["val"], op.Tensor, y, aligned(operand))
        y = _converted(graph, y, narrow)
    result.replace_all_uses_with(y)


# ---- positions of maxima ----


def _narrowed(graph: fx.Graph, value: fx.Node, cut: torch_private.Cut) -> fx.Node:
    """The positions of max pooling, which are int64 in ATen, converted to the narrowest type that holds them. Other
    values are saved unchanged."""
    if not _is_position_of_maximum(value) or _is_result(value) or any(map(cut.in_forward, value.users)):
        return value
    image = value.args[0].args[0].meta["val"]
    rank = 3 if "3d" in _base_name(value.args[0]) else 2
    positions = math.prod(image.shape[-rank:])
    dtype = next(
        (t for t in _WHOLE_NUMBERS if isinstance(positions, int) and positions - 1 <= torch.iinfo(t).max), None
    )
    if dtype is None:
        return value
    users = list(value.users)
    with graph.inserting_before(value.next):
        narrow = _converted(graph, value, dtype)
        wide = _converted(graph, narrow, torch.int64)
    for user in users:
        user.replace_input_with(value, wide)
    return narrow


def _is_position_of_maximum(node: fx.Node) -> bool:
    return (
        node.target is operator.getitem
        and node.args[1] == 1
        and "max_pool" in _base_name(node.args[0])
        and node.meta["val"].dtype is torch.int64
    )


# ---- new nodes ----


def _node(graph: fx.Graph, traced: torch.Tensor, target: Callable, *args: Any, **kwargs: Any) -> fx.Node:
    """A call whose result looks like `traced` and has memory of its own."""
    node = graph.call_function(target, args, kwargs)
    node.meta["val"] = traced.clone()
    return node


def _converted(graph: fx.Graph, node: fx.Node, dtype: torch.dtype) -> fx.Node:
    """The node converted to `dtype`, or the node itself if it has that type."""
    value = node.meta["val"]
    return node if value.dtype is dtype else _node(graph, value.to(dtype), aten._to_copy.default, node, dtype=dtype)

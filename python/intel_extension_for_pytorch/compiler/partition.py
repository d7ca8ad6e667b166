"""What a forward pass saves for its backward pass: PyTorch's minimal cut, less what is cheap to have again.

The cut saves every value that the backward pass needs in memory as it is (an operand of a product or a convolution),
even where what it is made of is saved too: GELU's result beside its argument, a normalised tensor beside the tensor
and its statistics. Computing such a value again reads what is read there anyway; saving it holds its memory from one
pass to the other (Chen et al., Training Deep Nets with Sublinear Memory Cost, 2016).
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

_LEAST_BYTES = 1 << 20  # smaller values stay saved: their memory is nothing, a kernel for them is something
_MOST_OPS = 12  # in what makes a value again
_MOST_READ = 3  # bytes read for each byte of it
_MOST_COPIED = 1 << 16  # bytes of a parameter that nothing else saves: a norm's bias

_VIEWS = frozenset((
    "alias", "_unsafe_view", "expand", "permute", "reshape", "select", "slice", "squeeze", "t", "transpose",
    "unsqueeze", "view",
))  # fmt: skip
_CHEAP = frozenset(row["name"] for row in _C.pointwise_rows() if row["computed_again"])
_NORMS = frozenset(("_native_batch_norm_legit_functional", "native_layer_norm"))
_WHOLE_NUMBERS = (torch.uint8, torch.int16, torch.int32)


def partition(joint: fx.GraphModule, inputs: Any, **options: Any) -> tuple[fx.GraphModule, fx.GraphModule]:
    """The `partition_fn` of AOTAutograd: a graph of both passes to one of each."""
    return torch_private.min_cut_partition(_review)(joint, inputs, **options)


def _review(graph: fx.Graph, cut: torch_private.Cut) -> list[fx.Node]:
    """The values to save, given those of the minimal cut."""
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
    # Arguments that the graph changes, and parameters that eager PyTorch would let the user change before the backward
    # pass, are saved as they were.
    changeable = (cut.written & saved.keys()) | (saved.keys() - set(cut.saved))
    return [_copied(graph, v) if v in changeable else _narrowed(graph, v, cut) for v in saved]


def _copied(graph: fx.Graph, argument: fx.Node) -> fx.Node:
    """A copy of an argument, which both passes read instead."""
    users = [user for user in argument.users if user.op != "output" and not torch_private.writes(user)]
    with graph.inserting_before(next(node for node in graph.nodes if node.op != "placeholder")):
        copy = _node(graph, argument.meta["val"], aten.clone.default, argument)
    for user in users:
        user.replace_input_with(argument, copy)
    return copy


# ---- what a value is made of ----


@dataclass
class _Recipe:
    """What makes a value again."""

    leaves: dict[fx.Node, None] = field(default_factory=dict)  # saved values and small parameters
    ops: set[fx.Node] = field(default_factory=set)
    norms: dict[fx.Node, None] = field(default_factory=dict)  # of which it takes the result


def _recipe_of(value: fx.Node, saved: set[fx.Node], cut: torch_private.Cut) -> _Recipe | None:
    """How to make `value` of saved values and parameters by few cheap ops; None where that is not possible, or would
    read parameters alone (their casts and transposes are computed once)."""
    recipe = _Recipe()
    waiting, seen = [value], set()
    while waiting:
        node = waiting.pop()
        if node in seen:
            continue
        seen.add(node)
        if node in cut.written:
            return None
        if node in saved or (cut.is_static(node) and torch_private.bytes_of(node) <= _MOST_COPIED):
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
        if len(recipe.ops) + 3 * len(recipe.norms) > _MOST_OPS:
            return None
    read = sum(torch_private.bytes_of(leaf) for leaf in recipe.leaves)
    if read > _MOST_READ * torch_private.bytes_of(value) or all(map(cut.is_static, recipe.leaves)):
        return None
    return recipe


def _base_name(node: fx.Node) -> str:
    """Of an ATen op, without overload. Other libraries stay in their ops' names, which are none of those above."""
    target = node.target
    return target._schema.name.removeprefix("aten::") if isinstance(target, torch_private.OpOverload) else ""


def _is_large_tensor(node: fx.Node) -> bool:
    return (
        node.op == "call_function"
        and isinstance(node.meta.get("val"), torch.Tensor)
        and torch_private.bytes_of(node) >= _LEAST_BYTES
    )


def _is_result(node: fx.Node) -> bool:
    """Whether its memory is that of a result of the whole graph: there whether it is saved or not."""
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
    """The first result of a norm whose statistics, in full precision, are its second and third."""
    if node.target is not operator.getitem or node.args[1] != 0 or _base_name(node.args[0]) not in _NORMS:
        return False
    norm = node.args[0]
    training = _base_name(norm) == "native_layer_norm" or norm.args[5]
    y, x = node.meta["val"], norm.args[0].meta["val"]
    precision = torch.promote_types(y.dtype, torch.float32)
    # Arithmetic keeps the strides of x. Symbolic ones are compared as they are written: no guard.
    same_layout = [str(s) for s in x.stride()] == [str(s) for s in y.stride()]
    return training and same_layout and norm.meta["val"][1].dtype is precision and len(_statistics_of(norm)) == 2


def _statistics_of(norm: fx.Node) -> list[fx.Node]:
    """Mean and 1 / standard deviation, as far as the graph has them."""
    results = {user.args[1]: user for user in norm.users if user.target is operator.getitem}
    return [results[i] for i in (1, 2) if i in results]


def _parameters_of(norm: fx.Node) -> tuple[fx.Node | None, fx.Node | None]:
    at = 2 if _base_name(norm) == "native_layer_norm" else 1
    return norm.args[at], norm.args[at + 1]


def _parts_of_norm(norm: fx.Node) -> list[fx.Node]:
    """What its result is made of once its statistics are known."""
    return [norm.args[0], *_statistics_of(norm), *(p for p in _parameters_of(norm) if p is not None)]


def _normalise_by_statistics(graph: fx.Graph, norm: fx.Node) -> None:
    """Puts (x - mean) * scale * weight + bias in the place of a norm's result, in both passes: the backward pass then
    has it without the reduction. The forward pass makes the same kernel of both."""
    result = next(user for user in norm.users if user.target is operator.getitem and user.args[1] == 0)
    mean, scale = _statistics_of(norm)
    for statistic in (mean, scale):  # directly behind the norm, before whatever reads its result
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
    """Positions of pooling's maxima, which ATen gives in 64 bits, in the narrowest type that holds them; whatever else
    is saved as it is."""
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
    """A call whose result is like `traced`, in memory of its own."""
    node = graph.call_function(target, args, kwargs)
    node.meta["val"] = traced.clone()
    return node


def _converted(graph: fx.Graph, node: fx.Node, dtype: torch.dtype) -> fx.Node:
    """A node in `dtype`: itself where it is."""
    value = node.meta["val"]
    return node if value.dtype is dtype else _node(graph, value.to(dtype), aten._to_copy.default, node, dtype=dtype)

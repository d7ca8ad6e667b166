"""Access to Dynamo, AOTAutograd and its partitioner.

Callers see plain data only, so that a change in PyTorch affects only this package.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from types import CodeType, FunctionType
from typing import Any

import torch
from torch.utils.checkpoint import CheckpointPolicy


def aot_backend(**kwargs: Any) -> Callable:
    """A Dynamo backend built from forward, backward and inference compilers."""
    from torch._dynamo.backends.common import aot_autograd

    return aot_autograd(**kwargs)


@dataclass(frozen=True)
class Cut:
    """The values of a joint graph that the minimum cut saves, and properties of its nodes."""

    saved: list[torch.fx.Node]
    in_forward: Callable[[torch.fx.Node], bool]  # whether the forward pass computes the node
    is_static: Callable[[torch.fx.Node], bool]  # whether the node is a parameter or buffer
    written: frozenset[torch.fx.Node]  # arguments that the graph writes to: the backward pass sees the new values

    def must_save(self, node: torch.fx.Node) -> bool:
        """Whether the user requires it (a policy of torch.utils.checkpoint)."""
        return node.meta.get("recompute") in (CheckpointPolicy.MUST_SAVE, CheckpointPolicy.PREFER_SAVE)


def _written_arguments(graph: torch.fx.Graph) -> frozenset[torch.fx.Node]:
    """Placeholders that a joint graph writes to, itself or through outputs that AOTAutograd copies into them."""
    from torch._functorch._aot_autograd.descriptors import InputMutationAOTOutput

    (output,) = graph.find_nodes(op="output")
    copied = [d.mutated_input for d in output.meta.get("desc", ()) if isinstance(d, InputMutationAOTOutput)]
    written = {node for node in graph.find_nodes(op="placeholder") if node.meta.get("desc") in copied}
    for node in filter(writes, graph.nodes):
        written.update(argument for argument in node.all_input_nodes if argument.op == "placeholder")
    return frozenset(written)


def writes(node: torch.fx.Node) -> bool:
    """Whether the op changes one of its arguments."""
    return isinstance(node.target, torch._ops.OpOverload) and node.target._schema.is_mutable


def min_cut_partition(review: Callable[[torch.fx.Graph, Cut], list[torch.fx.Node]]) -> Callable:
    """The partitioner that recomputes cheap values in the backward pass instead of saving them. `review` receives the
    values that it would save, may change the graph, and returns those to save."""
    from torch._functorch import compile_utils, partitioners

    choose = partitioners.choose_saved_values_set

    def reviewed(graph: torch.fx.Graph, info: Any, **budget: Any) -> list[torch.fx.Node]:
        saved, statics = choose(graph, info, **budget), info.static_lifetime_input_nodes
        return review(graph, Cut(saved, info.is_required_fw, statics.__contains__, _written_arguments(graph)))

    def partition(joint: torch.fx.GraphModule, *args: Any, **kwargs: Any) -> tuple:
        # PyTorch's list of random ops, which must not be merged as common subexpressions, lacks most of them.
        random = {n.target.overloadpacket for n in filter(draws, joint.graph.nodes)}
        _pin_random_ops(joint.graph)
        partitioner = with_globals(
            partitioners.min_cut_rematerialization_partition,
            choose_saved_values_set=reviewed,
            fx_graph_cse=with_globals(compile_utils.fx_graph_cse, rand_ops=random),
            reordering_to_mimic_autograd_engine=_reordered,
            default_partition=default_partition,  # which it calls if a graph has nothing to recompute
        )
        return partitioner(joint, *args, **kwargs)

    return partition


def default_partition(joint: torch.fx.GraphModule, *args: Any, **kwargs: Any) -> tuple:
    """The partitioner that saves everything that the backward pass needs."""
    from torch._functorch import partitioners

    _pin_random_ops(joint.graph)
    partitioner = with_globals(partitioners.default_partition, reordering_to_mimic_autograd_engine=_reordered)
    return partitioner(joint, *args, **kwargs)


def with_globals(function: FunctionType, **names: Any) -> FunctionType:
    """A copy of a function of PyTorch that sees other values under these global names. PyTorch's own function and its
    module stay as they are. AttributeError if the function does not use one of the names."""
    missing = names.keys() - (function.__globals__.keys() & _names_in(function.__code__))
    if missing:
        raise AttributeError(f"{function.__module__}.{function.__name__} does not use {', '.join(sorted(missing))}")
    copied = FunctionType(
        function.__code__,
        {**function.__globals__, **names},
        function.__name__,
        function.__defaults__,
        function.__closure__,
    )
    copied.__kwdefaults__ = function.__kwdefaults__
    return copied


def _names_in(code: CodeType) -> set[str]:
    """The global names and attributes that a function and the functions inside it use."""
    return set(code.co_names).union(*(_names_in(c) for c in code.co_consts if isinstance(c, CodeType)))


def draws(node: torch.fx.Node) -> bool:
    """Whether the op draws random numbers."""
    return isinstance(node.target, torch._ops.OpOverload) and torch.Tag.nondeterministic_seeded in node.target.tags


def _pin_random_ops(graph: torch.fx.Graph) -> None:
    """Keeps each random op in its pass, even if its result is unused or needed by no gradient. Ops that checkpoints
    repeat are left to the partitioner."""
    for node in filter(draws, graph.nodes):
        if not node.users:
            node.meta.pop("recompute", None)  # repeating it would not change the generator
            node.meta.setdefault("tensor_meta", None)  # required by the default partitioner; None: nothing to save
        if "recompute" not in node.meta and not str(node.meta.get("partitioner_tag")).startswith("must_be"):
            forward = node.meta.get("partitioner_tag") == "is_forward"
            node.meta["partitioner_tag"] = "must_be_in_forward" if forward else "must_be_in_backward"


def _reordered(module: torch.fx.GraphModule) -> torch.fx.GraphModule:
    """PyTorch's reordering of a backward graph. It does not support unused random ops, so it is skipped for them."""
    from torch._functorch import partitioners

    unused = any(draws(node) and not node.users for node in module.graph.nodes)
    return module if unused else partitioners.reordering_to_mimic_autograd_engine(module)


def bytes_of(node: torch.fx.Node) -> int:
    """The size of a traced tensor in bytes. A symbolic size counts with its value in the example inputs."""
    from torch._functorch import partitioners

    return partitioners._size_of(node)


def forward_metadata() -> Any:
    """AOTAutograd's metadata of the forward graph being compiled, or None outside of a compilation."""
    from torch._guards import TracingContext

    context = TracingContext.try_get()
    return context.fw_metadata if context is not None else None


def donate_nothing() -> None:
    """Declares that the backward of the forward graph being compiled reuses no saved tensor. Without this, AOTAutograd
    refuses a backward pass that retains its graph."""
    metadata = forward_metadata()
    if metadata is not None:
        metadata.bw_donated_idxs = []


def static_input_positions() -> list[int]:
    """Positions of parameters and buffers among the forward graph's inputs."""
    metadata = forward_metadata()
    return list(metadata.static_input_indices or ()) if metadata is not None else []


def _effect_tokens() -> int:
    """The number of leading inputs of the forward graph, and of leading outputs, that only order side effects.
    AOTAutograd's positions do not count them."""
    metadata = forward_metadata()
    return len(metadata.tokens) if metadata is not None else 0


def calls_need_no_wrapper() -> bool:
    """Whether AOTAutograd's wrapper around the inference graph being compiled only passes arguments and results on:
    none is mutated, an alias, a subclass, a token or marked as dynamic, and no global state changes."""
    metadata = forward_metadata()
    if metadata is None:
        return False
    kinds = (*metadata.subclass_inp_meta, *metadata.subclass_fw_graph_out_meta)
    plain = all(type(kind).__name__ == "PlainTensorMeta" for kind in kinds)
    return plain and not (
        any(info.mutates_data or info.mutates_metadata for info in metadata.input_info)
        or metadata.num_outputs_aliased
        or metadata.num_intermediate_bases
        or metadata.dynamic_outputs
        or metadata.tokens
        or metadata.is_rng_op_functionalized
        or metadata.grad_enabled_mutation is not None
    )


def user_output_count(default: int) -> int:
    """The number of leading outputs of the forward graph that the user sees. The others are saved for the backward."""
    metadata = forward_metadata()
    return _effect_tokens() + metadata.num_forward_returns if metadata is not None else default


def views_of_inputs() -> dict[int, int]:
    """Output -> input, for outputs of the forward graph that AOTAutograd recreates from an input: views of it, or the
    input itself if its data or geometry changes. AOTAutograd uses only sizes, strides and offset of what the graph
    returns."""
    metadata = forward_metadata()
    if metadata is None:
        return {}
    returned = enumerate(metadata.mutated_inp_runtime_indices)
    views = {k: i for k, i in returned if not metadata.input_info[i].mutates_data}
    for i in metadata.aliased_out_indices:
        info = metadata.output_info[i]
        kind = info.output_type.name
        if kind == "alias_of_input" or (kind == "is_input" and metadata.input_info[info.base_idx].mutates_data):
            views[metadata.num_mutated_inp_runtime_indices + i] = info.base_idx
    tokens = _effect_tokens()
    return {tokens + k: tokens + i for k, i in views.items()}


def changed_in_data_and_geometry() -> list[int]:
    """Outputs of the forward graph that are inputs whose data and geometry change. AOTAutograd gives the input the
    sizes, strides and offset of such an output, then copies the data."""
    metadata = forward_metadata()
    if metadata is None:
        return []
    infos = [metadata.input_info[i] for i in metadata.mutated_inp_runtime_indices]
    return [k for k, info in enumerate(infos, _effect_tokens()) if info.mutates_data and info.mutates_metadata]


def report_output_strides(strides: Iterable[tuple[int, ...] | None]) -> None:
    """Tells AOTAutograd the real strides of the forward's outputs (None: as traced)."""
    from torch._guards import TracingContext

    context = TracingContext.try_get()
    if context is not None and context.output_strides is not None and not context.output_strides:
        context.output_strides.extend(list(strides)[_effect_tokens() :])


def numbers_passed_as_tensors(module: torch.fx.GraphModule) -> set[int]:
    """Placeholders of a Dynamo graph for numbers that Dynamo passes as tensors: numpy scalars, and Python's random
    numbers, whose floats are traced in the default dtype and passed as float64."""
    arguments = [node.meta.get("grapharg") for node in module.graph.find_nodes(op="placeholder")]
    return {i for i, argument in enumerate(arguments) if getattr(argument, "pass_arg_as_tensor", False)}


def differentiates_forward() -> bool:
    """Whether forward-mode differentiation is active, so that tensors may have tangents. Adds a guard on that; Dynamo
    adds one only for programs that enter it themselves."""
    from torch._dynamo.guards import GuardBuilder
    from torch._dynamo.source import GlobalStateSource
    from torch._guards import TracingContext

    context = TracingContext.try_get()
    if context is not None:
        context.guards_context.dynamo_guards.add(GlobalStateSource().make_guard(GuardBuilder.DUAL_LEVEL))
    return torch.autograd.forward_ad._current_level >= 0


def disable_dynamo(function: Callable, reason: str) -> Callable:
    return torch._dynamo.disable(function, reason=reason)


def reset_dynamo() -> None:
    """Discards all compiled functions."""
    torch._dynamo.reset()

"""Random numbers that a backward pass draws again, as `torch.utils.checkpoint` requires.

PyTorch's partitioner wraps such ops: `run_and_save_rng_state(op, ...)` in the forward graph also returns the
generator's state; `run_with_rng_state(state, op, ...)` in the backward graph draws from that state and then restores
the generator. `expand` replaces both by plain ops that read or exchange the state around the op.
"""

from __future__ import annotations

import torch
from torch import fx

from .. import torch_private


def expand(module: fx.GraphModule) -> None:
    """Replaces the wrapped ops of a traced graph, in place."""
    saves, takes = torch_private.rng_state_wrappers()
    wrapped = [node for node in module.graph.nodes if node.target in (saves, takes)]
    for node in wrapped:
        (_save if node.target is saves else _take)(module.graph, node)
    if wrapped:
        module.recompile()


def _save(graph: fx.Graph, node: fx.Node) -> None:
    op, *args = node.args
    with graph.inserting_before(node):
        state = graph.call_function(torch.ops.ipex.rng_state.default)
        result = graph.call_function(op, tuple(args), node.kwargs)
    for part in list(node.users):  # the users are getitem nodes of both results
        value = (state, result)[part.args[1]]
        value.meta = dict(part.meta)
        if value is state:  # the partitioner's example value can have an unbacked size
            value.meta["val"] = torch_private.rng_state()
        part.replace_all_uses_with(value)
        graph.erase_node(part)
    graph.erase_node(node)


def _take(graph: fx.Graph, node: fx.Node) -> None:
    state, op, *args = node.args
    exchange = torch.ops.ipex.exchange_rng_state.default
    with graph.inserting_before(node):
        before = graph.call_function(exchange, (state,))
        result = graph.call_function(op, tuple(args), node.kwargs)
        after = graph.call_function(exchange, (before,))
    for value in (before, after):
        value.meta = {"val": state.meta["val"]}
    # The partitioner records no example value of the op's result.
    result.meta = {**node.meta, "val": torch_private.value_of_call(graph, result)}
    node.replace_all_uses_with(result)
    graph.erase_node(node)

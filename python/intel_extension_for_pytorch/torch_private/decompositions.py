"""PyTorch's decomposition tables and private decompositions."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch


def core_decompositions() -> dict[Any, Callable]:
    """PyTorch's core ATen decomposition table without the CompositeImplicit ops. Autograd decomposes those before
    AOTAutograd sees them, and listing them takes 0.1 s."""
    from torch._decomp import _core_aten_decompositions_post_autograd

    return dict(_core_aten_decompositions_post_autograd())


def registered_decompositions(ops: Iterable[Any]) -> dict[Any, Callable]:
    """The registered decompositions of these ops (overloads or packets)."""
    from torch._decomp import get_decompositions

    return get_decompositions(list(ops))


def implicit_decompositions() -> dict[Any, Callable]:
    """The decompositions of CompositeImplicit ops (linear, matmul, ...). Autograd applies them before AOTAutograd
    traces; torch.export needs them in its table."""
    from torch._export.utils import _collect_all_valid_cia_ops_for_aten_namespace, _get_decomp_for_cia

    return {op: _get_decomp_for_cia(op) for op in _collect_all_valid_cia_ops_for_aten_namespace()}


def fma_op() -> Callable:
    """The op fma(x, y, z) = x * y + z with one rounding, which ATen does not have."""
    from torch._inductor import inductor_prims

    return inductor_prims.fma


def without_dtype_checks(program: torch.export.ExportedProgram) -> torch.export.ExportedProgram:
    """A copy of an exported program without its assertions on dtypes, which would fail under autocast."""
    program = copy.copy(program)
    program._graph_module = copy.deepcopy(program._graph_module)
    graph = program._graph_module.graph
    for node in list(graph.nodes):
        if node.target is torch.ops.aten._assert_tensor_metadata.default:
            graph.erase_node(node)
    program._graph_module.recompile()
    return program


@contextlib.contextmanager
def onednn_on() -> Iterator[None]:
    """Turns torch.backends.mkldnn.enabled on. Some processes forbid to assign it, and its flags() sets other flags."""
    was_on = torch._C._get_mkldnn_enabled()
    torch._C._set_mkldnn_enabled(True)
    try:
        yield
    finally:
        torch._C._set_mkldnn_enabled(was_on)


def linspace(*arguments: Any, **options: Any) -> torch.Tensor:
    """PyTorch's own decomposition."""
    return torch._refs.linspace(*arguments, **options)


def logspace(*arguments: Any, **options: Any) -> torch.Tensor:
    """PyTorch's own decomposition."""
    return torch._refs.logspace(*arguments, **options)

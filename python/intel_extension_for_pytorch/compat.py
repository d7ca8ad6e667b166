"""The one place that touches PyTorch's private modules.

When a PyTorch release moves something, only this file changes. Each function says what it stands for; callers see
plain data.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch

# ---- decompositions ----


def core_decompositions() -> dict[Any, Callable]:
    """PyTorch's core ATen decomposition table."""
    from torch._decomp import core_aten_decompositions

    return dict(core_aten_decompositions())


def registered_decompositions(ops: Iterable[Any]) -> dict[Any, Callable]:
    """The registered decompositions of these ops (overloads or packets)."""
    from torch._decomp import get_decompositions

    return get_decompositions(list(ops))


# ---- AOTAutograd ----


def aot_backend(**kwargs: Any) -> Callable:
    """A Dynamo backend out of forward, backward and inference compilers."""
    from torch._dynamo.backends.common import aot_autograd

    return aot_autograd(**kwargs)


def min_cut_partition() -> Callable:
    """The partitioner that recomputes cheap values in the backward pass instead of saving them."""
    from torch._functorch.partitioners import min_cut_rematerialization_partition

    return min_cut_rematerialization_partition


def forward_metadata() -> Any:
    """AOTAutograd's description of the forward graph being compiled; None outside of a compilation."""
    from torch._guards import TracingContext

    context = TracingContext.try_get()
    return context.fw_metadata if context is not None else None


def static_input_positions() -> list[int]:
    """Positions among the forward graph's inputs of parameters and buffers."""
    metadata = forward_metadata()
    return list(metadata.static_input_indices or ()) if metadata is not None else []


def user_output_count(default: int) -> int:
    """How many leading outputs of the forward graph the user sees; the rest is saved for the backward."""
    metadata = forward_metadata()
    return metadata.num_forward_returns if metadata is not None else default


def report_output_strides(strides: Iterable[tuple[int, ...] | None]) -> None:
    """Tells AOTAutograd the strides that the forward's outputs really have (None: as traced)."""
    from torch._guards import TracingContext

    context = TracingContext.try_get()
    if context is not None and context.output_strides is not None and not context.output_strides:
        context.output_strides.extend(strides)


def without_version_bump(tensors: Iterable[torch.Tensor]) -> Any:
    """A context in which in-place writes to `tensors` leave their version counters alone."""
    return torch.autograd._unsafe_preserve_version_counter(tuple(tensors))


def disable_dynamo(function: Callable, reason: str) -> Callable:
    return torch._dynamo.disable(function, reason=reason)


def reset_dynamo() -> None:
    """Forgets every compiled function."""
    torch._dynamo.reset()


# ---- tensors and sizes ----


def is_plain_tensor(value: Any) -> bool:
    """A dense, strided CPU tensor (or the fake of one): what a Graph value can stand for."""
    from torch._subclasses.fake_tensor import FakeTensor

    return (
        type(value) in (torch.Tensor, FakeTensor, torch.nn.Parameter, torch.nn.Buffer)
        and value.device.type == "cpu"
        and value.layout is torch.strided
        and not value.is_quantized
    )


def symbol_hint(size: torch.SymInt, symbol: Any) -> int | None:
    """The value of `symbol` in the example inputs; None for one that depends on data."""
    value = size.node.shape_env.backed_var_to_val.get(symbol)
    return None if value is None else int(value)


def symbolic_functions() -> tuple[tuple, tuple]:
    """The sympy function classes for floor division and for Python's modulo."""
    from torch.utils._sympy import functions

    divisions = (functions.FloorDiv, functions.CleanDiv)
    modulos = (functions.Mod, functions.PythonMod)
    return divisions, modulos


def symbolic_extrema() -> tuple[tuple, tuple]:
    """The sympy function classes for minimum and maximum."""
    import sympy
    from torch.utils._sympy import functions

    return (sympy.Min, functions.Min), (sympy.Max, functions.Max)

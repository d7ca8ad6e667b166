"""Private properties of tensors: their kind, memory and layout. Also the state of random generators."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import torch

from .symbols import is_known, size_hint


def rng_state_wrappers() -> tuple[Any, Any]:
    """The ops in which PyTorch's partitioner wraps random ops that a backward pass repeats: one saves the generator's
    state, the other draws from it."""
    from torch._prims import rng_prims

    return rng_prims.run_and_save_rng_state, rng_prims.run_with_rng_state


def rng_state() -> torch.Tensor:
    """The state of the CPU's generator, as a real tensor even while PyTorch traces."""
    from torch._subclasses.fake_tensor import unset_fake_temporarily

    with unset_fake_temporarily():
        return torch.get_rng_state()


def value_of_call(graph: torch.fx.Graph, node: torch.fx.Node) -> Any:
    """The value of meta["val"] for a node that has none, computed from those of its arguments."""
    from torch._guards import detect_fake_mode

    mode = detect_fake_mode([n.meta.get("val") for n in graph.nodes if n.op == "placeholder"])
    args, kwargs = torch.fx.map_arg((node.args, dict(node.kwargs)), lambda n: n.meta["val"])
    with mode:
        return node.target(*args, **kwargs)


def without_version_bump(tensors: Iterable[torch.Tensor]) -> Any:
    """A context in which in-place writes to `tensors` do not bump their version counters. A PyTorch that cannot do that
    counts them twice, which is safe."""
    preserve = getattr(torch.autograd, "_unsafe_preserve_version_counter", None)
    return preserve(tuple(tensors)) if preserve else contextlib.nullcontext()


def is_plain_tensor(value: Any) -> bool:
    """Whether it is a dense, strided CPU tensor (or the fake of one), which a Graph value can represent."""
    from torch._subclasses.fake_tensor import FakeTensor

    return (
        type(value) in (torch.Tensor, FakeTensor, torch.nn.Parameter, torch.nn.Buffer)
        and value.device.type == "cpu"
        and value.layout is torch.strided
        and not value.is_quantized
    )


@dataclass(frozen=True)
class Batched:
    """A batched tensor of vmap: its nesting level, its values with the batch dimension first, and a function that wraps
    results in the same way."""

    level: int
    values: torch.Tensor
    wrap: Callable[[torch.Tensor], torch.Tensor]

    @staticmethod
    def of(tensor: torch.Tensor) -> Batched | None:
        functorch = torch._C._functorch
        if functorch.is_legacy_batchedtensor(tensor):  # from the vmap in which autograd runs a backward pass
            level = torch._C._vmapmode_increment_nesting() - 1
            torch._C._vmapmode_decrement_nesting()
            values = torch._remove_batch_dim(tensor, level, 1, 0)
            return Batched(level, values, lambda result: torch._add_batch_dim(result, 0, level))
        if functorch.is_batchedtensor(tensor):
            level = functorch.maybe_get_level(tensor)
            values = functorch.get_unwrapped(tensor).movedim(functorch.maybe_get_bdim(tensor), 0)
            return Batched(level, values, lambda result: functorch._add_batch_dim(result, 0, level))
        return None


def memory_identity(tensor: torch.Tensor) -> int:
    """A number that is equal for tensors (or fakes) that share a storage."""
    return tensor.untyped_storage()._cdata


def traced_object(value: Any) -> Any:
    """The real object behind a fake script object (for example of a device mesh), or None for anything else."""
    from torch._library.fake_class_registry import FakeScriptObject

    return value.real_obj if isinstance(value, FakeScriptObject) else None


def memory_order(tensor: torch.Tensor) -> list[int] | None:
    """The dims of a dense tensor from outermost to innermost, or None if it is not known to be dense. Symbolic sizes
    are compared as expressions, which adds no guard."""

    def hint(size: int | torch.SymInt) -> int:
        return size if isinstance(size, int) else size_hint(size, size.node.expr)

    order = sorted(range(tensor.dim()), key=lambda d: (-hint(tensor.stride(d)), hint(tensor.size(d))))
    step: int | torch.SymInt = 1
    for d in reversed(order):
        size, stride = tensor.size(d), tensor.stride(d)
        if not is_known(size == 1) and not is_known(stride == step):
            return None
        step = step * size
    return order


def suggested_memory_format(tensor: torch.Tensor) -> torch.memory_format:
    """The memory format that ATen gives results computed from the tensor."""
    return torch._prims_common.suggest_memory_format(tensor)


def without_modes() -> Any:
    """A context without dispatch modes, for example without fake tensors."""
    return torch.utils._python_dispatch._disable_current_modes()

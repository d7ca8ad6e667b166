"""What `ipex.optimize` does with optimizers: one, or a list or tuple of them."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any, TypeAlias, TypeVar

from torch import nn
from torch.optim import Optimizer

from ..nn.utils._parameter_wrapper import ParameterWrapper
from ..utils import _logger
from . import _fused
from ._fused import FUSED, own_class

Optimizers: TypeAlias = Optimizer | list[Optimizer] | tuple[Optimizer, ...] | None
AnyOptimizers = TypeVar("AnyOptimizers", bound=Optimizers)
IPEX_FUSED_OPTIMIZER_LIST_CPU = list(FUSED)


def as_list(optimizers: Optimizers) -> Sequence[Optimizer]:
    """All optimizers of the argument `optimizer=`."""
    if optimizers is None:
        return []
    return optimizers if isinstance(optimizers, list | tuple) else [optimizers]


def is_fused(optimizer: Optimizer) -> bool:
    """Whether the step of this optimizer is one operator call for the parameters of a group."""
    return own_class(optimizer) in FUSED and getattr(optimizer, "fused", False) is True


def optimizer_fusion(
    optimizer: Optimizer, master_weight_split: bool | None = None, device_type: str = "cpu"
) -> Optimizer:
    """Gives an optimizer its fused step, if its class has one. Parameters say themselves how they are stored.

    Raises ValueError for another device.
    """
    if device_type != "cpu":
        raise ValueError(f"fused steps are for the CPU, got device_type={device_type!r}")
    _fused.fuse(optimizer, getattr(optimizer, "params_attr", {}))
    return optimizer


def can_split(optimizers: Optimizers, explicit: bool = False) -> bool:
    """Whether all these optimizers can update parameters that are split into two halves in one pass. `explicit`: the
    user asks for it, so that a warning says why not."""
    others = [own_class(o).__name__ for o in as_list(optimizers) if own_class(o) not in FUSED]
    if others and explicit:
        known = ", ".join(c.__name__ for c in FUSED)
        _logger.warn(
            f"split_master_weight_for_bf16 needs one of the optimizers {known}, got {others[0]}: fp32 master weights "
            "are kept instead",
            "NotSupported",
        )
    return not others


def copy_model_and_optimizer(model: nn.Module, optimizers: AnyOptimizers) -> tuple[nn.Module, AnyOptimizers]:
    """Copies of both. The optimizers have the parameters of the new model, and copies of their states and options."""
    memo: dict[int, Any] = {}
    new_model = copy.deepcopy(model, memo)
    for optimizer in as_list(optimizers):  # parameters outside the model are trained by the copy too
        for parameter in (p for group in optimizer.param_groups for p in group["params"]):
            memo.setdefault(id(parameter), parameter)
    copies = [_copied(optimizer, memo) for optimizer in as_list(optimizers)]
    if not isinstance(optimizers, list | tuple):
        return new_model, copies[0] if copies else None
    return new_model, type(optimizers)(copies)


def _copied(optimizer: Optimizer, memo: dict[int, Any]) -> Optimizer:
    """A copy with all attributes. Optimizers leave out what is not a state or an option when they are copied, such as
    hooks, and without its other attributes LBFGS does not work."""
    attributes = dict(vars(optimizer))
    if hasattr(attributes.pop("step", None), "_wrapped_by_lr_sched"):
        _logger.warn(
            "a scheduler of the learning rate follows the given optimizer and not its copy: make the scheduler after "
            "optimize, or use inplace=True",
            "WrongArgument",
        )
    result = memo[id(optimizer)] = type(optimizer).__new__(type(optimizer))
    vars(result).update(copy.deepcopy(attributes, memo))
    return result


def prepare(optimizers: Optimizers, params_attr: dict[nn.Parameter, ParameterWrapper], *, fuse: bool) -> None:
    """Prepares optimizers for parameters of which some are cast: see _fused.py.

    An optimizer without a fused step, and without parameters in low precision, stays as it is but for its attribute
    `params_attr`. Raises ValueError if two optimizers have the same parameter.
    """
    owner: dict[nn.Parameter, int] = {}
    for number, optimizer in enumerate(as_list(optimizers)):
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                if owner.setdefault(parameter, number) != number:
                    raise ValueError(
                        f"a parameter of shape {list(parameter.shape)} belongs to optimizer {owner[parameter]} and to "
                        f"optimizer {number}: each parameter may have one optimizer"
                    )
    for optimizer in as_list(optimizers):
        # An optimizer may train several models, which are optimized one after the other.
        for parameter, wrapper in getattr(optimizer, "params_attr", {}).items():
            params_attr.setdefault(parameter, wrapper)
        if params_attr or (fuse and own_class(optimizer) in FUSED):
            _fused.fuse(optimizer, params_attr, fused=fuse)
        else:
            optimizer.params_attr = params_attr

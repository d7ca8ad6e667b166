"""Fused steps: one operator call for the parameters of a group.

Each function takes an optimizer and one of its groups, updates the parameters that the operator can, and returns the
others that have a gradient. The optimizer has the states, options and rounding of its class in torch.optim. Its
attribute `params_attr`, if it has one, maps parameters in low precision to their wrappers.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from ..nn.utils._parameter_wrapper import ParameterWrapper

ops = torch.ops.torch_ipex
_PLAIN = (torch.float32, torch.float64)
_LOW = (torch.bfloat16, torch.float16)
_TYPES = (Tensor, nn.Parameter)
_NONE = torch.empty(0, device="cpu")


@dataclass
class _Operands:
    """Of each parameter that a step updates: the lists that the operators take."""

    owners: list[Tensor] = field(default_factory=list)  # as in the group: the keys of the optimizer's state
    params: list[Tensor] = field(default_factory=list)
    grads: list[Tensor] = field(default_factory=list)
    params2: list[Tensor] = field(default_factory=list)
    rest: list[Tensor] = field(default_factory=list)

    def add(self, owner: Tensor, grad: Tensor, wrapper: ParameterWrapper | None) -> None:
        param, param2 = owner, _NONE
        if wrapper is not None:
            param, param2 = (owner, wrapper.parameter_trail) if wrapper.split else (wrapper.master_parameter, owner)
        self.owners.append(owner)
        self.params.append(param)
        self.grads.append(grad)
        self.params2.append(param2)


def wrapper_of(optimizer: Optimizer, parameter: Tensor) -> ParameterWrapper | None:
    """The wrapper of a parameter that is stored in low precision for training."""
    wrapper = getattr(optimizer, "params_attr", {}).get(parameter)
    return wrapper if wrapper is not None and wrapper.split is not None and wrapper.is_current else None


def _is_supported(parameter: Tensor, grad: Tensor, wrapper: ParameterWrapper | None) -> bool:
    dtype = parameter.dtype
    return (
        type(parameter) in _TYPES
        and type(grad) in _TYPES
        and parameter.device.type == grad.device.type == "cpu"
        and parameter.layout is torch.strided
        and grad.layout in (torch.strided, torch.sparse_coo)
        and (dtype in _PLAIN if wrapper is None else dtype in _LOW)
        and (grad.dtype is dtype or (dtype in _LOW and grad.dtype is torch.float32))
    )


def _operands(optimizer: Optimizer, group: dict[str, Any], updates_rows: bool) -> _Operands:
    """`updates_rows`: the operator takes sparse gradients."""
    found = _Operands()
    own_step = group.get("differentiable") or group.get("capturable")
    for parameter in group["params"]:
        grad = parameter.grad
        if grad is None:
            continue
        wrapper = wrapper_of(optimizer, parameter)
        if own_step or not _is_supported(parameter, grad, wrapper) or (grad.is_sparse and not updates_rows):
            found.rest.append(parameter)
        else:
            if wrapper is not None:
                wrapper.take_writes()
            found.add(parameter, grad, wrapper)
    return found


def _zeros(parameter: Tensor, fill: float = 0.0) -> Tensor:
    dtype = torch.float32 if parameter.dtype in _LOW else parameter.dtype
    return torch.full_like(parameter, fill, dtype=dtype, memory_format=torch.preserve_format)


def _counter() -> Tensor:
    double = torch.get_default_dtype() is torch.float64
    return torch.tensor(0.0, dtype=torch.float64 if double else torch.float32)


def _states(optimizer: Optimizer, owners: list[Tensor], names: dict[str, float]) -> list[list[Tensor]]:
    """The lists of these states, which are made with a value where they are missing; and of step counters."""
    for owner in owners:
        state = optimizer.state[owner]
        if len(state) == 0:
            state["step"] = _counter()
        for name, fill in names.items():
            if name not in state:
                state[name] = _zeros(owner, fill)
    return [[optimizer.state[owner][name] for owner in owners] for name in (*names, "step")]


def _common(optimizer: Optimizer, group: dict[str, Any]) -> dict[str, Any]:
    scale = getattr(optimizer, "grad_scale", None)  # set by GradScaler during a step
    return {
        "lr": float(group["lr"]),
        "weight_decay": float(group["weight_decay"]),
        "maximize": group.get("maximize", False),
        "grad_scale": 1.0 if scale is None else float(scale),
    }


def sgd_step(optimizer: Optimizer, group: dict[str, Any]) -> list[Tensor]:
    """A step of torch.optim.SGD."""
    # With momentum, torch.optim keeps sparse buffers, and decay makes a sparse gradient an error.
    found = _operands(optimizer, group, updates_rows=group["momentum"] == 0 and group["weight_decay"] == 0)
    options = _common(optimizer, group)
    if any(grad.is_sparse for grad in found.grads):
        alpha = (options["lr"] if options["maximize"] else -options["lr"]) / options["grad_scale"]
        dense = _Operands(rest=found.rest)
        for owner, param, grad, param2 in zip(found.owners, found.params, found.grads, found.params2, strict=True):
            if grad.is_sparse:
                ops.packed_add(param, param2, grad, alpha)
            else:
                dense.add(owner, grad, wrapper_of(optimizer, owner))
        found = dense
    options |= {"dampening": group["dampening"], "nesterov": group["nesterov"]}
    _step_with_momentum(ops.sgd_fused_steps, optimizer, group, found, options)
    return found.rest


def lars_step(optimizer: Optimizer, group: dict[str, Any]) -> list[Tensor]:
    """A step of Lars. Groups with `lars=False` get a step of SGD."""
    found = _operands(optimizer, group, updates_rows=False)
    options = _common(optimizer, group)
    if group["lars"]:
        _step_with_momentum(
            ops.lars_fused_steps, optimizer, group, found, options | {"eeta": group["eeta"], "eps": group["epsilon"]}
        )
    else:
        options |= {"dampening": 0.0, "nesterov": False}
        _step_with_momentum(ops.sgd_fused_steps, optimizer, group, found, options)
    return found.rest


def _step_with_momentum(
    op: Any, optimizer: Optimizer, group: dict[str, Any], found: _Operands, options: dict[str, Any]
) -> None:
    """Steps parameters that have a momentum buffer, and others, whose buffer begins with the gradient."""
    momentum = float(group["momentum"])
    begun = [momentum == 0 or optimizer.state[p].get("momentum_buffer") is not None for p in found.owners]
    for first in (False, True):
        chosen = [i for i, has_buffer in enumerate(begun) if has_buffer is not first]
        buffers = []
        for i in chosen if momentum else ():
            state = optimizer.state[found.owners[i]]
            if first:
                state["momentum_buffer"] = _zeros(found.owners[i])
            buffers.append(state["momentum_buffer"])
        if chosen:
            params, grads, params2 = ([o[i] for i in chosen] for o in (found.params, found.grads, found.params2))
            op(params, grads, buffers, params2, momentum=momentum, first=first, **options)


def adagrad_step(optimizer: Optimizer, group: dict[str, Any]) -> list[Tensor]:
    """A step of torch.optim.Adagrad."""
    found = _operands(optimizer, group, updates_rows=True)
    if not found.owners:
        return found.rest
    sums, steps = _states(optimizer, found.owners, {"sum": optimizer.defaults["initial_accumulator_value"]})
    ops.adagrad_fused_steps(
        found.params, found.grads, sums, found.params2, steps,
        lr_decay=group["lr_decay"], eps=group["eps"], **_common(optimizer, group),
    )  # fmt: skip
    return found.rest


def adam_step(optimizer: Optimizer, group: dict[str, Any], decoupled: bool | None = None) -> list[Tensor]:
    """A step of torch.optim.Adam, or of AdamW if decay is decoupled; by default the group says which."""
    found = _operands(optimizer, group, updates_rows=False)
    if not found.owners:
        return found.rest
    names = dict.fromkeys(("exp_avg", "exp_avg_sq", *(("max_exp_avg_sq",) if group["amsgrad"] else ())), 0.0)
    averages, squares, *maxima, steps = _states(optimizer, found.owners, names)
    beta1, beta2 = map(float, group["betas"])
    ops.adam_fused_steps(
        found.params, found.grads, averages, squares, maxima[0] if maxima else [], found.params2, steps,
        beta1=beta1, beta2=beta2, eps=group["eps"], amsgrad=group["amsgrad"],
        decoupled=group.get("decoupled_weight_decay", False) if decoupled is None else decoupled,
        **_common(optimizer, group),
    )  # fmt: skip
    return found.rest


def adamw_step(optimizer: Optimizer, group: dict[str, Any]) -> list[Tensor]:
    """A step of torch.optim.AdamW."""
    return adam_step(optimizer, group, decoupled=True)


def lamb_step(optimizer: Optimizer, group: dict[str, Any]) -> list[Tensor]:
    """A step of Lamb."""
    found = _operands(optimizer, group, updates_rows=False)
    if not found.owners:
        return found.rest
    averages, squares, steps = _states(optimizer, found.owners, {"exp_avg": 0.0, "exp_avg_sq": 0.0})
    beta1, beta2 = map(float, group["betas"])
    ops.lamb_fused_steps(
        found.params, found.grads, averages, squares, found.params2, steps,
        beta1=beta1, beta2=beta2, eps=group["eps"], **_common(optimizer, group),
    )  # fmt: skip
    return found.rest

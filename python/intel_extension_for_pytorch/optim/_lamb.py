"""Lamb: Adam whose update of each parameter is scaled to the norm of the parameter."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor

from . import _functional
from ._by_parameter import ByParameter


class Lamb(ByParameter):
    """Lamb, from "Large Batch Optimization for Deep Learning: Training BERT in 76 minutes".

    The update is that of Adam with bias corrections, plus `weight_decay` times the parameter. It is scaled by the norm
    of the parameter over its own norm, where neither is 0.

    Args:
        params: parameters or groups of parameters, as for every optimizer of PyTorch.
        fused: the step is one operator call for the parameters of a group.

    Raises ValueError for options that are out of range.
    """

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0,
        fused: bool = False,
    ) -> None:
        for name, value in (("learning rate", lr), ("epsilon value", eps), ("weight_decay value", weight_decay)):
            if not value >= 0:
                raise ValueError(f"Invalid {name}: {value}")
        for index, beta in enumerate(betas):
            if not 0 <= beta < 1:
                raise ValueError(f"Invalid beta parameter at index {index}: {beta}")
        super().__init__(params, {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay})
        self.fused = fused

    def _fused_step(self, group: dict[str, Any]) -> list[Tensor]:
        return _functional.lamb_step(self, group)

    def _update(self, parameter: Tensor, group: dict[str, Any]) -> None:
        grad, state = parameter.grad, self.state[parameter]
        if grad.is_sparse:
            raise RuntimeError("Lamb does not support sparse gradients, please consider SparseAdam instead")
        if not state:
            state["step"] = torch.tensor(0.0)
            state["exp_avg"] = torch.zeros_like(parameter)
            state["exp_avg_sq"] = torch.zeros_like(parameter)
        beta1, beta2 = group["betas"]
        state["step"] += 1
        step = float(state["step"])
        average = state["exp_avg"].mul_(beta1).add_(grad, alpha=1 - beta1)
        square = state["exp_avg_sq"].mul_(beta2).addcmul_(grad, grad, value=1 - beta2)
        update = average / (1 - beta1**step) / (square / (1 - beta2**step)).sqrt_().add_(group["eps"])
        if group["weight_decay"]:
            update.add_(parameter, alpha=group["weight_decay"])
        norms = parameter.norm(), update.norm()
        trust = float(norms[0] / norms[1]) if all(float(norm) != 0 for norm in norms) else 1.0
        parameter.add_(update, alpha=-float(group["lr"]) * trust)

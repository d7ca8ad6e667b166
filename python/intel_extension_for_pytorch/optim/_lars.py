"""Lars: SGD with a learning rate for each parameter, which follows from the norms of parameter and gradient."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from torch import Tensor, nn

from . import _functional
from ._by_parameter import ByParameter

_NORMS = (nn.LayerNorm, nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)


class Lars(ByParameter):
    """Lars, from "Large batch training of convolutional networks".

    The learning rate of a parameter p with gradient g is lr * eeta * |p| / (|g| + weight_decay * |p| + epsilon), where
    neither norm is 0. Groups with `lars=False` have the learning rate lr: see create_optimizer_lars.

    Raises ValueError for options that are out of range.
    """

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-3,
        momentum: float = 0,
        eeta: float = 1e-3,
        weight_decay: float = 0,
        epsilon: float = 0.0,
    ) -> None:
        for name, value in (
            ("learning rate", lr),
            ("momentum value", momentum),
            ("weight_decay value", weight_decay),
            ("epsilon value", epsilon),
        ):
            if not value >= 0:
                raise ValueError(f"Invalid {name}: {value}")
        if not 0 < eeta <= 1:
            raise ValueError(f"Invalid eeta value: {eeta}")
        options = {"lr": lr, "momentum": momentum, "eeta": eeta, "weight_decay": weight_decay, "epsilon": epsilon}
        super().__init__(params, {**options, "lars": True})

    def _fused_step(self, group: dict[str, Any]) -> list[Tensor]:
        return _functional.lars_step(self, group)

    def _update(self, parameter: Tensor, group: dict[str, Any]) -> None:
        grad, lr, decay = parameter.grad, float(group["lr"]), group["weight_decay"]
        if grad.is_sparse:
            raise RuntimeError("Lars does not support sparse gradients, please consider SparseAdam instead")
        if group["lars"]:
            norms = float(parameter.norm()), float(grad.norm())
            if all(norms):
                lr *= group["eeta"] * norms[0] / (norms[1] + decay * norms[0] + group["epsilon"])
        if decay:
            grad = grad.add(parameter, alpha=decay)
        if group["momentum"]:
            state = self.state[parameter]
            buffer = state.get("momentum_buffer")
            if buffer is None:
                buffer = state["momentum_buffer"] = grad.detach().clone()
            else:
                buffer.mul_(group["momentum"]).add_(grad)
            grad = buffer
        parameter.add_(grad, alpha=-lr)


def create_optimizer_lars(
    model: nn.Module, lr: float, momentum: float, weight_decay: float, bn_bias_separately: bool, epsilon: float
) -> Lars:
    """Lars for the parameters of a model. `bn_bias_separately`: norms and biases have the learning rate lr and no
    decay, which is better in general."""
    groups: list[dict[str, Any]] = [{"params": list(model.parameters())}]
    if bn_bias_separately:
        norms = {p for m in model.modules() if isinstance(m, _NORMS) for p in m.parameters(recurse=False)}
        biases = {p for name, p in model.named_parameters() if "bias" in name} - norms
        excluded = {"weight_decay": 0, "lars": False}
        groups = [
            {"params": [p for p in model.parameters() if p not in norms and p not in biases]},
            {"params": [p for p in model.parameters() if p in norms], **excluded},
            {"params": [p for p in model.parameters() if p in biases], **excluded},
        ]
    return Lars(groups, lr=lr, momentum=momentum, weight_decay=weight_decay, epsilon=epsilon)

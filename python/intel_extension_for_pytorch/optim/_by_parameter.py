"""The part that Lamb and Lars share: steps of one parameter after the other, or one operator call for a group."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor


class ByParameter(torch.optim.Optimizer):
    """An optimizer that updates each parameter by itself. Its attribute `fused` chooses the operator instead."""

    fused = False

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "fused": self.fused}

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Updates the parameters. `closure` computes the loss again, which is returned."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            for parameter in self._fused_step(group) if self.fused else group["params"]:
                if parameter.grad is not None:
                    self._update(parameter, group)
        return loss

    def _fused_step(self, group: dict[str, Any]) -> list[Tensor]:
        """Updates the parameters that the operator can, and returns the others that have a gradient."""
        raise NotImplementedError

    def _update(self, parameter: Tensor, group: dict[str, Any]) -> None:
        """Updates one parameter, which has a gradient."""
        raise NotImplementedError

"""GradScaler for the CPU."""

from __future__ import annotations

import torch


class GradScaler(torch.amp.GradScaler):
    """`torch.amp.GradScaler("cpu")` with the arguments of IPEX."""

    def __init__(
        self,
        init_scale: float = 65536.0,
        growth_factor: float = 2.0,
        backoff_factor: float = 0.5,
        growth_interval: int = 2000,
        enabled: bool = True,
    ) -> None:
        super().__init__("cpu", init_scale, growth_factor, backoff_factor, growth_interval, enabled)

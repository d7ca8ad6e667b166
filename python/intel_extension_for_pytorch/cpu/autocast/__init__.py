"""Autocast is PyTorch's: `torch.autocast("cpu")`. The operators of this package follow it."""

from torch.cpu.amp import autocast

from ._grad_scaler import GradScaler

__all__ = ["GradScaler", "autocast"]

"""Optimizers beside those of `torch.optim`, and fused steps for both.

`Lamb` and `Lars` work as any optimizer of PyTorch does. `ipex.optimize` gives an optimizer the fused step.
"""

from __future__ import annotations

from ._lamb import Lamb
from ._lars import Lars, create_optimizer_lars

__all__ = ["Lamb", "Lars", "create_optimizer_lars"]

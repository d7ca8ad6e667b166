"""Functions for eager mode. Under `torch.compile` they are the ATen ops of their definition."""

from .interactions import interaction

__all__ = ["interaction"]

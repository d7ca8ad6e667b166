"""Decompositions that PyTorch does not have, or has with other results than eager: "formulas"."""

from . import (  # noqa: F401  (importing them registers their formulas)
    attention,
    creation,
    distances,
    division,
    indexing,
    lists,
    losses,
    mixed_types,
    norms,
    polynomials,
    products,
    sampling,
)
from .registry import FORMULAS as FORMULAS

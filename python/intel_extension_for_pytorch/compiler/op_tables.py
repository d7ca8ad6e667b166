"""Lookups in the tables of pointwise ops and reductions, by the compiler's names and by ATen's."""

from __future__ import annotations

from functools import cache
from types import SimpleNamespace
from typing import Any

import torch

from .. import _C


@cache
def row_tables() -> tuple[dict[str, Any], dict[str, Any]]:
    """ATen name -> row, for pointwise ops and for reductions."""
    pointwise = {aten: row for row in _pointwise_rows().values() for aten in row.aten.split()}
    reductions = {row["aten"]: SimpleNamespace(**row) for row in _C.reduction_rows()}
    return pointwise, {aten: row for names, row in reductions.items() for aten in names.split()}


def pointwise_row(name: str) -> Any:
    return _pointwise_rows()[name]


@cache
def _pointwise_rows() -> dict[str, Any]:
    return {row["name"]: SimpleNamespace(**row) for row in _C.pointwise_rows()}


def accepts(row: Any, dtype: torch.dtype) -> bool:
    if dtype is torch.bool:
        return row.booleans
    return row.floats if dtype.is_floating_point else row.integers

"""The decomposition table: which ATen ops PyTorch decomposes before the importer sees them.

The table is PyTorch's core table, the entries below and formulas/, minus every op that has an import rule. A rule
rounds once where a decomposition rounds at each step, and random ops must draw the same numbers as eager.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from typing import Any

import torch

from .. import torch_private
from .extern import EXPECTED
from .formulas import FORMULAS
from .rules import native_names
from .types_without_kernels import unless_kernel_is_missing

# Ops that are not in the core table and have no import rule. They become pointwise ops, reductions and views.
_EXTRA = (
    "_batch_norm_no_update", "_batch_norm_with_update", "_batch_norm_with_update_functional",
    "_native_batch_norm_legit", "addmv", "batch_norm_backward", "dist", "hann_window", "ldexp",
    "linalg_vector_norm", "native_batch_norm", "nll_loss2d_backward", "rrelu_with_noise_backward",
    "tril_indices", "triu_indices", "upsample_bilinear2d", "upsample_bicubic2d", "upsample_nearest1d",
    "upsample_nearest2d", "upsample_nearest3d", "_upsample_nearest_exact1d", "_upsample_nearest_exact2d",
    "im2col",
)  # fmt: skip

# Ops that are not decomposed. Their decompositions draw other random numbers or are slower than ATen's kernel.
_WHOLE = EXPECTED | {
    "addmm", "baddbmm", "bmm", "convolution", "convolution_backward", "mm", "rrelu_with_noise",
    "rrelu_with_noise_",
}  # fmt: skip


class Decompositions(Mapping):
    """The decomposition table for AOTAutograd, built on first use: a warm start does not need it."""

    def __getitem__(self, op: Any) -> Callable:
        return _table()[op]

    def __iter__(self) -> Iterator[Any]:
        return iter(_table())

    def __len__(self) -> int:
        return len(_table())


def ahead_of_time_decompositions() -> dict[Any, Callable]:
    """The table for torch.export. It includes the implicit decompositions, which AOTAutograd applies by itself. An LSTM
    becomes one op per layer, as under AOTAutograd, instead of an unrolled sequence."""
    table = torch_private.implicit_decompositions()
    table.update(_table())
    table[torch.ops.aten.lstm.input] = _lstm_by_layers
    return table


def _lstm_by_layers(*arguments: Any) -> Any:
    """PyTorch's decomposition with oneDNN on. torch.export turns oneDNN off while it decomposes, which would unroll."""
    lstm = torch.ops.aten.lstm.input
    with torch_private.onednn_on():
        return torch_private.registered_decompositions([lstm])[lstm](*arguments)


@lru_cache(maxsize=1)
def _table() -> dict[Any, Callable]:
    table = torch_private.core_decompositions()
    packets = [getattr(torch.ops.aten, name) for name in _EXTRA if hasattr(torch.ops.aten, name)]
    table.update(torch_private.registered_decompositions(packets))
    kept = native_names() | _WHOLE
    # Formulas come first: a formula may return NotImplemented and leave the op to a rule.
    table = {op: function for op, function in table.items() if not _is_kept(op, kept)} | FORMULAS
    return {op: unless_kernel_is_missing(op, function) for op, function in table.items()}


def _is_kept(op: Any, kept: set[str]) -> bool:
    if not isinstance(op, torch_private.OpOverload) or op.namespace != "aten":
        return False
    base = op._schema.name.partition("::")[2]
    return base in kept or f"{base}.{op._overloadname}" in kept

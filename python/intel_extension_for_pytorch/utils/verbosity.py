"""Lines of oneDNN about the primitives that run."""

from __future__ import annotations

from types import TracebackType

import torch

from .. import _C

VERBOSE_OFF, VERBOSE_ON, VERBOSE_ON_CREATION = 0, 1, 2


class verbose:  # noqa: N801 - the name of IPEX
    """Within this context oneDNN prints a line "onednn_verbose,..." to standard output for each primitive that runs,
    and with VERBOSE_ON_CREATION for each that is created: that of this package, and that of PyTorch.

    Raises ValueError for an unknown level.
    """

    def __init__(self, level: int) -> None:
        if level not in (VERBOSE_OFF, VERBOSE_ON, VERBOSE_ON_CREATION):
            raise ValueError(f"verbose: level must be 0, 1 or 2, got {level}")
        self.level = level
        self._torch = torch.backends.mkldnn.verbose(level)

    def __enter__(self) -> verbose:
        self._torch.__enter__()
        _C.set_onednn_verbose(self.level)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        _C.set_onednn_verbose(VERBOSE_OFF)
        self._torch.__exit__(kind, value, trace)

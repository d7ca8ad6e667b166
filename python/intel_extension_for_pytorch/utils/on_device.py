"""Construction of models on another device or in another dtype."""

from __future__ import annotations

from types import TracebackType

import torch


class OnDevice:
    """Within this context, modules are constructed on `device` and, if it is given, in `dtype`.

    >>> with OnDevice(dtype=torch.bfloat16, device="meta"):
    ...     model = torch.nn.Linear(4, 4)  # no memory
    """

    def __init__(self, dtype: torch.dtype | None = None, device: str = "meta", enabled: bool = True) -> None:
        self._dtype, self._device, self._enabled = dtype, torch.device(device), enabled
        self._before = torch.get_default_dtype()

    def __enter__(self) -> OnDevice:
        if self._enabled:
            self._before = torch.get_default_dtype()
            self._device.__enter__()
            if self._dtype is not None:
                torch.set_default_dtype(self._dtype)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._enabled:
            torch.set_default_dtype(self._before)
            self._device.__exit__(kind, value, trace)

"""`ipex.llm.optimize`: a language model whose forward pass is compiled by this package."""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import nn

from ..utils import _logger

_DTYPES = (None, torch.float32, torch.bfloat16, torch.float16)


def optimize(
    model: nn.Module,
    optimizer: Any = None,
    dtype: torch.dtype | None = torch.float32,
    inplace: bool = False,
    device: str = "cpu",
    quantization_config: Any = None,
    qconfig_summary_file: str | None = None,
    low_precision_checkpoint: Any = None,
    sample_inputs: Any = None,
    deployment_mode: bool = True,
    cache_weight_for_large_batch: bool = False,
) -> Any:
    """Casts a language model to `dtype` and compiles its forward pass with `torch.compile(backend="ipex")`.

    The class stays, so that `generate` and everything else of the model works. The result is a copy in eval mode, or
    with `inplace` the model itself. A model in training mode, or one with an optimizer, is returned untouched, as the
    pair (model, optimizer), with a warning. `sample_inputs`, `deployment_mode` and `cache_weight_for_large_batch` are
    accepted and have no effect: nothing is traced, and no second copy of weights is kept.

    Raises ValueError for another device or dtype, and NotImplementedError for quantization.
    """
    if device != "cpu":
        raise ValueError(f"llm.optimize: device must be 'cpu', got {device!r}")
    if dtype not in _DTYPES:
        raise ValueError(f"llm.optimize: dtype must be None, torch.float32, bfloat16 or float16, got {dtype}")
    if any(value is not None for value in (quantization_config, qconfig_summary_file, low_precision_checkpoint)):
        raise NotImplementedError(
            "llm.optimize: quantization is not supported: leave out quantization_config, qconfig_summary_file and "
            "low_precision_checkpoint"
        )
    if model.training or optimizer is not None:
        _logger.warn("llm.optimize is for inference: the model and the optimizer stay as they are", "NotSupported")
        return model, optimizer
    if not inplace:
        model = copy.deepcopy(model)
    if dtype is not None:
        model.to(dtype)
    model.forward = torch.compile(model.forward, backend="ipex")
    return model

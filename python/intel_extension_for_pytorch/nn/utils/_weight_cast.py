"""Casts of parameters to bf16 or f16, with or without what training needs to keep their precision."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import nn

from ...utils import _logger
from . import _parameter_wrapper, _state, _weight_prepack
from ._parameter_wrapper import ParameterWrapper

_CONVS = (nn.Conv1d, nn.Conv2d, nn.Conv3d, nn.ConvTranspose2d, nn.ConvTranspose3d)
_EVERYWHERE = (nn.Linear, nn.Embedding, nn.LSTM, nn.ParameterList, *_CONVS)
_IN_TRAINING = (*_EVERYWHERE, nn.EmbeddingBag)


def _classes(training: bool, dtype: torch.dtype) -> set[type[nn.Module]]:
    """The classes whose parameters are cast. Classes count, not subclasses, which may need the precision."""
    listed = set(_IN_TRAINING if training else _EVERYWHERE)
    if not training:
        listed.discard(nn.Conv1d)
    if dtype is torch.float16:
        listed.discard(nn.LSTM)
    return listed | {new for old, new in _weight_prepack._REPLACEMENTS.items() if old in listed}


def _castable(
    model: nn.Module, training: bool, dtype: torch.dtype
) -> Iterator[tuple[nn.Parameter, list[tuple[nn.Module, str]]]]:
    """Parameters to cast, with their owners. If a weight of a module stays, because a module that is not listed shares
    it, the module's other parameters stay too."""
    classes = _classes(training, dtype)
    owners = _parameter_wrapper.owners_of_parameters(model)
    all_listed = {p: all(type(module) in classes for module, _ in found) for p, found in owners.items()}
    warned = False
    for parameter, found in owners.items():
        siblings = (p for module, _ in found for p in module._parameters.values() if p is not None)
        if parameter.dtype is dtype or not all(all_listed[p] for p in siblings):
            continue
        if parameter.dtype is torch.float32:
            yield parameter, found
        elif not warned:
            warned = True
            _logger.warn(f"Can't convert model's parameters dtype from {parameter.dtype} to {dtype}", "NotSupported")


def cast_weights(
    model: nn.Module, params_attr: dict[nn.Parameter, ParameterWrapper], *, training: bool, dtype: torch.dtype,
    split: bool,
) -> None:  # fmt: skip
    """Casts the parameters of listed classes in place and adds their wrappers to `params_attr`.

    In training each wrapper keeps the precision: the low halves (`split`, for bf16) or an fp32 master.
    """
    for parameter, found in list(_castable(model, training, dtype)):
        wrapper = _parameter_wrapper.cast(parameter, dtype, training=training, split=split)
        wrapper.modules_cls = [type(module) for module, _ in found]
        wrapper.num_modules = len(found)
        params_attr[parameter] = wrapper
        for module, name in found:
            _state.attach(module, name, wrapper)
    if params_attr:
        _avoid_fused_encoder_layers(model)


def _avoid_fused_encoder_layers(model: nn.Module) -> None:
    """PyTorch's fused kernel for a whole encoder layer needs all weights and the input in one dtype."""
    for module in model.modules():
        if isinstance(module, nn.TransformerEncoderLayer):
            module.activation_relu_or_gelu = 0

"""Layers that keep their weight in the library's format between calls, and layers with our kernels for training.

A layer is converted by changing its class: parameters, hooks, buffers and the object itself stay. The packed copy is
not visible: it belongs to the operators (kernels/torch_ops/), which compute it again when the weight has changed.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from . import _lstm_convert
from ._parameter_wrapper import owners_of_parameters

_ops = torch.ops.torch_ipex


class _IPEXLinear(nn.Linear):
    """A linear layer: input [..., in_features], result [..., out_features]. Takes any floating-point input, which is
    cast to the weight's dtype."""

    def forward(self, input: Tensor) -> Tensor:
        return _ops.ipex_linear(input, self.weight, self.bias)


class _Convolution(nn.modules.conv._ConvNd):
    def _conv_forward(self, input: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        rank = weight.dim() - 2
        padding = self.padding
        if self.padding_mode != "zeros":
            input = F.pad(input, self._reversed_padding_repeated_twice, mode=self.padding_mode)
            padding = (0,) * rank
        elif padding == "valid":
            padding = (0,) * rank
        elif padding == "same":
            total = [d * (k - 1) for d, k in zip(self.dilation, self.kernel_size, strict=True)]
            if any(t % 2 for t in total):  # the odd element goes to the end
                input = F.pad(input, [side for t in reversed(total) for side in (0, t % 2)])
            padding = tuple(t // 2 for t in total)
        return _ops.convolution_forward(
            input, weight, bias, self.stride, padding, self.dilation, False, (0,) * rank, self.groups
        )


class _IPEXConv1d(_Convolution, nn.Conv1d):
    """A convolution over [N, C, L]."""


class _IPEXConv2d(_Convolution, nn.Conv2d):
    """A convolution over [N, C, H, W]."""


class _IPEXConv3d(_Convolution, nn.Conv3d):
    """A convolution over [N, C, D, H, W]."""


class _Transposed(nn.modules.conv._ConvTransposeNd):
    def forward(self, input: Tensor, output_size: list[int] | None = None) -> Tensor:
        rank = self.weight.dim() - 2
        output_padding = self._output_padding(
            input, output_size, self.stride, self.padding, self.kernel_size, rank, self.dilation
        )
        return _ops.convolution_forward(
            input, self.weight, self.bias, self.stride, self.padding, self.dilation, True, output_padding, self.groups
        )


class _IPEXConvTranspose2d(_Transposed, nn.ConvTranspose2d):
    """A transposed convolution over [N, C, H, W]."""


class _IPEXConvTranspose3d(_Transposed, nn.ConvTranspose3d):
    """A transposed convolution over [N, C, D, H, W]."""


class _BatchNorm(nn.modules.batchnorm._BatchNorm):
    def forward(self, input: Tensor) -> Tensor:
        if not self.training:
            return super().forward(input)
        self._check_input_dim(input)
        mean, variance, momentum = None, None, self.momentum or 0.0
        if self.track_running_stats:
            mean, variance = self.running_mean, self.running_var
            if self.num_batches_tracked is not None:
                self.num_batches_tracked.add_(1)
                if self.momentum is None:  # the average over all batches
                    momentum = 1.0 / float(self.num_batches_tracked)
        return _ops.batch_norm(input, self.weight, self.bias, mean, variance, momentum, self.eps)


class _IPEXBatchNorm2d(_BatchNorm, nn.BatchNorm2d):
    """Batch norm over [N, C, H, W]."""


class _IPEXBatchNorm3d(_BatchNorm, nn.BatchNorm3d):
    """Batch norm over [N, C, D, H, W]."""


class _IPEXDropout(nn.Dropout):
    """Dropout of elements, with the masks of nn.Dropout."""

    def forward(self, input: Tensor) -> Tensor:
        if not self.training or self.inplace:
            return super().forward(input)
        return _ops.dropout(input, self.p)


# By exact class: a subclass may compute something else.
_REPLACEMENTS: dict[type[nn.Module], type[nn.Module]] = {
    nn.Linear: _IPEXLinear,
    nn.Conv1d: _IPEXConv1d,
    nn.Conv2d: _IPEXConv2d,
    nn.Conv3d: _IPEXConv3d,
    nn.ConvTranspose2d: _IPEXConvTranspose2d,
    nn.ConvTranspose3d: _IPEXConvTranspose3d,
}
_IN_TRAINING: dict[type[nn.Module], type[nn.Module]] = {
    nn.BatchNorm2d: _IPEXBatchNorm2d,
    nn.BatchNorm3d: _IPEXBatchNorm3d,
    nn.Dropout: _IPEXDropout,
}
_DTYPES = (torch.float32, torch.bfloat16, torch.float16)


def _is_replaceable(module: nn.Module, dtypes: tuple[torch.dtype, ...]) -> bool:
    if type(module) not in _REPLACEMENTS:
        return False
    weight = module._parameters.get("weight")  # a weight that a hook computes is not there
    if weight is None or weight.dtype not in dtypes:
        return False
    if isinstance(module, nn.modules.conv._ConvTransposeNd):
        settings = zip(module.padding, module.output_padding, module.stride, strict=True)
        return all(padding - output_padding + stride > 0 for padding, output_padding, stride in settings)
    return True


def weight_prepack_with_ipex(
    model: nn.Module, *, training: bool, fp32_linear: bool = True, dtypes: tuple[torch.dtype, ...] = _DTYPES
) -> None:
    """Converts the layers of a model in place. fp32_linear: whether linear layers of fp32 are converted in training."""
    owners = owners_of_parameters(model)
    for module in model.modules():
        if training and type(module) in _IN_TRAINING:
            # torch.fx keeps calls of modules that are from torch.nn, and traces others.
            module.__dict__["__module__"] = type(module).__module__
            module.__class__ = _IN_TRAINING[type(module)]
        if not _is_replaceable(module, dtypes):
            continue
        if training and type(module) is nn.Conv1d:
            continue
        if type(module) is nn.Linear:
            if len(owners[module.weight]) > 1:
                continue
            if training and module.weight.dtype is torch.float32 and not fp32_linear:
                continue
        module.__class__ = _REPLACEMENTS[type(module)]


def weights_to_disk(model: nn.Module, folder: str) -> None:
    """Moves the weights of converted layers of fp32 and bf16 to a file, in place. A weight that another layer reads too
    stays, because that layer may not pack it."""
    converted = (*_REPLACEMENTS.values(), _lstm_convert._LSTM)
    weights = [
        parameter
        for parameter, owners in owners_of_parameters(model).items()
        if all(type(module) in converted for module, _ in owners)
        and parameter.dim() > 1
        and parameter.dtype in (torch.float32, torch.bfloat16)
    ]
    if not weights:
        return
    moved = _ops.weights_to_disk([weight.detach() for weight in weights], folder)
    for weight, values in zip(weights, moved, strict=True):
        weight.data = values


def record_input_shapes(model: nn.Module, sample_input: Any) -> None:
    """Runs the model once in eval mode and notes, as `batch_size_collapsed` of each layer that can be converted, the
    product of its input's leading dimensions."""

    def note(module: nn.Module, inputs: tuple[Any, ...]) -> None:
        leading = inputs[0].shape[:-1] if isinstance(module, nn.Linear) else inputs[0].shape[:1]
        module.batch_size_collapsed = math.prod(leading)
        module.input_shape = tuple(inputs[0].shape)

    training = [module for module in model.modules() if module.training]
    hooks = [m.register_forward_pre_hook(note) for m in model.modules() if type(m) in _REPLACEMENTS]
    try:
        model.eval()
        with torch.no_grad():
            model(*sample_input if isinstance(sample_input, tuple | list) else (sample_input,))
    finally:
        for hook in hooks:
            hook.remove()
        for module in training:
            module.training = True

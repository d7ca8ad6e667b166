"""`ipex.optimize`: prepares a model, and the optimizer that trains it, for fast execution on the CPU in eager mode."""

from __future__ import annotations

import os
import tempfile
from dataclasses import dataclass, fields, replace
from typing import Any

import torch
from torch import nn

from . import _C
from .nn.utils import _folding, _lstm_convert, _tracing, _weight_cast, _weight_prepack
from .optim import _optimizer_utils
from .utils import _logger
from .utils.channels_last_1d import to_channels_last_1d


@dataclass(frozen=True)
class _Knobs:
    conv_bn_folding: bool
    linear_bn_folding: bool
    weights_prepack: bool
    replace_dropout_with_identity: bool
    optimize_lstm: bool
    split_master_weight_for_bf16: bool
    fuse_update_step: bool
    auto_kernel_selection: bool
    graph_mode: bool
    concat_linear: bool


_NEVER_BY_LEVEL = ("auto_kernel_selection", "graph_mode", "concat_linear")
_LEVELS = {
    level: _Knobs(**{f.name: on and f.name not in _NEVER_BY_LEVEL for f in fields(_Knobs)})
    for level, on in (("O0", False), ("O1", True))
}


class _Switches:
    auto_channels_last = True


def enable_auto_channels_last() -> None:
    """Lets `optimize` give the weights of convolutions the channels-last layout. This is the default."""
    _Switches.auto_channels_last = True


def disable_auto_channels_last() -> None:
    """Lets `optimize` keep the layout of the weights of convolutions."""
    _Switches.auto_channels_last = False


def _to_channels_last(model: nn.Module) -> None:
    """Weights of convolutions in channels-last layout; then the activations follow."""
    for module in model.modules():
        weight = module._parameters.get("weight")
        if weight is None or isinstance(weight, nn.parameter.UninitializedParameter):
            continue
        if isinstance(module, nn.Conv2d | nn.ConvTranspose2d) and weight.dim() == 4:
            weight.data = weight.data.contiguous(memory_format=torch.channels_last)
        elif isinstance(module, nn.Conv3d | nn.ConvTranspose3d) and weight.dim() == 5:
            weight.data = weight.data.contiguous(memory_format=torch.channels_last_3d)
        elif isinstance(module, nn.Conv1d) and weight.dim() == 3:
            to_channels_last_1d(module)


def _check_dtype(dtype: torch.dtype | None, weights_prepack: bool) -> None:
    if dtype not in (None, torch.float32, torch.bfloat16, torch.float16):
        raise ValueError(f"optimize: dtype must be None, torch.float32, bfloat16 or float16, got {dtype}")
    if dtype is torch.float16:
        assert _C.onednn_has_fp16_support(), (
            "FP16 weight prepack needs the cpu support avx_ne_convert or amx_fp16 or avx512_core_fp16, please set "
            "dtype to torch.float or torch.bfloat16."
        )
    if dtype is torch.bfloat16 and weights_prepack:
        assert _C.onednn_has_bf16_support(), (
            "BF16 weight prepack needs the cpu support avx_ne_convert or avx512bw, avx512vl and avx512dq, please set "
            "dtype to torch.float or set weights_prepack to False."
        )


def _fold(model: nn.Module, knobs: _Knobs, explicit: bool, inplace: bool) -> nn.Module:
    if not (knobs.conv_bn_folding or knobs.linear_bn_folding):
        return model
    try:
        return _folding.fold_batch_norms(
            model, convolutions=knobs.conv_bn_folding, linears=knobs.linear_bn_folding, inplace=inplace
        )
    except _folding.NotTraceable as error:
        if explicit:
            _logger.warn(f"batch norms stay, because torch.fx cannot trace the model: {error}", "NotSupported")
        else:
            _logger.logger.info("batch norms stay, because torch.fx cannot trace the model: %s", error)
        return model


def optimize(
    model: nn.Module,
    dtype: torch.dtype | None = None,
    optimizer: Any = None,
    level: str = "O1",
    inplace: bool = False,
    conv_bn_folding: bool | None = None,
    linear_bn_folding: bool | None = None,
    weights_prepack: bool | None = None,
    replace_dropout_with_identity: bool | None = None,
    optimize_lstm: bool | None = None,
    split_master_weight_for_bf16: bool | None = None,
    fuse_update_step: bool | None = None,
    auto_kernel_selection: bool | None = None,
    sample_input: Any = None,
    graph_mode: bool | None = None,
    concat_linear: bool | None = None,
    release_weights: bool | str | os.PathLike[str] = False,
) -> Any:
    """Prepares a model for fast eager execution, and an optimizer for fast steps.

    A model in eval mode is prepared for inference and takes no optimizer; in training mode it needs one. The result is
    the model, or the pair (model, optimizer). `state_dict()` of the model and of the optimizer keep the public layout
    and the original dtypes, and `load_state_dict()` takes them.

    Args:
        model: any module. A ScriptModule is returned untouched.
        dtype: torch.bfloat16 or torch.float16 casts the parameters of convolutions, linear layers, embeddings and
            LSTMs (in training embedding bags too); None and torch.float32 cast nothing.
        optimizer: the optimizer of a model in training mode, or a list or tuple of optimizers, which gives back the
            same kind. Each parameter belongs to at most one.
        level: "O0" turns every option below off, "O1" turns them on, except auto_kernel_selection, graph_mode and
            concat_linear. An option that is not None wins over the level.
        inplace: changes the given model and optimizer, instead of copies. When batch norms are folded, the result is
            another object that shares all parameters that folding did not change.
        conv_bn_folding, linear_bn_folding: in inference, fold batch norms into the layer before them. A linear layer
            needs `sample_input`, which shows that its input is [N, in_features].
        weights_prepack: layers keep their weight in the library's format between calls; in training, batch norms over
            images and volumes and dropout run kernels of the compiler.
        replace_dropout_with_identity: in inference.
        optimize_lstm: nn.LSTM runs on the library's layers.
        split_master_weight_for_bf16: in bf16 training with SGD, Adagrad, Adam, AdamW, Lamb or Lars, the parameter is
            the upper half of its fp32 value and the optimizer keeps the lower half; otherwise it keeps an fp32 master.
        fuse_update_step: one pass over the memory of all parameters in `optimizer.step()`.
        auto_kernel_selection: converts linear layers of fp32 in training too.
        sample_input: a tensor or tuple, with which the model is run once in eval mode.
        graph_mode: `torch.compile` of the model with this backend.
        concat_linear: accepted; under `graph_mode` the compiler decides.
        release_weights: in inference, move the weights of converted layers to a file in this folder (True: the folder
            for temporary files), so that only their packed copies stay in memory. The file has no name and goes away
            with the weights. Parameters, `state_dict()` and copies are as without it; a copy is in memory again.

    Raises AssertionError when the CPU cannot multiply numbers of `dtype`, or when the optimizer does not fit the mode;
    RuntimeError for an unknown level, and when `release_weights` names a folder that cannot be written or is in memory;
    ValueError for `release_weights` in training or without `weights_prepack`.
    """
    arguments, given_optimizer = locals(), optimizer

    def result(model: nn.Module, optimizer: Any) -> Any:
        return model if given_optimizer is None else (model, optimizer)

    if not isinstance(model, nn.Module):
        raise TypeError(f"optimize: model must be a torch.nn.Module, got {type(model).__name__}")
    if isinstance(model, torch.jit.ScriptModule):
        return result(model, optimizer)
    for each in _optimizer_utils.as_list(optimizer):
        if not isinstance(each, torch.optim.Optimizer):
            raise TypeError(f"optimize: optimizer must be torch.optim.Optimizer objects, got {type(each).__name__}")
    if model.training:
        assert optimizer is not None, "The optimizer should be given for training mode"
    else:
        assert optimizer is None, "The optimizer should not be given for inference mode"
    if level not in _LEVELS:
        raise RuntimeError(f"Unexpected optimization level {level}. Options are 'O0', 'O1'.")
    explicit = {f.name: value for f in fields(_Knobs) if (value := arguments[f.name]) is not None}
    knobs = replace(_LEVELS[level], **explicit)
    if release_weights and model.training:
        raise ValueError("optimize: release_weights is for inference; training writes to the weights in each step")
    if release_weights and not knobs.weights_prepack:
        raise ValueError("optimize: release_weights needs weights_prepack, which keeps packed copies of the weights")
    _check_dtype(dtype, knobs.weights_prepack)

    given = model
    if not inplace:
        model, optimizer = _optimizer_utils.copy_model_and_optimizer(model, optimizer)
    if _Switches.auto_channels_last:
        _to_channels_last(model)
    if sample_input is not None:
        _weight_prepack.record_input_shapes(model, sample_input)
    training = model.training
    if not training:
        folds = {"conv_bn_folding", "linear_bn_folding"} & {name for name, on in explicit.items() if on}
        model = _fold(model, knobs, bool(folds), inplace)
        if knobs.replace_dropout_with_identity:
            _folding.replace_dropout_with_identity(model)

    params_attr = getattr(model, "params_attr", {}) if training else {}
    if dtype in (torch.bfloat16, torch.float16):
        split = dtype is torch.bfloat16 and knobs.split_master_weight_for_bf16 and knobs.fuse_update_step
        split = split and _optimizer_utils.can_split(optimizer, explicit=bool(split_master_weight_for_bf16))
        _weight_cast.cast_weights(model, params_attr, training=training, dtype=dtype, split=split)
    if knobs.optimize_lstm:
        _lstm_convert.replace_lstm_with_ipex_lstm(model)
    if knobs.weights_prepack:
        fp32_linear = not training or knobs.auto_kernel_selection
        _weight_prepack.weight_prepack_with_ipex(model, training=training, fp32_linear=fp32_linear)
        if inplace and model is not given:  # the given model shares the cast parameters
            _weight_prepack.weight_prepack_with_ipex(given, training=training, fp32_linear=fp32_linear)
    if release_weights:
        folder = tempfile.gettempdir() if release_weights is True else os.fspath(release_weights)
        _weight_prepack.weights_to_disk(model, folder)
    if training:
        model.params_attr = params_attr
        _optimizer_utils.prepare(optimizer, params_attr, fuse=knobs.fuse_update_step)
    _tracing.make_traceable_under_autocast(model)
    if knobs.graph_mode:
        model = _graph_mode(model, dtype)
    return result(model, optimizer)


class _CompiledForward:
    """The forward pass of a model, compiled and called under autocast of `dtype`. It belongs to the model: a copy of
    the model, or one from a file, has its own."""

    def __init__(self, model: nn.Module, dtype: torch.dtype | None) -> None:
        self.model, self.dtype = model, dtype
        self._compiled: Any = None

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self._compiled is None:
            forward = type(self.model).forward.__get__(self.model)
            self._compiled = torch.compile(forward, backend="ipex")
        with torch.autocast("cpu", self.dtype or torch.bfloat16, enabled=self.dtype is not None):
            return self._compiled(*args, **kwargs)

    def __getstate__(self) -> dict[str, Any]:
        return {"model": self.model, "dtype": self.dtype, "_compiled": None}


def _graph_mode(model: nn.Module, dtype: torch.dtype | None) -> nn.Module:
    """Compiles `forward` of the model in place."""
    if model.training:
        _logger.logger.warning("graph capture does not support training yet.")
        return model
    model.forward = _CompiledForward(model, dtype if dtype in (torch.bfloat16, torch.float16) else None)
    return model

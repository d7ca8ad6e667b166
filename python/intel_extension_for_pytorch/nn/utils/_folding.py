"""Folding of batch norms into the convolution or linear layer before them, and removal of dropout.

The layers themselves change: the weight and bias of the first, and the batch norm becomes an identity. So the model
keeps its class, its methods and the names of its parts. Which layers follow each other is found by tracing the model
with torch.fx; a model that cannot be traced stays as it is.
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor, fx, nn

from . import _weight_prepack
from ._parameter_wrapper import owners_of_parameters

_CONVS = {
    nn.Conv1d: nn.BatchNorm1d,
    nn.Conv2d: nn.BatchNorm2d,
    nn.Conv3d: nn.BatchNorm3d,
}
_TRANSPOSED = {
    nn.ConvTranspose1d: nn.BatchNorm1d,
    nn.ConvTranspose2d: nn.BatchNorm2d,
    nn.ConvTranspose3d: nn.BatchNorm3d,
}
_NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)


class _Tracer(fx.Tracer):
    """Only layers that may be folded, and modules without Python code of their own, are leaves."""

    def is_leaf_module(self, module: nn.Module, name: str) -> bool:
        return type(module) in (*_CONVS, *_TRANSPOSED, nn.Linear, *_NORMS) or super().is_leaf_module(module, name)


class NotTraceable(Exception):
    """torch.fx cannot trace the model; the message says why."""


def _pairs(model: nn.Module) -> Iterator[tuple[str, str]]:
    """Names of a layer and the batch norm that is the only user of its result."""
    defaults = [p.name for p in inspect.signature(model.forward).parameters.values() if p.default is not p.empty]
    if defaults:  # a trace knows only one path of a forward pass that asks which arguments are given
        raise NotTraceable(f"forward has optional arguments ({', '.join(defaults)}), which may select a path")
    try:
        graph = _Tracer().trace(model)
    except Exception as error:  # a model may raise anything when it is called with proxies
        raise NotTraceable(f"{type(error).__name__}: {error}") from error
    modules = dict(model.named_modules())
    calls = [node for node in graph.nodes if node.op == "call_module"]
    counts: dict[int, int] = {}
    for node in calls:
        key = id(modules[node.target])
        counts[key] = counts.get(key, 0) + 1
    # Layers whose parameters are used elsewhere too.
    read = {node.target.rpartition(".")[0] for node in graph.nodes if node.op == "get_attr"}
    for node in calls:
        before = node.args[0] if len(node.args) == 1 and not node.kwargs else None
        if not (isinstance(before, fx.Node) and before.op == "call_module" and len(before.users) == 1):
            continue
        layers = modules[before.target], modules[node.target]
        if read & {before.target, node.target}:
            continue
        if type(layers[1]) in _NORMS and all(counts[id(layer)] == 1 for layer in layers):
            yield before.target, node.target


def _folds(layer: nn.Module, norm: nn.Module, *, convolutions: bool, linears: bool) -> bool:
    if norm.training or layer.training or norm.running_mean is None or norm.running_var is None:
        return False
    if any(m._forward_hooks or m._forward_pre_hooks for m in (layer, norm)):
        return False
    if "weight" not in layer._parameters or not layer.weight.is_floating_point():
        return False
    if type(layer) is nn.Linear:
        if not linears:
            return False
        # Only of an input [N, in_features] are the norm's channels the layer's features.
        one_row_each = len(getattr(layer, "input_shape", ())) == 2
        return norm.num_features == 1 or (
            type(norm) is nn.BatchNorm1d and norm.num_features == layer.out_features and one_row_each
        )
    expected = {**_CONVS, **_TRANSPOSED}.get(type(layer))
    return convolutions and type(norm) is expected and norm.num_features == layer.out_channels


def structural_copy(model: nn.Module) -> nn.Module:
    """A model of the same classes with tables of its own, which shares all parameters and buffers."""
    copies: dict[int, nn.Module] = {}

    def copied(module: nn.Module) -> nn.Module:
        if id(module) not in copies:
            new = copies[id(module)] = object.__new__(type(module))
            new.__dict__ = {k: copy.copy(v) if isinstance(v, dict) else v for k, v in vars(module).items()}
            new._modules = {name: child and copied(child) for name, child in module._modules.items()}
        return copies[id(module)]

    return copied(model)


def _folded(layer: nn.Module, weight: Tensor, bias: Tensor | None, norm: dict[str, Any], eps: float) -> list[Tensor]:
    """The weight and bias with which `layer` computes norm(layer(x)). `norm`: the parameters and statistics of the
    batch norm by name. Computed in fp64, so that the results are rounded once."""
    factor = torch.rsqrt(norm["running_var"].double() + eps)
    if norm.get("weight") is not None:
        factor = factor * norm["weight"].double()
    mean = norm["running_mean"].double()
    shift = -mean * factor if bias is None else (bias.double() - mean) * factor
    if norm.get("bias") is not None:
        shift = shift + norm["bias"].double()
    if isinstance(layer, tuple(_TRANSPOSED)):  # [in, out / groups, ...]
        groups = layer.groups
        shape = (groups, weight.shape[0] // groups, *weight.shape[1:])
        per_channel = factor.reshape(groups, 1, -1, *[1] * (weight.dim() - 2))
        folded = (weight.double().reshape(shape) * per_channel).reshape(weight.shape)
    else:
        folded = weight.double() * factor.reshape(-1, *[1] * (weight.dim() - 1))
    out = layer.out_features if isinstance(layer, nn.Linear) else layer.out_channels
    return [torch.empty_like(weight).copy_(folded), shift.expand(out).to(weight.dtype).clone()]


def _fold(layer: nn.Module, norm: nn.Module) -> None:
    """Gives `layer` new parameters, so that it computes norm(layer(x))."""
    values = {**norm._parameters, **norm._buffers}
    weight, bias = _folded(layer, layer.weight, layer.bias, values, norm.eps)
    bias_trains = layer.weight.requires_grad if layer.bias is None else layer.bias.requires_grad
    layer.weight = nn.Parameter(weight, layer.weight.requires_grad)
    layer.bias = nn.Parameter(bias, bias_trains)


class _Fold(NamedTuple):
    """Names of a layer and of the batch norm that was folded into it, below the module that holds both."""

    layer: str
    norm: str
    eps: float


_FOLDS = "_ipex_folds"


def _load(
    module: nn.Module, state_dict: dict[str, Any], prefix: str, local_metadata: dict[str, Any], strict: bool,
    missing_keys: list[str], unexpected_keys: list[str], error_msgs: list[str],
) -> None:  # fmt: skip
    """Folds the batch norms of a plain model's state. The state of a folded model has none."""
    for fold in module.__dict__[_FOLDS]:
        layer, norm = f"{prefix}{fold.layer}.", f"{prefix}{fold.norm}."
        if f"{norm}running_mean" not in state_dict or f"{layer}weight" not in state_dict:
            continue
        values = {key.removeprefix(norm): state_dict.pop(key) for key in list(state_dict) if key.startswith(norm)}
        given = state_dict[f"{layer}weight"], state_dict.get(f"{layer}bias")
        target = module.get_submodule(fold.layer)
        state_dict[f"{layer}weight"], state_dict[f"{layer}bias"] = _folded(target, *given, values, fold.eps)


def _remember(model: nn.Module, first: str, second: str, eps: float) -> None:
    """Lets the closest module that holds both layers load states of the plain model."""
    names = [first.split("."), second.split(".")]
    common = 0
    while common < min(map(len, names)) - 1 and names[0][common] == names[1][common]:
        common += 1
    holder = model.get_submodule(".".join(names[0][:common]))
    if _FOLDS not in holder.__dict__:
        holder.__dict__[_FOLDS] = []
        holder.register_load_state_dict_pre_hook(_load)
    holder.__dict__[_FOLDS].append(_Fold(".".join(names[0][common:]), ".".join(names[1][common:]), eps))


def fold_batch_norms(model: nn.Module, *, convolutions: bool, linears: bool, inplace: bool) -> nn.Module:
    """Folds batch norms that use their running statistics. Returns the model, or, when `inplace` and something is
    folded, a copy of its structure that shares all other parameters: the caller's layers keep their weights.

    Raises NotTraceable when torch.fx cannot trace the model.
    """
    modules = dict(model.named_modules())
    owners = owners_of_parameters(model)
    names = [
        (first, second)
        for first, second in _pairs(model)
        if _folds(modules[first], modules[second], convolutions=convolutions, linears=linears)
        and len(owners[modules[first].weight]) == 1
    ]
    if not names:
        return model
    if inplace:
        model = structural_copy(model)
    with torch.no_grad():
        for first, second in names:
            norm = model.get_submodule(second)
            _fold(model.get_submodule(first), norm)
            _remember(model, first, second, norm.eps)
            parent, _, name = second.rpartition(".")
            model.get_submodule(parent)._modules[name] = nn.Identity().train(model.training)
    return model


def replace_dropout_with_identity(model: nn.Module) -> None:
    """Makes an identity of each nn.Dropout, in place; the attribute `p` stays."""
    for module in model.modules():
        if type(module) in (nn.Dropout, _weight_prepack._IPEXDropout):
            module.__class__ = nn.Identity

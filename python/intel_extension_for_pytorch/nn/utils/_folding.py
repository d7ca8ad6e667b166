"""Folding of batch norms into the convolution or linear layer before them, and removal of dropout.

The layers themselves change: the weight and bias of the first, and the batch norm becomes an identity. So the model
keeps its class, its methods and the names of its parts. Which layers follow each other is found by tracing the model
with torch.fx; a model that cannot be traced stays as it is.
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Iterator

import torch
from torch import fx, nn

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


def _shared_parameters(model: nn.Module) -> set[int]:
    seen: set[int] = set()
    shared: set[int] = set()
    for module in model.modules():
        for parameter in module._parameters.values():
            (shared if id(parameter) in seen else seen).add(id(parameter))
    return shared


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


def _fold(layer: nn.Module, norm: nn.Module) -> None:
    """Gives `layer` new parameters, so that it computes norm(layer(x)). In fp64: the result is rounded once."""
    weight, bias = layer.weight, layer.bias
    variance, mean = norm.running_var.double(), norm.running_mean.double()
    factor = torch.rsqrt(variance + norm.eps)
    if norm.weight is not None:
        factor = factor * norm.weight.double()
    shift = -mean * factor if bias is None else (bias.double() - mean) * factor
    if norm.bias is not None:
        shift = shift + norm.bias.double()
    if type(layer) in _TRANSPOSED:  # [in, out / groups, ...]
        groups = layer.groups
        shape = (groups, weight.shape[0] // groups, *weight.shape[1:])
        per_channel = factor.reshape(groups, 1, -1, *[1] * (weight.dim() - 2))
        folded = (weight.double().reshape(shape) * per_channel).reshape(weight.shape)
    else:
        folded = weight.double() * factor.reshape(-1, *[1] * (weight.dim() - 1))
    values = torch.empty_like(weight, dtype=weight.dtype).copy_(folded)
    layer.weight = nn.Parameter(values, weight.requires_grad)
    out = layer.out_features if type(layer) is nn.Linear else layer.out_channels
    shift = shift.expand(out).to(weight.dtype).clone()
    layer.bias = nn.Parameter(shift, weight.requires_grad if bias is None else bias.requires_grad)


def fold_batch_norms(model: nn.Module, *, convolutions: bool, linears: bool, inplace: bool) -> nn.Module:
    """Folds batch norms that use their running statistics. Returns the model, or, when `inplace` and something is
    folded, a copy of its structure that shares all other parameters: the caller's layers keep their weights.

    Raises NotTraceable when torch.fx cannot trace the model.
    """
    modules = dict(model.named_modules())
    shared = _shared_parameters(model)
    names = [
        (first, second)
        for first, second in _pairs(model)
        if _folds(modules[first], modules[second], convolutions=convolutions, linears=linears)
        and id(modules[first].weight) not in shared
    ]
    if not names:
        return model
    if inplace:
        model = structural_copy(model)
    with torch.no_grad():
        for first, second in names:
            _fold(model.get_submodule(first), model.get_submodule(second))
            parent, _, name = second.rpartition(".")
            model.get_submodule(parent)._modules[name] = nn.Identity().train(model.training)
    return model


def replace_dropout_with_identity(model: nn.Module) -> None:
    """Makes an identity of each nn.Dropout, in place; the attribute `p` stays."""
    for module in model.modules():
        if type(module) is nn.Dropout:
            module.__class__ = nn.Identity

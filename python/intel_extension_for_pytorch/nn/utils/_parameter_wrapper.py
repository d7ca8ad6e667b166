"""Parameters in low precision, and what keeps their precision in training.

A cast changes the memory of a parameter, not the object: modules, hooks and optimizers go on with the parameter that
they have, and its shape and layout stay. A wrapper holds the rest. There are three ways of storing a parameter:

| way | `parameter` | beside it | made by |
| --- | --- | --- | --- |
| as it is | float32, float64 | nothing, and no wrapper is needed | |
| split | bfloat16: the upper halves of float32 values | `parameter_trail`: the lower halves | `cast(..., split=True)` |
| master | bfloat16 or float16: the rounded float32 values | `master_parameter`: the float32 values | `cast(...)` |

In inference there is only the rounded parameter. Steps of an optimizer write all parts: see optim/_fused.py.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn


@dataclass(eq=False)
class ParameterWrapper:
    """A parameter, how it is stored, and which modules own it."""

    parameter: nn.Parameter | None = None  # the one in the modules and in the optimizer
    master_parameter: nn.Parameter | None = None
    parameter_trail: Tensor | None = None
    original_dtype: torch.dtype | None = None  # None: not cast
    casted_dtype: torch.dtype | None = None
    split: bool | None = None  # None: not cast for training
    modules_cls: set[type[nn.Module]] = field(default_factory=set)
    num_modules: int = 0
    # Names that IPEX had. Parameters are never packed here, so that a user of these sees plain ones.
    weight_channels_last: bool | None = None
    op_ctx: Any = None
    plain_format_shape: torch.Size | None = None

    def cast_for_inference(self, dtype: torch.dtype) -> None:
        """Rounds the parameter to `dtype`. Nothing is done if it is cast already."""
        if self.original_dtype is None:
            self._cast(dtype)
            self.parameter.data = self.parameter.detach().to(dtype)

    def cast_for_training(self, dtype: torch.dtype, split: bool) -> None:
        """Splits the float32 parameter, or rounds it and keeps a master. Nothing is done if it is cast already.

        Raises ValueError for a dtype that cannot be split, and for parameters other than float32.
        """
        if self.original_dtype is not None:
            return
        if self.parameter.dtype is not torch.float32:
            raise ValueError(f"only float32 parameters are cast for training, got {self.parameter.dtype}")
        if split and dtype is not torch.bfloat16:
            raise ValueError(f"only bfloat16 parameters can be split, got {dtype}")
        self._cast(dtype)
        self.split = split
        values = self.parameter.detach()
        if split:
            low, self.parameter_trail = torch.ops.torch_ipex.split_float_bfloat16(values)
        else:
            self.master_parameter = nn.Parameter(values, requires_grad=self.parameter.requires_grad)
            low = values.to(dtype)
        self.parameter.data = low

    def _cast(self, dtype: torch.dtype) -> None:
        self.original_dtype, self.casted_dtype = self.parameter.dtype, dtype

    @property
    def is_current(self) -> bool:
        """Whether the parameter is still stored this way. Casting the whole model, by `model.float()`, ends it."""
        return self.original_dtype is not None and self.parameter.dtype is self.casted_dtype

    @torch.no_grad()
    def take_writes(self) -> None:
        """Gives the master the values that somebody wrote to the parameter: clamped, pruned or averaged weights."""
        if self.master_parameter is None or not self.is_current:
            return
        unchanged = self.parameter == self.master_parameter.to(self.casted_dtype)
        if not unchanged.all():
            written = self.parameter.to(self.master_parameter.dtype)
            self.master_parameter.copy_(torch.where(unchanged, self.master_parameter, written))

    def public_value(self) -> Tensor:
        """The values in the original dtype, with all their precision."""
        self.take_writes()
        if self.is_current and self.split:
            return torch.ops.torch_ipex.cat_bfloat16_float(self.parameter.detach(), self.parameter_trail)
        if self.is_current and self.master_parameter is not None:
            return self.master_parameter.detach()
        return self.parameter.detach().to(self.original_dtype)

    @torch.no_grad()
    def load_public(self, value: Tensor) -> None:
        """Takes values in the original dtype, or in one that is cast to it, and writes all parts in place."""
        value = value.to(self.original_dtype)
        if self.is_current and self.split:
            value, trail = torch.ops.torch_ipex.split_float_bfloat16(value)
            self.parameter_trail.copy_(trail)
        elif self.is_current and self.master_parameter is not None:
            self.master_parameter.copy_(value)
        self.parameter.copy_(value)


def cast(parameter: nn.Parameter, dtype: torch.dtype, *, training: bool, split: bool = False) -> ParameterWrapper:
    """Casts a parameter in place, and returns its wrapper."""
    wrapper = ParameterWrapper(parameter)
    if training:
        wrapper.cast_for_training(dtype, split)
    else:
        wrapper.cast_for_inference(dtype)
    return wrapper


def owners_of_parameters(model: nn.Module) -> dict[nn.Parameter, list[tuple[nn.Module, str]]]:
    """By parameter: the modules that own it, each with the parameter's name in it."""
    owners: dict[nn.Parameter, list[tuple[nn.Module, str]]] = {}
    for module in model.modules():
        for name, parameter in module._parameters.items():
            if parameter is not None:
                owners.setdefault(parameter, []).append((module, name))
    return owners


def get_shared_parameter_status(module: nn.Module, shared_p: dict[nn.Parameter, ParameterWrapper]) -> None:
    """Adds a wrapper for each parameter of the model to `shared_p`: which classes own it, and how many modules.

    Parameters of one module are cast together: each has the classes that own any of them. A ParameterList counts as a
    part of the module that holds it.
    """
    for owner in module.modules():
        if isinstance(owner, nn.ParameterList) and owner is not module:
            continue
        lists = [child for child in owner.children() if isinstance(child, nn.ParameterList)]
        own = [p for p in owner.parameters(recurse=False)]
        listed = [p for child in lists for p in child.parameters()]
        wrappers = [shared_p.setdefault(p, ParameterWrapper(p)) for p in [*own, *listed]]
        for wrapper in wrappers:
            wrapper.modules_cls.add(type(owner))
        for wrapper in wrappers[: len(own)]:
            wrapper.num_modules += 1
        classes = set().union(*(wrapper.modules_cls for wrapper in wrappers))
        for wrapper in wrappers:
            wrapper.modules_cls = classes

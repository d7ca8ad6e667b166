"""state_dict() and load_state_dict() of modules whose parameters are cast: they show the original dtype.

The hooks belong to the modules that own the parameters. So they work wherever such a module is: at the root, below
another module, inside DistributedDataParallel, and in a copy or a pickled file of the model.
"""

from __future__ import annotations

import weakref
from typing import Any

import torch
from torch import Tensor, nn

from ._parameter_wrapper import ParameterWrapper

_ATTRIBUTE = "_ipex_wrappers"


def wrappers_of(module: nn.Module) -> dict[str, ParameterWrapper]:
    """The wrapped parameters of a module, by name; not those of its children."""
    return module.__dict__.get(_ATTRIBUTE, {})


# By wrapper: the last value that was shown.
_shown: weakref.WeakKeyDictionary[ParameterWrapper, weakref.ref[Tensor]] = weakref.WeakKeyDictionary()


def _public_value(wrapper: ParameterWrapper, state_dict: dict[str, Any]) -> Tensor:
    """The values in the original dtype. Tied weights show one tensor in one state_dict, as they do in the model."""
    known = _shown[wrapper]() if wrapper in _shown else None
    if wrapper.num_modules > 1 and known is not None and any(value is known for value in state_dict.values()):
        return known
    value = wrapper.public_value()
    _shown[wrapper] = weakref.ref(value)
    return value


def _show(module: nn.Module, state_dict: dict[str, Any], prefix: str, local_metadata: dict[str, Any]) -> None:
    for name, wrapper in wrappers_of(module).items():
        # With keep_vars=True the caller asks for the parameters themselves.
        value = state_dict.get(prefix + name)
        if value is None or value is module._parameters.get(name):
            continue
        replaced = module._parameters.get(name) is not wrapper.parameter  # by a shard of it, for example
        state_dict[prefix + name] = value.to(wrapper.original_dtype) if replaced else _public_value(wrapper, state_dict)


def _load(
    module: nn.Module, state_dict: dict[str, Any], prefix: str, local_metadata: dict[str, Any], strict: bool,
    missing_keys: list[str], unexpected_keys: list[str], error_msgs: list[str],
) -> None:  # fmt: skip
    for name, wrapper in wrappers_of(module).items():
        value = state_dict.get(prefix + name)
        is_owned = module._parameters.get(name) is wrapper.parameter
        if is_owned and isinstance(value, Tensor) and value.shape == wrapper.parameter.shape:
            with torch.no_grad():
                wrapper.load_public(value)
            # What remains to be copied: the parameter itself, whose bits load_public() has set.
            state_dict[prefix + name] = wrapper.parameter.detach()


def attach(module: nn.Module, name: str, wrapper: ParameterWrapper) -> None:
    """Makes `module` show the wrapped parameter `name` in its original dtype."""
    if _ATTRIBUTE not in module.__dict__:
        module.__dict__[_ATTRIBUTE] = {}
        module.register_state_dict_post_hook(_show)
        module.register_load_state_dict_pre_hook(_load)
    module.__dict__[_ATTRIBUTE][name] = wrapper

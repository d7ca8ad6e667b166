"""Optimizers whose step knows how parameters are stored: `fuse(optimizer, params_attr)`.

The interface, for one optimizer of a model that may have several:

    params_attr = {p: _parameter_wrapper.cast(p, torch.bfloat16, training=True, split=True)}   # may be empty
    fuse(optimizer, params_attr)

The optimizer stays the same object. Its class becomes a subclass of its class, with the same name. Nothing global
changes, and every other optimizer of that class stays as it is. Then

- `optimizer.params_attr` is the given dict. Wrappers that are added to it later are found too.
- groups and states keep the parameters of the model as they are, in all three ways of storing them. So zero_grad,
  add_param_group, GradScaler, clipping of gradients, hooks, and schedulers of the learning rate need no care.
- `step` is fused, and `optimizer.fused` is True, for the classes in `FUSED`. Others, and single parameters that the
  operators do not take, have the step of their class: it sees float32 parameters and gradients instead of those in low
  precision, which are written after the step.
- states are float32 for parameters in low precision. state_dict() has the public layout, and no masters or lower
  halves, because those belong to the state of the model. load_state_dict() keeps float32 states.
- a copy or a pickled file of the optimizer is prepared too. copy.deepcopy((model, optimizer)) keeps them together.
"""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import SGD, Adagrad, Adam, AdamW, Optimizer

from ..nn.utils._parameter_wrapper import ParameterWrapper
from . import _functional
from ._lamb import Lamb
from ._lars import Lars

# Classes with a fused step. Subclasses may do something else in theirs, so that they keep it.
FUSED: dict[type[Optimizer], Callable[[Optimizer, dict[str, Any]], list[Tensor]]] = {
    SGD: _functional.sgd_step,
    Adagrad: _functional.adagrad_step,
    Adam: _functional.adam_step,
    AdamW: _functional.adamw_step,
    Lamb: _functional.lamb_step,
    Lars: _functional.lars_step,
}


class PreparedOptimizer:
    """The part of a prepared optimizer's class that comes before its own class."""

    _own_class: type[Optimizer]
    params_attr: dict[nn.Parameter, ParameterWrapper]
    fused: bool
    _parameters_in_step: list[Tensor] | None = None  # those of the model, while the groups hold others

    def step(self, *args: Any, **kwargs: Any) -> Any:
        """Updates the parameters as the optimizer's class does, with their full precision."""
        if self.fused and self._own_class in FUSED:
            return self._call_fused_step(*args, **kwargs)
        return self._call_own_step(None, *args, **kwargs)

    @torch.no_grad()
    def _call_fused_step(self, closure: Callable[[], Any] | None = None) -> Any:
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        if not self._found_inf():
            rest = [p for group in self.param_groups for p in FUSED[self._own_class](self, group)]
            if rest:
                self._call_own_step(rest)
        return loss

    def _found_inf(self) -> bool:
        """Whether GradScaler, which leaves the check to this step, found gradients that are not finite."""
        found_inf = getattr(self, "found_inf", None)
        return found_inf is not None and float(found_inf) != 0

    def _call_own_step(self, only: list[Tensor] | None, *args: Any, **kwargs: Any) -> Any:
        """The step of the class for all parameters, or for `only` these."""
        own_step = self._own_class.step
        if getattr(own_step, "hooked", False):  # this step calls the hooks
            own_step = own_step.__wrapped__
        low = [p for g in self.param_groups for p in g["params"] if _functional.wrapper_of(self, p) is not None]
        if only is None and not low:
            return own_step(self, *args, **kwargs)
        if low and self._found_inf():
            return None
        with self._full_precision(only) as masters:
            if args and callable(args[0]):
                args = (self._closure(args[0], masters), *args[1:])
            elif kwargs.get("closure") is not None:
                kwargs["closure"] = self._closure(kwargs["closure"], masters)
            masters.take_gradients()
            return own_step(self, *args, **kwargs)

    def _closure(self, closure: Callable[[], Any], masters: _Masters) -> Callable[[], Any]:
        """The closure of the user, which computes with the parameters of the model."""

        def evaluated() -> Any:
            masters.write_parameters()
            loss = closure()
            masters.take_gradients()
            return loss

        return evaluated

    @contextmanager
    def _full_precision(self, only: list[Tensor] | None) -> Iterator[_Masters]:
        """While it is open, groups and states have float32 masters instead of parameters in low precision. A step for
        `only` some parameters does not see the others."""
        masters = _Masters(self, only)
        given = [list(group["params"]) for group in self.param_groups]
        stand_in = {p: m for p, m in masters.pairs}
        chosen = None if only is None else set(only)
        for group in self.param_groups:
            group["params"][:] = [stand_in.get(p, p) for p in group["params"] if chosen is None or p in chosen]
        _rename(self.state, masters.pairs)
        self._parameters_in_step = [p for p, _ in masters.pairs]
        scaling = {k: vars(self)[k] for k in ("grad_scale", "found_inf") if k in vars(self)}
        vars(self).update(dict.fromkeys(scaling))  # take_gradients() removes the scale
        try:
            yield masters
        finally:
            vars(self).update(scaling)
            self._parameters_in_step = None
            for group, parameters in zip(self.param_groups, given, strict=True):
                group["params"][:] = parameters
            _rename(self.state, [(m, p) for p, m in masters.pairs])
            masters.write_parameters()
            masters.drop_gradients()

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Clears the gradients, as `torch.optim.Optimizer.zero_grad` does."""
        super().zero_grad(set_to_none)
        for parameter in self._parameters_in_step or ():  # called by a closure
            if set_to_none:
                parameter.grad = None
            elif parameter.grad is not None:
                parameter.grad.detach_().zero_()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Takes a state_dict() of this class, also one of an optimizer that was not prepared."""
        # PyTorch casts states to the dtype of the parameter. It sees stand-ins of the dtype that states have.
        given = [list(group["params"]) for group in self.param_groups]
        pairs = []
        for group in self.param_groups:
            for i, parameter in enumerate(group["params"]):
                wrapper = _functional.wrapper_of(self, parameter)
                if wrapper is not None:
                    group["params"][i] = torch.empty(0, dtype=wrapper.original_dtype)
                    pairs.append((group["params"][i], parameter))
        try:
            super().load_state_dict(state_dict)
        finally:
            for group, parameters in zip(self.param_groups, given, strict=True):
                group["params"][:] = parameters
            _rename(self.state, pairs)
        _match_states(self)

    def __getstate__(self) -> dict[str, Any]:
        kept = {k: vars(self)[k] for k in ("params_attr", "fused", "_step_supports_amp_scaling") if k in vars(self)}
        return {**super().__getstate__(), **kept}

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        return _new, (self._own_class,), self.__getstate__()


class _Masters:
    """Float32 parameters that stand for those in low precision during a step that does not know low precision."""

    def __init__(self, optimizer: PreparedOptimizer, only: list[Tensor] | None) -> None:
        scale = getattr(optimizer, "grad_scale", None)
        self.scale = 1.0 if scale is None else float(scale)
        self.wrappers: list[ParameterWrapper] = []
        self.pairs: list[tuple[Tensor, nn.Parameter]] = []
        self.others: list[Tensor] = []
        self.with_gradient: set[int] = set()  # positions in `pairs`; the other parameters stay as they are
        listed = only if only is not None else [p for group in optimizer.param_groups for p in group["params"]]
        for parameter in listed:
            wrapper = _functional.wrapper_of(optimizer, parameter)
            if wrapper is not None:
                wrapper.take_writes()
                # The master of a split parameter lives only now.
                master = nn.Parameter(wrapper.public_value()) if wrapper.split else wrapper.master_parameter
                self.pairs.append((parameter, master))
                self.wrappers.append(wrapper)
            else:
                self.others.append(parameter)

    @torch.no_grad()
    def take_gradients(self) -> None:
        """Casts gradients to the type of the masters, and removes GradScaler's scale from all."""
        for i, (parameter, master) in enumerate(self.pairs):
            master.grad = None
            if parameter.grad is not None:
                grad = parameter.grad.to(master.dtype)
                master.grad = grad if self.scale == 1 else grad / self.scale
                self.with_gradient.add(i)
        for parameter in self.others if self.scale != 1 else ():
            if parameter.grad is not None:
                parameter.grad = parameter.grad / self.scale

    @torch.no_grad()
    def write_parameters(self) -> None:
        for i in self.with_gradient:
            wrapper, (parameter, master) = self.wrappers[i], self.pairs[i]
            if wrapper.split:
                wrapper.load_public(master.detach())
            else:
                parameter.copy_(master)

    def drop_gradients(self) -> None:
        for _, master in self.pairs:
            master.grad = None


def _rename(state: dict[Any, Any], pairs: list[tuple[Tensor, Tensor]]) -> None:
    for old, new in pairs:
        if old in state:
            state[new] = state.pop(old)


def _match_states(optimizer: Optimizer) -> None:
    """Gives states the layout of their parameter, for example channels-last: the operators would copy them in each
    step. States that were made for a parameter in low precision become float32."""
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            wrapper = _functional.wrapper_of(optimizer, parameter)
            state = optimizer.state.get(parameter, {})
            for key, value in state.items():
                if not isinstance(value, Tensor) or value.layout is not torch.strided or value.shape != parameter.shape:
                    continue
                dtype = value.dtype
                if wrapper is not None and dtype is wrapper.casted_dtype:
                    dtype = wrapper.original_dtype
                if value.stride() != parameter.stride() or value.dtype is not dtype:
                    state[key] = torch.empty_like(parameter, dtype=dtype, requires_grad=False).copy_(value)


def own_class(optimizer: Optimizer) -> type[Optimizer]:
    """The class that the optimizer had before it was prepared."""
    return getattr(type(optimizer), "_own_class", type(optimizer))


@functools.cache
def _prepared(base: type[Optimizer]) -> type[Optimizer]:
    attributes = {"_own_class": base, **{k: getattr(base, k) for k in ("__module__", "__qualname__", "__doc__")}}
    prepared = type(base.__name__, (PreparedOptimizer, base), attributes)
    # Optimizers wrap the step of their class when they are made, for hooks and for the profiler.
    prepared.step = Optimizer.profile_hook_step(PreparedOptimizer.step)
    prepared.step.hooked = True
    return prepared


def _new(base: type[Optimizer]) -> Optimizer:
    prepared = _prepared(base)
    return prepared.__new__(prepared)


def fuse(optimizer: Optimizer, params_attr: dict[nn.Parameter, ParameterWrapper], fused: bool = True) -> None:
    """Prepares an optimizer in place, as the text above says. `fused=False`: the step of its class, with masters.

    Raises ValueError if `optimizer.step` was replaced by something else than a scheduler of the learning rate.
    """
    replaced = vars(optimizer).get("step")
    if replaced is not None and not hasattr(replaced, "_wrapped_by_lr_sched"):
        raise ValueError(
            f"optimizer.step was replaced by {getattr(replaced, '__qualname__', replaced)}: prepare the optimizer first"
        )
    base = own_class(optimizer)
    optimizer.__class__ = _prepared(base)
    optimizer.params_attr = params_attr
    optimizer.fused = fused and base in FUSED
    if replaced is not None:
        _follow_scheduler(optimizer)
    parameters = (p for group in optimizer.param_groups for p in group["params"])
    if any(p.dtype is torch.float16 and _functional.wrapper_of(optimizer, p) for p in parameters):
        # GradScaler does not unscale float16 gradients in place, which would lose small ones. The step does it.
        optimizer._step_supports_amp_scaling = True
    _match_states(optimizer)


def _follow_scheduler(optimizer: Optimizer) -> None:
    """A scheduler that was made before has replaced the step: it notes calls, then calls the step of the old class."""
    reference = weakref.ref(optimizer)

    def step(*args: Any, **kwargs: Any) -> Any:
        optimizer = reference()
        optimizer._opt_called = True
        return type(optimizer).step(optimizer, *args, **kwargs)

    step._wrapped_by_lr_sched = True
    optimizer.step = step

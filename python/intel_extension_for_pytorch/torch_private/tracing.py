"""How PyTorch traces an op, in private places: what functionalization makes of it, and what autograd sees of it."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

import torch


@contextlib.contextmanager
def functionalized(op: Any, function: Callable) -> Iterator[None]:
    """Inside, `function` is what functionalization makes of an op that writes to its first argument. It gets PyTorch's
    own way as a function, then the op's arguments."""
    dispatch, functionalize = op._op_dk, torch._C.DispatchKey.Functionalize

    def dispatched(key: Any, *args: Any, **kwargs: Any) -> Any:
        if key != functionalize:
            return dispatch(key, *args, **kwargs)
        return function(functools.partial(dispatch, key), *args, **kwargs)

    with mock.patch.object(op, "_op_dk", dispatched):
        yield


@contextlib.contextmanager
def differentiated(op: Any, function: Callable | None = None) -> Iterator[None]:
    """Inside, autograd sees the op itself, not what PyTorch takes it apart into before; or what `function` makes of it,
    which gets the op that autograd sees as a function, then the op's arguments."""
    autograd = torch._C.DispatchKey.Autograd
    kernels = {key: kernel for key, kernel in op.py_kernels.items() if key != autograd}
    if function is not None:

        def whole(*args: Any) -> Any:
            with differentiated(op):
                return op(*args)

        kernels[autograd] = functools.partial(function, whole)
    with _python_kernels(op, kernels):
        yield


@contextlib.contextmanager
def _python_kernels(op: Any, kernels: dict[Any, Callable]) -> Iterator[None]:
    with contextlib.ExitStack() as stack:
        stack.callback(op._dispatch_cache.clear)
        stack.enter_context(mock.patch.object(op, "py_kernels", kernels))
        op._dispatch_cache.clear()
        yield


@contextlib.contextmanager
def with_unused_draws() -> Iterator[None]:
    """Inside, ops that draw random numbers stay in a traced graph even where nobody reads what they give: the generator
    moves on as eager's does."""
    from torch._inductor import config

    with config.patch(fallback_random=True):
        yield


@contextlib.contextmanager
def recurrent_layers(function: Callable) -> Iterator[None]:
    """Inside, `function` runs the layers of an RNN, GRU or LSTM that is taken apart. It gets PyTorch's own way as a
    function, then the network's arguments and the function that runs a layer."""
    from torch._decomp import decompositions

    usual, choose = decompositions._rnn_helper, decompositions.select_one_layer_lstm_function

    def lstm_layer(x: torch.Tensor, hidden: Any, params: Any) -> Callable:
        """oneDNN's layer is not for gradients, of which PyTorch looks at the input's alone."""
        tensors = [*hidden, *(p for layer in params for p in layer)]
        trains = torch.is_grad_enabled() and any(t.requires_grad for t in tensors)
        return decompositions.one_layer_lstm if trains else choose(x, hidden, params)

    patches = {"_rnn_helper": functools.partial(function, usual), "select_one_layer_lstm_function": lstm_layer}
    with mock.patch.multiple(decompositions, **patches):
        yield


@contextlib.contextmanager
def taken_apart(op: Any, function: Callable) -> Iterator[None]:
    """Inside, `function` takes a composite op apart. It gets PyTorch's own way as a function, then the op's
    arguments."""
    keys = torch._C.DispatchKey.Autograd, torch._C.DispatchKey.CompositeImplicitAutograd
    kernels = dict(op.py_kernels)
    kernels.update({key: functools.partial(function, kernels[key]) for key in keys if key in kernels})
    with _python_kernels(op, kernels):
        yield

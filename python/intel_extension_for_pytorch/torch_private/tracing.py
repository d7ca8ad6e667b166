"""Patches of how PyTorch traces an op: its functionalization, its decomposition, and the op that autograd sees."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

import torch


@contextlib.contextmanager
def functionalized(op: Any, function: Callable) -> Iterator[None]:
    """Inside the context, functionalization calls `function` for an op that writes to its first argument. Its arguments
    are PyTorch's own implementation (a callable) and the op's arguments."""
    dispatch, functionalize = op._op_dk, torch._C.DispatchKey.Functionalize

    def dispatched(key: Any, *args: Any, **kwargs: Any) -> Any:
        if key != functionalize:
            return dispatch(key, *args, **kwargs)
        return function(functools.partial(dispatch, key), *args, **kwargs)

    with mock.patch.object(op, "_op_dk", dispatched):
        yield


@contextlib.contextmanager
def differentiated(op: Any, function: Callable | None = None) -> Iterator[None]:
    """Inside the context, autograd sees the op itself instead of its decomposition. If `function` is given, it replaces
    the op; its arguments are the op as autograd sees it (a callable) and the op's arguments."""
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
def unused_random_ops_kept() -> Iterator[None]:
    """Inside the context, random ops stay in a traced graph even if their results are unused, so that the generator
    advances as in eager."""
    from torch._inductor import config

    with config.patch(fallback_random=True):
        yield


@contextlib.contextmanager
def recurrent_layers(function: Callable) -> Iterator[None]:
    """Inside the context, `function` runs the layers of an RNN, GRU or LSTM that is decomposed. Its arguments are
    PyTorch's own implementation (a callable), the network's arguments, and the function that runs one layer."""
    from torch._decomp import decompositions

    usual, choose = decompositions._rnn_helper, decompositions.select_one_layer_lstm_function

    def lstm_layer(x: torch.Tensor, hidden: Any, params: Any) -> Callable:
        """oneDNN's layer does not support gradients. PyTorch checks only whether the input requires one."""
        tensors = [*hidden, *(p for layer in params for p in layer)]
        trains = torch.is_grad_enabled() and any(t.requires_grad for t in tensors)
        return decompositions.one_layer_lstm if trains else choose(x, hidden, params)

    patches = {"_rnn_helper": functools.partial(function, usual), "select_one_layer_lstm_function": lstm_layer}
    with mock.patch.multiple(decompositions, **patches):
        yield


@contextlib.contextmanager
def decomposed(op: Any, function: Callable) -> Iterator[None]:
    """Inside the context, `function` decomposes a composite op. Its arguments are PyTorch's own decomposition (a
    callable) and the op's arguments."""
    keys = torch._C.DispatchKey.Autograd, torch._C.DispatchKey.CompositeImplicitAutograd
    kernels = dict(op.py_kernels)
    kernels.update({key: functools.partial(function, kernels[key]) for key in keys if key in kernels})
    with _python_kernels(op, kernels):
        yield

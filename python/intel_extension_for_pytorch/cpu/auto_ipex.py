"""Runs a program whose models are prepared by `ipex.optimize`, without a change of the program:
`python -m intel_extension_for_pytorch.cpu.auto_ipex [--dtype bfloat16] program.py arguments`.

The first call of each model that is in eval mode makes an optimized copy, which then answers the calls. Models in
training mode, and those with forward hooks, run as they are. The copy is made again when the model's parameters or
buffers have changed.
"""

from __future__ import annotations

import argparse
import runpy
import sys
import threading
import weakref
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import torch
from torch import nn

from .. import torch_private
from ..frontend import optimize
from .launch.options import add_program

_PREFIX = "auto_ipex:"


class AutoOptimizer:
    """Replaces `nn.Module.__call__` by one that calls optimized copies.

    dtype: torch.float32, or torch.bfloat16, which also runs the models under autocast. verbose: prints what is
    optimized, and a profile of its first call. graph_mode: the copies are compiled.
    """

    def __init__(self, dtype: torch.dtype, verbose: bool, graph_mode: bool) -> None:
        self.dtype, self.verbose, self.graph_mode = dtype, verbose, graph_mode
        self.hits = 0
        self._copies: weakref.WeakKeyDictionary[nn.Module, tuple[Any, nn.Module | None]] = weakref.WeakKeyDictionary()
        self._thread = threading.local()
        self._lock = threading.Lock()
        self._call: Callable[..., Any] = torch_private.module_call()

    def install(self) -> None:
        """From now on models are optimized at their first call."""
        call, thread = self._call, self._thread

        def auto_call(module: nn.Module, *args: Any, **kwargs: Any) -> Any:
            # Modules inside a model, also those that its forward pass creates, belong to the model's copy.
            if torch.compiler.is_compiling() or getattr(thread, "inside", False):
                return call(module, *args, **kwargs)
            thread.inside = True
            try:
                return self._outermost(module, args, kwargs)
            finally:
                thread.inside = False

        torch_private.replace_module_call(auto_call)

    def uninstall(self) -> None:
        """Undoes `install`."""
        torch_private.replace_module_call(self._call)

    def _outermost(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if module.training or isinstance(module, torch.jit.ScriptModule) or hasattr(module, "_orig_mod"):
            return self._call(module, *args, **kwargs)
        if torch_private.has_forward_hooks(module):  # the copy's modules are others, or fused
            return self._call(module, *args, **kwargs)
        copy, is_new = self._copy_of(module)
        if copy is None or _needs_gradients((*args, *kwargs.values())):
            return self._call(module, *args, **kwargs)
        with torch.no_grad(), torch.autocast("cpu", torch.bfloat16, enabled=self.dtype is torch.bfloat16):
            if not (is_new and self.verbose):
                return self._call(copy, *args, **kwargs)
            with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
                result = self._call(copy, *args, **kwargs)
        print(profile.key_averages().table(sort_by="self_cpu_time_total", row_limit=-1), flush=True)
        return result

    def _copy_of(self, module: nn.Module) -> tuple[nn.Module | None, bool]:
        """The optimized copy of a model, or None if it is not optimized; and whether it was made just now."""
        state = tuple(map(_state, _tensors(module)))
        with self._lock:
            known_state, copy = self._copies.get(module, (None, None))
            if known_state == state:
                return copy, False
            copy = self._optimize(module) if state else None
            self._copies[module] = state, copy
            return copy, copy is not None

    def _optimize(self, module: nn.Module) -> nn.Module | None:
        name = type(module).__name__
        try:
            copy = optimize(module, dtype=self.dtype, graph_mode=self.graph_mode)
        except Exception as error:
            print(f"{_PREFIX} {name} runs as it is, because optimize fails: {error}", file=sys.stderr, flush=True)
            return None
        self.hits += 1
        if self.verbose:
            how = "compiled" if self.graph_mode else "eager"
            print(f"{_PREFIX} _ipex_optimize_hit_count is: {self.hits} ({name}, {self.dtype}, {how})", flush=True)
        return copy


def _tensors(module: nn.Module) -> Iterable[torch.Tensor]:
    yield from module.parameters()
    yield from module.buffers()


def _state(t: torch.Tensor) -> tuple[Any, ...]:
    """What changes when a tensor is replaced, also by `t.data = other`, or written in place.

    Writes into `t.data` change nothing that could be seen.
    """
    address = t.data_ptr() if t.layout is torch.strided else 0
    return id(t), 0 if t.is_inference() else t._version, address, t.dtype, t.shape


def _needs_gradients(values: Iterable[Any]) -> bool:
    """Does a program differentiate with respect to an input?"""
    return torch.is_grad_enabled() and any(isinstance(v, torch.Tensor) and v.requires_grad for v in values)


def main(arguments: list[str] | None = None) -> None:
    """Runs the program that the arguments name. Its exceptions and its exit status are passed on."""
    parser = argparse.ArgumentParser(
        prog="python -m intel_extension_for_pytorch.cpu.auto_ipex", description=__doc__, allow_abbrev=False
    )
    parser.add_argument("--auto-ipex", "--auto_ipex", action="store_true", help=argparse.SUPPRESS)  # always on here
    parser.add_argument("--dtype", default="float32", type=str.lower, choices=["float32", "bfloat16"])
    parser.add_argument("--auto-ipex-verbose", "--auto_ipex_verbose", action="store_true", help="say what is done")
    parser.add_argument(
        "--disable-ipex-graph-mode", "--disable_ipex_graph_mode", action="store_true", help="no compile"
    )
    parser.add_argument("-m", "--module", action="store_true", help="the program is a module")
    add_program(parser, "a .py file, or a module with -m. Then its arguments")
    args = parser.parse_args(arguments)
    AutoOptimizer(getattr(torch, args.dtype), args.auto_ipex_verbose, not args.disable_ipex_graph_mode).install()
    sys.argv = [args.program, *args.program_args]
    if args.module:
        sys.path[0] = str(Path.cwd())
        runpy.run_module(args.program, run_name="__main__", alter_sys=True)
    else:
        if not Path(args.program).is_file():
            parser.error(f"the program {args.program} does not exist")
        sys.path[0] = str(Path(args.program).resolve().parent)
        runpy.run_path(args.program, run_name="__main__")


if __name__ == "__main__":
    main()

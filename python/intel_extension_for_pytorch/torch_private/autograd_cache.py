"""Access to AOTAutograd's on-disk cache."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import weakref
from collections.abc import Callable, Iterator
from unittest import mock

import torch


def output_code() -> type:
    """The base class of compiled graphs that AOTAutograd can cache, or `object` if this PyTorch does not have it."""
    try:
        from torch._inductor.output_code import OutputCode
    except ImportError:
        return object
    return OutputCode


def cacheable_compiler(output: type, function: Callable) -> Callable:
    """A compiler for `aot_backend` whose results, instances of `output`, are cached on disk."""
    from torch._functorch.aot_autograd import SerializableAOTDispatchCompiler

    return SerializableAOTDispatchCompiler(output, function)


def cache_bypass(reason: str) -> Exception:
    """The exception that a compiled graph raises if it cannot be cached."""
    from torch._functorch._aot_autograd.autograd_cache import BypassAOTAutogradCache

    return BypassAOTAutogradCache(reason)


def specialized_float() -> str | None:
    """The text of a guard on the value of a Python float in the current compilation, or None. Such code must not be
    cached: neither the cache key nor the guards of an entry include float arguments, so it would be found for every
    other value."""
    from torch._guards import TracingContext
    from torch.utils._sympy.symbol import SymT, symbol_is_type

    context = TracingContext.try_get()
    if context is None or context.fake_mode is None or context.fake_mode.shape_env is None:
        return None
    for guard in context.fake_mode.shape_env.guards:
        if any(symbol_is_type(symbol, SymT.FLOAT) for symbol in guard.expr.free_symbols):
            return str(guard.expr)
    return None


def autograd_cache_directories() -> tuple[str, str] | None:
    """The directories that entries are read from: PyTorch's, and AOTAutograd's in it. None if this PyTorch has no cache
    that takes our graphs."""
    try:
        from torch._functorch import config  # noqa: F401
        from torch._functorch._aot_autograd import graph_compile  # noqa: F401
        from torch._functorch._aot_autograd.autograd_cache import AOTAutogradCache, BypassAOTAutogradCache  # noqa: F401
        from torch._functorch.aot_autograd import SerializableAOTDispatchCompiler  # noqa: F401
        from torch._guards import CompileContext  # noqa: F401
        from torch._inductor import codecache  # noqa: F401
        from torch._inductor.runtime.runtime_utils import cache_dir

        return (cache_dir(), AOTAutogradCache._get_tmp_dir()) if output_code() is not object else None
    except (ImportError, AttributeError):
        return None


@contextlib.contextmanager
def autograd_cache(tag: str) -> Iterator[None]:
    """Inside the context, AOTAutograd uses its cache, with keys that include `tag`.

    Donated buffers are off: we do not use them, and an entry with them would refuse `backward(retain_graph=True)`. The
    key leaves out the settings of Inductor's code generators, which would take 0.5 s to import and do not affect our
    graphs. It identifies PyTorch's sources by the times and sizes of the files, because reading them all would take
    0.25 s in every process.
    """
    from torch._functorch import config
    from torch._inductor import codecache
    from torch.compiler import config as compiler_config

    generators = {
        "init_backend_registration": lambda: None,
        "custom_backend_passes": {},
        "custom_backend_codegen_configs": {},
        "torch_key": _torch_identity,
    }
    # A PyTorch without one of these takes its own, slower way.
    generators = {name: value for name, value in generators.items() if hasattr(codecache, name)}
    with (
        compiler_config.patch(cache_key_tag=f"{compiler_config.cache_key_tag} {tag}"),
        config.patch(bundled_autograd_cache=True, donated_buffer=False),
        mock.patch.multiple(codecache, **generators) if generators else contextlib.nullcontext(),
    ):
        yield


@functools.cache
def _torch_identity() -> bytes:
    """A digest of PyTorch's version, and of the names, times and sizes of its Python files."""
    digest = hashlib.sha256(f"{torch.__version__} {torch.version.git_version}".encode())
    folders = [os.path.dirname(torch.__file__)]
    while folders:
        with os.scandir(folders.pop()) as entries:
            for entry in sorted(entries, key=lambda e: e.name):
                if entry.name.endswith(".py"):
                    status = entry.stat()
                    digest.update(f"{entry.path} {status.st_mtime_ns} {status.st_size}\n".encode())
                elif entry.is_dir() and os.path.exists(os.path.join(entry.path, "__init__.py")):
                    folders.append(entry.path)
    return digest.digest()


_bundled_compilations: weakref.WeakSet = weakref.WeakSet()


@functools.cache
def _recognize_bundled_compilations() -> None:
    """Extends PyTorch's test for bundled entries: it is also true for the compilations in `_bundled_compilations`. This
    stays for the process; for other compilations the answer is PyTorch's. IPEX_CACHE=off avoids it."""
    from torch._functorch._aot_autograd import autograd_cache, graph_compile
    from torch._guards import CompileContext

    configured = autograd_cache.should_bundle_autograd_cache

    def should_bundle() -> bool:
        return configured() or CompileContext.try_get() in _bundled_compilations

    autograd_cache.should_bundle_autograd_cache = graph_compile.should_bundle_autograd_cache = should_bundle


def cache_backward() -> None:
    """Saves the entry that waits for its backward graph. A backward graph is compiled at the first backward pass, in
    any thread and long after `autograd_cache` has ended, but it belongs to the same compilation. (A global setting
    would not do: PyTorch's callbacks at the end of a compilation run once for all threads that compile at the time, so
    it could not be reset.)"""
    from torch._guards import CompileContext

    _recognize_bundled_compilations()
    context = CompileContext.try_get()
    if context is not None:
        _bundled_compilations.add(context)

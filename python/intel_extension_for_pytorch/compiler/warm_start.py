"""Warm start: compiled graphs in AOTAutograd's on-disk cache, so that a second process neither traces nor compiles.

An entry is plain data: the text of the imported Graph, how a call maps to it, the program of its steps, and the
compiled kernels with the checksummed headers of the object cache. Loading rebuilds the steps from the program. If they
were made for another machine or number of threads, or were not saved, it compiles the Graph; kernels that are the same
are then cache hits.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from .. import _C, torch_private
from .native import load
from .options import Options

log = logging.getLogger("ipex")

# Knobs that change how a graph is compiled: they are part of the cache key.
_KNOBS = (
    "IPEX_TARGET", "IPEX_DISABLE_PASS", "IPEX_DISABLE_IMPLEMENTATIONS", "IPEX_STOP_AFTER", "IPEX_STRICT",
    "IPEX_PROFILE_JIT", "IPEX_INJECT_FAULT", "IPEX_PATCH_TRACING",
)  # fmt: skip

_warned: set[str] = set()

# Graphs of the current compilation that may be called without AOTAutograd's wrapper.
direct_codes: list[CompiledCode] = []


@lru_cache(maxsize=1)
def _source_identity() -> str:
    """A digest of the compiler and of this package. Entries with another digest are not loaded."""
    digest = hashlib.sha256(_C.build_identity())
    for path in sorted(Path(__file__).parents[1].rglob("*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()


def cache_tag(options: Options) -> str:
    """Our part of a cache key, in addition to the FX graph, its inputs and PyTorch's own settings."""
    knobs = [f"{knob}={_C.knob(knob)}" for knob in _KNOBS]
    return " ".join(["ipex", _source_identity(), _C.target(), repr(options), *knobs])


def enabled() -> bool:
    """Whether compiled graphs are cached. They are not if there is no object cache, or if other users could write to
    the cache directory."""
    if not _C.cache_directory() or _C.knob("IPEX_DUMP"):  # a dump needs a compilation
        return False
    directories = torch_private.autograd_cache_directories()
    if directories is None:
        return False
    for directory in directories:
        reason = _C.distrust_reason(directory)
        if reason:
            if directory not in _warned:
                _warned.add(directory)
                log.warning(
                    "no warm starts: AOTAutograd's cache directory %s is not used: %s. Set TORCHINDUCTOR_CACHE_DIR to "
                    "a directory of your own",
                    directory,
                    reason,
                )
            return False
    return True


class CompiledCode(torch_private.output_code()):
    """A compiled graph, called with one list of arguments. It can be pickled and rebuilt."""

    def __init__(self, state: dict[str, Any], graph: Any, compiled: Any) -> None:
        super().__init__()
        self._boxed_call = True
        self.call: Callable | None = None  # takes separate arguments; set only if calls need no wrapper
        self._state = state
        self._graph = graph  # _C.Graph, or its text
        self._report: dict[str, Any] | None = None  # report of the compilation in another process
        # Set only while serialized: the compiled graph as data, and kernels by key.
        self._saved: dict[str, Any] | None = None
        self._kernels: dict[str, bytes | None] = {}
        self._take(compiled)

    def _take(self, compiled: Any) -> None:
        self._compiled = compiled
        self._run = _with_derived(compiled.run, self._state["derived"])
        if self._state["direct"]:
            self.call = compiled.call
            direct_codes.append(self)

    @property
    def arguments(self) -> int:
        return len(self._state["arguments"])

    def __call__(self, arguments: list[Any]) -> Any:
        return self._run(arguments)

    def prepare_for_serialization(self) -> None:
        """AOTAutograd calls this on the copy that it pickles."""
        if guard := torch_private.specialized_float():
            log.info("no warm start for a graph that is specialized to the value of a float: %s", guard)
            raise torch_private.cache_bypass(f"a float is specialized: {guard}")
        self._graph = str(self._graph)
        self._saved = self._compiled.save()
        self._kernels = {key: _C.cached_kernel(key) for key in self._compiled.kernel_keys()}
        self._report = self._report or self._compiled.report()
        self._compiled = self._run = self.call = None

    def __getstate__(self) -> dict[str, Any]:
        return {"identity": _source_identity(), **self.__dict__}

    def __setstate__(self, pickled: dict[str, Any]) -> None:
        if pickled.pop("identity") != _source_identity():
            raise ValueError("this compiled graph comes from another version of intel_extension_for_pytorch")
        self.__dict__.update(pickled)

    def post_compile(self, example_inputs: Any, constants: Any, graph_kwargs: Any) -> None:
        """AOTAutograd calls this on an unpickled object, once it knows that the guards hold."""
        for key, entry in self._kernels.items():
            if entry is not None and not _C.store_cached_kernel(key, entry):
                log.warning("warm start: kernel %s is damaged; compiling it again", key)
        self._take(load(self._state, self._graph, self._saved, self._report))
        self._saved, self._kernels = None, {}


def _with_derived(run: Callable[[list[Any]], Any], derived: Sequence[Any]) -> Callable[[list[Any]], Any]:
    """`run`, with the derived arguments appended to each call."""
    if not derived:
        return run

    def run_deriving(arguments: list[Any]) -> Any:
        arguments.extend([d.value(arguments) for d in derived])
        return run(arguments)

    return run_deriving


class EagerCode(torch_private.output_code()):
    """A graph that runs eagerly. It is not cached."""

    def __init__(self, run: Any, why: str) -> None:
        super().__init__()
        self._boxed_call = True
        self._run = run
        self._why = why

    def __call__(self, arguments: list[Any]) -> Any:
        return self._run(arguments)

    def prepare_for_serialization(self) -> None:
        log.info("no warm start for a graph that runs eagerly: %s", self._why)
        raise torch_private.cache_bypass(f"a graph runs eagerly: {self._why}")

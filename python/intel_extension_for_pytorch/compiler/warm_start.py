"""Compiled graphs as AOTAutograd's on-disk cache keeps them: a second process neither traces nor compiles again.

An entry is plain data: the text of the imported Graph, how a call maps to it, the program of its steps, and the
compiled kernels with the checksummed headers of the object cache. Loading makes the steps from the program; where they
were made for another machine or number of threads, or have no text, it compiles the Graph, and every kernel that is the
same is a cache hit.
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

# What a graph becomes depends on these too.
_KNOBS = (
    "IPEX_TARGET", "IPEX_DISABLE_PASS", "IPEX_DISABLE_IMPLEMENTATIONS", "IPEX_STOP_AFTER", "IPEX_STRICT",
    "IPEX_PROFILE_JIT", "IPEX_INJECT_FAULT",
)  # fmt: skip

_warned: set[str] = set()

# Graphs of the compilation under way that may be called without AOTAutograd's wrapper.
direct_codes: list[CompiledCode] = []


@lru_cache(maxsize=1)
def _source_identity() -> str:
    """Identity of the compiler and of the importer: any change of either makes old entries foreign."""
    digest = hashlib.sha256(_C.build_identity())
    for path in sorted(Path(__file__).parents[1].rglob("*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()


def cache_tag(options: Options) -> str:
    """What the key of an entry holds beside the FX graph, its inputs and PyTorch's own settings."""
    knobs = [f"{knob}={_C.knob(knob)}" for knob in _KNOBS]
    return " ".join(["ipex", _source_identity(), _C.target(), repr(options), *knobs])


def enabled() -> bool:
    """Whether compiled graphs are kept: not without an object cache, nor where others could plant entries."""
    if not _C.cache_directory() or _C.knob("IPEX_DUMP"):  # a dump wants to see the work done
        return False
    for directory in torch_private.autograd_cache_directories():
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
    """A compiled graph, called with its arguments as one list; what it pickles makes it again."""

    def __init__(self, state: dict[str, Any], graph: Any, compiled: Any) -> None:
        super().__init__()
        self._boxed_call = True
        self.call: Callable | None = None  # the graph with its arguments one by one, where nothing stands around it
        self._state = state
        self._graph = graph  # _C.Graph, or its text
        self._report: dict[str, Any] | None = None  # of the compilation, in another process
        # Only while serialized: the compiled graph as data, kernels by key.
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
            log.info("no warm start for a graph that was made for one value of a number: %s", guard)
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
        """AOTAutograd calls this on what it unpickled, once it knows that the guards hold."""
        for key, entry in self._kernels.items():
            if entry is not None and not _C.store_cached_kernel(key, entry):
                log.warning("warm start: kernel %s is damaged; it is compiled again", key)
        self._take(load(self._state, self._graph, self._saved, self._report))
        self._saved, self._kernels = None, {}


def _with_derived(run: Callable[[list[Any]], Any], derived: Sequence[Any]) -> Callable[[list[Any]], Any]:
    """`run`, given also the arguments that are computed from the others."""
    if not derived:
        return run

    def run_deriving(arguments: list[Any]) -> Any:
        arguments.extend([d.value(arguments) for d in derived])
        return run(arguments)

    return run_deriving


class EagerCode(torch_private.output_code()):
    """A graph that runs op by op; nothing to keep."""

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

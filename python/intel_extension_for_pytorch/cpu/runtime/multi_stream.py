"""One module on several teams of threads: the batch is split, and the results are joined."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Mapping
from typing import Any

import torch

from .cpupool import CPUPool, pin
from .task import Task

# Kinds of arguments for which the streams of a compiled module take turns: see _Streams._take_turns.
_KINDS_IN_TURNS = 8


class MultiStreamModuleHint:
    """How arguments are split, or results are joined. Entries correspond to the arguments of the call, by position and
    by keyword. An entry is a dimension (the batch), None (every stream gets the same object; of results, the first
    stream's is taken), or a tuple, list or dict of entries for a container."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self.args = list(args)
        self.kwargs = kwargs

    def __repr__(self) -> str:
        entries = [*map(repr, self.args), *(f"{name}={entry!r}" for name, entry in self.kwargs.items())]
        return f"MultiStreamModuleHint({', '.join(entries)})"

    def of_results(self) -> Any:
        """The one entry for what the module returns: a single position; several positions for a tuple; keywords for a
        dict; both for a tuple whose last element is a dict."""
        if self.args and self.kwargs:
            return (*self.args, self.kwargs)
        if self.kwargs:
            return self.kwargs
        return self.args[0] if len(self.args) == 1 else tuple(self.args)


def get_default_num_streams(cpu_pool: CPUPool) -> int:
    """The number of streams of "AUTO": one for each core."""
    return len(cpu_pool.core_ids)


class _Streams(torch.nn.Module):
    """Tasks on disjoint parts of a pool, all with the same module."""

    def __init__(self, model: Callable, num_streams: int | str, cpu_pool: CPUPool | None) -> None:
        super().__init__()
        cpu_pool = CPUPool() if cpu_pool is None else cpu_pool
        assert isinstance(cpu_pool, CPUPool), "cpu_pool must be a CPUPool"
        cores = cpu_pool.core_ids
        if num_streams == "AUTO":
            num_streams = get_default_num_streams(cpu_pool)
        if not isinstance(num_streams, int) or num_streams < 1:
            raise ValueError(f'num_streams is "AUTO" or a positive int, not {num_streams!r}')
        if num_streams > len(cores):
            warnings.warn(f"{num_streams} streams on {len(cores)} cores: {len(cores)} streams are used", stacklevel=3)
            num_streams = len(cores)
        self.model = model
        self.cpu_pool = cpu_pool
        self.core_list = cores
        self.num_streams = num_streams
        # The thread of one stream is the caller's.
        self.tasks = [Task(model, CPUPool(part)) for part in _shares(cores, num_streams)] if num_streams > 1 else []
        self._known_kinds: set = set()

    def get_stream_number(self) -> int:
        """The number of streams."""
        return self.num_streams

    def _run(self, calls: list[tuple[tuple, dict]]) -> list[Any]:
        """One result for each call. The exception of the first stream that failed, after all have ended."""
        if not self.tasks:
            with pin(self.cpu_pool):
                return [self.model(*args, **kwargs) for args, kwargs in calls]
        if self._take_turns(calls):
            return [task.run_sync(*args, **kwargs) for task, (args, kwargs) in zip(self.tasks, calls, strict=False)]
        futures = [
            task._task.run_awaited(self.model, *args, **kwargs)
            for task, (args, kwargs) in zip(self.tasks, calls, strict=False)
        ]
        results, failure = [], None
        for future in futures:
            try:
                results.append(future.get())
            except Exception as error:  # noqa: BLE001 - raised below
                failure = failure or error
        if failure is not None:
            raise failure
        return results

    def _take_turns(self, calls: list[tuple[tuple, dict]]) -> bool:
        """Whether a call may compile. torch.compile compiles once more for each thread that waits for the compilation
        of another, until it reaches its limit of programs and runs eagerly. So the first streams to see a kind of
        arguments run one after the other. Sizes that keep changing are dynamic after a few kinds."""
        if len(self._known_kinds) >= _KINDS_IN_TURNS or not _is_compiled(self.model):
            return False
        kind = (_kind(calls[0]), len(calls), torch.is_grad_enabled(), torch.is_autocast_enabled("cpu"))
        if kind in self._known_kinds:
            return False
        self._known_kinds.add(kind)
        return True


class MultiStreamModule(_Streams):
    """Runs a module on several streams, each with a team of threads on its part of a pool: the batch is split, and the
    results are joined. The weights are shared.

    model: as for Task. num_streams: at most one for each core; "AUTO" means one for each core. Cores and rows of the
    batch are shared evenly, the first streams get one more. With fewer rows than streams, only so many streams run.
    With one stream, the module runs in the calling thread, which is pinned meanwhile. cpu_pool: all cores of the
    process if None. concat_output: False returns a list with the result of each stream.

    input_split_hint, output_concat_hint: see MultiStreamModuleHint. By default the only argument is split along
    dimension 0, and so is the only result joined. Values that are not tensors are never split.

    Raises RuntimeError for arguments or results that do not fit the hints, and the exception of the first stream that
    fails.
    """

    def __init__(
        self,
        model: Callable,
        num_streams: int | str = "AUTO",
        cpu_pool: CPUPool | None = None,
        concat_output: bool = True,
        input_split_hint: MultiStreamModuleHint | None = None,
        output_concat_hint: MultiStreamModuleHint | None = None,
    ) -> None:
        super().__init__(model, num_streams, cpu_pool)
        self.concat_output = concat_output
        self.input_split_hint = MultiStreamModuleHint(0) if input_split_hint is None else input_split_hint
        self.output_concat_hint = MultiStreamModuleHint(0) if output_concat_hint is None else output_concat_hint

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        results = self._run(self._split(args, kwargs))
        if not self.concat_output:
            return results
        return _join(self.output_concat_hint.of_results(), results, "the result")

    def _split(self, args: tuple, kwargs: dict[str, Any]) -> list[tuple[tuple, dict]]:
        hint = self.input_split_hint
        if self.tasks and len(args) == 1 and not kwargs and hint.args and isinstance(args[0], torch.Tensor):
            dim, batch = hint.args[0], args[0]
            # The usual call. Anything unusual goes the general way, which finds the words for it.
            if type(dim) is int and -batch.dim() <= dim < batch.dim() and batch.shape[dim] > 1:
                return [((part,), {}) for part in batch.split(_sizes(batch.shape[dim], self.num_streams), dim)]
        missing = [f"argument {i}" for i in range(len(hint.args), len(args))] + [
            k for k in kwargs if k not in hint.kwargs
        ]
        if missing:
            raise RuntimeError(f"{hint}, the input_split_hint, has no entry for {', '.join(missing)}")
        positions = tuple(hint.args[: len(args)])
        keywords = {name: hint.kwargs[name] for name in kwargs}
        sizes: dict[int, str] = {}
        _find_sizes(positions, args, "argument", sizes)
        _find_sizes(keywords, kwargs, "argument", sizes)
        if len(sizes) > 1:
            found = ", ".join(f"{size} in {where}" for size, where in sizes.items())
            raise RuntimeError(f"the arguments to split have different batch sizes: {found}")
        if not sizes:
            raise RuntimeError(f"{hint}, the input_split_hint, names no tensor to split")
        batch = next(iter(sizes))
        rows = _shares(range(batch), max(1, min(batch, self.num_streams)))
        if len(rows) == 1:
            return [(args, kwargs)]
        return [(_part(positions, args, part), _part(keywords, kwargs, part)) for part in rows]


class _MultiStreamBenchmarkModule(_Streams):
    """Gives every stream the whole input, and returns the result of the first: for measuring how streams disturb each
    other."""

    def __init__(self, model: Callable, num_streams: int | str = "AUTO", cpu_pool: CPUPool | None = None) -> None:
        super().__init__(model, num_streams, cpu_pool)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self._run([(args, kwargs)] * self.num_streams)[0]


def _is_compiled(model: object) -> bool:
    """Whether it is the result of torch.compile, or a module after compile()."""
    if isinstance(model, torch.nn.Module):
        return "_orig_mod" in model._modules or model._compiled_call_impl is not None
    return hasattr(model, "_torchdynamo_orig_callable")


def _kind(value: Any) -> Any:
    """Equal for values for which torch.compile makes one program, as far as sizes and types go."""
    if isinstance(value, torch.Tensor):
        return value.dtype, value.shape
    if isinstance(value, Mapping):
        return tuple((key, _kind(item)) for key, item in value.items())
    if isinstance(value, (tuple, list)):
        return tuple(map(_kind, value))
    return type(value)


def _shares(items: list[int] | range, count: int) -> list:
    """Slices of nearly equal length, the longer ones first."""
    base, more = divmod(len(items), count)
    starts = [i * base + min(i, more) for i in range(count + 1)]
    return [items[a:b] for a, b in zip(starts, starts[1:], strict=False)]


@functools.lru_cache(256)
def _sizes(batch: int, streams: int) -> list[int]:
    """The rows of each stream."""
    return [len(rows) for rows in _shares(range(batch), min(batch, streams))]


def _entries(entry: Any, value: Any, where: str) -> list[tuple[Any, Any, Any]]:
    """(key, entry, value) of a container and its hint, which must have the same elements."""
    if isinstance(entry, Mapping):
        if not isinstance(value, Mapping) or not entry.keys() >= value.keys():
            raise RuntimeError(f"the hint for {where} is a dict with the keys {list(entry)}, but it is {_text(value)}")
        return [(key, entry[key], item) for key, item in value.items()]
    if not isinstance(value, (tuple, list)) or len(value) != len(entry):
        raise RuntimeError(f"the hint for {where} is a sequence of {len(entry)} entries, but it is {_text(value)}")
    return list(zip(range(len(entry)), entry, value, strict=True))


def _text(value: Any) -> str:
    if isinstance(value, Mapping):
        return f"a {type(value).__name__} with the keys {list(value)}"
    return f"a {type(value).__name__}" + (f" of {len(value)}" if isinstance(value, (tuple, list)) else "")


def _like(example: Any, items: dict) -> Any:
    """A container of the example's type with these items."""
    if isinstance(example, Mapping):
        return dict(items) if type(example) is dict else type(example)(**items)
    return type(example)(*items.values()) if hasattr(example, "_fields") else type(example)(items.values())


def _is_leaf(entry: Any, where: str) -> bool:
    if isinstance(entry, (tuple, list, Mapping)):
        return False
    if entry is None or type(entry) is int:
        return True
    raise RuntimeError(f"the hint for {where} is {entry!r}: it must be an int, None, or a tuple, list or dict of hints")


def _find_sizes(entry: Any, value: Any, where: str, sizes: dict[int, str]) -> None:
    """Adds the sizes of dimensions to split, each with the place of the first tensor that has it."""
    if not _is_leaf(entry, where):
        for key, inner, item in _entries(entry, value, where):
            _find_sizes(inner, item, f"{where} {key}", sizes)
    elif entry is not None and isinstance(value, torch.Tensor):
        if not -value.dim() <= entry < value.dim():
            raise RuntimeError(f"{where} has {value.dim()} dimensions, so dimension {entry} of the hint does not exist")
        sizes.setdefault(value.shape[entry], where)
    elif entry is not None and isinstance(value, (tuple, list, Mapping)):
        raise RuntimeError(
            f"the hint for {where} is the dimension {entry}, but it is {_text(value)}: give a hint of this form"
        )


def _part(entry: Any, value: Any, rows: range) -> Any:
    """The rows of every tensor that the hint splits, as views."""
    if isinstance(entry, (tuple, list, Mapping)):
        return _like(
            value, {key: _part(inner, item, rows) for key, inner, item in _entries(entry, value, "an argument")}
        )
    if entry is None or not isinstance(value, torch.Tensor):
        return value
    return value.narrow(entry, rows.start, len(rows))


def _join(entry: Any, values: list, where: str) -> Any:
    first = values[0]
    if type(entry) is int and isinstance(first, torch.Tensor):
        return torch.cat(values, entry) if len(values) > 1 else first
    if not _is_leaf(entry, where):
        each = [_entries(entry, value, where) for value in values]
        items = {
            key: _join(inner, [of_stream[i][2] for of_stream in each], f"{where} {key}")
            for i, (key, inner, _) in enumerate(each[0])
        }
        return _like(first, items)
    if entry is None:
        return first
    if isinstance(first, (tuple, list, Mapping)):
        raise RuntimeError(
            f"{where} of a stream is {_text(first)}, and its hint is the dimension {entry}: give an "
            "output_concat_hint of this form, or concat_output=False"
        )
    return first

"""Changes of another package that can be taken back."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

from ...utils import _logger

_ABSENT = object()


class Missing(Exception):
    """The package lacks a name, or a name has another form, that a change needs."""


def module(name: str) -> ModuleType:
    """The module of this name, or Missing."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise Missing(f"there is no module {name} ({error})") from error


def need(owner: Any, name: str) -> Any:
    """The attribute of a module or class, or Missing."""
    found = getattr(owner, name, _ABSENT)
    if found is _ABSENT:
        raise Missing(f"{getattr(owner, '__name__', owner)} has no {name}")
    return found


class Patches:
    """A stack of changes; `undo` takes them back, the newest first."""

    def __init__(self) -> None:
        self._undo: list[Callable[[], None]] = []

    def __len__(self) -> int:
        return len(self._undo)

    def add(self, undo: Callable[[], None]) -> None:
        """Records how a change that the caller has made is taken back."""
        self._undo.append(undo)

    def replace(self, owner: Any, name: str, value: Any) -> None:
        """Sets an attribute of a module or class. An attribute that somebody else sets later is left to them."""
        old = vars(owner).get(name, _ABSENT)  # as it is stored: a staticmethod stays one
        setattr(owner, name, value)
        stored = vars(owner)[name]

        def undo() -> None:
            if vars(owner).get(name) is not stored:
                _logger.logger.warning("%s.%s was replaced after enable(): it is not restored", owner.__name__, name)
            elif old is _ABSENT:
                delattr(owner, name)
            else:
                setattr(owner, name, old)

        self.add(undo)

    def undo(self, down_to: int = 0) -> None:
        """Takes back all changes but the first `down_to`."""
        while len(self._undo) > down_to:
            self._undo.pop()()


@contextmanager
def patched() -> Iterator[Patches]:
    """Changes for the length of a `with` block."""
    patches = Patches()
    try:
        yield patches
    finally:
        patches.undo()

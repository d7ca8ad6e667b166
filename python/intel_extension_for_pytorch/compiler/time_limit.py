"""A bound for a compilation: what takes longer than IPEX_COMPILE_LIMIT seconds is given up, and its graph runs eagerly.

A rule that does not return is interrupted from another thread; C++ asks between its passes and kernels.
"""

from __future__ import annotations

import contextlib
import ctypes
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

from .. import _C
from ..errors import GraphFallback, UserError

_AGAIN = 1.0  # seconds until a compilation that swallowed the interrupt is interrupted again


class _Interrupted(BaseException):
    """Raised in the thread that compiles; not an Exception, which PyTorch's code catches here and there."""


class _Compilation:
    """One that goes on, in the thread that makes it. `doing` says what, when asked."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.end = time.monotonic() + seconds
        self.doing: Callable[[], str] = lambda: "its beginning"
        self._thread = threading.get_ident()
        self._lock = threading.Lock()
        self._over = False
        self._timer = self._start_timer(seconds)

    def _start_timer(self, seconds: float) -> threading.Timer:
        timer = threading.Timer(seconds, self._interrupt)
        timer.daemon = True
        timer.start()
        return timer

    def _interrupt(self) -> None:
        with self._lock:
            if not self._over:
                _raise_in(self._thread, _Interrupted)
                self._timer = self._start_timer(_AGAIN)

    def finish(self) -> None:
        """No interrupt comes after it; one that was sent before may still come out of it."""
        with self._lock:
            self._over = True
            self._timer.cancel()
            _raise_in(self._thread, None)


def _raise_in(thread: int, kind: type | None) -> None:
    """Has a thread raise when it next runs Python code; None takes back what it has not raised yet."""
    kind = ctypes.py_object(kind) if kind is not None else None
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), kind)


_going_on: list[_Compilation] = []  # one at most: one graph is compiled at a time


@contextlib.contextmanager
def compilation() -> Iterator[None]:
    """Raises GraphFallback when what is inside takes longer than IPEX_COMPILE_LIMIT; one in another is part of it.
    UserError where that is no number of seconds."""
    seconds = _limit()
    if _going_on or seconds == 0:
        yield
        return
    going_on = _Compilation(seconds)
    _going_on.append(going_on)
    try:
        try:
            yield
        finally:
            _going_on.clear()
            while True:  # an interrupt that was sent before may still arrive
                try:
                    going_on.finish()
                    break
                except _Interrupted:
                    continue
    except _Interrupted:
        raise _given_up(seconds, going_on.doing()) from None


def _limit() -> float:
    text = _C.knob("IPEX_COMPILE_LIMIT")
    with contextlib.suppress(ValueError):
        seconds = float(text)
        if seconds >= 0:  # which NaN is not
            return seconds
    raise UserError(f"IPEX_COMPILE_LIMIT={text} is no number of seconds: give one, or 0 for no limit")


def _given_up(seconds: float, place: str) -> GraphFallback:
    return GraphFallback(f"compiling it takes longer than IPEX_COMPILE_LIMIT={seconds:g} seconds: {place}")


def in_cpp(call: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
    """call(*arguments, **options, seconds=what is left); C++ says itself where it gave up. Its error becomes Python's
    here, in a frame of Python, where an interrupt that was sent meanwhile arrives."""
    going_on = _going_on[0] if _going_on else None
    if going_on is None:
        return call(*arguments, **options)
    try:
        return call(*arguments, **options, seconds=max(going_on.end - time.monotonic(), 0.0))
    except _C.OutOfTime as reason:
        raise _given_up(going_on.seconds, str(reason)) from None


def doing(what: Callable[[], str]) -> None:
    """Notes what the compilation is at, should its time be over."""
    for each in _going_on:
        each.doing = what

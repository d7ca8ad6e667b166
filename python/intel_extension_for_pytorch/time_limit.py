"""A bound for a compilation: what takes longer than IPEX_COMPILE_LIMIT seconds is given up, and its graph runs eagerly.

A rule that does not return is interrupted from another thread; C++ asks between its passes and kernels.
"""

from __future__ import annotations

import contextlib
import ctypes
import threading
import time
from collections.abc import Callable, Iterator

from . import _C
from .errors import GraphFallback

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
    """Raises GraphFallback when what is inside takes longer than IPEX_COMPILE_LIMIT; one in another is part of it."""
    seconds = float(_C.knob("IPEX_COMPILE_LIMIT"))
    if _going_on or seconds <= 0:
        yield
        return
    going_on = _Compilation(seconds)
    _going_on.append(going_on)
    try:
        try:
            yield
        finally:
            _going_on.clear()
            _finish(going_on)
    except (_Interrupted, _C.OutOfTime) as reason:
        place = going_on.doing() if isinstance(reason, _Interrupted) else str(reason)
        raise GraphFallback(f"compiling it takes longer than IPEX_COMPILE_LIMIT={seconds:g} seconds: {place}") from None


def _finish(going_on: _Compilation) -> None:
    while True:
        try:
            return going_on.finish()
        except _Interrupted:
            continue


def doing(what: Callable[[], str]) -> None:
    """Notes what the compilation is at, should its time be over."""
    for each in _going_on:
        each.doing = what


def seconds_left() -> float | None:
    """Of the compilation that goes on; None where it may take any time."""
    return max(_going_on[0].end - time.monotonic(), 0.0) if _going_on else None

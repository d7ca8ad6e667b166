"""The time limit of a compilation: after IPEX_COMPILE_LIMIT seconds it is given up, and the graph runs eagerly.

Another thread interrupts Python code. C++ code checks the time between passes and kernels.
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

_RETRY_SECONDS = 1.0  # a compilation that swallowed the interrupt is interrupted again after this time


class _Interrupted(BaseException):
    """Raised in the compiling thread. It is not an Exception, because PyTorch's code catches those in places."""


class _Compilation:
    """A running compilation, in the thread that creates this object. `doing` describes its current step."""

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
                self._timer = self._start_timer(_RETRY_SECONDS)

    def finish(self) -> None:
        """Ends the interrupts. One that was sent before may still be raised inside this call."""
        with self._lock:
            self._over = True
            self._timer.cancel()
            _raise_in(self._thread, None)


def _raise_in(thread: int, kind: type | None) -> None:
    """Makes a thread raise `kind` when it next runs Python code. None cancels a pending one."""
    kind = ctypes.py_object(kind) if kind is not None else None
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), kind)


_running: list[_Compilation] = []  # at most one: one graph is compiled at a time


@contextlib.contextmanager
def compilation() -> Iterator[None]:
    """Raises GraphFallback if the body takes longer than IPEX_COMPILE_LIMIT, or UserError if that is not a number of
    seconds. Inside another compilation it does nothing."""
    seconds = _limit()
    if _running or seconds == 0:
        yield
        return
    running = _Compilation(seconds)
    _running.append(running)
    try:
        try:
            yield
        finally:
            _running.clear()
            while True:  # an interrupt that was sent before may still arrive
                try:
                    running.finish()
                    break
                except _Interrupted:
                    continue
    except _Interrupted:
        raise _given_up(seconds, running.doing()) from None


def _limit() -> float:
    text = _C.knob("IPEX_COMPILE_LIMIT")
    with contextlib.suppress(ValueError):
        seconds = float(text)
        if seconds >= 0:  # false for NaN
            return seconds
    raise UserError(f"IPEX_COMPILE_LIMIT={text} is not a number of seconds; 0 means no limit")


def _given_up(seconds: float, place: str) -> GraphFallback:
    return GraphFallback(f"compiling it takes longer than IPEX_COMPILE_LIMIT={seconds:g} seconds: {place}")


def in_cpp(call: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
    """call(*arguments, **options, seconds=the time left). A C++ timeout reports where it stopped; it is converted here,
    in a Python frame, where an interrupt that was sent meanwhile is raised."""
    running = _running[0] if _running else None
    if running is None:
        return call(*arguments, **options)
    try:
        return call(*arguments, **options, seconds=max(running.end - time.monotonic(), 0.0))
    except _C.OutOfTime as reason:
        raise _given_up(running.seconds, str(reason)) from None


def doing(what: Callable[[], str]) -> None:
    """Sets the description of the current step, for the message of a timeout."""
    for each in _running:
        each.doing = what

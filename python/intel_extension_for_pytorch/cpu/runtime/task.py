"""Functions that run in the background, on cores of their own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..._C import TaskFuture, TaskModule
from .cpupool import CPUPool


class Task:
    """Calls a module on a thread of its own, whose team of threads is pinned to a pool of cores.

    module: an nn.Module, a ScriptModule, a compiled module, an artifact or any function. Nothing is copied: several
    tasks may share one module. Submissions run one after the other, in their order.

    A submission carries the state of PyTorch of the thread that makes it: gradient mode, inference mode, autocast, the
    profiler, and Python's context variables. Exceptions keep their type and their traceback, and come out of `get()`.

    Submissions that are not done when the program ends are completed first. In a process made by fork, a task starts a
    new thread at its first submission.
    """

    def __init__(self, module: Callable, cpu_pool: CPUPool) -> None:
        assert isinstance(cpu_pool, CPUPool), "Task takes a CPUPool"
        if not callable(module):
            raise TypeError(f"Task takes a module or a function, not {type(module).__name__}")
        self.module = module
        self.cpu_pool = cpu_pool
        self._task = TaskModule(cpu_pool.cpu_pool)

    def __call__(self, *args: Any, **kwargs: Any) -> TaskFuture:
        """Submits a call. `get()` of the result waits for it, and returns its result or raises its exception."""
        return self._task.run_async(self.module, *args, **kwargs)

    def run_sync(self, *args: Any, **kwargs: Any) -> Any:
        """Submits a call and waits for it."""
        return self._task.run_sync(self.module, *args, **kwargs)

    def __reduce__(self) -> tuple:
        return Task, (self.module, self.cpu_pool)

    def __copy__(self) -> Task:
        copy = Task.__new__(Task)
        copy.__dict__.update(self.__dict__)  # the same thread
        return copy

"""Pools of cores, and the team of the calling thread on such a pool."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from typing import Any

from ... import _C
from .runtime_utils import get_core_list_of_node_id


class CPUPool:
    """Cores for a team of threads, one thread on each.

    core_ids: a list or range of CPU numbers. node_id: the cores of a NUMA node; ignored, with a warning, if core_ids is
    given. Without both, every CPU that the process may use.

    Cores that the process may not use (by taskset, numactl or a cgroup) are left out with a warning. Raises
    RuntimeError if none is left, if a core is listed twice, or if there is no such node.

    core_ids: the cores that are left. cpu_pool: the same for functions of `_C`.
    """

    def __init__(self, core_ids: list[int] | range | None = None, node_id: int | None = None) -> None:
        if core_ids is not None:
            if node_id is not None:
                warnings.warn("Both core_ids and node_id are given: core_ids is used", stacklevel=2)
            assert type(core_ids) in (list, range), "core_ids must be a list or a range of ints"
            wanted = list(core_ids)
        elif node_id is not None:
            wanted = get_core_list_of_node_id(node_id)
        else:
            wanted = _C.get_process_available_cores()
        self.cpu_pool = _C.CPUPool(wanted)
        self.core_ids: list[int] = self.cpu_pool.get_core_list()
        left_out = sorted(set(wanted) - set(self.core_ids))
        if left_out:
            warnings.warn(f"This process may not use the cores {left_out}: they are left out of the pool", stacklevel=2)

    def __reduce__(self) -> tuple:
        return CPUPool, (self.core_ids,)

    def __repr__(self) -> str:
        return f"CPUPool({self.core_ids})"


class pin:  # noqa: N801 - the name that scripts use
    """Runs a block or a function with the team of the calling thread on a pool: as many threads as the pool has cores,
    each on its core. A context manager and a decorator. It nests; at the end the team is as it was before: its number
    of threads, and the cores that each may use."""

    def __init__(self, cpu_pool: CPUPool) -> None:
        assert isinstance(cpu_pool, CPUPool), "pin takes a CPUPool"
        self.cpu_pool = cpu_pool
        self._before: list[_C.CPUPool] = []

    def __enter__(self) -> None:
        before = _C.get_current_cpu_pool()
        _C.set_cpu_pool(self.cpu_pool.cpu_pool)
        self._before.append(before)

    def __exit__(self, *error: object) -> None:
        _C.set_cpu_pool(self._before.pop())

    def __call__(self, function: Callable) -> Callable:
        @functools.wraps(function)
        def pinned(*args: Any, **kwargs: Any) -> Any:
            with pin(self.cpu_pool):  # of its own: several threads may call the function at once
                return function(*args, **kwargs)

        return pinned


def is_runtime_ext_enabled() -> bool:
    """True: pools, tasks and streams work with every OpenMP runtime."""
    return True

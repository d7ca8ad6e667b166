"""Makes the backend: gloo, and around it the sums in shared memory, where all ranks of a group can take part.

They can if intel_extension_for_pytorch is installed, which has the C++ part, and if all ranks are processes of one user
on one machine that see each other in /proc. All ranks have to decide the same. So each writes to the group's store what
it knows, rank 0 decides and makes the memory, the others open it, and rank 0 says whether all of them have succeeded.
"""

from __future__ import annotations

import datetime
import json
import logging
import os
from pathlib import Path
from types import ModuleType

import torch.distributed as dist

SWITCH = "ONECCL_BINDINGS_FOR_PYTORCH_SHARED_MEMORY"
"""The environment variable that turns sums in shared memory off, if it is 0 for any rank."""

_log = logging.getLogger(__package__)


class _Refused(Exception):
    """Why this group has no shared memory."""


def create(store: dist.Store, rank: int, size: int, timeout: datetime.timedelta) -> object:
    """The backend of a group, for `torch.distributed.Backend.register_backend`."""
    gloo = dist.ProcessGroupGloo(store, rank, size, timeout=timeout)
    try:
        if size == 1:
            raise _Refused("it has one rank")
        backend = _Agreement(dist.PrefixStore("shared_memory", store), rank, size).backend(gloo, timeout)
    except _Refused as reason:
        _log.info("rank %d of %d: sums by gloo, because %s", rank, size, reason)
        try:
            return _library().ccl_backend(gloo, None, timeout)
        except _Refused:
            return gloo
    _log.info("rank %d of %d: sums in shared memory", rank, size)
    return backend


def _library() -> ModuleType:
    try:
        from intel_extension_for_pytorch import _C
    except ImportError as error:
        raise _Refused(f"intel_extension_for_pytorch cannot be imported: {error}") from None
    if not hasattr(_C, "ccl_backend"):
        raise _Refused("this intel_extension_for_pytorch is older than the backend")
    return _C


def _machine() -> list:
    """Equal for processes that find each other by their numbers in /proc and may open each other's files."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return [boot, Path("/proc/self/ns/pid").stat().st_ino, os.geteuid()]
    except OSError as error:
        raise _Refused(f"/proc cannot be read: {error}") from None


class _Agreement:
    """One rank's side of the decision. Every rank makes the same calls, whatever it knows."""

    def __init__(self, store: dist.Store, rank: int, size: int) -> None:
        self.store, self.rank, self.size = store, rank, size

    def backend(self, gloo: dist.ProcessGroupGloo, timeout: datetime.timedelta) -> object:
        """Raises _Refused, on all ranks, if one of them cannot use shared memory."""
        library = None
        try:
            library = _library()
            if os.environ.get(SWITCH, "1") == "0":
                raise _Refused(f"{SWITCH}=0")
            mine = {"machine": _machine(), "process": os.getpid()}
        except _Refused as reason:
            mine = {"refused": str(reason)}
        self._tell(f"about/{self.rank}", mine)

        segment = None
        if self.rank == 0:
            try:
                self._check_all()
                segment = library.SharedSegment.create(self.size)
                self._tell("segment", {"path": segment.path})
            except (_Refused, OSError) as reason:
                self._tell("segment", {"refused": str(reason)})
        path = self._hear("segment")["path"]

        if self.rank != 0:
            try:
                segment = library.SharedSegment.open(path, self.rank, self.size)
                self._tell(f"opened/{self.rank}", {})
            except OSError as reason:
                self._tell(f"opened/{self.rank}", {"refused": str(reason)})
        else:
            try:
                for rank in range(1, self.size):
                    self._hear(f"opened/{rank}", of=rank)
                self._tell("use", {})
            except _Refused as reason:
                self._tell("use", {"refused": str(reason)})
        self._hear("use")
        return library.ccl_backend(gloo, segment, timeout)

    def _check_all(self) -> None:
        ranks = [self._hear(f"about/{rank}", of=rank) for rank in range(self.size)]
        if any(rank["machine"] != ranks[0]["machine"] for rank in ranks):
            raise _Refused("its ranks are not on one machine, in one process namespace, and of one user")
        if len({rank["process"] for rank in ranks}) < self.size:
            raise _Refused("some of its ranks are threads of one process")

    def _tell(self, key: str, value: dict) -> None:
        self.store.set(key, json.dumps(value))

    def _hear(self, key: str, of: int | None = None) -> dict:
        value = json.loads(self.store.get(key))
        if "refused" in value:
            raise _Refused(value["refused"] if of is None else f"of rank {of}: {value['refused']}")
        return value

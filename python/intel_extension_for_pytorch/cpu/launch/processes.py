"""Runs the instances of a program at once: copies their output to logs, passes signals on, ends all when one fails."""

from __future__ import annotations

import functools
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO

GRACE = 10.0  # seconds between SIGTERM and SIGKILL for instances that must end
_DRAIN = 2.0  # seconds to wait for output after an instance ended; a process that it left behind may hold the pipe
_output = threading.Lock()


@dataclass
class Job:
    """One process to run.

    name: how messages call it. cores: the CPUs that it may use; empty: those of the launcher. prefix: put before each
    line of its output. logs: files for a copy of its output, without the prefix. shared_log: a file that gets the
    output of several jobs, with their prefixes. If there is none of these, the process writes to the launcher's
    standard output and error itself, which may be a terminal.
    """

    name: str
    command: Sequence[str]
    environment: Mapping[str, str]
    cores: Sequence[int] = ()
    prefix: str = ""
    logs: Sequence[Path] = ()
    shared_log: Path | None = None


class Failed(subprocess.CalledProcessError):
    """A process failed; `name` is that of its job. Its return code is negative if a signal ended it."""

    def __init__(self, name: str, returncode: int, command: Sequence[str]) -> None:
        super().__init__(returncode, list(command))
        self.name = name

    def __str__(self) -> str:
        if self.returncode >= 0:
            return f"{self.name} failed with exit code {self.returncode}"
        with suppress(ValueError):
            return f"{self.name} was ended by {signal.Signals(-self.returncode).name}"
        return f"{self.name} was ended by signal {-self.returncode}"


def run(jobs: Sequence[Job], warn: Callable[[str], None]) -> None:
    """Runs all jobs at once and waits for them.

    SIGINT and SIGTERM are passed on. When a job fails, or a signal was passed on, the others get SIGTERM, and after
    `GRACE` seconds SIGKILL.

    Args:
        jobs: what to run.
        warn: receives messages.

    Raises:
        Failed: for the job that failed first.
    """
    ended: queue.SimpleQueue[tuple[int, int]] = queue.SimpleQueue()
    running: dict[int, subprocess.Popen] = {}
    threads: list[threading.Thread] = []
    # A process group of its own gets no Ctrl-C from the terminal, so that each process gets exactly one SIGINT. But a
    # background group cannot read from the terminal, so there the processes stay in the launcher's.
    own_groups = not sys.stdin or not sys.stdin.isatty()
    received: list[int] = []

    def pass_on(signum: int, _frame: object = None) -> None:
        received.append(signum)
        if own_groups or signum != signal.SIGINT:
            _send(running, signum, own_groups)
        ended.put((-1, 0))  # wakes the loop below

    failure: Failed | None = None
    deadline = None
    with _handlers(pass_on):
        try:
            for index, job in enumerate(jobs):
                if received:
                    break
                process = _start(job, own_groups)
                running[index] = process
                if received:  # while it started
                    _send({index: process}, received[-1], own_groups)
                threads += _copy_output(job, process)
                threading.Thread(target=lambda i, p: ended.put((i, p.wait())), args=(index, process)).start()
            while running:
                try:
                    index, code = ended.get(timeout=None if deadline is None else max(0.0, deadline - time.monotonic()))
                except queue.Empty:
                    warn(f"{_names(jobs, running)} did not end within {GRACE:g} s after SIGTERM: SIGKILL")
                    _send(running, signal.SIGKILL, own_groups)
                    deadline = None
                    continue
                if index in running:
                    del running[index]
                    if code and failure is None:
                        failure = Failed(jobs[index].name, code, jobs[index].command)
                        if running and not received:
                            warn(f"{failure}; {_names(jobs, running)} will be ended")
                            _send(running, signal.SIGTERM, own_groups)
                            deadline = time.monotonic() + GRACE
                elif received and deadline is None:
                    deadline = time.monotonic() + GRACE
        except BaseException:
            _send(running, signal.SIGKILL, own_groups)
            raise
    for thread in threads:
        thread.join(_DRAIN)
    if failure is None and received:
        failure = Failed("the launcher", -received[0], jobs[0].command)
    if failure:
        raise failure


def _names(jobs: Sequence[Job], indices: Mapping[int, object]) -> str:
    return ", ".join(jobs[i].name for i in indices)


@contextmanager
def _handlers(handler: Callable[[int, object], None]) -> Iterator[None]:
    """Handles SIGINT and SIGTERM; only the main thread can."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    former = {number: signal.signal(number, handler) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, old in former.items():
            signal.signal(number, old)


def _send(running: Mapping[int, subprocess.Popen], number: int, to_groups: bool) -> None:
    for process in list(running.values()):
        with suppress(ProcessLookupError):
            if to_groups:
                os.killpg(process.pid, number)
            else:
                process.send_signal(number)


def _start(job: Job, own_group: bool) -> subprocess.Popen:
    piped = bool(job.prefix or job.logs)
    with _affinity(job.cores):
        return subprocess.Popen(
            job.command,
            env=job.environment,
            stdout=subprocess.PIPE if piped else None,
            stderr=subprocess.STDOUT if piped else None,
            start_new_session=own_group,
        )


@contextmanager
def _affinity(cores: Sequence[int]) -> Iterator[None]:
    """Narrows this thread to the CPUs: a process that it starts inherits them, also for all its threads."""
    if not cores:
        yield
        return
    former = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cores)
    try:
        yield
    finally:
        os.sched_setaffinity(0, former)


def _copy_output(job: Job, process: subprocess.Popen) -> list[threading.Thread]:
    if process.stdout is None:
        return []
    thread = threading.Thread(target=_copy, args=(job, process.stdout), daemon=True)
    thread.start()
    return [thread]


def _copy(job: Job, pipe: IO[bytes]) -> None:
    prefix = job.prefix.encode()
    # With a prefix whole lines; else whatever has come, so that progress bars move.
    read = pipe.readline if prefix else functools.partial(pipe.read1, 1 << 16)
    screen = sys.stdout.buffer
    with ExitStack() as files:
        logs = [files.enter_context(open(path, "wb", buffering=0)) for path in job.logs]
        # Opened for appending, so that each line is written in one piece.
        shared = [files.enter_context(open(job.shared_log, "ab", buffering=0))] if job.shared_log else []
        for chunk in iter(read, b""):
            for log in logs:
                log.write(chunk)
            line = prefix + chunk + (b"\n" if prefix and not chunk.endswith(b"\n") else b"")
            for log in shared:
                log.write(line)
            with _output, suppress(BrokenPipeError):
                screen.write(line)
                screen.flush()

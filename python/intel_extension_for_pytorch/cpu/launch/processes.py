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
_LOOK = 1.0  # seconds between two looks at signals
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

    SIGINT, SIGTERM, SIGHUP and SIGQUIT are passed on, and then the jobs may take as long as they need: a program may
    handle Ctrl-C, or save its state. When a job fails without such a signal, the others get SIGTERM, and after `GRACE`
    seconds SIGKILL.

    Args:
        jobs: what to run.
        warn: receives messages.

    Raises:
        Failed: for the job that failed first.
        RuntimeError: a log cannot be opened; then no job was started.
    """
    outputs = [_Output(job, warn) for job in jobs]
    ended: queue.SimpleQueue[tuple[int, int]] = queue.SimpleQueue()
    running: dict[int, subprocess.Popen] = {}
    threads: list[threading.Thread] = []
    # A process group of its own gets no Ctrl-C from the terminal, so that each process gets exactly one SIGINT. But a
    # background group cannot read from the terminal, so there the processes stay in the launcher's, and the terminal
    # itself sends them what its keys mean: SIGINT and SIGQUIT.
    own_groups = not sys.stdin or not sys.stdin.isatty()
    received: list[int] = []

    def pass_on(signum: int, _frame: object = None) -> None:
        received.append(signum)
        if own_groups or signum not in (signal.SIGINT, signal.SIGQUIT):
            _send(running, signum, own_groups)

    failure: Failed | None = None
    deadline = None
    with _handlers(pass_on):
        try:
            for index, (job, output) in enumerate(zip(jobs, outputs, strict=True)):
                if received:
                    break
                process = _start(job, own_groups)
                running[index] = process
                if received:  # while it started
                    _send({index: process}, received[-1], own_groups)
                if process.stdout:
                    threads.append(threading.Thread(target=output.copy, args=(process.stdout,), daemon=True))
                    threads[-1].start()
                threading.Thread(target=lambda i, p: ended.put((i, p.wait())), args=(index, process)).start()
            while running:
                # Python would handle a signal that comes just before a long wait after it.
                left = _LOOK if deadline is None else deadline - time.monotonic()
                try:
                    index, code = ended.get(timeout=min(_LOOK, max(0.0, left)))
                except queue.Empty:
                    if deadline is None or time.monotonic() < deadline:
                        continue
                    warn(f"{_names(jobs, running)} did not end within {GRACE:g} s after SIGTERM: SIGKILL")
                    _send(running, signal.SIGKILL, own_groups)
                    deadline = None
                    continue
                del running[index]
                if code and failure is None:
                    failure = Failed(jobs[index].name, code, jobs[index].command)
                    if running and not received:
                        warn(f"{failure}; {_names(jobs, running)} will be ended")
                        _send(running, signal.SIGTERM, own_groups)
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
    """Handles the signals that are passed on; only the main thread can. After `nohup`, SIGHUP stays ignored."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    numbers = [signal.SIGINT, signal.SIGTERM, signal.SIGQUIT]
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        numbers.append(signal.SIGHUP)
    former = {number: signal.signal(number, handler) for number in numbers}
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


class _Output:
    """Where the output of a job goes: its logs, the shared log and the screen.

    A place that cannot be written any more, for example on a full disk, is given up with one message. The pipe is read
    on, because a full pipe would block the job.

    Raises:
        RuntimeError: a log cannot be opened.
    """

    def __init__(self, job: Job, warn: Callable[[str], None]) -> None:
        self._prefix, self._warn = job.prefix.encode(), warn
        with ExitStack() as files:

            def opened(path: Path, mode: str) -> IO[bytes]:
                try:
                    return files.enter_context(open(path, mode, buffering=0))
                except OSError as error:
                    raise RuntimeError(f"the log {path} cannot be opened: {error.strerror}") from None

            self._logs = [opened(path, "wb") for path in job.logs]
            # Opened for appending, so that each line is written in one piece.
            self._shared = [opened(job.shared_log, "ab")] if job.shared_log else []
            self._files = files.pop_all()

    def copy(self, pipe: IO[bytes]) -> None:
        """Copies until the pipe ends."""
        # With a prefix whole lines; else whatever has come, so that progress bars move.
        read = pipe.readline if self._prefix else functools.partial(pipe.read1, 1 << 16)
        screen: list[IO[bytes]] = [sys.stdout.buffer]
        with self._files:
            for chunk in iter(read, b""):
                line = self._prefix + chunk + (b"\n" if self._prefix and not chunk.endswith(b"\n") else b"")
                self._write(self._logs, chunk)
                self._write(self._shared, line)
                with _output:
                    self._write(screen, line)

    def _write(self, files: list[IO[bytes]], data: bytes) -> None:
        """Writes to all files; removes from the list those that cannot be written."""
        for file in list(files):
            try:
                rest = memoryview(data)
                while rest:  # a file without a buffer may take a part
                    rest = rest[file.write(rest) :]
                file.flush()
            except BrokenPipeError:  # `ipexrun ... | head`
                files.remove(file)
            except OSError as error:
                files.remove(file)
                self._warn(f"{file.name} cannot be written: {error.strerror}; it gets no more output")

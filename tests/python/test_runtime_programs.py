"""ipex.cpu.runtime in whole programs: the cores that a program may use, its end, interruptions and forks."""

import os
import subprocess
import sys
import textwrap

import pytest

pytestmark = pytest.mark.needs_ipex

CORES = sorted(os.sched_getaffinity(0))
FIRST = CORES[0]
needs_two_cores = pytest.mark.skipif(len(CORES) < 2, reason="the process may use one core only")


def run_program(program, **environment):
    code = textwrap.dedent(program)
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=os.environ | environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_taskset_is_respected():
    core = CORES[-1]
    out = run_program(
        f"""
        import os; os.sched_setaffinity(0, {{{core}}})
        import intel_extension_for_pytorch as ipex
        print(ipex.cpu.runtime.CPUPool().core_ids)
        """
    )
    assert out.strip() == f"[{core}]"


@needs_two_cores
def test_a_team_bound_by_openmp_does_not_hide_cores():
    """OMP_PROC_BIND binds the main thread to one core before the package is imported."""
    program = """
        import os, torch
        torch.ones(100_000).add(1)
        import intel_extension_for_pytorch as ipex
        runtime = ipex.cpu.runtime
        with runtime.pin(runtime.CPUPool([runtime.CPUPool().core_ids[-1]])):
            print(os.sched_getaffinity(0))
        print(runtime.CPUPool().core_ids)
        """
    out = run_program(program, OMP_PROC_BIND="close").splitlines()
    assert out == [f"{{{CORES[-1]}}}", str(CORES)]


def test_interrupted_while_waiting():
    out = run_program(
        f"""
        import os, signal, threading, time
        import intel_extension_for_pytorch as ipex
        runtime = ipex.cpu.runtime
        task = runtime.Task(time.sleep, runtime.CPUPool([{FIRST}]))
        threading.Timer(0.3, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
        try:
            task(1.5).get()
        except KeyboardInterrupt:
            print("interrupted")
        """
    )
    assert out == "interrupted\n"


def test_pending_tasks_are_completed_at_exit():
    out = run_program(
        f"""
        import time
        import intel_extension_for_pytorch as ipex
        runtime = ipex.cpu.runtime
        task = runtime.Task(lambda i: (time.sleep(0.1), print("done", i, flush=True)), runtime.CPUPool([{FIRST}]))
        futures = [task(i) for i in range(3)]
        """
    )
    assert out.splitlines() == ["done 0", "done 1", "done 2"]


@pytest.mark.parametrize("ending", ["pass", "raise SystemExit(0)", "del task", "sys.exit()"])
def test_programs_end(ending):
    run_program(
        f"""
        import sys, torch
        import intel_extension_for_pytorch as ipex
        runtime = ipex.cpu.runtime
        streams = runtime.MultiStreamModule(torch.nn.Linear(8, 8))
        streams(torch.ones(4, 8))
        task = runtime.Task(torch.nn.Linear(64, 64), runtime.CPUPool([{FIRST}]))
        for _ in range(100):
            kept = task(torch.ones(64, 64))
        {ending}
        """
    )


def test_no_tasks_after_the_end():
    out = run_program(
        f"""
        import atexit
        @atexit.register
        def late():
            for attempt in (lambda: task(1), lambda: runtime.Task(int, pool)):
                try:
                    attempt()
                except RuntimeError as error:
                    print(error)
        import intel_extension_for_pytorch as ipex
        runtime = ipex.cpu.runtime
        pool = runtime.CPUPool([{FIRST}])
        task = runtime.Task(int, pool)
        """
    )
    assert [line.split(":")[0] for line in out.splitlines()] == ["the program ends"] * 2


def test_fork():
    """A forked child has no threads: its tasks start new ones. Futures of the parent stay with the parent."""
    out = run_program(
        f"""
        import os, time, torch
        import intel_extension_for_pytorch as ipex
        runtime = ipex.cpu.runtime
        task = runtime.Task(lambda x: x.exp().sum().item(), runtime.CPUPool([{FIRST}]))
        slow = runtime.Task(lambda: (time.sleep(0.5), "parent")[1], runtime.CPUPool([{FIRST}]))
        x = torch.zeros(200_000)
        assert task.run_sync(x) == 200_000
        pending = slow()
        child = os.fork()
        if child == 0:
            try:
                assert task.run_sync(x) == 200_000 and task(x).get() == 200_000
                try:
                    pending.get()
                except RuntimeError as error:
                    assert "before this process was forked" in str(error), error
                else:
                    raise AssertionError("no error")
                del task, slow, pending
                os._exit(0)
            except BaseException as error:
                print("child:", repr(error), flush=True)
                os._exit(1)
        _, status = os.waitpid(child, 0)
        print(status, pending.get(), task.run_sync(x))
        """
    )
    assert out == "0 parent 200000.0\n"


def test_two_threads_of_a_forked_child_submit_at_once():
    """One of them starts the task's thread, and no call is lost."""
    out = run_program(
        f"""
        import os, threading
        import intel_extension_for_pytorch as ipex
        tasks = [ipex.cpu.runtime.Task(threading.get_ident, ipex.cpu.runtime.CPUPool([{FIRST}])) for _ in range(20)]
        child = os.fork()
        if child == 0:
            barrier, found = threading.Barrier(4), []

            def submit():
                for task in tasks:
                    barrier.wait()
                    found.append((id(task), task().get()))

            threads = [threading.Thread(target=submit) for _ in range(4)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            os._exit(not (len(found) == 80 and len(set(found)) == 20))
        print(os.waitpid(child, 0)[1])
        """
    )
    assert out == "0\n"


def test_the_import_stays_cheap():
    out = run_program(
        """
        import sys, torch
        import intel_extension_for_pytorch as ipex
        print([m for m in sys.modules if m.startswith("intel_extension_for_pytorch.cpu")])
        assert ipex.cpu.runtime.is_runtime_ext_enabled()
        """
    )
    assert out == "[]\n"

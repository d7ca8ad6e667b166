"""`ipexrun` with independent instances: binding, environment, libraries, output, exit codes and signals."""

import os
import pty
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from intel_extension_for_pytorch.cpu.launch import (
    Launcher,
    MultiInstancesLauncher,
    command_line,
    launcher_base,
    processes,
)
from launching import REPORT, clean_environment, commands, launch, physical_cores, report_program, reports, start
from lscpu_texts import machine

CORES = physical_cores()
two_cores = pytest.mark.skipif(len(CORES) < 2, reason="needs two cores")
needs_numactl = pytest.mark.skipif(
    subprocess.run(["sh", "-c", "numactl -C 0 -m 0 true"], capture_output=True, check=False).returncode != 0,
    reason="numactl is not installed or not allowed",
)
ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def program(tmp_path):
    return report_program(tmp_path)


@pytest.fixture
def quiet(monkeypatch):
    """Launchers in this process see none of the user's settings."""
    for name in ("LD_PRELOAD", "MALLOC_CONF", "KMP_AFFINITY", "KMP_BLOCKTIME", "OMP_SCHEDULE", "OMP_PROC_BIND"):
        monkeypatch.delenv(name, raising=False)


# ---- one and several instances ----


def test_arguments_arrive_as_they_are(program):
    given = ["--", "two words", "--", "quotes \" and '", "$HOME", "*", "", "--ninstances", "9"]
    (seen,) = reports(launch(program, *given)[0])
    assert seen["arguments"] == given
    assert seen["cores"] == sorted(CORES)


@two_cores
@pytest.mark.parametrize("manager", [pytest.param("numactl", marks=needs_numactl), "taskset", "none", "auto"])
def test_instances_get_their_cores(program, manager):
    output, messages = launch("--ninstances", 2, "--multi_task_manager", manager, "--omp-runtime", "default", program)
    seen, share = reports(output), len(CORES) // 2
    if manager == "none":
        bound = sorted(s["environment"]["GOMP_CPU_AFFINITY"] for s in seen)
        assert len(bound) == len(set(bound)) == 2
    else:
        assert [len(s["cores"]) for s in seen] == [share, share]
        assert not set(seen[0]["cores"]) & set(seen[1]["cores"])
    for i, s in enumerate(seen):
        assert s["environment"]["OMP_NUM_THREADS"] == str(share)
        assert s["environment"]["OMP_SCHEDULE"] == "STATIC" and s["environment"]["OMP_PROC_BIND"] == "CLOSE"
        assert f"========== instance {i} ==========" in messages
    assert "cmd: " in messages and "env: OMP_NUM_THREADS=" in messages


@two_cores
def test_chosen_instances(program):
    first, second = CORES[:2]
    pair = ("--cores-list", f"{first},{second}", "--ncores_per_instance", 1)
    assert len(reports(launch(*pair, program)[0])) == 2
    (seen,) = reports(launch(*pair, "--instance-idx", "1", program)[0])
    assert seen["cores"] == [second]
    assert len(reports(launch(*pair, "--instance-idx", "-1", program)[0])) == 2
    assert "instances are 0 to 1" in launch(*pair, "--instance-idx", "2", program, status=2)[1]
    # Under torchrun, each process starts its own instance.
    (seen,) = reports(launch(*pair, program, LOCAL_WORLD_SIZE="2", LOCAL_RANK="1")[0])
    assert seen["cores"] == [second]


def test_settings_of_the_user_win(program):
    given = {"OMP_NUM_THREADS": "7", "OMP_PROC_BIND": "SPREAD"}
    output, messages = launch("--omp-runtime", "default", program, **given)
    (seen,) = reports(output)
    assert {name: seen["environment"][name] for name in given} == given
    assert "WARNING - OMP_PROC_BIND is set to SPREAD" in messages


def test_modules_and_other_commands(tmp_path):
    (tmp_path / "some_module.py").write_text(REPORT)
    (seen,) = reports(launch("-m", "some_module", "a b", PYTHONPATH=str(tmp_path))[0])
    assert seen["arguments"] == ["a b"]
    assert launch("--no_python", "echo", "a  b")[0] == "a  b\n"
    assert "failed" in launch("--no-python", "false", status=1)[1]
    assert launch("--", "--no-python", status=2)[1].count("does not end in .py") == 1
    assert "does not end in .py" in launch("some_module", status=2)[1]
    assert "exclude each other" in launch("--no-python", "-m", "x", status=2)[1]


# ---- task managers ----


@two_cores
@pytest.mark.parametrize("refusal", ["echo 'set_mempolicy: Operation not permitted' >&2; exit 1", "missing"])
def test_numactl_that_does_not_work(tmp_path, program, refusal):
    """In a container without the right to set a memory policy, and where it is not installed."""
    scripts = {} if refusal == "missing" else {"numactl": refusal}
    path = commands(tmp_path / "bin", "lscpu", "taskset", **scripts)
    for manager in ("auto", "numactl"):
        output, messages = launch("--ninstances", 2, "--multi-task-manager", manager, program, PATH=path)
        assert "cmd: taskset -c" in messages
        assert len({tuple(r["cores"]) for r in reports(output)}) == 2
        assert refusal == "missing" or "Operation not permitted" in messages
    neither = commands(tmp_path / "less", "lscpu")
    output, messages = launch("--ninstances", 2, "--omp-runtime", "default", program, PATH=neither)
    assert len({r["environment"]["GOMP_CPU_AFFINITY"] for r in reports(output)}) == 2
    assert "numactl and taskset cannot be used" in messages


@two_cores
def test_container_that_owns_the_second_node_only(tmp_path, program):
    """Neither the cores nor the node that are used may be those that a probe with core 0 and node 0 would need."""
    first, second = CORES[:2]
    table = f"CPU NODE SOCKET CORE ONLINE\n{first} 0 0 0 yes\n{second} 1 1 1 yes"
    numactl = f'[ "$1 $2 $3 $4" = "-C {second} -m 1" ] || {{ echo "libnuma: <$2> is invalid" >&2; exit 1; }}'
    numactl += '; shift 4; exec "$@"'
    path = commands(tmp_path / "bin", "taskset", lscpu=f"cat <<'END'\n{table}\nEND", numactl=numactl)
    path += f":{os.environ['PATH']}"
    process = start(program, prefix=("taskset", "-c", str(second)), PATH=path)
    output, messages = process.communicate(timeout=60)
    assert process.returncode == 0, messages
    assert f"cmd: numactl -C {second} -m 1" in messages and "invalid" not in messages
    (seen,) = reports(output)
    assert seen["cores"] == [second] and seen["environment"]["OMP_NUM_THREADS"] == "1"
    process = start("--nodes-list", 0, program, prefix=("taskset", "-c", str(second)), PATH=path)
    assert "invalid nodes [0]: this process may use [1]" in process.communicate(timeout=60)[1]
    assert process.returncode == 2


# ---- output ----


def test_logs(tmp_path):
    program = tmp_path / "speak.py"
    program.write_text("import sys\nprint('out')\nprint('err', file=sys.stderr)\nsys.stdout.write('no newline')\n")
    output, messages = launch("--log-dir", tmp_path / "new" / "logs", "--log_file_prefix", "mine", program)
    assert output == "out\nerr\nno newline"
    (own,) = (tmp_path / "new" / "logs").glob("mine_*_instances.log")
    (instance,) = (tmp_path / "new" / "logs").glob("mine_*_instance_0_cores_*.log")
    assert instance.read_text() == output
    assert "cmd: " in own.read_text() and own.read_text() == messages
    assert "--log-dir" in launch("--log-dir", program / "below", program, status=2)[1]


def test_logs_that_cannot_be_opened(tmp_path):
    program = tmp_path / "mark.py"
    program.write_text(f"open({str(tmp_path / 'started')!r}, 'w')\n")
    # Long enough that the launcher's own log fits into the 255 bytes of a name, and that of the instance does not.
    prefix = "x" * (255 - len("_20300101000000_instances.log"))
    messages = launch("--log-dir", tmp_path, "--log-file-prefix", prefix, program, status=2)[1]
    assert "cannot be opened: File name too long" in messages and not (tmp_path / "started").exists()


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")
@pytest.mark.parametrize("prefix", ["", "[0] "])
def test_a_full_disk_does_not_stop_the_program(tmp_path, prefix, capfdbinary):
    """More output than a pipe holds, also to a log that can be written."""
    code = "for i in range(20000):\n    print('line', i)"
    shared = Path("/dev/full") if prefix else None
    good, said = tmp_path / "good.log", []
    job = processes.Job(
        "talker", [sys.executable, "-c", code], os.environ, (), prefix, [Path("/dev/full"), good], shared
    )
    processes.run([job], said.append)
    expected = "".join(f"line {i}\n" for i in range(20000))
    assert good.read_text() == expected
    assert len(said) == (2 if prefix else 1) and all("/dev/full cannot be written: No space left" in s for s in said)


def test_names_of_logs(quiet):
    def name(cores):
        launcher = MultiInstancesLauncher(lscpu_txt=machine(1, 256, threads=1))
        launcher.cpuinfo.gen_pools_ondemand(cores_list=cores)
        args = parsed("--log-dir", "logs")
        args.log_prefix = "logs/run"
        return launcher._job(args, 0, launcher.cpuinfo.pools_ondemand[0], "taskset", "default", {}).logs[0].name

    assert name([0, 1, 2, 3]) == "run_instance_0_cores_0-3.log"
    assert name([0, 2, 4]) == "run_instance_0_cores_0_2_4.log"
    assert name(range(0, 256, 2)) == "run_instance_0_cores_128_of_0-254.log"


# ---- ends ----


@two_cores
def test_a_failing_instance_ends_the_others(tmp_path):
    program = tmp_path / "fail.py"
    program.write_text(
        "import os, sys, time\n"
        "is_second = os.sched_getaffinity(0) == {int(sys.argv[1])}\n"
        "time.sleep(0.3 if is_second else 60)\nsys.exit(7 if is_second else 0)\n"
    )
    began = time.monotonic()
    first, second = CORES[:2]
    pair = ("--cores-list", f"{first},{second}", "--ncores-per-instance", 1, "--multi-task-manager", "taskset")
    _, messages = launch(*pair, program, second, status=7)
    assert time.monotonic() - began < 30
    assert "instance 1 failed with exit code 7; instance 0 will be ended" in messages


def test_exit_codes(tmp_path):
    program = tmp_path / "end.py"
    program.write_text("import os, sys\nsys.exit(3) if len(sys.argv) < 2 else os.kill(os.getpid(), 9)\n")
    for logs in ((), ("--log-dir", tmp_path / "logs")):
        assert "instance 0 failed with exit code 3" in launch(*logs, program, status=3)[1]
        assert "instance 0 was ended by SIGKILL" in launch(*logs, program, "kill", status=128 + 9)[1]
    for manager in ("none", "auto"):
        for missing in ("no_such_program", tmp_path / "missing"):
            assert str(missing) in launch("--multi-task-manager", manager, "--no-python", missing, status=127)[1]
    assert "not an executable file" in launch("--no-python", program, status=126)[1]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT])
@pytest.mark.parametrize("stops", [True, False])
def test_signals_are_passed_on(tmp_path, number, stops):
    program = tmp_path / "wait.py"
    program.write_text(
        "import signal, sys, time\n"
        "def stop(number, frame):\n    print('got', number, flush=True)\n"
        f"    sys.exit({0 if stops else 5})\n"
        f"signal.signal({int(number)}, stop)\nprint('ready', flush=True)\n"
        # Python would handle a signal that comes just before one long sleep after it.
        "while True:\n    time.sleep(0.01)\n"
    )
    process = start(program)
    assert process.stdout.readline() == "ready\n"
    process.send_signal(number)
    output, messages = process.communicate(timeout=30)
    assert output == f"got {int(number)}\n", messages
    assert process.returncode == (128 + number if stops else 5), messages


def test_after_a_signal_instances_take_their_time(tmp_path):
    """Longer than instances get that are ended because of another one. A second signal is passed on too."""
    program = tmp_path / "save.py"
    program.write_text(
        "import signal, time\ncount = 0\n"
        "def note(number, frame):\n    global count\n    count += 1\n    print('got', count, flush=True)\n"
        "signal.signal(signal.SIGTERM, note)\nprint('ready', flush=True)\n"
        "while count < 2:\n    time.sleep(0.01)\ntime.sleep(1)\nprint('saved')\n"
    )
    shorter = "import launch.processes; launch.processes.GRACE = 0.1"
    process = start(program, setup=shorter)
    assert process.stdout.readline() == "ready\n"
    for i in (1, 2):
        process.send_signal(signal.SIGTERM)
        assert process.stdout.readline() == f"got {i}\n"
        time.sleep(0.3)
    output, messages = process.communicate(timeout=30)
    assert output == "saved\n" and "SIGKILL" not in messages
    assert process.returncode == 128 + signal.SIGTERM


def test_nohup(tmp_path):
    """An ignored SIGHUP stays ignored."""
    program = tmp_path / "wait.py"
    program.write_text("import sys\nprint('ready', flush=True)\nprint(sys.stdin.readline())\n")
    process = start(program, stdin=subprocess.PIPE, prefix=("sh", "-c", 'trap "" HUP; exec "$@"', "sh"))
    assert process.stdout.readline() == "ready\n"
    process.send_signal(signal.SIGHUP)
    output, messages = process.communicate("go on", timeout=30)
    assert process.returncode == 0 and output == "go on\n", messages


def test_terminal(tmp_path):
    """A program can read from the terminal, and Ctrl-C reaches it once."""
    program = tmp_path / "talk.py"
    program.write_text(
        "import signal, time\ncount = 0\n"
        "def note(number, frame):\n    global count\n    count += 1\n    print('noted')\n"
        "signal.signal(signal.SIGINT, note)\nprint('name?')\nprint('hello', input())\n"
        "while not count:\n    time.sleep(0.01)\ntime.sleep(0.5)\nprint('signals:', count)\n"
    )
    ours, theirs = pty.openpty()
    process = start(program, prefix=("setsid", "--ctty"), stdin=theirs, stdout=theirs)
    os.close(theirs)

    def read_until(text):
        said = b""
        while text not in said:
            assert select.select([ours], [], [], 30)[0], said
            said += os.read(ours, 4096)
        return said

    try:
        read_until(b"name?")
        os.write(ours, b"Ada\n")
        read_until(b"hello Ada")
        os.write(ours, b"\x03")
        assert b"signals: 1" in read_until(b"signals: 1")
        messages = process.communicate(timeout=30)[1]
        assert process.returncode == 130, messages
    finally:
        os.close(ours)


def test_an_instance_that_ignores_sigterm(tmp_path, monkeypatch):
    """SIGKILL ends it after a while, with a message."""
    monkeypatch.setattr(processes, "GRACE", 0.3)
    ready = tmp_path / "ready"
    stubborn = f"import signal, time; signal.signal(15, signal.SIG_IGN); open({str(ready)!r}, 'w'); time.sleep(60)"
    failing = f"import os, time\nwhile not os.path.exists({str(ready)!r}): time.sleep(0.01)\nraise SystemExit(4)"
    jobs = [
        processes.Job(name, [sys.executable, "-c", code], os.environ)
        for name, code in (("stubborn", stubborn), ("failing", failing))
    ]
    said = []
    with pytest.raises(subprocess.CalledProcessError) as failed:
        processes.run(jobs, said.append)
    assert failed.value.returncode == 4 and str(failed.value) == "failing failed with exit code 4"
    assert any("stubborn did not end within 0.3 s" in message for message in said), said


# ---- libraries ----


@pytest.fixture
def libraries(tmp_path, quiet):
    """A launcher that finds only the libraries in a folder, which is empty at first."""
    folder = tmp_path / "lib"
    folder.mkdir()
    launcher = Launcher()
    launcher.library_paths = [str(folder)]
    return launcher, folder


def test_allocators(libraries, capsys):
    launcher, folder = libraries
    assert launcher.set_memory_allocator() == "default" and launcher.ld_preload == []
    assert "apt install libtcmalloc-minimal4" in capsys.readouterr().out
    (folder / "libjemalloc.so.2").touch()
    assert launcher.set_memory_allocator("auto") == "jemalloc"
    assert launcher.ld_preload == [str(folder / "libjemalloc.so.2")]
    assert launcher.environ_set["MALLOC_CONF"] == "oversize_threshold:1,background_thread:true,metadata_thp:auto"
    launcher.set_memory_allocator("jemalloc", benchmark=True)
    assert "background_thread:false,metadata_thp:always,dirty_decay_ms:-1" in launcher.environ_set["MALLOC_CONF"]
    (folder / "libtcmalloc_minimal.so.4").touch()
    assert launcher.set_memory_allocator("auto") == "tcmalloc"
    # One allocator at a time.
    assert launcher.ld_preload == [str(folder / "libtcmalloc_minimal.so.4")]
    assert "MALLOC_CONF" not in launcher.environ_set
    for name in ("libtcmalloc.so.4", "libtcmalloc.so.10", "libtcmalloc.so.4.5.9"):
        (folder / name).touch()
    launcher.ld_preload = []
    launcher.set_memory_allocator("tcmalloc")
    assert launcher.ld_preload == [str(folder / "libtcmalloc.so.10")]
    (folder / "libtcmalloc.so").touch()
    launcher.ld_preload = []
    launcher.set_memory_allocator("tcmalloc")
    assert launcher.ld_preload == [str(folder / "libtcmalloc.so")]
    assert launcher.set_memory_allocator("default") == "default" and launcher.ld_preload == []
    assert launcher.set_memory_allocator("mimalloc") == "tcmalloc"
    assert "'mimalloc' is unknown" in capsys.readouterr().out
    assert launcher.set_memory_allocator("jemalloc", skip_list=["jemalloc"]) == "tcmalloc"


def test_preset_libraries(tmp_path, monkeypatch, quiet):
    """A preset library of the chosen kind counts as found; others of its category are removed; the rest stays."""
    for name in ("libjemalloc.so.2", "libiomp5.so", "libmine.so"):
        (tmp_path / name).touch()
    given = [str(tmp_path / name) for name in ("libmine.so", "libjemalloc.so.2", "libiomp5.so", "gone.so")]
    monkeypatch.setenv("LD_PRELOAD", ":".join(given))
    launcher = Launcher()
    launcher.library_paths = []
    assert launcher.ld_preload == given[:3]
    assert launcher.set_omp_runtime("auto") == "intel" and launcher.set_memory_allocator("auto") == "jemalloc"
    assert launcher.ld_preload == given[:3]
    assert launcher.environ_set["KMP_AFFINITY"] == "granularity=fine,compact,1,0"
    assert launcher.environ_set["KMP_BLOCKTIME"] == "1"
    assert launcher.set_omp_runtime("default") == "default"
    assert launcher.set_memory_allocator("tcmalloc") == "default"
    assert launcher.ld_preload == given[:1]


@pytest.mark.parametrize("allocator", ["tcmalloc", "jemalloc"])
def test_allocators_of_this_machine(tmp_path, allocator):
    if not Launcher().find_library(allocator):
        pytest.skip(f"{allocator} is not installed: {launcher_base._INSTALL[allocator]}")
    program = tmp_path / "maps.py"
    program.write_text("import os\nprint(open('/proc/self/maps').read(), os.environ.get('MALLOC_CONF'))\n")
    output, messages = launch("--memory-allocator", allocator, program)
    loaded = {name for name in ("tcmalloc", "jemalloc") if f"lib{name}" in output}
    assert loaded == {allocator}, messages
    assert ("metadata_thp:auto" in output) == (allocator == "jemalloc")
    assert f"Use memory allocator '{allocator}'." in messages


def test_environment(quiet, monkeypatch, capsys):
    launcher = Launcher()
    monkeypatch.setenv("SOME_VARIABLE", "mine")
    launcher.add_env("SOME_VARIABLE", "yours")
    launcher.add_env("OTHER_VARIABLE", 4)
    assert launcher.environ_set == {"SOME_VARIABLE": "mine", "OTHER_VARIABLE": "4"}
    assert "SOME_VARIABLE is set to mine" in capsys.readouterr().out
    assert launcher.check_env("OTHER_VARIABLE", 5) == "5"


def test_lists(quiet):
    parse = Launcher().parse_list_argument
    assert parse("") == [] and parse("3, 0-2,1") == [0, 1, 2, 3] and parse("-1") == [-1]
    for wrong in ("a", "1-", "3-1", "1-2-3"):
        with pytest.raises(AssertionError, match=wrong):
            parse(wrong)


# ---- options ----


def parsed(*arguments):
    return command_line.parse([*arguments, "program.py"])


def test_modes(quiet, capsys):
    def chosen(text, *arguments):
        launcher = MultiInstancesLauncher(lscpu_txt=text)
        args = parsed(*arguments)
        launcher._apply_modes(args)
        launcher.cpuinfo.gen_pools_ondemand(
            args.ninstances, args.ncores_per_instance, args.use_logical_cores, bind_numa_node=args.bind_numa_node
        )
        return [pool.get_pool_txt()["cores"] for pool in launcher.cpuinfo.pools_ondemand]

    assert chosen(machine(2, 9), "--latency-mode") == ["0-3", "4-7", "8-11", "12-15"]
    assert chosen(machine(2, 9), "--throughput-mode", "--ninstances", "5") == ["0-8", "9-17"]
    assert "ignored: --ninstances" in capsys.readouterr().out
    with pytest.raises(RuntimeError, match="exclude each other"):
        chosen(machine(2, 9), "--throughput-mode", "--latency-mode")
    with pytest.raises(AssertionError, match="--latency-mode needs 4 cores for each instance.* 2 cores may be used"):
        MultiInstancesLauncher(lscpu_txt=machine(1, 2)).launch(parsed("--latency-mode"))


def test_every_option_is_spelled_with_both_signs():
    parser = command_line.make_parser()
    names = {name for action in parser._actions for name in action.option_strings}
    assert len(names) > 80
    for name in names:
        body = name.removeprefix("--")
        assert not name.startswith("--") or {f"--{body.replace('-', '_')}", f"--{body.replace('_', '-')}"} <= names


@pytest.mark.parametrize("option", ["--nodes-list", "--cores-list"])
def test_minus_one_is_no_core(option, capsys):
    with pytest.raises(SystemExit):
        parsed(option, "-1")
    assert f"{option} takes numbers from 0 on, not -1" in capsys.readouterr().err


def test_abbreviations_are_refused():
    """A shortened option could swallow one of the program's."""
    with pytest.raises(SystemExit):
        parsed("--ninst", "2")


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("--multi_instance", ""),
        ("--distributed", "--nnodes 1"),
        ("--distributed --nnodes 2", "--nnodes 2"),
        ("--nproc_per_node 4", "--nprocs-per-node 4"),
        ("--more_mpi_params=-v", "--extra-mpi-params=-v"),
        ("--enable_tcmalloc", "--memory-allocator tcmalloc"),
        ("--enable_jemalloc", "--memory-allocator jemalloc"),
        ("--use_default_allocator", "--memory-allocator default"),
        ("--ncore_per_instance 4", "--ncores-per-instance 4"),
        ("--ncore_per_instance -1", ""),
        ("--ninstances -1", ""),
        ("--ninstance 2", "--ninstances 2"),
        ("--instance_idx -1", "--instance-idx -1"),
        ("--node_id -1", ""),
        ("--node_id 1", "--nodes-list 1"),
        ("--use_logical_core", "--use-logical-cores"),
        ("--disable_numactl", "--multi-task-manager none"),
        ("--disable_iomp", "--omp-runtime default"),
        ("--core_list 0-3", "--cores-list 0-3"),
        ("--log_path logs", "--log-dir logs"),
        ("--skip_cross_node_cores", "--bind-numa-node"),
    ],
)
def test_options_of_older_versions(old, new):
    got, expected = parsed(*old.split()), parsed(*new.split())
    warned = got.deprecated
    assert vars(got) | {"deprecated": []} == vars(expected)
    same_name = old.startswith(("--ninstances ", "--instance_idx"))
    assert bool(warned) != same_name
    assert all("is deprecated: use" in message for message in warned)


def test_deprecated_options_warn(program):
    assert "WARNING - --disable_iomp is deprecated: use --omp-runtime default" in launch("--disable_iomp", program)[1]


def test_main(capsys):
    assert command_line.main(["xpu", "program.py"]) == 2
    assert "xpu is not supported" in capsys.readouterr().err
    with pytest.raises(SystemExit) as end:
        command_line.main(["--help"])
    assert end.value.code == 0
    output = capsys.readouterr()
    assert "--ncores-per-instance" in output.out and "--ncore-per-instance" not in output.out
    assert command_line.main(["--no-python", "true"]) == 0
    assert "cpu is assumed" in capsys.readouterr().err


def test_kmp_affinity_with_all_logical_cores(quiet, monkeypatch):
    monkeypatch.setenv("KMP_AFFINITY", "compact")
    args = parsed("--use-logical-cores")
    with pytest.raises(AssertionError, match="unset it"):
        MultiInstancesLauncher(lscpu_txt=machine(1, 2)).launch(args)


def test_entry_points():
    """The module runs, and the package does not load the launcher by itself."""
    done = subprocess.run(
        [sys.executable, "-m", "intel_extension_for_pytorch.cpu.launch", "--help"],
        env=clean_environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0 and "--ninstances" in done.stdout, done.stderr
    assert 'ipexrun = "intel_extension_for_pytorch.cpu.launch:main"' in (ROOT / "pyproject.toml").read_text()
    code = "import sys, intel_extension_for_pytorch as ipex; ipex.cpu; print(*sys.modules, sep='\\n')"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert "intel_extension_for_pytorch.cpu" in loaded and "intel_extension_for_pytorch.cpu.launch" not in loaded

"""The command `ipexrun`: its options, the options of older versions, and its log."""

from __future__ import annotations

import argparse
import logging
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from . import distributed, launcher_base, multi_instances
from .launcher_base import Launcher
from .options import Option, add_options, add_program

_PROGRAM = (
    Option("--module", short="-m", help="the program is a module, as in python -m"),
    Option("--no-python", help="the program is started as it is, without python"),
    Option("--log-dir", default="", help="folder for logs; it is created. Empty: no logs"),
    Option("--log-file-prefix", default="run", help="first part of the names of logs"),
)
_AUTO_IPEX = (
    Option("--auto-ipex", help="prepare each model for inference with ipex.optimize when it is first called"),
    Option("--dtype", default="float32", choices=["float32", "bfloat16"], help="type of --auto-ipex"),
    Option("--auto-ipex-verbose", help="say what --auto-ipex does"),
    Option("--disable-ipex-graph-mode", help="--auto-ipex does not compile the model"),
)
_ABOUT = """
Runs a program on the CPU with its threads, memory and libraries set up for it.

  ipexrun cpu program.py             one instance on all physical cores
  ipexrun cpu --ninstances 4 ...     four instances at once, each on a quarter of the cores
  ipexrun cpu --nnodes 1 ...         the ranks of a distributed program, one for each NUMA node
"""


class _Legacy(argparse.Action):
    """An option of an older version. `effect` changes the namespace, with the option's value if it takes one."""

    def __init__(self, option_strings: Any, dest: str, *, now: str, effect: Callable[..., None], **arguments: Any):
        super().__init__(option_strings, argparse.SUPPRESS, help=argparse.SUPPRESS, **arguments)
        self.now, self.effect = now, effect

    def __call__(self, parser: Any, namespace: Any, values: Any, option_string: str | None = None) -> None:
        namespace.deprecated.append(f"{option_string} is deprecated: use {self.now}")
        if self.nargs == 0:
            self.effect(namespace)
        else:
            self.effect(namespace, values)


def _set(**values: object) -> Callable[[argparse.Namespace], None]:
    return lambda namespace: vars(namespace).update(values)


def _as(name: str, automatic: object = None) -> Callable[[argparse.Namespace, object], None]:
    """Sets another option to the value; -1 meant "choose" and becomes `automatic`."""
    return lambda namespace, value: setattr(
        namespace, name, automatic if automatic is not None and str(value) == "-1" else value
    )


def _distributed(namespace: argparse.Namespace) -> None:
    namespace.nnodes = namespace.nnodes or 1


# Option, what takes its place, effect, type of its value (None: a switch).
_LEGACY: tuple[tuple[str, str, Callable[..., None], type | None], ...] = (
    ("--multi-instance", "nothing, it is the default", _set(), None),
    ("--distributed", "--nnodes", _distributed, None),
    ("--nproc-per-node", "--nprocs-per-node", _as("nprocs_per_node"), int),
    ("--more-mpi-params", "--extra-mpi-params", _as("extra_mpi_params"), str),
    ("--enable-tcmalloc", "--memory-allocator tcmalloc", _set(memory_allocator="tcmalloc"), None),
    ("--enable-jemalloc", "--memory-allocator jemalloc", _set(memory_allocator="jemalloc"), None),
    ("--use-default-allocator", "--memory-allocator default", _set(memory_allocator="default"), None),
    ("--ncore-per-instance", "--ncores-per-instance", _as("ncores_per_instance", 0), int),
    ("--ninstance", "--ninstances", _as("ninstances", 0), int),
    ("--node-id", "--nodes-list", _as("nodes_list", ""), str),
    ("--use-logical-core", "--use-logical-cores", _set(use_logical_cores=True), None),
    ("--disable-numactl", "--multi-task-manager none", _set(multi_task_manager="none"), None),
    ("--disable-taskset", "--multi-task-manager none", _set(multi_task_manager="none"), None),
    ("--disable-iomp", "--omp-runtime default", _set(omp_runtime="default"), None),
    ("--core-list", "--cores-list", _as("cores_list"), str),
    ("--log-path", "--log-dir", _as("log_dir"), str),
    ("--skip-cross-node-cores", "--bind-numa-node", _set(bind_numa_node=True), None),
)


def make_parser(prog: str = "ipexrun cpu") -> argparse.ArgumentParser:
    """The parser of all options."""
    parser = argparse.ArgumentParser(
        prog=prog, description=_ABOUT, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    parser.set_defaults(deprecated=[])
    add_program(parser, "a .py file; a module with -m; any command with --no-python. Then its arguments")
    add_options(parser, "Program arguments", _PROGRAM)
    add_options(parser, "Launcher arguments", launcher_base.OPTIONS)
    add_options(parser, "Multi-instance arguments", multi_instances.OPTIONS)
    add_options(parser, "Distributed training arguments", distributed.OPTIONS)
    add_options(parser, "Arguments for optimizing without a change of the program", _AUTO_IPEX)
    for name, now, effect, kind in _LEGACY:
        takes = {"nargs": 0} if kind is None else {"type": kind}
        underscores = "--" + name.removeprefix("--").replace("-", "_")
        parser.add_argument(*dict.fromkeys((name, underscores)), action=_Legacy, now=now, effect=effect, **takes)
    return parser


def parse(arguments: Sequence[str], prog: str = "ipexrun cpu") -> argparse.Namespace:
    """Reads the options. Wrong ones end the process with status 2, as argparse does."""
    parser = make_parser(prog)
    args = parser.parse_args(arguments, argparse.Namespace(deprecated=[]))
    if args.ninstances == -1:  # in older versions: choose
        args.ninstances = 0
    if args.module and args.no_python:
        parser.error("-m and --no-python exclude each other: choose one")
    if args.auto_ipex and args.no_python:
        parser.error("--auto-ipex and --no-python exclude each other: choose one")
    if not (args.module or args.no_python or args.program.endswith(".py")):
        parser.error(
            f"the program {args.program!r} does not end in .py: give -m for a module, --no-python for another command"
        )
    for name, text in (("--nodes-list", args.nodes_list), ("--cores-list", args.cores_list)):
        if "-1" in re.split(r"[,\s]+", text):
            parser.error(f"{name} takes numbers from 0 on, not -1: leave the option out to use all")
    if args.nnodes < 0 or args.nprocs_per_node < 0 or args.ccl_worker_count < 0:
        parser.error("--nnodes, --nprocs-per-node and --ccl-worker-count take no negative number")
    return args


def _make_logger(args: argparse.Namespace) -> logging.Logger:
    """Messages go to standard error, and with --log-dir to a file too. Also sets `args.log_prefix` for other logs."""
    logger = logging.Logger("ipexrun", logging.INFO)
    handlers: list[logging.Handler] = [logging.StreamHandler(sys.stderr)]
    args.log_prefix = ""
    if args.log_dir:
        folder = Path(args.log_dir)
        folder.mkdir(parents=True, exist_ok=True)
        args.log_prefix = str(folder / f"{args.log_file_prefix}_{time.strftime('%Y%m%d%H%M%S')}")
        handlers.append(logging.FileHandler(f"{args.log_prefix}_instances.log", encoding="utf-8"))
    for handler in handlers:
        handler.setFormatter(logging.Formatter("%(asctime)s - %(name)s - %(levelname)s - %(message)s"))
        logger.addHandler(handler)
    return logger


def _obey_torchrun(args: argparse.Namespace, logger: logging.Logger) -> None:
    """Under torchrun each process starts one launcher, which runs its own share of the instances."""
    size, rank = os.environ.get("LOCAL_WORLD_SIZE", ""), os.environ.get("LOCAL_RANK", "")
    if args.nnodes == 0 and size.isdigit() and rank.isdigit() and int(size) > 0:
        logger.info("LOCAL_WORLD_SIZE=%s and LOCAL_RANK=%s are set: this is instance %s of %s", size, rank, rank, size)
        args.ninstances, args.instance_idx = int(size), rank


def launch(arguments: Sequence[str], prog: str = "ipexrun cpu") -> int:
    """Runs a program; returns the exit status: that of the process that failed first, 128 + n for signal n, or 2 for
    options that do not fit the machine."""
    args = parse(arguments, prog)
    try:
        logger = _make_logger(args)
    except OSError as error:
        print(f"{prog}: error: --log-dir {args.log_dir}: {error}", file=sys.stderr)
        return 2
    for message in args.deprecated:
        logger.warning(message)
    _obey_torchrun(args, logger)
    kind: type[Launcher] = (
        distributed.DistributedTrainingLauncher if args.nnodes > 0 else multi_instances.MultiInstancesLauncher
    )
    if args.no_python and not shutil.which(args.program):  # numactl and taskset would end with a status of their own
        exists = os.path.exists(args.program)
        logger.error(
            "%s %s", args.program, "is not an executable file" if exists else "does not exist or is not in PATH"
        )
        return 126 if exists else 127
    try:
        kind(logger).launch(args)
    except subprocess.CalledProcessError as error:
        logger.error("%s", error)
        return error.returncode if error.returncode > 0 else 128 - error.returncode
    except (AssertionError, RuntimeError, ValueError) as error:
        logger.error("%s", error)
        return 2
    except OSError as error:  # the program or a tool cannot be started
        logger.error("%s", error)
        return 127 if isinstance(error, FileNotFoundError) else 126
    return 0


def main(arguments: Sequence[str] | None = None) -> int:
    """`ipexrun [cpu] options program arguments`."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    if words[:1] == ["xpu"]:
        print("ipexrun: error: xpu is not supported: this package runs on CPUs. Use `ipexrun cpu`", file=sys.stderr)
        return 2
    if words[:1] == ["cpu"]:
        words = words[1:]
    elif words and words[0] not in ("-h", "--help"):
        print("ipexrun: warning: neither cpu nor xpu is named: cpu is assumed", file=sys.stderr)
    return launch(words)

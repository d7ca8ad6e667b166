"""What both launchers share: the libraries to preload, the environment of the instances, and the command to run."""

from __future__ import annotations

import argparse
import glob
import os
import re
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from .cpu_info import CPUPoolList
from .options import Option, add_options

OPTIONS = (
    Option(
        "--ncores-per-instance",
        type=int,
        default=0,
        help="cores of each instance. 0: equal shares; -1: equal shares, of which the first get the remainder",
    ),
    Option("--nodes-list", default="", help="use only these NUMA nodes, 0,1 or 0-1"),
    Option("--use-e-cores", help="use efficiency cores too"),
    Option(
        "--strategy",
        default="scatter",
        choices=["scatter", "close"],
        help="which cores to use when not all are needed: spread over the machine, or the first ones",
    ),
    Option(
        "--memory-allocator",
        default="auto",
        help="auto, default, tcmalloc or jemalloc. auto: tcmalloc if it is installed, else jemalloc, else default",
    ),
    Option(
        "--omp-runtime",
        default="auto",
        help="auto, default or intel. auto: libiomp5 if it is installed, else PyTorch's libgomp",
    ),
)
# Choice -> the names that its library may have, the best first.
_LIBRARIES = {
    "tcmalloc": ("tcmalloc", "tcmalloc_minimal"),
    "jemalloc": ("jemalloc",),
    "intel": ("iomp5",),
}
_INSTALL = {
    "tcmalloc": "apt install libtcmalloc-minimal4, or conda install -c conda-forge gperftools",
    "jemalloc": "apt install libjemalloc2, or conda install -c conda-forge jemalloc",
    "intel": "pip install intel-openmp",
    "numactl": "apt install numactl",
    "taskset": "apt install util-linux",
}
_JEMALLOC = "oversize_threshold:1,background_thread:true,metadata_thp:auto"
_JEMALLOC_BENCHMARK = (
    "oversize_threshold:1,background_thread:false,metadata_thp:always,dirty_decay_ms:-1,muzzy_decay_ms:-1"
)


class Launcher:
    """The base of the launchers.

    Attributes:
        cpuinfo: the CPUPoolList of the machine.
        library_paths: folders in which libraries to preload are looked for.
        ld_preload: paths that LD_PRELOAD will hold, from the environment at first.
        environ_set: variables that the instances get besides the inherited ones.

    Args:
        logger: receives messages; they are printed if it is None.
        lscpu_txt: output of `lscpu --all --extended` to use instead of running the command.
    """

    def __init__(self, logger: Any = None, lscpu_txt: str = "") -> None:
        self.logger = logger
        self.cpuinfo = CPUPoolList(logger, lscpu_txt)
        prefixes = [os.environ[name] for name in ("CONDA_PREFIX", "VIRTUAL_ENV") if os.environ.get(name)]
        # A program that is started as .venv/bin/python, without activating the environment, finds its libraries too.
        self.library_paths = [f"{prefix}/lib" for prefix in dict.fromkeys([*prefixes, sys.prefix])]
        self.library_paths += [str(Path.home() / ".local/lib"), "/usr/local/lib", "/usr/local/lib64"]
        self.library_paths += ["/usr/lib", "/usr/lib64", "/usr/lib/x86_64-linux-gnu"]
        self.ma_supported = ["auto", "default", "tcmalloc", "jemalloc"]
        self.omp_supported = ["auto", "default", "intel"]
        self.environ_set: dict[str, str] = {}
        self.ld_preload: list[str] = []
        for path in re.split(r"[: ]+", os.environ.get("LD_PRELOAD", "")):
            # The dynamic linker would complain about a missing file in every process. A bare name is looked up by it.
            if path and ("/" not in path or os.path.exists(path)):
                self.ld_preload.append(path)
            elif path:
                self.verbose("warning", f"LD_PRELOAD names {path}, which does not exist; it is left out")

    def add_common_params(self, parser: argparse.ArgumentParser) -> None:
        """Adds the options of both launchers to a parser."""
        add_options(parser, "Launcher arguments", OPTIONS)

    def verbose(self, level: str, message: str) -> None:
        """Logs a message of the level "info" or "warning"."""
        self.cpuinfo.verbose(level, message)

    # ---- choices: a name of `supported`, which is ["auto", the default, alternatives, the best first] ----

    def choose(
        self,
        category: str,
        wanted: str,
        supported: list[str],
        find: Callable[[str], bool],
        skip: Iterable[str] = (),
    ) -> str:
        """The choice that is available. An unknown or excluded name counts as auto, with a warning."""
        name = wanted.lower()
        if name not in supported or name in skip:
            why = "not applicable here" if name in skip else "unknown"
            usable = ", ".join(s for s in supported if s not in skip)
            self.verbose("warning", f"{category} {wanted!r} is {why}: auto is used. Choose one of {usable}.")
            name = supported[0]
        if name == supported[1]:
            found = name
        elif name == supported[0]:
            alternatives = [s for s in supported[2:] if s not in skip]
            found = next((s for s in alternatives if find(s)), supported[1])
            if found == supported[1] and alternatives:
                advice = "; ".join(f"{s}: {_INSTALL[s]}" for s in alternatives)
                self.verbose("warning", f"{category}: {' and '.join(alternatives)} cannot be used ({advice}).")
        elif find(name):
            found = name
        else:
            self.verbose("warning", f"{category} {name!r} cannot be used ({_INSTALL[name]}).")
            found = supported[1]
        self.verbose("info", f"Use {category} {found!r}{'' if name != supported[0] else ' (auto)'}.")
        return found

    # ---- libraries ----

    def find_library(self, choice: str) -> str | None:
        """The library of "tcmalloc", "jemalloc" or "intel": from LD_PRELOAD, else from `library_paths`, else None."""
        for name in _LIBRARIES[choice]:
            for path in self.ld_preload:
                if _is_library(path, name):
                    return path
        for name in _LIBRARIES[choice]:
            for folder in self.library_paths:
                # The name without a version belongs to development packages; the highest version comes next.
                for path in sorted(glob.glob(f"{glob.escape(folder)}/lib{name}.so*"), key=_version):
                    if _is_library(path, name):
                        return path
        return None

    def add_lib_preload(self, choice: str) -> bool:
        """Puts the library of a choice into `ld_preload`; False if there is none."""
        path = self.find_library(choice)
        if path and path not in self.ld_preload:
            self.ld_preload.insert(0, path)
        return path is not None

    def remove_lib_preload(self, choices: Iterable[str]) -> None:
        """Takes the libraries of choices out of `ld_preload`."""
        names = [name for choice in choices for name in _LIBRARIES[choice]]
        self.ld_preload = [p for p in self.ld_preload if not any(_is_library(p, name) for name in names)]

    def set_memory_allocator(
        self, memory_allocator: str = "auto", benchmark: bool = False, skip_list: Iterable[str] = ()
    ) -> str:
        """Preloads a memory allocator, and sets MALLOC_CONF for jemalloc. Returns its name.

        benchmark: jemalloc keeps all memory that it ever had, for steady measurements. Long runs may exhaust memory.
        """
        category, skip = "memory allocator", list(skip_list)
        chosen = self.choose(category, memory_allocator, self.ma_supported, self.add_lib_preload, skip)
        # Under "auto" a preset library is found before others; under another choice it would win over the chosen one.
        self.remove_lib_preload(name for name in self.ma_supported[2:] if name != chosen)
        self.environ_set.pop("MALLOC_CONF", None)
        if chosen == "jemalloc":
            self.add_env("MALLOC_CONF", _JEMALLOC_BENCHMARK if benchmark else _JEMALLOC)
        return chosen

    def set_omp_runtime(self, omp_runtime: str = "auto", set_kmp_affinity: bool = True) -> str:
        """Preloads an OpenMP runtime, or not, and sets its variables. Returns its name.

        The preloaded runtime replaces the one of PyTorch and of this package's kernels.
        """
        chosen = self.choose("OpenMP runtime", omp_runtime, self.omp_supported, self.add_lib_preload)
        if chosen == "intel":
            if set_kmp_affinity:
                self.add_env("KMP_AFFINITY", "granularity=fine,compact,1,0")
            self.add_env("KMP_BLOCKTIME", "1")
            self.verbose("info", f"OpenMP runtime of PyTorch and of the kernels: {self.find_library('intel')}")
        else:
            self.remove_lib_preload(["intel"])
            self.add_env("OMP_SCHEDULE", "STATIC")
            self.add_env("OMP_PROC_BIND", "CLOSE")
            self.verbose("info", "OpenMP runtime of PyTorch and of the kernels: the libgomp of PyTorch")
        return chosen

    # ---- environment ----

    def check_env(self, env_name: str, env_value: object) -> str:
        """The value that a variable will have: the user's, with a warning, else `env_value`."""
        preset = os.environ.get(env_name, "")
        if preset and preset != str(env_value):
            self.verbose("warning", f"{env_name} is set to {preset}: it is kept, although {env_value} would be chosen")
            return preset
        return str(env_value)

    def add_env(self, env_name: str, env_value: object) -> None:
        """Sets a variable of the instances, unless the user has set it."""
        self.environ_set[env_name] = self.check_env(env_name, env_value)

    def preload_text(self) -> str:
        """LD_PRELOAD of the instances."""
        return ":".join(self.ld_preload)

    # ---- arguments ----

    def parse_list_argument(self, txt: str) -> list[int]:
        """Numbers and ranges, "0,2-4", as a sorted list; "-1" stands for itself.

        Raises:
            AssertionError: the text is not of this form.
        """
        numbers: set[int] = set()
        for part in filter(None, (p.strip() for p in txt.split(","))):
            if part == "-1":
                numbers.add(-1)
                continue
            match = re.fullmatch(r"(\d+)(?:\s*-\s*(\d+))?", part)
            assert match, f"{part!r} is neither a number nor a range: write 0,1 or 0-3"
            first, last = int(match[1]), int(match[2] or match[1])
            assert first <= last, f"the range {part!r} begins after its end"
            numbers.update(range(first, last + 1))
        return sorted(numbers)

    def program_command(self, args: argparse.Namespace) -> list[str]:
        """The command of one instance, without a task manager. Arguments stay as they are: no shell reads them."""
        command = [] if args.no_python else [sys.executable, "-u"]
        if args.auto_ipex:
            command += ["-m", "intel_extension_for_pytorch.cpu.auto_ipex", "--dtype", args.dtype]
            command += ["--auto-ipex-verbose"] if args.auto_ipex_verbose else []
            command += ["--disable-ipex-graph-mode"] if args.disable_ipex_graph_mode else []
        if args.module:
            command.append("-m")
        return [*command, args.program, *args.program_args]


def _is_library(path: str, name: str) -> bool:
    return re.fullmatch(rf"lib{re.escape(name)}\.so(\.\d+)*", os.path.basename(path)) is not None


def _version(path: str) -> tuple[bool, list[int]]:
    """A sort key: the name without a version, then the highest version."""
    numbers = [-int(n) for n in re.findall(r"\.(\d+)", os.path.basename(path).partition(".so")[2])]
    return bool(numbers), numbers

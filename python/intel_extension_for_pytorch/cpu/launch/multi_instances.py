"""Runs one or more instances of a program on this machine, each bound to its share of the cores."""

from __future__ import annotations

import argparse
import functools
import os
import shlex
import subprocess
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from .cpu_info import CPUPool, TooFewCores, nodes_of
from .launcher_base import Launcher
from .options import Option, add_options
from .processes import Job, run

OPTIONS = (
    Option("--ninstances", type=int, default=0, help="number of instances; 0: one, or as many as fit"),
    Option("--instance-idx", default="", help="run only these instances, 0,2 or 0-2; -1 or empty: all"),
    Option("--use-logical-cores", help="use every hardware thread of a core, not only the first"),
    Option("--bind-numa-node", help="no instance spans two NUMA nodes"),
    Option(
        "--multi-task-manager",
        default="auto",
        choices=["auto", "none", "numactl", "taskset"],
        help="what binds an instance to its cores. auto: numactl if it works here, else taskset, else none; "
        "none: variables of the OpenMP runtime",
    ),
    Option("--latency-mode", help="instances of 4 physical cores, as many as fit"),
    Option("--throughput-mode", help="one instance for each NUMA node, with all its physical cores"),
    Option("--cores-list", default="", help="use only these cores, 0,1 or 0-3"),
    Option("--benchmark", help="jemalloc keeps all memory, for steady measurements"),
)
_LATENCY_CORES = 4
_LONGEST_NAME = 60  # characters that the cores take in the name of a log


class MultiInstancesLauncher(Launcher):
    """The launcher of independent instances. See `Launcher` for its arguments."""

    def __init__(self, logger: Any = None, lscpu_txt: str = "") -> None:
        super().__init__(logger, lscpu_txt)
        self.tm_supported = ["auto", "none", "numactl", "taskset"]

    def add_params(self, parser: argparse.ArgumentParser) -> None:
        """Adds the options of this launcher to a parser."""
        add_options(parser, "Multi-instance arguments", OPTIONS)

    def is_command_available(self, cmd: str, pool: CPUPool | None = None) -> bool:
        """Can `numactl` or `taskset` bind to the cores of the pool?

        Runs the command with just these cores: containers may forbid it, kernels may lack NUMA policies, and a
        container may own other cores and nodes than the first ones.
        """
        pool = pool or self.cpuinfo.pool_all
        command = [*self._bound(cmd, pool), "/bin/sh", "-c", ":"]
        try:
            done = subprocess.run(command, capture_output=True, text=True, check=False)
        except OSError:  # not installed
            return False
        if done.returncode:
            said = next(iter(done.stderr.strip().splitlines()), f"status {done.returncode}")
            self.verbose("info", f"`{shlex.join(command)}` does not work here: {said}")
        return done.returncode == 0

    def set_multi_task_manager(
        self, multi_task_manager: str = "auto", skip_list: Iterable[str] = (), pools: Iterable[CPUPool] = ()
    ) -> str:
        """The task manager that works for all pools: "numactl", "taskset" or "none"."""
        pools = list(pools) or [self.cpuinfo.pool_all]
        find = functools.cache(lambda name: all(self.is_command_available(name, pool) for pool in pools))
        if multi_task_manager.lower() == "numactl" and "numactl" not in skip_list and not find("numactl"):
            self.verbose("warning", "numactl cannot be used here (apt install numactl): auto is used")
            multi_task_manager = "auto"  # taskset binds to the same cores
        return self.choose("multi-task manager", multi_task_manager, self.tm_supported, find, skip_list)

    def _bound(self, task_manager: str, pool: CPUPool) -> list[str]:
        text = pool.get_pool_txt()
        return {
            "numactl": ["numactl", "-C", text["cores"], "-m", text["nodes"]],
            "taskset": ["taskset", "-c", text["cores"]],
        }.get(task_manager, [])

    def launch(self, args: argparse.Namespace) -> None:
        """Runs the instances and waits for them.

        Raises:
            RuntimeError: latency mode together with throughput mode.
            AssertionError: cores, nodes or instances that do not exist or do not fit.
            subprocess.CalledProcessError: an instance failed; the others were ended.
        """
        self._apply_modes(args)
        try:
            self.cpuinfo.gen_pools_ondemand(
                ninstances=args.ninstances,
                ncores_per_instance=args.ncores_per_instance,
                use_logical_cores=args.use_logical_cores,
                use_e_cores=args.use_e_cores,
                bind_numa_node=args.bind_numa_node,
                nodes_list=self.parse_list_argument(args.nodes_list),
                cores_list=self.parse_list_argument(args.cores_list),
                strategy=args.strategy,
            )
        except TooFewCores as error:
            if not args.latency_mode:
                raise
            raise TooFewCores(f"--latency-mode needs {_LATENCY_CORES} cores for each instance: {error}") from None
        pools = self.cpuinfo.pools_ondemand
        chosen = self._instances(args.instance_idx, len(pools))

        preset_iomp = any(os.path.basename(path) == "libiomp5.so" for path in self.ld_preload)
        preset_affinity = "KMP_AFFINITY" in os.environ
        every_cpu = {c.cpu for pool in pools for c in pool} == {c.cpu for c in self.cpuinfo.pool_all}
        all_logical = args.use_logical_cores and every_cpu
        if all_logical and preset_affinity:
            raise AssertionError(
                "KMP_AFFINITY is set, which leaves second hardware threads of cores idle, but all of them shall be "
                "used: unset it, or leave out --use-logical-cores"
            )
        self.set_memory_allocator(args.memory_allocator, args.benchmark)
        omp_runtime = self.set_omp_runtime(args.omp_runtime, set_kmp_affinity=not all_logical)
        # With both set, libiomp5 binds the threads itself.
        skip = ["numactl"] if preset_iomp and preset_affinity else []
        manager = self.set_multi_task_manager(args.multi_task_manager, skip, [pools[i] for i in chosen])

        shared = {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}
        if self.ld_preload:
            self.environ_set["LD_PRELOAD"] = self.preload_text()
        self.verbose("info", "env: variables that were set before and are kept are not listed")
        for name, value in self.environ_set.items():
            self.verbose("info", f"env: {name}={value}")
        shared |= self.environ_set
        jobs = [self._job(args, i, pools[i], manager, omp_runtime, shared) for i in chosen]
        run(jobs, functools.partial(self.verbose, "warning"))

    def _apply_modes(self, args: argparse.Namespace) -> None:
        if args.latency_mode and args.throughput_mode:
            raise RuntimeError("--latency-mode and --throughput-mode exclude each other: choose one")
        if not (args.latency_mode or args.throughput_mode):
            return
        mode = "--latency-mode" if args.latency_mode else "--throughput-mode"
        given = {
            "--ninstances": args.ninstances > 0,
            "--ncores-per-instance": args.ncores_per_instance != 0,
            "--use-logical-cores": args.use_logical_cores,
        }
        ignored = [name for name, is_given in given.items() if is_given]
        if ignored:
            self.verbose("warning", f"{mode} chooses the instances; ignored: {', '.join(ignored)}")
        args.use_logical_cores = False
        if args.latency_mode:
            args.ninstances, args.ncores_per_instance = 0, _LATENCY_CORES
        else:
            usable = self.parse_list_argument(args.nodes_list) or nodes_of(self.cpuinfo.pool_all)
            cores = self.parse_list_argument(args.cores_list)
            if cores:
                usable = nodes_of(c for c in self.cpuinfo.pool_all if c.cpu in cores)
            args.ninstances, args.ncores_per_instance = len(usable), 0
            args.bind_numa_node = True

    def _instances(self, text: str, count: int) -> list[int]:
        chosen = self.parse_list_argument(text)
        if not chosen or -1 in chosen:
            return list(range(count))
        unknown = [i for i in chosen if i >= count]
        assert not unknown, f"--instance-idx names {unknown}, but the instances are 0 to {count - 1}"
        return chosen

    def _job(
        self,
        args: argparse.Namespace,
        index: int,
        pool: CPUPool,
        manager: str,
        omp_runtime: str,
        shared: dict[str, str],
    ) -> Job:
        text = pool.get_pool_txt()
        own: dict[str, str] = {}
        self.verbose("info", f"========== instance {index} ==========")
        if manager == "none":
            if omp_runtime == "intel":
                explicit = f"granularity=fine,proclist=[{text['cores']}],explicit"
                own["KMP_AFFINITY"] = self.check_env("KMP_AFFINITY", explicit)
            else:
                own["GOMP_CPU_AFFINITY"] = self.check_env("GOMP_CPU_AFFINITY", text["cores"])
        own["OMP_NUM_THREADS"] = self.check_env("OMP_NUM_THREADS", len(pool))
        for name, value in own.items():
            self.verbose("info", f"env: {name}={value}")
        command = [*self._bound(manager, pool), *self.program_command(args)]
        self.verbose("info", f"cmd: {shlex.join(command)}")
        if len(nodes_of(pool)) > 1:
            self.verbose(
                "warning",
                f"instance {index} spans the NUMA nodes {text['nodes']} with its cores {text['cores']}: "
                "--bind-numa-node avoids this",
            )
        logs = []
        if args.log_dir:
            cores = text["cores"].replace(",", "_")
            if len(cores) > _LONGEST_NAME:  # names of files end at 255 bytes
                cores = f"{len(pool)}_of_{pool[0].cpu}-{pool[-1].cpu}"
            logs = [Path(f"{args.log_prefix}_instance_{index}_cores_{cores}.log")]
        return Job(f"instance {index}", command, shared | own, logs=logs)

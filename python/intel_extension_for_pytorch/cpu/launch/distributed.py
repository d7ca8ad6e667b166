"""Starts the ranks of a distributed program: by MPI's mpiexec.hydra where it is installed, else by ourselves."""

from __future__ import annotations

import argparse
import functools
import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from .cpu_info import CPUPool, nodes_of
from .launcher_base import Launcher
from .options import Option, add_options
from .processes import Job, run

OPTIONS = (
    Option("--nnodes", type=int, default=0, help="number of machines; 0: not distributed"),
    Option("--nprocs-per-node", type=int, default=0, help="ranks on each machine; 0: one for each NUMA node"),
    Option("--ccl-worker-count", type=int, default=4, help="cores of each rank that are kept for communication"),
    Option("--logical-cores-for-ccl", help="communicate on second hardware threads, compute on all physical cores"),
    Option("--master-addr", default="127.0.0.1", help="address of rank 0"),
    Option("--master-port", type=int, default=29500, help="port of rank 0"),
    Option(
        "--hostfile", default="hostfile", help="file with the addresses of the machines, one a line, this one first"
    ),
    Option("--extra-mpi-params", default="", help="further arguments of mpiexec.hydra, in one string"),
)
_SSH = ("ssh", "-o", "BatchMode=yes", "-o", "ConnectTimeout=10")
# Under hydra, a rank finds its number in PMI_RANK only. PyTorch's env:// reads RANK and its kin.
_NAME_RANK = (
    "export RANK=$PMI_RANK WORLD_SIZE=$PMI_SIZE LOCAL_RANK=${MPI_LOCALRANKID:-0} "
    'LOCAL_WORLD_SIZE=${MPI_LOCALNRANKS:-1}; exec "$@"'
)


class DistributedTrainingLauncher(Launcher):
    """The launcher of ranks that communicate. See `Launcher` for its arguments."""

    def add_params(self, parser: argparse.ArgumentParser) -> None:
        """Adds the options of this launcher to a parser."""
        add_options(parser, "Distributed training arguments", OPTIONS)

    # ---- cores ----

    def get_pin_domain_affinity(
        self, cpu_pools: Sequence[CPUPool], ccl_worker_count: int, logical_cores_for_ccl: bool = False
    ) -> dict[str, str]:
        """The cores for computing and for communication of each rank.

        The first `ccl_worker_count` physical cores of a pool communicate and its other physical cores compute. With
        `logical_cores_for_ccl`, logical cores communicate and all physical cores compute; if a pool has too few
        of them, this falls back to physical cores, with a warning.

        Returns:
            {"pin_domain": masks of the computing cores, as "[0xff0,0xff0000]", "affinity": the communicating CPUs, as
            "0,1,2,3,12,13,14,15"}.

        Raises:
            AssertionError: no core would be left for computing.
        """
        return self._pins(self._domains(cpu_pools, ccl_worker_count, logical_cores_for_ccl))

    @staticmethod
    def _pins(domains: list[tuple[list[int], list[int]]]) -> dict[str, str]:
        masks = [hex(sum(1 << cpu for cpu in compute)) for compute, _ in domains]
        affinity = [str(cpu) for _, communicate in domains for cpu in communicate]
        return {"pin_domain": f"[{','.join(masks)}]", "affinity": ",".join(affinity)}

    def _domains(
        self, pools: Sequence[CPUPool], workers: int, logical_cores_for_ccl: bool
    ) -> list[tuple[list[int], list[int]]]:
        """By rank: the CPUs that compute, and those that communicate."""
        if logical_cores_for_ccl and not self._has_logical_cores(pools, workers):
            self.verbose(
                "warning",
                f"--logical-cores-for-ccl needs {workers} logical cores for each rank, and there are fewer: physical "
                "cores are used",
            )
            logical_cores_for_ccl = False
        domains = []
        for rank, pool in enumerate(pools):
            physical = [c.cpu for c in pool if c.is_physical_core]
            if logical_cores_for_ccl:
                domains.append((physical, [c.cpu for c in pool if not c.is_physical_core][:workers]))
                continue
            assert workers < len(physical), (
                f"ccl_worker_count {workers} leaves no core for computing: rank {rank} has {len(physical)} physical "
                "cores. Lower --ccl-worker-count or the number of ranks"
            )
            domains.append((physical[workers:], physical[:workers]))
        return domains

    @staticmethod
    def _has_logical_cores(pools: Sequence[CPUPool], workers: int) -> bool:
        return all(sum(not c.is_physical_core for c in pool) >= workers for pool in pools)

    def _make_pools(self, args: argparse.Namespace) -> None:
        """Fills `pools_ondemand`, and fits `ccl_worker_count` and `logical_cores_for_ccl` to what the pools allow."""
        nodes = self.parse_list_argument(args.nodes_list)
        ranks = args.nprocs_per_node or len(nodes) or len(nodes_of(self.cpuinfo.pool_all))
        args.nprocs_per_node = ranks
        cores = args.ncores_per_instance
        if cores > 0:
            # The option counts computing cores, the groups count all threads of these and of the communicating cores.
            every = [c for c in self.cpuinfo.pool_all if c.is_p_core or args.use_e_cores]
            every = [c for c in every if not nodes or c.node in nodes]
            logical = len([c for c in every if not c.is_physical_core])
            threads = len(every) // max(1, len(every) - logical)
            if not (args.logical_cores_for_ccl and logical >= ranks * args.ccl_worker_count):
                parts = [c.node if args.bind_numa_node else 0 for c in every]
                sizes = [parts.count(part) // max(1, threads) for part in set(parts)]  # in physical cores
                workers = args.ccl_worker_count
                while workers and sum(size // (cores + workers) for size in sizes) < ranks:
                    workers -= 1
                if workers < args.ccl_worker_count:
                    self.verbose(
                        "warning",
                        f"--ccl-worker-count {args.ccl_worker_count} does not fit beside --ncores-per-instance "
                        f"{cores}: {workers} cores of each rank are kept for communication",
                    )
                args.ccl_worker_count = workers
                cores += workers
            cores *= threads
        self.cpuinfo.gen_pools_ondemand(
            ninstances=ranks,
            ncores_per_instance=cores,
            use_logical_cores=True,
            use_e_cores=args.use_e_cores,
            bind_numa_node=args.bind_numa_node,
            nodes_list=nodes,
            strategy=args.strategy,
        )
        pools = self.cpuinfo.pools_ondemand
        if args.logical_cores_for_ccl and not self._has_logical_cores(pools, args.ccl_worker_count):
            self.verbose("warning", "--logical-cores-for-ccl: too few logical cores; physical cores are used")
            args.logical_cores_for_ccl = False
        spare = min(sum(c.is_physical_core for c in pool) for pool in pools) - 1
        assert spare >= 0, "a rank would have no physical core: lower --nprocs-per-node"
        if not args.logical_cores_for_ccl and args.ccl_worker_count > spare:
            self.verbose(
                "warning",
                f"--ccl-worker-count {args.ccl_worker_count} would leave no core for computing: a rank has "
                f"{spare + 1} physical cores, of which {spare} are kept for communication",
            )
            args.ccl_worker_count = spare

    # ---- running ----

    def launch(self, args: argparse.Namespace) -> None:
        """Runs the ranks and waits for them.

        Raises:
            AssertionError: options that contradict each other, cores that do not fit, or a bad hostfile.
            RuntimeError: several machines without mpiexec.hydra or ssh.
            subprocess.CalledProcessError: a rank failed; the others were ended.
        """
        assert not (args.logical_cores_for_ccl and args.use_logical_cores), (
            "--logical-cores-for-ccl and --use-logical-cores exclude each other: choose one"
        )
        self._warn_of_ignored(args)
        hydra = shutil.which("mpiexec.hydra")
        if args.nnodes > 1:
            args.master_addr = self._check_hosts(args.hostfile, args.nnodes)
            if not hydra:
                raise RuntimeError(
                    "--nnodes above 1 needs mpiexec.hydra on every machine: pip install impi-rt, or apt install mpich"
                )
        self._make_pools(args)
        pools = self.cpuinfo.pools_ondemand
        self.set_memory_allocator(args.memory_allocator, False, ["jemalloc"])
        self.set_omp_runtime(args.omp_runtime)
        parts = self._domains(pools, args.ccl_worker_count, args.logical_cores_for_ccl)
        pins, domains = self._pins(parts), [compute for compute, _ in parts]
        self.add_env("OMP_NUM_THREADS", min(map(len, domains)))
        self.add_env("MASTER_ADDR", args.master_addr)
        self.add_env("MASTER_PORT", args.master_port)
        self.add_env("I_MPI_PIN_DOMAIN", pins["pin_domain"])
        # Without a core of its own, a rank communicates on the core that computes. 0 would mean: no oneCCL at all.
        self.add_env("CCL_WORKER_COUNT", max(1, args.ccl_worker_count))
        self.add_env("CCL_WORKER_AFFINITY", pins["affinity"] or ",".join(str(compute[0]) for compute in domains))
        if self.ld_preload:
            self.environ_set["LD_PRELOAD"] = self.preload_text()
        for name, value in self.environ_set.items():
            self.verbose("info", f"env: {name}={value}")
        jobs = [self._hydra_job(args, hydra, domains)] if hydra else self._rank_jobs(args, domains)
        warn = functools.partial(self.verbose, "warning")
        if args.log_dir and hydra:
            try:
                run(jobs, warn)
            finally:
                self._split_log(args)
        else:
            run(jobs, warn)

    def _warn_of_ignored(self, args: argparse.Namespace) -> None:
        options = {
            "--ninstances": args.ninstances,
            "--instance-idx": args.instance_idx,
            "--cores-list": args.cores_list,
            "--latency-mode": args.latency_mode,
            "--throughput-mode": args.throughput_mode,
            "--benchmark": args.benchmark,
            "--multi-task-manager": args.multi_task_manager != "auto",
        }
        ignored = [name for name, given in options.items() if given]
        if ignored:
            self.verbose("warning", f"--nnodes starts ranks, not instances; ignored: {', '.join(ignored)}")

    def _rank_jobs(self, args: argparse.Namespace, domains: list[list[int]]) -> list[Job]:
        """The ranks of one machine as processes of ours, with every name that a program may look for."""
        inherited = {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"} | self.environ_set
        command = self.program_command(args)
        self.verbose("info", f"mpiexec.hydra is not installed: {len(domains)} ranks are started without MPI")
        self.verbose("info", f"cmd: {shlex.join(command)}")
        jobs = []
        for rank, cores in enumerate(domains):
            numbers = dict.fromkeys(("PMI_RANK", "RANK", "LOCAL_RANK", "MPI_LOCALRANKID"), rank)
            numbers |= dict.fromkeys(("PMI_SIZE", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MPI_LOCALNRANKS"), len(domains))
            environment = inherited | {name: str(number) for name, number in numbers.items()}
            logs = [Path(f"{args.log_prefix}_rank_{rank}.log")] if args.log_dir else []
            all_logs = Path(f"{args.log_prefix}.log") if args.log_dir else None
            jobs.append(Job(f"rank {rank}", command, environment, cores, f"[{rank}] ", logs, all_logs))
        return jobs

    def _hydra_job(self, args: argparse.Namespace, hydra: str, domains: list[list[int]]) -> Job:
        """One call of mpiexec.hydra, which starts the ranks on all machines."""
        ranks = args.nprocs_per_node
        command = [hydra, "-l", "-np", str(args.nnodes * ranks), "-ppn", str(ranks)]
        for name, value in self.environ_set.items():
            command += ["-genv", name, value]
        if not _is_intel_mpi(hydra):  # which reads I_MPI_PIN_DOMAIN
            command += ["-bind-to", "user:" + ",".join("+".join(map(str, cores)) for cores in domains)]
        command += shlex.split(args.extra_mpi_params)
        if args.nnodes > 1:
            command += ["-hostfile", args.hostfile]
        command += ["sh", "-c", _NAME_RANK, "ipexrun", *self.program_command(args)]
        self.verbose("info", f"cmd: {shlex.join(command)}")
        environment = {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}
        logs = [Path(f"{args.log_prefix}.log")] if args.log_dir else []
        return Job("mpiexec.hydra", command, environment, logs=logs)

    def _split_log(self, args: argparse.Namespace) -> None:
        """Writes the lines of each rank, "[3] text", into a file of its own. A full disk gives a warning."""
        try:
            self._write_logs_of_ranks(args)
        except OSError as error:
            self.verbose("warning", f"the logs of the ranks cannot be written: {error}")

    def _write_logs_of_ranks(self, args: argparse.Namespace) -> None:
        whole = Path(f"{args.log_prefix}.log")
        unclaimed = 0
        with ExitStack() as files:
            paths = (f"{args.log_prefix}_rank_{i}.log" for i in range(args.nnodes * args.nprocs_per_node))
            ranks = [files.enter_context(open(path, "wb")) for path in paths]
            for line in files.enter_context(open(whole, "rb")):
                match = re.match(rb"\[(\d+)\] ?", line)
                if match and int(match[1]) < len(ranks):
                    ranks[int(match[1])].write(line[match.end() :])
                else:
                    unclaimed += 1
        if unclaimed:
            self.verbose("warning", f"{unclaimed} lines of {whole} name no rank; they are only there")

    # ---- hosts ----

    def _check_hosts(self, hostfile: str, nnodes: int) -> str:
        """Checks the hostfile and that every other machine can be reached; returns the address of this one."""
        path = Path(hostfile)
        assert path.is_file(), (
            f"--nnodes {nnodes} needs a hostfile, and {hostfile} does not exist: write the addresses of the machines "
            "into it, one a line, this one first"
        )
        lines = (line.partition("#")[0].strip() for line in path.read_text(encoding="utf-8").splitlines())
        hosts = [re.sub(r"^([^:]+):\d+$", r"\1", line.split()[0]) for line in lines if line]  # host:ranks
        assert len(hosts) >= nnodes, f"{hostfile} names {len(hosts)} machines, and --nnodes is {nnodes}"
        assert _is_local(hosts[0]), (
            f"the first line of {hostfile}, {hosts[0]}, is not an address of this machine, which runs rank 0"
        )
        for host in hosts[1:nnodes]:
            self._check_ssh(host)
        return hosts[0]

    def _check_ssh(self, host: str) -> None:
        try:
            done = subprocess.run(
                [*_SSH, host, ":"], stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
            )
        except FileNotFoundError:
            raise RuntimeError(
                "ssh is not installed, and --nnodes above 1 needs it: apt install openssh-client"
            ) from None
        assert done.returncode == 0, (
            f"`ssh {host}` without a password fails: {done.stderr.strip()}. Copy your public key there (ssh-copy-id)"
        )
        self.verbose("info", f"ssh to {host} works")


def _is_local(host: str) -> bool:
    """Does the name or address belong to an interface of this machine? One can be bound to only if it does."""
    import socket

    try:
        addresses = socket.getaddrinfo(host, 0, type=socket.SOCK_STREAM)
    except socket.gaierror:
        return False
    for family, kind, protocol, _, address in addresses:
        with socket.socket(family, kind, protocol) as probe:
            try:
                probe.bind(address)
            except OSError:
                continue
            return True
    return False


def _is_intel_mpi(hydra: str) -> bool:
    done = subprocess.run([hydra, "--version"], capture_output=True, text=True, check=False)
    return "intel" in (done.stdout + done.stderr).lower()

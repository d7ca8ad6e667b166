"""The CPUs of the machine, and how they are shared out among the instances of a program.

`lscpu` gives the topology. CPUs that this process may not use (a cpuset of a container, `taskset`, `numactl`) and CPUs
that are offline are left out, so that nothing is ever bound to them.
"""

from __future__ import annotations

import itertools
import os
import subprocess
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

# A group of CPUs whose highest clock is lower than that of the next faster group by this share of the fastest clock
# consists of efficiency cores. Turbo frequencies of equal cores differ by less.
_GAP_OF_E_CORES = 0.15


@dataclass(eq=False)
class CoreInfo:
    """A logical CPU, as the kernel numbers it."""

    cpu: int
    core: int  # CPUs with the same number are threads of one core
    socket: int
    node: int  # NUMA node; the socket where lscpu has no column NODE
    maxmhz: float = 0.0  # 0: not known
    is_physical_core: bool = True  # the first usable thread of its core
    is_p_core: bool = True  # a performance core


class CPUPool(list):
    """A list of CoreInfo."""

    def get_pool_txt(self, return_mode: str = "auto") -> dict[str, str]:
        """The pool as arguments of `numactl` and `taskset`: {"cores": "0-3,8", "nodes": "0,1"}.

        return_mode: "list" writes every CPU, "range" writes ranges, "auto" whichever has fewer parts.
        """
        cpus = [c.cpu for c in self]
        ranges = list(_ranges(cpus))
        as_list = ",".join(map(str, cpus))
        as_ranges = ",".join(f"{first}-{last}" for first, last in ranges)
        modes = {"list": as_list, "range": as_ranges, "auto": as_list if len(cpus) <= len(ranges) else as_ranges}
        if return_mode.lower() not in modes:
            raise ValueError(f"return_mode {return_mode!r} is unknown: use one of {', '.join(modes)}")
        return {"cores": modes[return_mode.lower()], "nodes": ",".join(map(str, nodes_of(self)))}


def _ranges(numbers: Iterable[int]) -> Iterator[tuple[int, int]]:
    """Runs of consecutive numbers, as (first, last)."""
    for _, run in itertools.groupby(enumerate(numbers), lambda pair: pair[1] - pair[0]):
        members = [number for _, number in run]
        yield members[0], members[-1]


def nodes_of(pool: Iterable[CoreInfo]) -> list[int]:
    """The NUMA nodes of a pool, ascending."""
    return sorted({c.node for c in pool})


class TooFewCores(AssertionError):
    """Not a single instance of the wanted size fits."""


class CPUPoolList:
    """All usable CPUs in `pool_all`, and the groups that were asked for last in `pools_ondemand`.

    Args:
        logger: receives messages; they are printed if it is None.
        lscpu_txt: output of `lscpu --all --extended` to read instead of running the command. Then every online CPU of
            the text counts as usable.

    Raises:
        RuntimeError: `lscpu` is missing or fails.
        AssertionError: the text names no CPU that is usable.
    """

    def __init__(self, logger: Any = None, lscpu_txt: str = "") -> None:
        self.logger = logger
        self.pools_ondemand: list[CPUPool] = []
        synthetic = bool(lscpu_txt.strip())
        self.pool_all = CPUPool(_parse(lscpu_txt if synthetic else _run_lscpu()))
        if not synthetic:
            self._drop_unusable(os.sched_getaffinity(0))
        assert self.pool_all, "lscpu lists no usable CPU"
        self.pool_all.sort(key=lambda c: c.cpu)
        _mark_threads(self.pool_all)
        _mark_e_cores(self.pool_all)

    def _drop_unusable(self, usable: set[int]) -> None:
        dropped = CPUPool(c for c in self.pool_all if c.cpu not in usable)
        if dropped:
            self.pool_all = CPUPool(c for c in self.pool_all if c.cpu in usable)
            cores = dropped.get_pool_txt()["cores"]
            self.verbose("info", f"This process may not run on the CPUs {cores}; they are not used.")

    def verbose(self, level: str, message: str) -> None:
        """Logs a message of the level "info" or "warning"."""
        if self.logger:
            getattr(self.logger, level)(message)
        else:
            print(message)

    def gen_pools_ondemand(
        self,
        ninstances: int = 0,
        ncores_per_instance: int = 0,
        use_logical_cores: bool = False,
        use_e_cores: bool = False,
        bind_numa_node: bool = False,
        nodes_list: Iterable[int] | None = None,
        cores_list: Iterable[int] | None = None,
        strategy: str = "close",
        return_mode: str = "auto",
        skip_cross_node_cores: bool = False,
    ) -> None:
        """Divides the CPUs into `pools_ondemand`, one pool for each instance, each sorted by CPU.

        Args:
            ninstances: number of pools; 0: as many as fit, or one if `ncores_per_instance` is not positive either.
            ncores_per_instance: CPUs of each pool. 0: equal shares, remainder unused; -1: equal shares, of which the
                first ones get the remainder.
            use_logical_cores: take every thread of a core, not only the first.
            use_e_cores: take efficiency cores too.
            bind_numa_node: no pool spans two NUMA nodes.
            nodes_list: use only these NUMA nodes.
            cores_list: use exactly these CPUs, also if they are second threads or efficiency cores: naming them is
                asking for them. Wins over `nodes_list`.
            strategy: which pools to take when there are more than `ninstances`: "close" takes the first ones, "scatter"
                spreads them evenly.
            return_mode: accepted; `CPUPool.get_pool_txt` takes it.
            skip_cross_node_cores: the older form of `bind_numa_node`: all pools have the same size too.

        Raises:
            AssertionError: unknown CPUs or nodes, negative numbers, or more pools than fit.
            ValueError: an unknown strategy.
        """
        if strategy not in ("close", "scatter"):
            raise ValueError(f"strategy {strategy!r} is unknown: use close or scatter")
        assert ncores_per_instance >= -1, f"--ncores-per-instance {ncores_per_instance} is negative: use -1, 0 or more"
        assert ninstances >= 0, f"--ninstances {ninstances} is negative: use 0 or more"
        pool = self._candidates(use_logical_cores, use_e_cores, list(nodes_list or ()), list(cores_list or ()))
        by_node = [[c for c in pool if c.node == node] for node in nodes_of(pool)]
        if skip_cross_node_cores:
            bind_numa_node = True
            if ncores_per_instance == 0 and ninstances > 0:
                ncores_per_instance = min(map(len, by_node)) // -(-ninstances // len(by_node))
        parts = by_node if bind_numa_node else [pool]
        if ncores_per_instance > 0:
            groups = _fixed_groups(parts, ncores_per_instance)
            available = sum(map(len, groups))
            if not available:
                where = " on one NUMA node" if bind_numa_node else ""
                largest = max(map(len, parts))
                raise TooFewCores(
                    f"--ncores-per-instance {ncores_per_instance} does not fit: {largest} cores may be used{where}"
                )
            assert available >= ninstances, (
                f"--ninstances {ninstances} with --ncores-per-instance {ncores_per_instance} does not fit: {len(pool)} "
                f"cores give {available} such instances. Lower one of the two"
            )
            chosen = _choose(groups, ninstances or available, strategy)
        else:
            ninstances = max(1, ninstances)
            assert ninstances <= len(pool), (
                f"--ninstances {ninstances} is more than the {len(pool)} cores that may be used"
            )
            counts = _instances_by_part(list(map(len, parts)), ninstances)
            greedy = ncores_per_instance == -1
            chosen = [g for part, n in zip(parts, counts, strict=True) if n for g in _shares(part, n, greedy)]
        self.pools_ondemand = [CPUPool(sorted(group, key=lambda c: c.cpu)) for group in chosen]

    def _candidates(
        self, use_logical_cores: bool, use_e_cores: bool, nodes_list: list[int], cores_list: list[int]
    ) -> list[CoreInfo]:
        """The CPUs that may be used, in the order in which instances get them."""
        pool: list[CoreInfo] = self.pool_all
        if cores_list:
            unknown = sorted(set(cores_list) - {c.cpu for c in pool})
            available = self.pool_all.get_pool_txt()["cores"]
            assert not unknown, f"--cores-list has the invalid cores {unknown}: this process may use {available}"
            pool = [c for c in pool if c.cpu in set(cores_list)]
        else:
            unknown = sorted(set(nodes_list) - set(nodes_of(pool)))
            assert not unknown, f"--nodes-list has the invalid nodes {unknown}: this process may use {nodes_of(pool)}"
            pool = [c for c in pool if not nodes_list or c.node in nodes_list]
            if not use_logical_cores:
                pool = self._without([c for c in pool if not c.is_physical_core], pool, "Logical", "logical")
            if not use_e_cores:
                pool = self._without([c for c in pool if not c.is_p_core], pool, "Efficiency", "e")
        assert pool, "no core is left: the chosen nodes have efficiency cores only; give --use-e-cores"
        # Nodes first: where the kernel numbers the cores of the nodes alternately, neighbours by number are far apart.
        return sorted(pool, key=lambda c: (c.node, c.core, not c.is_physical_core, c.cpu))

    def _without(self, unwanted: list[CoreInfo], pool: list[CoreInfo], kind: str, option: str) -> list[CoreInfo]:
        if not unwanted:
            return pool
        cores = CPUPool(unwanted).get_pool_txt()["cores"]
        self.verbose("info", f"{kind} cores {cores} are not used. --use-{option}-cores uses them too.")
        removed = {c.cpu for c in unwanted}
        return [c for c in pool if c.cpu not in removed]


# ---- reading ----


def _run_lscpu() -> str:
    try:
        done = subprocess.run(
            ["lscpu", "--all", "--extended"],
            env={**os.environ, "LC_ALL": "C"},
            capture_output=True,
            text=True,
            check=True,
        )
    except FileNotFoundError:
        raise RuntimeError("lscpu is not installed: install the package util-linux") from None
    except subprocess.CalledProcessError as error:
        raise RuntimeError(f"lscpu fails with status {error.returncode}: {error.stderr.strip()}") from None
    return done.stdout


def _parse(text: str) -> Iterator[CoreInfo]:
    """The CPUs of a table whose header names its columns. Offline CPUs have no core, or `no` in the column ONLINE."""
    header: list[str] = []
    for line in text.splitlines():
        fields = line.lower().split()
        if {"cpu", "core", "socket"} <= set(fields):
            header = fields
            continue
        if not header or len(fields) != len(header):
            continue
        row = dict(zip(header, fields, strict=True))
        if row.get("online") == "no" or not all(row[name].isdigit() for name in ("cpu", "core", "socket")):
            continue
        node = row.get("node", "")
        yield CoreInfo(
            cpu=int(row["cpu"]),
            core=int(row["core"]),
            socket=int(row["socket"]),
            node=int(node if node.isdigit() else row["socket"]),
            maxmhz=_number(row.get("maxmhz", "")),
        )


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:  # "-" where the kernel knows no frequency
        return 0.0


def _mark_threads(pool: list[CoreInfo]) -> None:
    """Cores are numbered by machine in `lscpu --extended`, but by socket in some virtual machines."""
    seen = set()
    for c in pool:
        c.is_physical_core = (c.socket, c.core) not in seen
        seen.add((c.socket, c.core))


def _mark_e_cores(pool: list[CoreInfo]) -> None:
    speeds = sorted({c.maxmhz for c in pool if c.maxmhz > 0})
    for slower, faster in itertools.pairwise(speeds):
        if faster - slower >= _GAP_OF_E_CORES * speeds[-1]:
            for c in pool:
                c.is_p_core = not 0 < c.maxmhz <= slower
            return


# ---- dividing ----


def _shares(cores: list[CoreInfo], n: int, greedy: bool) -> list[list[CoreInfo]]:
    """`cores` in n equal groups. greedy: the first ones take the remainder, which else stays unused."""
    size, rest = divmod(len(cores), n)
    ends = itertools.accumulate([size + (greedy and i < rest) for i in range(n)], initial=0)
    return [cores[first:last] for first, last in itertools.pairwise(ends)]


def _instances_by_part(sizes: list[int], ninstances: int) -> list[int]:
    """How many instances each node runs.

    Each node gets its share of the instances by its number of cores, rounded up, and at least one. Those that are then
    too many are taken from the node whose instances are the smallest; with fewer instances than nodes, the nodes with
    the fewest cores, the last of equal ones first, run none.
    """
    total = sum(sizes)
    counts = [max(1, -(-ninstances * size // total)) for size in sizes]
    for _ in range(sum(counts) - ninstances):
        several = [i for i, n in enumerate(counts) if n > 1]
        if not several:
            break
        counts[min(several, key=lambda i: sizes[i] / counts[i])] -= 1
    surplus = sum(counts) - ninstances
    for i in sorted(range(len(sizes)), key=lambda i: (sizes[i], -i))[:surplus]:
        counts[i] = 0
    return counts


def _fixed_groups(parts: list[list[CoreInfo]], size: int) -> list[list[list[CoreInfo]]]:
    """By part, its groups of `size` cores; what is left over stays unused."""
    return [[part[i : i + size] for i in range(0, len(part) - size + 1, size)] for part in parts]


def _choose(groups: list[list[list[CoreInfo]]], n: int, strategy: str) -> list[list[CoreInfo]]:
    """n of the groups."""
    every = list(itertools.chain.from_iterable(groups))
    if strategy == "close":
        return every[:n]
    if len(groups) == 1:
        spread = every[:: -(-len(every) // n)]
        # Where equal distances give too few, the distances differ by one.
        return spread if len(spread) == n else [every[i * len(every) // n] for i in range(n)]
    # In turns from each node.
    taken = [0] * len(groups)
    for i in itertools.islice((i for i in itertools.cycle(range(len(groups))) if taken[i] < len(groups[i])), n):
        taken[i] += 1
    return [group for part, count in zip(groups, taken, strict=True) for group in part[:count]]

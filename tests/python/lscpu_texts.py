"""Output of `lscpu --all --extended` for machines that the tests do not have."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass
class Cpu:
    node: int
    core: int  # of the machine
    thread: int
    maxmhz: float


def by_node(c: Cpu) -> tuple:
    """All threads of a node, then the next node: first threads, second threads, efficiency cores."""
    return c.node, -c.maxmhz, c.thread, c.core


def by_thread(c: Cpu) -> tuple:
    """The first threads of all cores, then the second ones, then the efficiency cores."""
    return -c.maxmhz, c.thread, c.node, c.core


def by_core(c: Cpu) -> tuple:
    """The threads of a core are neighbours."""
    return c.node, -c.maxmhz, c.core, c.thread


def alternating(c: Cpu) -> tuple:
    """Neighbouring numbers are on different nodes, as some firmware counts."""
    return c.thread, c.core, c.node


def machine(
    nodes: int,
    cores: int,
    threads: int = 2,
    e_cores: int = 0,
    order: Callable[[Cpu], tuple] = by_thread,
    nodes_per_socket: int = 1,
    header: str = "CPU NODE SOCKET CORE L1d:L1i:L2:L3 ONLINE MAXMHZ MINMHZ",
    offline: frozenset[int] = frozenset(),
) -> str:
    """The text for `nodes` NUMA nodes of `cores` cores each. CPUs are numbered in the given order."""
    cpus = []
    for node in range(nodes):
        first = node * (cores + e_cores)
        cpus += [Cpu(node, first + i, t, 5000.0) for i in range(cores) for t in range(threads)]
        cpus += [Cpu(node, first + cores + i, 0, 3800.0) for i in range(e_cores)]
    if order is alternating:  # lscpu numbers the cores in the order of the CPUs
        for c in cpus:
            c.core -= c.node * (cores + e_cores)
        cpus.sort(key=order)
        for c in cpus:
            c.core = c.core * nodes + c.node
    else:
        cpus.sort(key=order)
    lines = [header]
    for number, c in enumerate(cpus):
        row = {
            "CPU": number,
            "NODE": c.node,
            "SOCKET": c.node // nodes_per_socket,
            "CORE": c.core,
            "L1d:L1i:L2:L3": f"{c.core}:{c.core}:{c.core}:{c.node}",
            "ONLINE": "yes",
            "MAXMHZ": f"{c.maxmhz:.4f}",
            "MINMHZ": "800.0000",
        }
        if number in offline:
            row = dict.fromkeys(row, "-") | {"CPU": number, "ONLINE": "no"}
        lines.append(" ".join(f"{row[name]:>5}" for name in header.split()))
    return "\n".join(lines)

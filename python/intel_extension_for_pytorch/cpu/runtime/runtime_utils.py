"""The cores of this machine, as the kernel numbers them."""

from __future__ import annotations

from ..._C import get_cores_of_node, get_numa_nodes


def get_num_nodes() -> int:
    """The number of NUMA nodes that have cores."""
    return len(get_numa_nodes())


def get_num_cores_per_node() -> int:
    """The number of cores of the largest NUMA node."""
    return max(len(get_cores_of_node(node)) for node in get_numa_nodes())


def get_core_list_of_node_id(node_id: int) -> list[int]:
    """The first CPU of each online core of a NUMA node, in ascending order, from the kernel's list of the node's CPUs.
    Whether this process may use them does not matter. Raises RuntimeError if there is no such node."""
    return get_cores_of_node(node_id)

"""Which cores `ipexrun` gives to each instance and rank, on machines that the tests describe as text."""

import os

import pytest
from intel_extension_for_pytorch.cpu.launch import CPUPoolList, DistributedTrainingLauncher
from lscpu_texts import alternating, by_core, by_node, by_thread, machine


def groups(text, nodes=False, **arguments):
    """The cores, or the nodes, of each instance."""
    pools = CPUPoolList(lscpu_txt=text)
    pools.gen_pools_ondemand(**arguments)
    return [pool.get_pool_txt()["nodes" if nodes else "cores"] for pool in pools.pools_ondemand]


def every(first, last, step):
    return ",".join(map(str, range(first, last, step)))


# ---- two sockets of 28 cores with two threads ----

TWO = {order.__name__: machine(2, 28, order=order) for order in (by_node, by_thread, by_core, alternating)}


@pytest.mark.parametrize(
    ("order", "expected"),
    [
        ("by_node", ["0-27", "56-83"]),
        ("by_thread", ["0-27", "28-55"]),
        ("by_core", [every(0, 55, 2), every(56, 111, 2)]),
        ("alternating", [every(0, 56, 2), every(1, 56, 2)]),
    ],
)
def test_two_instances_are_two_nodes(order, expected):
    for arguments in ({"ninstances": 2}, {"ncores_per_instance": 28}, {"ninstances": 2, "bind_numa_node": True}):
        assert groups(TWO[order], **arguments) == expected
        assert groups(TWO[order], nodes=True, **arguments) == ["0", "1"]


@pytest.mark.parametrize(
    ("order", "expected"),
    [
        ("by_node", ["0-13", "14-27", "56-69", "70-83"]),
        ("by_thread", ["0-13", "14-27", "28-41", "42-55"]),
        ("by_core", [every(0, 28, 2), every(28, 56, 2), every(56, 84, 2), every(84, 112, 2)]),
        ("alternating", [every(0, 28, 2), every(28, 56, 2), every(1, 28, 2), every(29, 56, 2)]),
    ],
)
def test_four_instances(order, expected):
    assert groups(TWO[order], ninstances=4) == groups(TWO[order], ncores_per_instance=14) == expected
    assert groups(TWO[order], nodes=True, ninstances=4) == ["0", "0", "1", "1"]


def test_one_instance_takes_every_physical_core():
    assert groups(TWO["by_thread"]) == groups(TWO["by_thread"], ninstances=1) == ["0-55"]
    assert groups(TWO["by_thread"], nodes=True) == ["0,1"]
    everything = CPUPoolList(lscpu_txt=TWO["by_node"]).pool_all
    assert len(everything) == 112 and everything.get_pool_txt() == {"cores": "0-111", "nodes": "0,1"}


def test_shares_that_do_not_divide():
    assert groups(TWO["by_core"], ninstances=3) == [every(0, 36, 2), every(36, 72, 2), every(72, 108, 2)]
    assert groups(TWO["by_core"], nodes=True, ninstances=3) == ["0", "0,1", "1"]
    assert groups(TWO["by_thread"], ninstances=3) == ["0-17", "18-35", "36-53"]
    assert groups(TWO["by_thread"], ninstances=3, ncores_per_instance=-1) == ["0-18", "19-37", "38-55"]


def test_bound_instances():
    """Three instances on two nodes: the instances of the node that has two of them are smaller."""
    text = TWO["by_thread"]
    assert groups(text, ninstances=3, bind_numa_node=True) == ["0-27", "28-41", "42-55"]
    assert groups(text, ncores_per_instance=20, bind_numa_node=True) == ["0-19", "28-47"]
    assert groups(text, ncores_per_instance=20) == ["0-19", "20-39"]
    assert groups(text, ninstances=1, bind_numa_node=True) == ["0-27"]
    uneven = groups(machine(4, 14), ninstances=2, cores_list=[*range(14), *range(14, 18)], bind_numa_node=True)
    assert uneven == ["0-13", "14-17"]


def test_skip_cross_node_cores():
    """The older form of bind_numa_node gives all instances the same size."""
    text = TWO["by_thread"]
    assert groups(text, ninstances=3, skip_cross_node_cores=True) == ["0-13", "14-27", "28-41"]
    logical = groups(text, ninstances=7, use_logical_cores=True, skip_cross_node_cores=True)
    assert logical == [f"{i}-{i + 6},{i + 56}-{i + 62}" for i in range(0, 49, 7)]
    chosen = {"ninstances": 3, "nodes_list": [1, 2], "use_logical_cores": True, "skip_cross_node_cores": True}
    assert groups(machine(4, 14), **chosen) == ["14-20,70-76", "21-27,77-83", "28-34,84-90"]


def test_logical_cores():
    assert groups(TWO["by_thread"], ninstances=2, use_logical_cores=True) == ["0-27,56-83", "28-55,84-111"]
    assert groups(TWO["by_core"], ninstances=2, use_logical_cores=True) == ["0-55", "56-111"]
    assert groups(TWO["by_thread"], ncores_per_instance=4, ninstances=1, use_logical_cores=True) == ["0-1,56-57"]


def test_cores_list():
    named = [*range(14, 28), *range(42, 56)]
    assert groups(TWO["by_thread"], ninstances=2, cores_list=named) == ["14-27", "42-55"]
    # Second threads that are named are used.
    assert groups(TWO["by_node"], cores_list=named) == ["14-27,42-55"]
    assert groups(TWO["by_node"], nodes=True, cores_list=named) == ["0"]
    assert groups(TWO["by_core"], ninstances=2, cores_list=[*range(14, 28), *range(98, 112)]) == ["14-27", "98-111"]
    assert groups(TWO["by_thread"], cores_list=[3, 1], nodes_list=[1]) == ["1,3"]


def test_nodes_list():
    assert groups(machine(4, 14, order=by_node), nodes_list=[1, 2]) == ["28-41,56-69"]
    assert groups(machine(4, 14, order=by_thread), nodes_list=[1, 2], ninstances=2) == ["14-27", "28-41"]
    assert groups(machine(4, 14, order=by_core), nodes_list=[1, 2]) == [every(28, 83, 2)]
    assert groups(machine(4, 14, order=by_core), nodes=True, nodes_list=[1, 2]) == ["1,2"]


def test_strategies():
    text = machine(1, 12, threads=1)
    assert groups(text, ninstances=3, ncores_per_instance=2, strategy="close") == ["0-1", "2-3", "4-5"]
    assert groups(text, ninstances=3, ncores_per_instance=2, strategy="scatter") == ["0-1", "4-5", "8-9"]
    assert groups(text, ninstances=4, ncores_per_instance=1, strategy="scatter") == ["0", "3", "6", "9"]
    assert groups(text, ninstances=5, ncores_per_instance=1, strategy="scatter") == ["0", "2", "4", "7", "9"]
    assert groups(text, ninstances=2, ncores_per_instance=4, strategy="scatter") == ["0-3", "8-11"]
    # As many as asked for, also where the step does not divide.
    assert groups(text, ninstances=4, ncores_per_instance=2, strategy="scatter") == ["0-1", "2-3", "6-7", "8-9"]
    two = machine(2, 12, threads=1)
    bound = {"ncores_per_instance": 4, "bind_numa_node": True, "strategy": "scatter"}
    assert groups(two, ninstances=2, **bound) == ["0-3", "12-15"]
    assert groups(two, ninstances=3, **bound) == ["0-3", "4-7", "12-15"]
    assert groups(two, ninstances=6, **bound) == ["0-3", "4-7", "8-11", "12-15", "16-19", "20-23"]


# ---- other machines ----


@pytest.mark.parametrize(
    ("order", "expected"),
    [
        (by_node, ["0-27", "60-87"]),
        (by_thread, ["0-27", "28-55"]),
        (by_core, [every(0, 55, 2), every(60, 115, 2)]),
    ],
)
def test_efficiency_cores(order, expected):
    text = machine(2, 28, e_cores=4, order=order)
    assert groups(text, ninstances=2) == expected
    with_e = CPUPoolList(lscpu_txt=text)
    with_e.gen_pools_ondemand(use_e_cores=True)
    assert sum(not c.is_p_core for c in with_e.pools_ondemand[0]) == 8


def test_turbo_cores_are_not_efficiency_cores():
    text = machine(1, 4, threads=1).replace("5000.0000", "5700.0000", 1)
    assert groups(text) == ["0-3"]


@pytest.mark.parametrize("header", ["CPU SOCKET CORE ONLINE", "CPU CORE SOCKET NODE", "CPU NODE SOCKET CORE MAXMHZ"])
def test_columns(header):
    text = machine(2, 4, header=header)
    assert groups(text, ninstances=2) == ["0-3", "4-7"]
    assert groups(text, nodes=True, ninstances=2) == ["0", "1"]


def test_frequencies_that_are_not_known():
    text = machine(1, 4, threads=1).replace("5000.0000", "-")
    assert groups(text) == ["0-3"]


def test_sub_numa_clusters():
    """Two sockets of two nodes each: instances are bound to nodes, not to sockets."""
    text = machine(4, 8, threads=1, nodes_per_socket=2)
    assert groups(text, ninstances=4, bind_numa_node=True) == ["0-7", "8-15", "16-23", "24-31"]
    assert groups(text, nodes_list=[1]) == ["8-15"]


def test_offline_cores():
    """CPU 0 is off: its sibling is the physical core now."""
    text = machine(2, 4, offline=frozenset({0, 3, 11}))
    assert groups(text, nodes_list=[0]) == ["1-2,8-8"]
    with pytest.raises(AssertionError, match=r"invalid cores \[0\]"):
        groups(text, cores_list=[0, 1])


def test_one_core():
    text = machine(1, 1, threads=1)
    assert groups(text) == groups(text, ninstances=1, bind_numa_node=True) == ["0"]
    with pytest.raises(AssertionError, match="more than the 1 cores"):
        groups(text, ninstances=2)


def test_only_usable_cpus_of_this_machine():
    pools = CPUPoolList()
    assert {c.cpu for c in pools.pool_all} == os.sched_getaffinity(0)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"cores_list": [0, 200]}, r"invalid cores \[200\]"),
        ({"nodes_list": [0, 2]}, r"invalid nodes \[2\]"),
        ({"ninstances": -1}, "--ninstances -1"),
        ({"ncores_per_instance": -2}, "--ncores-per-instance -2"),
        ({"ninstances": 3, "ncores_per_instance": 28}, "--ninstances 3 with --ncores-per-instance 28"),
        ({"ncores_per_instance": 57}, "--ncores-per-instance 57"),
    ],
)
def test_wrong_arguments(arguments, message):
    with pytest.raises(AssertionError, match=message):
        groups(TWO["by_thread"], **arguments)


def test_unknown_words():
    with pytest.raises(ValueError, match="nearby"):
        groups(TWO["by_thread"], strategy="nearby")
    with pytest.raises(AssertionError, match="no usable CPU"):
        CPUPoolList(lscpu_txt="lscpu: failed")
    pool = CPUPoolList(lscpu_txt=machine(1, 3, threads=1)).pool_all
    texts = {mode: pool.get_pool_txt(mode)["cores"] for mode in ("auto", "list", "range")}
    assert texts == {"auto": "0-2", "list": "0,1,2", "range": "0-2"}
    with pytest.raises(ValueError, match="tree"):
        pool.get_pool_txt("tree")


# ---- ranks ----


def pins(text, workers, logical=False, **arguments):
    launcher = DistributedTrainingLauncher(lscpu_txt=text)
    launcher.cpuinfo.gen_pools_ondemand(use_logical_cores=True, **arguments)
    return launcher.get_pin_domain_affinity(launcher.cpuinfo.pools_ondemand, workers, logical_cores_for_ccl=logical)


def test_pin_domains():
    text = TWO["by_thread"]
    physical = {"pin_domain": "[0xffffff0,0xffffff00000000]", "affinity": "0,1,2,3,28,29,30,31"}
    assert pins(text, 4, ninstances=2) == physical
    logical = {"pin_domain": "[0xfffffff,0xfffffff0000000]", "affinity": "56,57,58,59,84,85,86,87"}
    assert pins(text, 4, logical=True, ninstances=2) == logical
    # Without second threads, physical cores communicate.
    assert pins(machine(2, 28, threads=1), 4, logical=True, ninstances=2) == physical
    some = pins(machine(4, 14), 2, ninstances=2, nodes_list=[1, 2])
    assert some == {"pin_domain": "[0xfff0000,0x3ffc0000000]", "affinity": "14,15,28,29"}
    fixed = pins(text, 4, ninstances=2, ncores_per_instance=24)
    assert fixed == {"pin_domain": "[0xff0,0xff0000]", "affinity": "0,1,2,3,12,13,14,15"}
    hybrid = pins(machine(2, 28, e_cores=4, order=by_node), 4, logical=True, ninstances=2)
    assert hybrid == {"pin_domain": "[0xfffffff,0xfffffff000000000000000]", "affinity": "28,29,30,31,88,89,90,91"}


def test_no_core_left_for_computing():
    with pytest.raises(AssertionError, match="ccl_worker_count 28 leaves no core"):
        pins(TWO["by_thread"], 28, ninstances=2)

"""`ipexrun cpu --nnodes 2` on two machines: two network namespaces of this one, connected by a cable and by ssh."""

import os
import shutil
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest
from launching import hydra, start

SUM = """
import os, torch, torch.distributed as dist
dist.init_process_group("gloo")
total = torch.tensor([dist.get_rank() + 1.0])
dist.all_reduce(total)
rank = f"rank {dist.get_rank()} of {dist.get_world_size()} local {os.environ['LOCAL_RANK']}"
network = os.readlink("/proc/self/ns/net")
os.write(1, f"{rank} on {network} sum {total.item()}\\n".encode())
dist.barrier()
dist.destroy_process_group()
"""
ADDRESSES = ("10.213.7.1", "10.213.7.2")
CABLE = "ipexcable"  # the interface, in both namespaces


def run(*command, **arguments):
    return subprocess.run(list(map(str, command)), check=True, capture_output=True, text=True, **arguments)


@pytest.fixture
def machines(tmp_path):
    """Two namespaces, of which the second runs sshd; and a folder with an `ssh` that logs in there."""
    for tool, package in (("ip", "iproute2"), ("sshd", "openssh-server"), ("ssh", "openssh-client")):
        if not (shutil.which(tool) or Path("/usr/sbin", tool).exists()):
            pytest.skip(f"Debian's {package} is not installed")
    if os.geteuid():
        pytest.skip("network namespaces need root")
    names = [f"ipex{os.getpid()}{side}" for side in "ab"]
    daemon = None
    made = []
    try:
        for name in names:
            try:
                run("ip", "netns", "add", name)
            except subprocess.CalledProcessError as error:
                pytest.skip(f"network namespaces are not allowed here: {error.stderr.strip()}")
            made.append(name)
        run("ip", "-n", names[0], "link", "add", CABLE, "type", "veth", "peer", "name", CABLE, "netns", names[1])
        for name, address in zip(names, ADDRESSES, strict=True):
            run("ip", "-n", name, "address", "add", f"{address}/24", "dev", CABLE)
            for link in ("lo", CABLE):
                run("ip", "-n", name, "link", "set", link, "up")
        daemon = start_sshd(tmp_path, names[1])
        yield names, str(tmp_path / "bin")
    finally:
        if daemon:
            daemon.terminate()
            daemon.wait(10)
        for name in made:
            with suppress(subprocess.CalledProcessError):
                run("ip", "netns", "delete", name)


def start_sshd(folder, namespace):
    """sshd in a namespace, with keys of its own, and the client for it."""
    for name in ("host", "user"):
        run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", folder / name)
    (folder / "sshd").write_text(
        f"HostKey {folder}/host\nAuthorizedKeysFile {folder}/user.pub\nStrictModes no\nUsePAM no\nPidFile none\n"
        f"PasswordAuthentication no\nPermitRootLogin yes\nListenAddress {ADDRESSES[1]}\n"
    )
    (folder / "known").write_text("")
    (folder / "bin").mkdir()
    client = folder / "bin" / "ssh"
    options = f"-i {folder}/user -o UserKnownHostsFile={folder}/known -o StrictHostKeyChecking=accept-new"
    client.write_text(f'#!/bin/sh\nexec {shutil.which("ssh")} -F none {options} "$@"\n')
    client.chmod(0o755)
    Path("/run/sshd").mkdir(exist_ok=True)
    sshd = shutil.which("sshd") or "/usr/sbin/sshd"
    daemon = subprocess.Popen(["ip", "netns", "exec", namespace, sshd, "-D", "-e", "-f", str(folder / "sshd")])
    for _ in range(100):
        listening = run("ip", "netns", "exec", namespace, "ss", "-ltn").stdout
        if f"{ADDRESSES[1]}:22" in listening:
            return daemon
        assert daemon.poll() is None, "sshd ended"
        time.sleep(0.05)
    daemon.terminate()
    raise AssertionError("sshd does not listen")


@pytest.mark.nightly
def test_two_machines(machines, tmp_path):
    (first, second), ssh = machines
    path = os.pathsep.join([ssh, str(hydra("mpich")), os.environ["PATH"]])
    program = tmp_path / "sum.py"
    program.write_text(SUM)
    (tmp_path / "hosts").write_text("\n".join(ADDRESSES))
    options = ["--nnodes", 2, "--nprocs-per-node", 1, "--hostfile", tmp_path / "hosts", "--ccl-worker-count", 0]
    inside = ("ip", "netns", "exec", first)
    process = start(*options, program, prefix=inside, PATH=path, GLOO_SOCKET_IFNAME=CABLE)
    output, messages = process.communicate(timeout=120)
    assert process.returncode == 0, output + messages
    assert f"ssh to {ADDRESSES[1]} works" in messages and f"MASTER_ADDR={ADDRESSES[0]}" in messages
    networks = [
        run("ip", "netns", "exec", name, sys.executable, "-c", "import os; print(os.readlink('/proc/self/ns/net'))")
        for name in (first, second)
    ]
    expected = [
        f"[{i}] rank {i} of 2 local 0 on {network.stdout.strip()} sum 3.0" for i, network in enumerate(networks)
    ]
    assert sorted(output.splitlines()) == expected, messages

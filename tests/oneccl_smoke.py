"""Tries an installed oneccl_bind_pt: python tests/oneccl_smoke.py, with the Python of a fresh environment.

It checks what other packages look at, sources the scripts, and adds tensors of two ranks that torchrun starts, and of
two that have an MPI launcher's variables.
"""

import os
import socket
import subprocess
import sys
from importlib import metadata

RANK = """
import torch, MODULE
import torch.distributed as dist
dist.init_process_group("ccl")
x = torch.full((4,), dist.get_rank() + 1.0)
dist.all_reduce(x)
assert x.tolist() == [3.0] * 4 and dist.get_backend() == "ccl", (x, dist.get_backend())
dist.destroy_process_group()
"""


def check_scripts(module):
    command = f"""
    set -eu
    folder=$({sys.executable} -c "import torch, {module}; print({module}.cwd)")
    source $folder/env/vars.sh; source $folder/env/setvars.sh; path=$PATH; source $folder/env/setvars.sh
    [[ $PATH == "$path" && -d $CCL_ROOT ]]
    """
    subprocess.run(["bash", "-c", command], check=True)


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as server:
        return str(server.getsockname()[1])


def check_torchrun(module):
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "--no-python"]
    subprocess.run([*command, sys.executable, "-c", RANK.replace("MODULE", module)], check=True)


def check_mpi(module):
    common = os.environ | {"PMI_SIZE": "2", "MPI_LOCALNRANKS": "2", "MASTER_PORT": free_port()}
    command = [sys.executable, "-c", RANK.replace("MODULE", module)]
    ranks = [subprocess.Popen(command, env=common | {"PMI_RANK": rank, "MPI_LOCALRANKID": rank}) for rank in "01"]
    assert [rank.wait(120) for rank in ranks] == [0, 0]


def main():
    assert metadata.version("oneccl_bind_pt") == metadata.version("oneccl-bind-pt") >= "1.12"
    for module in ("oneccl_bindings_for_pytorch", "torch_ccl"):
        check_scripts(module)
        check_torchrun(module)
        check_mpi(module)
    print(f"oneccl_bind_pt {metadata.version('oneccl_bind_pt')}, torch {metadata.version('torch')}: works")


if __name__ == "__main__":
    main()

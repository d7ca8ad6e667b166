"""Ranks that an MPI launcher started, as `init_method="env://"` names them.

torchrun sets RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR and MASTER_PORT. mpirun and mpiexec set names of their own.
"""

from __future__ import annotations

from collections.abc import MutableMapping

# Rank, ranks, rank on this machine, ranks on this machine.
_FAMILIES = (
    ("PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"),  # hydra: Intel MPI, MPICH
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"),
    ("MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_SIZE", "MV2_COMM_WORLD_LOCAL_RANK", "MV2_COMM_WORLD_LOCAL_SIZE"),
)


def complete_environment(environment: MutableMapping[str, str]) -> None:
    """Sets the variables of env:// that are missing, from those of an MPI launcher.

    Nothing changes where RANK or WORLD_SIZE is set, or where no launcher has set both a rank and the number of ranks.
    MASTER_ADDR and MASTER_PORT become 127.0.0.1 and 29500, torch.distributed's usual port, only if all ranks run on
    this machine. A job on several machines has to name its first one in MASTER_ADDR.
    """
    if "RANK" in environment or "WORLD_SIZE" in environment:
        return
    for rank, size, local_rank, local_size in _FAMILIES:
        if rank not in environment or size not in environment:
            continue
        environment["RANK"], environment["WORLD_SIZE"] = environment[rank], environment[size]
        if local_rank in environment:
            environment.setdefault("LOCAL_RANK", environment[local_rank])
        if environment.get(local_size) == environment[size]:
            environment.setdefault("MASTER_ADDR", "127.0.0.1")
            environment.setdefault("MASTER_PORT", "29500")
        return

"""Registers the `torch.distributed` backend "ccl" for CPU tensors.

    import oneccl_bindings_for_pytorch
    torch.distributed.init_process_group("ccl")

Importing it imports torch, and does two things, each of them once:

- the backend is registered. It is PyTorch's gloo, with sums in shared memory where that is possible (`backend.py`).
  It has every collective, with send and recv, in fp16, bf16, fp32, fp64 and integers;
- ranks started by an MPI launcher get the variables of `init_method="env://"` that are not set (`launched.py`).

Raises ImportError if this PyTorch has no `torch.distributed` or no gloo.
"""

from __future__ import annotations

import logging
import os
from importlib import metadata
from pathlib import Path

import torch
import torch.distributed as dist

from .backend import create
from .launched import complete_environment

__all__ = ["__version__", "cwd", "is_available", "set_env_default"]

cwd = str(Path(__file__).resolve().parent)
"""The folder of this package, for `source <cwd>/env/setvars.sh`."""

try:
    __version__ = metadata.version("oneccl_bind_pt")
except metadata.PackageNotFoundError:  # used from its source folder
    __version__ = "0"

_log = logging.getLogger(__name__)

# Variables of oneCCL that scripts set.
_WITHOUT_EFFECT = ("CCL_WORKER_COUNT", "CCL_WORKER_AFFINITY", "CCL_ATL_TRANSPORT")


def is_available(tensors: object = None) -> bool:
    """Whether the backend takes these tensors: always, as for oneCCL."""
    return True


def set_env_default(name: str, value: str) -> None:
    """Sets an environment variable that is not set."""
    os.environ.setdefault(name, value)


def _register() -> None:
    """Registers the backend, unless it is. Another package's backend of this name stays."""
    if "ccl" in dist.Backend.backend_list:
        return
    dist.Backend.register_backend("ccl", create, devices=["cpu"])
    ignored = [f"{name}={os.environ[name]}" for name in _WITHOUT_EFFECT if name in os.environ]
    if ignored:
        _log.info("no effect on this backend: %s", ", ".join(ignored))


if not dist.is_available() or not dist.is_gloo_available():
    raise ImportError(
        "oneccl_bindings_for_pytorch needs a PyTorch with torch.distributed and its gloo backend; "
        f"torch {torch.__version__} in {Path(torch.__file__).parent} was built without them",
        name=__name__,
    )
complete_environment(os.environ)
_register()

"""Settings of TorchScript models, and what C++ programs that run them need to build."""

from __future__ import annotations

from pathlib import Path

import torch

from . import _C

# For CMAKE_PREFIX_PATH: find_package(IPEX) finds its file there.
cmake_prefix_path = str(Path(_C.__file__).resolve().parent / "share" / "cmake")


def enable_onednn_fusion(enabled: bool) -> None:
    """Whether frozen TorchScript models are compiled when they first run. On by default. A model that has been compiled
    stays so."""
    torch.ops.torch_ipex.enable_onednn_fusion(bool(enabled))

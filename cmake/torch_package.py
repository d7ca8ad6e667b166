"""The PyTorch that a build is made for, and the version of the package that follows from it.

CMake runs this file and reads one line: version;folder of the torch package;value of _GLIBCXX_USE_CXX11_ABI;version of
PyTorch. The build backend of pyproject.toml calls `dynamic_metadata`. Both need PyTorch in the environment of the
build, as a CPU build or a CUDA build; neither needs a CUDA toolkit.
"""

from __future__ import annotations

import importlib.metadata

# Our version is PyTorch's major and minor version, which other packages compare, and our own third number.
RELEASE = 0


def torch_series() -> str:
    """PyTorch's major and minor version: "2.14"."""
    try:
        installed = importlib.metadata.version("torch")
    except importlib.metadata.PackageNotFoundError:
        raise SystemExit(
            "error: this build needs PyTorch in its environment: pip install torch, then pip install "
            "--no-build-isolation"
        ) from None
    return ".".join(installed.split(".")[:2])


def package_version() -> str:
    return f"{torch_series()}.{RELEASE}"


def dynamic_metadata(settings: dict[str, str], project: dict[str, object]) -> dict[str, object]:
    """The package's version, and its requirement of the PyTorch that it is built for. Other requirements are in
    pyproject.toml."""
    return {"version": f"{package_version()}+cpu", "dependencies": [f"torch=={torch_series()}.*"]}


if __name__ == "__main__":
    from pathlib import Path

    import torch

    print(
        package_version(), Path(torch.__file__).parent, int(torch.compiled_with_cxx11_abi()), torch.__version__, sep=";"
    )

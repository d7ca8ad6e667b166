"""The name of `oneccl_bindings_for_pytorch` before version 1.12. Importing it does the same."""

from pathlib import Path

from oneccl_bindings_for_pytorch import __version__, is_available, set_env_default

__all__ = ["__version__", "cwd", "is_available", "set_env_default"]

cwd = str(Path(__file__).resolve().parent)

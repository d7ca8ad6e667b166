"""Runs a script, or a module (`-m NAME`), after `enable()`: what the processes of `accelerate launch` start with."""

from __future__ import annotations

import os
import runpy
import sys

from . import enable


def main(arguments: list[str]) -> None:
    """Runs `arguments`, a path or `-m NAME` and what follows, as `python` would run them."""
    enable()
    if arguments[0] == "-m":
        sys.argv = arguments[1:]
        runpy.run_module(arguments[1], run_name="__main__", alter_sys=True)
    else:
        sys.argv = arguments
        sys.path[0] = os.path.dirname(os.path.abspath(arguments[0]))
        runpy.run_path(arguments[0], run_name="__main__")


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(f"usage: python -m {__package__}._run SCRIPT [ARGUMENTS], or -m MODULE [ARGUMENTS]")
    main(sys.argv[1:])

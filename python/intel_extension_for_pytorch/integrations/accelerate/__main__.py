"""The command `accelerate` after `enable()`: `python -m intel_extension_for_pytorch.integrations.accelerate ...`.

It takes the arguments of `accelerate`. `launch` enables the started processes too, `config` asks whether models are to
be optimized, and `test` runs accelerate's test script through `launch`. Besides these, `run SCRIPT` and `run -m MODULE`
run a script after `enable()` in this process: for other launchers, and what the processes of `launch` are.
"""

from __future__ import annotations

import contextlib
import os
import runpy
import sys
from typing import Any

from . import enable
from ._patches import Patches, module, need, patched

# The text of the releases that asked it.
QUESTION = "Do you want to use Intel PyTorch Extension (IPEX) to speed up training on CPU? [yes/NO]:"
USAGE = f"python -m {__package__} run SCRIPT [ARGUMENTS], or run -m MODULE [ARGUMENTS]"


def _ask(patches: Patches) -> None:
    """Lets `accelerate config` ask for IPEX before its own questions, unless it has that question itself."""
    config = module("accelerate.commands.config.config")
    utilities = module("accelerate.commands.config.config_utils")
    cluster = module("accelerate.commands.config.cluster")
    get_user_input = need(config, "get_user_input")
    if "ipex_config" in need(cluster, "get_cluster_input").__code__.co_varnames:
        return

    def get_user_input_and_ipex() -> Any:
        answer = utilities._ask_field(
            QUESTION,
            utilities._convert_yes_no_to_bool,
            default=False,
            error_message="Please enter yes or no.",
        )
        found = get_user_input()
        if hasattr(found, "ipex_config"):  # a configuration for SageMaker has none
            found.ipex_config = {"ipex": answer}
        return found

    patches.replace(config, "get_user_input", get_user_input_and_ipex)


def _test(patches: Patches) -> None:
    """Lets `accelerate test` launch by this command."""
    test = module("accelerate.commands.test")
    execute = need(test, "execute_subprocess_async")

    def execute_enabled(command: list[str], *args: Any, **options: Any) -> Any:
        if command[0] == "accelerate-launch":
            command = [sys.executable, "-m", __package__, "launch", *command[1:]]
        return execute(command, *args, **options)

    patches.replace(test, "execute_subprocess_async", execute_enabled)


def run(arguments: list[str]) -> None:
    """Runs `arguments`, a path or `-m NAME` and what follows, as `python` would run them, after `enable()`."""
    if not arguments or arguments == ["-m"]:
        sys.exit(f"usage: {USAGE}")
    with contextlib.suppress(ImportError):
        import transformers.training_args  # noqa: F401 - enable() changes only what is imported
    enable()
    if arguments[0] == "-m":
        sys.argv = arguments[1:]
        runpy.run_module(arguments[1], run_name="__main__", alter_sys=True)
    else:
        sys.argv = arguments
        sys.path[0] = os.path.dirname(os.path.abspath(arguments[0]))
        runpy.run_path(arguments[0], run_name="__main__")


def main() -> None:
    """Runs the command in `sys.argv`."""
    if sys.argv[1:2] == ["run"]:
        run(sys.argv[2:])
        return
    enable()
    from accelerate.commands.accelerate_cli import main as accelerate_main

    with patched() as patches:
        _ask(patches)
        _test(patches)
        accelerate_main()


if __name__ == "__main__":
    main()

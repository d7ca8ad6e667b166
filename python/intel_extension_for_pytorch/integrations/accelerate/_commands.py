"""The steps of `enable()` that the command line sees: configuration files, options, and the launched processes."""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import functools
import os
from collections.abc import Callable
from typing import Any

from ...utils import _logger
from ._patches import Patches, module, need
from ._settings import FUSION, USE, Settings, truth

# Keys of `ipex_config` in the releases that wrote it, and the option of `accelerate launch` that each stands for.
_KEYS = {"ipex": "ipex", "ipex_enabled": "ipex", "ipex_fusion_enabled": "ipex_fusion_enabled"}


def read_ipex_config(patches: Patches) -> None:
    """The key ipex_config of configuration files.

    The class of configurations gets the field that it had until 1.12, so that files are read, written and updated with
    it, and `launch` copies its entries to its arguments as those of every other part.
    """
    config_args = module("accelerate.commands.config.config_args")
    base, cluster = need(config_args, "BaseConfig"), need(config_args, "ClusterConfig")
    process, fields = need(base, "process_config"), need(cluster, "__dataclass_fields__")

    @functools.wraps(process)
    def process_config(config_dict: dict[str, Any]) -> dict[str, Any]:
        config = process(config_dict)
        if config.get("ipex_config"):
            config["ipex_config"] = ipex_config(config["ipex_config"])
        return config

    patches.replace(base, "process_config", staticmethod(process_config))
    if "ipex_config" in fields:
        return
    initialize = cluster.__init__

    @functools.wraps(initialize)
    def __init__(self: Any, *args: Any, ipex_config: dict[str, Any] | None = None, **more: Any) -> None:
        initialize(self, *args, **more)
        self.ipex_config = ipex_config or {}

    patches.replace(cluster, "__init__", __init__)
    field = dataclasses.field(default=None)
    field.name, field.type = "ipex_config", dict
    fields["ipex_config"] = field
    patches.add(lambda: fields.pop("ipex_config"))


def ipex_config(given: Any) -> dict[str, bool]:
    """The part `ipex_config` of a configuration file, as `accelerate config` of 1.7 wrote it.

    Raises ValueError for keys and values that mean nothing, and for entries that contradict each other.
    """
    if not isinstance(given, dict):
        raise ValueError(f"ipex_config: expected entries such as `ipex: true`, got {given!r}")
    entries: dict[str, bool] = {}
    for key, value in given.items():
        if key == "use_xpu" and not truth(value, f"ipex_config: {key}"):
            continue
        if key not in _KEYS:
            raise ValueError(f"ipex_config: unknown key {key!r}; known are {', '.join(_KEYS)}")
        found = truth(value, f"ipex_config: {key}")
        if entries.setdefault(_KEYS[key], found) != found:
            raise ValueError("ipex_config: ipex and ipex_enabled mean the same and have different values")
    Settings(entries.get("ipex", True), entries.get("ipex_fusion_enabled", False))
    return entries


def add_options(patches: Patches) -> None:
    """The options --ipex, --ipex_enabled, --ipex_fusion_enabled and --mpirun_ccl of accelerate launch."""
    launch = module("accelerate.commands.launch")
    cli = module("accelerate.commands.accelerate_cli")
    make = need(launch, "launch_command_parser")

    @functools.wraps(make)
    def launch_command_parser(subparsers: Any = None) -> argparse.ArgumentParser:
        parser = make(subparsers)
        add = functools.partial(_add_unless_there, parser.add_argument)
        optimize = "Optimize models and optimizers with ipex.optimize in Accelerator.prepare."
        add("--ipex", default=False, action="store_true", help=optimize)
        add("--ipex_enabled", dest="ipex", default=False, action="store_true", help="The same as --ipex.")
        add(
            "--ipex_fusion_enabled",
            default=False,
            action="store_true",
            help="With --ipex: compile models that are prepared for inference.",
        )
        add("--mpirun_ccl", type=int, default=None, help="CCL_WORKER_COUNT of the processes that mpirun starts.")
        return parser

    patches.replace(launch, "launch_command_parser", launch_command_parser)
    if getattr(cli, "launch_command_parser", None) is make:
        patches.replace(cli, "launch_command_parser", launch_command_parser)


def _add_unless_there(add: Callable[..., Any], name: str, **how: Any) -> None:
    with contextlib.suppress(argparse.ArgumentError):
        add(name, **how)


def launch_enabled(patches: Patches) -> None:
    """enable() in the processes that accelerate launch starts."""
    launch = module("accelerate.commands.launch")
    simple, distributed = need(launch, "prepare_simple_launcher_cmd_env"), need(launch, "prepare_multi_gpu_env")

    @functools.wraps(simple)
    def prepare_simple_launcher_cmd_env(args: argparse.Namespace) -> tuple[list[str], dict[str, str]]:
        _run_enabled(args)
        command, environment = simple(args)
        return command, _completed(environment, args)

    @functools.wraps(distributed)
    def prepare_multi_gpu_env(args: argparse.Namespace) -> dict[str, str]:
        _run_enabled(args)
        return _completed(distributed(args), args)

    patches.replace(launch, "prepare_simple_launcher_cmd_env", prepare_simple_launcher_cmd_env)
    patches.replace(launch, "prepare_multi_gpu_env", prepare_multi_gpu_env)


def _run_enabled(args: argparse.Namespace) -> None:
    """Lets the launched processes run the script by __main__.py."""
    if args.no_python:
        _logger.logger.warning(
            "--no_python: the started program gets the settings in %s and %s, and must call enable() itself",
            USE,
            FUSION,
        )
        return
    script = [*(["-m"] if args.module else []), args.training_script]
    args.training_script_args = ["run", *script, *args.training_script_args]
    args.training_script, args.module = __package__, True


def _completed(environment: dict[str, str], args: argparse.Namespace) -> dict[str, str]:
    wanted = Settings(truth(args.ipex, "--ipex"), truth(args.ipex_fusion_enabled, "--ipex_fusion_enabled"))
    environment |= {USE: str(wanted.use).lower(), FUSION: str(wanted.fusion).lower()}
    if args.mpirun_hostfile is not None and args.mpirun_ccl is not None:  # until 1.12 it has a default
        environment["CCL_WORKER_COUNT"] = str(args.mpirun_ccl)
    # Since 1.13 accelerate sets this for CPUs. Where Intel's OpenMP library is preloaded, the threads of every rank
    # would be pinned to the same cores.
    if (args.num_processes or 1) > 1 and "KMP_AFFINITY" not in os.environ:
        environment.pop("KMP_AFFINITY", None)
    return environment


STEPS = (read_ipex_config, add_options, launch_enabled)

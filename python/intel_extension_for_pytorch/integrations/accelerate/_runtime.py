"""The steps of `enable()` that scripts see: names of backends, arguments of `Accelerator`, and `prepare`."""

from __future__ import annotations

import functools
import inspect
import sys
from typing import Any

import accelerate

from ._patches import Missing, Patches, module, need
from ._prepare import prepared
from ._settings import settings


def name_the_compiler(patches: Patches) -> None:
    """The compiler's name, dynamo_backend="ipex".

    The enumeration of backends gets the member that it had until 1.12; the list for the command line gets its name.
    """
    backends = need(accelerate.utils, "DynamoBackend")
    if "IPEX" not in need(backends, "__members__"):
        maps = [need(backends, name) for name in ("_member_map_", "_value2member_map_")]
        member = str.__new__(backends, "IPEX")
        member._name_, member._value_ = "IPEX", "IPEX"
        member.__objclass__ = backends
        member._sort_order_ = len(backends)
        backends.IPEX = member  # before the maps know it: members cannot be assigned to
        for each in maps:
            each["IPEX"] = member
        backends._member_names_.append("IPEX")

        def undo() -> None:
            backends._member_names_.remove("IPEX")
            for each in maps:
                del each["IPEX"]
            del backends.IPEX

        patches.add(undo)
        if backends("IPEX") is not member or member not in list(backends):
            raise Missing("accelerate.utils.DynamoBackend takes no new member")
    names = need(module("accelerate.commands.config.config_utils"), "DYNAMO_BACKENDS")
    if "IPEX" not in names:
        names.append("IPEX")
        patches.add(lambda: names.remove("IPEX"))


def take_arguments(patches: Patches) -> None:
    """The arguments Accelerator(use_ipex=, do_fusion=)."""
    initialize = need(accelerate.Accelerator, "__init__")
    if "use_ipex" in inspect.signature(initialize).parameters:
        raise Missing("Accelerator has an argument use_ipex of its own")

    @functools.wraps(initialize)
    def __init__(
        self: Any, *args: Any, use_ipex: bool | None = None, do_fusion: bool | None = None, **more: Any
    ) -> None:
        for name, value in (("use_ipex", use_ipex), ("do_fusion", do_fusion)):
            if value is not None and not isinstance(value, bool):
                raise TypeError(f"Accelerator: {name} must be True, False or None, got {value!r}")
        wanted = settings(use_ipex, do_fusion)
        initialize(self, *args, **more)
        self.use_ipex, self.do_fusion = wanted.use, wanted.fusion

    patches.replace(accelerate.Accelerator, "__init__", __init__)


def optimize_in_prepare(patches: Patches) -> None:
    """ipex.optimize in Accelerator.prepare."""
    prepare = need(accelerate.Accelerator, "prepare")
    if "device_placement" not in inspect.signature(prepare).parameters:
        raise Missing("Accelerator.prepare has no argument device_placement")

    @functools.wraps(prepare)
    def prepare_optimized(self: Any, *args: Any, **options: Any) -> Any:
        wanted = settings(getattr(self, "use_ipex", None), getattr(self, "do_fusion", None))
        return prepare(self, *prepared(self, args, wanted), **options)

    patches.replace(accelerate.Accelerator, "prepare", prepare_optimized)
    # Until 1.12 there is a step that accepts one model and one optimizer, and since 1.8 does nothing on this PyTorch.
    own = getattr(accelerate.Accelerator, "_prepare_ipex", None)
    if own is not None:

        def _prepare_ipex(self: Any, *args: Any) -> Any:
            return args if self.device.type == "cpu" else own(self, *args)

        patches.replace(accelerate.Accelerator, "_prepare_ipex", _prepare_ipex)


def accept_ccl(patches: Patches) -> None:
    """The process group backend "ccl"."""
    state = need(accelerate.state, "PartialState")
    choose = need(state, "_prepare_backend")
    if "backend" not in inspect.signature(choose).parameters:
        raise Missing("PartialState._prepare_backend has no argument backend")

    @functools.wraps(choose)
    def _prepare_backend(self: Any, cpu: bool = False, sagemaker_dp: bool = False, backend: str | None = None) -> Any:
        if backend != "ccl":
            return choose(self, cpu, sagemaker_dp, backend)
        chosen, distributed_type = choose(self, cpu, sagemaker_dp, None)
        if distributed_type != accelerate.utils.DistributedType.MULTI_CPU:
            raise ValueError(
                'the backend "ccl" is for several processes on CPUs: start them with ipexrun, torchrun or mpirun, and '
                "use Accelerator(cpu=True), or use_cpu=True of TrainingArguments; or leave the backend out"
            )
        try:
            import oneccl_bindings_for_pytorch  # noqa: F401 - registers the backend
        except ImportError as error:
            raise ImportError(
                f'the backend "ccl" needs the package oneccl_bind_pt, which this project builds; without it there is '
                f"{chosen!r}"
            ) from error
        return "ccl", distributed_type

    patches.replace(state, "_prepare_backend", _prepare_backend)
    arguments = sys.modules.get("transformers.training_args")
    if arguments is not None:
        field = need(arguments, "TrainingArguments").__dataclass_fields__.get("ddp_backend")
        choices = field.metadata.get("choices") if field else None  # of the command line
        if choices and "ccl" not in choices:
            choices.append("ccl")
            patches.add(lambda: choices.remove("ccl"))


STEPS = (name_the_compiler, take_arguments, optimize_in_prepare, accept_ccl)

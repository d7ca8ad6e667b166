"""`ipex.optimize` and the backend "ipex" in Hugging Face Accelerate, in releases without IPEX support of their own.

Accelerate applied IPEX until release 1.7, and removed the last of it in 1.13. `enable()` brings it back in a script:

    from intel_extension_for_pytorch.integrations.accelerate import enable

    enable()
    accelerator = Accelerator(mixed_precision="bf16", cpu=True)
    model, optimizer, data = accelerator.prepare(model, optimizer, data)

`python -m intel_extension_for_pytorch.integrations.accelerate launch script.py` does the same for a script that stays
as it is. It takes the arguments of the command `accelerate`, and the older options and configuration files for IPEX.
docs/accelerate.md describes both. Nothing is changed before `enable()`, and `disable()` takes every change back.
"""

from __future__ import annotations

from ._patches import Missing, Patches

__all__ = ["TESTED_VERSIONS", "disable", "enable", "is_enabled"]

# Releases of Accelerate that the tests run with. Others work if they have the names that the steps look for.
TESTED_VERSIONS = ("1.7", "1.12", "1.13", "1.14", "1.15")


class _State:
    patches: Patches | None = None


def enable() -> None:
    """Lets Accelerate optimize models for the CPU and compile them by this backend. A second call changes nothing.

    Call it before the `Accelerator` is made. From then on:

    - `Accelerator.prepare` calls `ipex.optimize`, as docs/accelerate.md says, and `Accelerator(use_ipex=, do_fusion=)`
      turns that off, or compiles models for inference too. Without these arguments the environment variables
      ACCELERATE_USE_IPEX (true by default) and ACCELERATE_USE_IPEX_FUSION (false by default) decide;
    - `dynamo_backend="ipex"` and Trainer's `torch_compile_backend="ipex"` name this package's compiler;
    - the process group backend "ccl" is accepted, if oneccl_bindings_for_pytorch is installed, and Trainer's option
      `--ddp_backend ccl`, if transformers is imported;
    - `accelerate launch` takes `--ipex` (or `--ipex_enabled`), `--ipex_fusion_enabled` and `--mpirun_ccl`, and
      configuration files may contain `ipex_config`.

    Raises ImportError if Accelerate is not installed, and RuntimeError if this release lacks something that one of the
    steps needs. The error names the steps; all others are in effect.
    """
    if _State.patches is not None:
        return
    try:
        import accelerate
    except ImportError as error:
        raise ImportError("enable() needs Hugging Face Accelerate: pip install accelerate") from error
    from . import _commands, _runtime

    patches, failed = Patches(), {}
    for step in (*_runtime.STEPS, *_commands.STEPS):
        mark = len(patches)
        try:
            step(patches)
        except Missing as missing:
            patches.undo(down_to=mark)
            failed[(step.__doc__ or step.__name__).splitlines()[0].rstrip(".")] = missing
    _State.patches = patches
    if failed:
        lines = "".join(f"\n  {title}: {missing}" for title, missing in failed.items())
        raise RuntimeError(
            f"accelerate {accelerate.__version__} differs from the releases that were tested "
            f"({', '.join(TESTED_VERSIONS)}). Not in effect:{lines}\nInstall a tested release, or catch this error: "
            "the other steps of enable() are in effect"
        )


def disable() -> None:
    """Takes back every change of `enable()`. Models and optimizers that were prepared stay as they are."""
    patches, _State.patches = _State.patches, None
    if patches is not None:
        patches.undo()


def is_enabled() -> bool:
    """Is `enable()` in effect?"""
    return _State.patches is not None

"""Whether a script wants `ipex.optimize`, and whether models for inference are compiled too ("fusion")."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

USE = "ACCELERATE_USE_IPEX"
FUSION = "ACCELERATE_USE_IPEX_FUSION"
_USE_IN_0_19 = "IPEX_ENABLED"
_WORDS = {
    **dict.fromkeys(("1", "y", "yes", "t", "true", "on"), True),
    **dict.fromkeys(("0", "n", "no", "f", "false", "off"), False),
}


@dataclass(frozen=True)
class Settings:
    """What `Accelerator.prepare` does. `fusion` implies `use`."""

    use: bool
    fusion: bool

    def __post_init__(self) -> None:
        if self.fusion and not self.use:
            raise ValueError(
                "fusion (do_fusion, ipex_fusion_enabled) compiles what ipex.optimize has prepared: turn on use_ipex "
                "(--ipex, ipex_config: {ipex: true}) too"
            )


def truth(value: Any, where: str) -> bool:
    """The bool that a value of a configuration file or an environment variable means."""
    found = value if isinstance(value, bool) else _WORDS.get(str(value).strip().lower())
    if found is None:
        raise ValueError(f"{where}: expected true or false, got {value!r}")
    return found


def _from_environment(default: bool, *names: str) -> bool:
    for name in names:
        if os.environ.get(name, "") != "":
            return truth(os.environ[name], f"environment variable {name}")
    return default


def settings(use: bool | None = None, fusion: bool | None = None) -> Settings:
    """The settings: what is not None, then the environment, then "use it, without fusion"."""
    if use is None:
        use = _from_environment(True, USE, _USE_IN_0_19)
    if fusion is None:
        fusion = use and _from_environment(False, FUSION)
    return Settings(use, fusion)

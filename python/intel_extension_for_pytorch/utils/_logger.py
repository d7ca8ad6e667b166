"""The logger "IPEX" of the eager-side API. Importing it sets up no handler and no level."""

from __future__ import annotations

import logging
from typing import Literal

Kind = Literal["NotSupported", "MissingDependency", "MissingArgument", "WrongArgument"]
logger = logging.getLogger("IPEX")


def warn(message: str, kind: Kind) -> None:
    """Logs a warning that begins with its kind: "[NotSupported]Can't ..."."""
    logger.warning("[%s]%s", kind, message)


def set_logging_level(level: int | str) -> None:
    """Sets the level of the logger "IPEX": a number or a name of the module `logging`.

    Raises ValueError for an unknown name.
    """
    logger.setLevel(level.upper() if isinstance(level, str) else level)

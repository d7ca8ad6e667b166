"""The form of the launchers' options: each is accepted with - and with _ between its words."""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from typing import Any


class Option:
    """A row of an option table.

    name: with -. help: text. Other arguments are those of `add_argument`; without a default it is a switch.
    """

    def __init__(self, name: str, *, help: str, short: str = "", **arguments: Any) -> None:
        underscores = "--" + name.removeprefix("--").replace("-", "_")
        self.names = [n for n in (short, name, underscores if underscores != name else "") if n]
        self.arguments = arguments if "default" in arguments else {"action": "store_true", **arguments}
        self.arguments["help"] = help


def add_options(parser: argparse.ArgumentParser, title: str, options: Iterable[Option]) -> None:
    """Adds a group of options to a parser."""
    group = parser.add_argument_group(title)
    for option in options:
        group.add_argument(*option.names, **option.arguments)

"""The form of the launchers' options: each is accepted with - and with _ between its words."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Sequence
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


class _ProgramAction(argparse.Action):
    """Stores a program and its arguments as `program` and `program_args`."""

    def __call__(self, parser: Any, namespace: Any, values: Any, option_string: str | None = None) -> None:
        words: Sequence[str] = values[1:] if values[0] == "--" else values  # "--" ends the options before the program
        if not words:
            parser.error("the following arguments are required: program")
        namespace.program, *namespace.program_args = words


def add_program(parser: argparse.ArgumentParser, help: str) -> None:
    """Adds the program and its arguments, which begin where the options end.

    One argument takes both: with two, argparse would take a "--" after the program for its own.
    """
    parser.add_argument("program", nargs=argparse.PARSER, action=_ProgramAction, help=help)

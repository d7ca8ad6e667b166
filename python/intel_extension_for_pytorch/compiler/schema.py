"""Matches the arguments of a call with the op's schema."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


def named_arguments(target: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> dict[str, Any]:
    """All arguments by their names in the op's schema, with defaults filled in."""
    schema = target._schema.arguments
    defaults = {a.name: a.default_value for a in schema if a.has_default_value()}
    return {**defaults, **dict(zip((a.name for a in schema), args, strict=False)), **kwargs}


def in_schema_order(schema: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> list[Any]:
    values = list(args)
    for argument in schema.arguments[len(args) :]:
        values.append(kwargs[argument.name] if argument.name in kwargs else argument.default_value)
    return values

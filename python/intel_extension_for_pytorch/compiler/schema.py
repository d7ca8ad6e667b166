"""Arguments of a call by the op's schema."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


def named_arguments(target: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> dict[str, Any]:
    """Arguments by the names that the op's schema gives them, with its defaults."""
    schema = target._schema.arguments
    defaults = {a.name: a.default_value for a in schema if a.has_default_value()}
    return {**defaults, **dict(zip((a.name for a in schema), args, strict=False)), **kwargs}


def in_schema_order(schema: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> list[Any]:
    values = list(args)
    for argument in schema.arguments[len(args) :]:
        values.append(kwargs[argument.name] if argument.name in kwargs else argument.default_value)
    return values

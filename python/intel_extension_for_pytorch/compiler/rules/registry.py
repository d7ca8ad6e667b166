"""The registry of import rules, one per ATen op or overload."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...errors import InternalError

Rule = Callable[..., Any]
RULES: dict[str, Rule] = {}


def rule(*names: str) -> Callable[[Rule], Rule]:
    """Registers a rule for ATen base names ("add") or overloads ("max.dim"). Each name has at most one rule."""

    def register(function: Rule) -> Rule:
        for name in names:
            if name in RULES:
                raise InternalError(f"{name} has two import rules")
            RULES[name] = function
        return function

    return register

"""The command `ipexc`: look at the installation, look at what becomes of a model."""

from __future__ import annotations

import argparse
import importlib.util
import json
import sys
from pathlib import Path
from typing import Any


def main(arguments: list[str] | None = None) -> int:
    """Runs one command; returns the exit status."""
    parser = argparse.ArgumentParser(prog="ipexc", description="The compiler of Intel Extension for PyTorch.")
    commands = parser.add_subparsers(dest="command", required=True)
    env = commands.add_parser("env", help="target, versions, threads and knobs")
    env.add_argument("--json", action="store_true", help="as JSON")
    explain = commands.add_parser("explain", help="what the compiler makes of a model")
    explain.add_argument("model", help="file.py:function, which returns (model, inputs)")
    explain.add_argument("--json", action="store_true", help="as JSON")
    options = parser.parse_args(arguments)
    return {"env": _env, "explain": _explain}[options.command](options)


def _env(options: argparse.Namespace) -> int:
    from .environment import environment, environment_text

    print(json.dumps(environment(), indent=2) if options.json else environment_text())
    return 0


def _explain(options: argparse.Namespace) -> int:
    from .errors import UserError

    try:
        model, inputs = _load(options.model)
    except UserError as error:
        print(f"ipexc: {error}", file=sys.stderr)
        return 2
    from .explain import explain

    explanation = explain(model, **inputs) if isinstance(inputs, dict) else explain(model, *inputs)
    print(json.dumps(explanation.to_dict(), indent=2) if options.json else explanation)
    return 0


def _load(spec: str) -> tuple[Any, Any]:
    """Calls `function` of `file.py:function`; it returns a model and its inputs, a tuple or a dict."""
    from .errors import UserError

    path, _, function = spec.rpartition(":")
    if not path or not Path(path).is_file():
        raise UserError(f"{spec!r} is not file.py:function")
    module_spec = importlib.util.spec_from_file_location(Path(path).stem, path)
    module = importlib.util.module_from_spec(module_spec)
    sys.modules[module_spec.name] = module
    module_spec.loader.exec_module(module)
    if not hasattr(module, function):
        raise UserError(f"{path} has no function {function!r}")
    return getattr(module, function)()


if __name__ == "__main__":
    sys.exit(main())

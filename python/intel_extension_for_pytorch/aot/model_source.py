"""Models and inputs as given on the command line: `model.pt2`, `module:factory` or `file.py:factory`."""

from __future__ import annotations

import importlib
import importlib.util
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from ..compiler.values import DTYPE_NAMES
from ..errors import UserError

_INPUT = re.compile(r"^(?:(?P<name>\w+)=)?(?P<dtype>\w+)\[(?P<sizes>[^\]]*)\]$")
_SIZE = re.compile(r"^(?:(?P<factor>\d+)\*)?(?P<name>[A-Za-z_]\w*)(?P<offset>[+-]\d+)?$")
_DYNAMIC = re.compile(r"^(?P<name>\w+)=(?P<low>\d+)\.\.(?P<high>\d+)$")


def exported(
    model: str, inputs: Sequence[str], dynamic: Sequence[str]
) -> tuple[torch.export.ExportedProgram, dict[str, str]]:
    """Loads a .pt2 file, or exports the model that a factory returns.

    `inputs`: texts such as "x=f32[batch,128]". A size is a number or the name of a dynamic size, optionally with a
    factor and an offset: "2*batch+1". `dynamic`: the ranges of these sizes, as "batch=1..64". Returns the program, and
    a dict from its symbols ("s0") to these names. Raises UserError."""
    if model.endswith(".pt2"):
        if inputs or dynamic:
            raise UserError(f"{model} is already exported: --input and --dynamic do not apply")
        try:
            return torch.export.load(model), {}
        except Exception as error:
            raise UserError(f"cannot read {model}: {error}") from error
    ranges = {}
    for text in dynamic:
        match = _DYNAMIC.match(text)
        if not match or int(match["low"]) >= int(match["high"]):
            raise UserError(f"{text!r} is not NAME=LOW..HIGH")
        ranges[match["name"]] = torch.export.Dim(match["name"], min=int(match["low"]), max=int(match["high"]))
    module, args, kwargs = module_and_inputs(model, inputs, ranges)
    shapes: Any = None
    if ranges:
        if not inputs:
            raise UserError('--dynamic needs --input with named sizes, for example "x=f32[batch,128]"')
        used = [{d: size.of(ranges[size.name]) for d, size in _open_sizes(text, ranges).items()} for text in inputs]
        shapes = dict(zip(kwargs, used, strict=True)) if kwargs else tuple(used)
    try:
        with torch.no_grad():
            program = torch.export.export(module, args, kwargs, dynamic_shapes=shapes)
    except Exception as error:
        raise UserError(f"torch.export cannot export {model}: {error}") from error
    return program, _size_names(program, inputs, ranges)


def module_and_inputs(
    model: str, inputs: Sequence[str], ranges: dict[str, Any] | None = None
) -> tuple[torch.nn.Module, tuple, dict[str, Any]]:
    """The module that the factory returns, in eval mode, and its inputs: from `inputs` if given, else from the
    factory."""
    made = _factory(model)()
    given: Any = ()
    if isinstance(made, tuple):
        made, given = made
    if not isinstance(made, torch.nn.Module):
        raise UserError(f"{model} returns a {type(made).__name__} instead of a module, or a module and its inputs")
    if not inputs and given == ():
        raise UserError(f'{model} returns no inputs: describe them, for example --input "x=f32[1,128]"')
    if inputs:
        tensors = [_example(text, ranges or {}) for text in inputs]
        if any(name for name, _ in tensors) and not all(name for name, _ in tensors):
            raise UserError("either all --input have a name, or none")
        given = dict(tensors) if tensors[0][0] else tuple(tensor for _, tensor in tensors)
    args, kwargs = ((), dict(given)) if isinstance(given, dict) else (tuple(given), {})
    return made.eval(), args, kwargs


def _factory(spec: str) -> Any:
    place, _, name = spec.rpartition(":")
    if not place or not name:
        raise UserError(f"{spec!r} is neither a .pt2 file, nor module:factory, nor file.py:factory")
    try:
        if place.endswith(".py"):
            found = importlib.util.spec_from_file_location(Path(place).stem, place)
            module = importlib.util.module_from_spec(found)
            sys.modules[found.name] = module
            found.loader.exec_module(module)
        else:
            sys.path.insert(0, "")
            module = importlib.import_module(place)
    except (ImportError, OSError) as error:
        raise UserError(f"cannot import {place}: {error}") from error
    if not hasattr(module, name):
        raise UserError(f"{place} has no function {name!r}")
    return getattr(module, name)


@dataclass(frozen=True)
class _OpenSize:
    """A dynamic size: factor * name + offset."""

    name: str
    factor: int
    offset: int

    def of(self, size: Any) -> Any:
        """The value for `size`, an int or torch.export.Dim. (Dim * 1 would be another Dim, so it is avoided.)"""
        size = size if self.factor == 1 else self.factor * size
        return size + self.offset if self.offset else size


def _parsed(text: str, ranges: dict[str, Any]) -> tuple[str, torch.dtype, list[int | _OpenSize]]:
    match = _INPUT.match(text.replace(" ", ""))
    dtypes = {name: dtype for dtype, name in DTYPE_NAMES.items()}
    if not match or match["dtype"] not in dtypes:
        raise UserError(f"{text!r} is not [NAME=]DTYPE[SIZES]; the dtypes are {', '.join(dtypes)}")
    sizes = [_size(size, text, ranges) for size in match["sizes"].split(",") if size]
    return match["name"] or "", dtypes[match["dtype"]], sizes


def _size(size: str, text: str, ranges: dict[str, Any]) -> int | _OpenSize:
    if size.isdigit():
        return int(size)
    match = _SIZE.match(size)
    if not match:
        raise UserError(f"{text!r}: {size} is neither a number nor a named size such as batch, 2*batch or batch+1")
    if match["name"] not in ranges:
        raise UserError(f"{text!r}: give the range of {match['name']}, for example --dynamic {match['name']}=1..64")
    return _OpenSize(match["name"], int(match["factor"] or 1), int(match["offset"] or 0))


def _example(text: str, ranges: dict[str, Any]) -> tuple[str, torch.Tensor]:
    name, dtype, sizes = _parsed(text, ranges)
    # Use sizes of at least 2: torch.export specializes on a size of 1.
    values = {name: min(max(limits.min, 2), limits.max) for name, limits in ranges.items()}
    shape = [size if isinstance(size, int) else size.of(values[size.name]) for size in sizes]
    if dtype.is_floating_point:
        return name, torch.randn(shape).to(dtype)
    return name, torch.zeros(shape, dtype=dtype)


def _open_sizes(text: str, ranges: dict[str, Any]) -> dict[int, _OpenSize]:
    return {d: size for d, size in enumerate(_parsed(text, ranges)[2]) if isinstance(size, _OpenSize)}


def _size_names(program: torch.export.ExportedProgram, inputs: Sequence[str], ranges: dict[str, Any]) -> dict[str, str]:
    placeholders = {node.name: node for node in program.graph.nodes if node.op == "placeholder"}
    names = {}
    for position, text in zip(program.graph_signature.user_inputs, inputs, strict=False):
        name = _parsed(text, ranges)[0] or position
        for dim, size in _open_sizes(text, ranges).items():
            (symbol,) = placeholders[name].meta["val"].shape[dim].node.expr.free_symbols
            names[str(symbol)] = size.name
    return names

"""Ahead-of-time compilation: `ipex.aot.compile(exported_program, path)` and `ipex.aot.load(path)`.

An artifact is one file that runs without a compiler: in Python with `load`, in C++ with `ipex/model.h`. It contains
machine code, so load only artifacts from a source you trust.
"""

from __future__ import annotations

import importlib
import json
import re
import time
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from .. import _C, torch_private
from ..compiler import segments, tracing
from ..compiler.decompose import ahead_of_time_decompositions
from ..compiler.importer import import_graph
from ..compiler.sizes import print_expression
from ..compiler.values import node_source
from ..errors import GraphFallback, Unsupported, UserError
from ..torch_private import pytree

ISAS = ("avx2", "avx512", "avx512_bf16")
_NO_LIMIT = 2**63 - 1


@dataclass
class Report:
    """The result of `compile`.

    Attributes: `path` of the artifact; `isas` that it contains; `steps` of the program for the best of them;
    `extern_ops`, the ops that call ATen; `bytes`, the size of the file; `seconds`, the time by stage ("decompose",
    "import", "compile", "write").
    """

    path: str
    isas: list[str]
    steps: list[dict[str, Any]]
    extern_ops: list[str]
    bytes: int
    seconds: dict[str, float] = field(default_factory=dict)


def compile(
    program: torch.export.ExportedProgram,
    path: str | Path,
    *,
    isa: Sequence[str] | str | None = None,
    dtype: torch.dtype | None = None,
    weights: str = "embed",
    extern_ops: bool = True,
) -> Report:
    """Compiles an exported program for inference and writes it as an artifact.

    :param program: the result of `torch.export.export`. Its dynamic sizes stay dynamic, within their range constraints.
    :param path: the file to write.
    :param isa: one or more of "avx2", "avx512" and "avx512_bf16", as a sequence or comma-separated. Every machine can
        compile for all of them. Default: the best that this machine supports.
    :param dtype: `torch.bfloat16` compiles as under autocast. Default: the program's own types.
    :param weights: "embed", or "extern" to write the weights to `<path>.weights`.
    :param extern_ops: whether ops without a native lowering may stay ATen calls. Such an artifact needs libtorch.
    :returns: a Report.
    :raises UserError: for invalid options, and for models that cannot be compiled. The message names the op and the
        model's source line.

    Example::

        program = torch.export.export(model.eval(), (torch.randn(1, 3, 224, 224),))
        ipex.aot.compile(program, "model.ipex", isa="avx2,avx512")
    """
    if weights not in ("embed", "extern"):
        raise UserError(f"weights must be 'embed' or 'extern', not {weights!r}")
    compilation = Compilation(program, isa=isa, dtype=dtype, extern_ops=extern_ops)
    return compilation.write(path, embed=weights == "embed")


class Compilation:
    """A program compiled for one or more ISAs, in memory. The arguments are those of `compile`."""

    def __init__(
        self,
        program: torch.export.ExportedProgram,
        *,
        isa: Sequence[str] | str | None = None,
        dtype: torch.dtype | None = None,
        extern_ops: bool = True,
        size_names: dict[str, str] | None = None,
    ) -> None:
        """`size_names`: symbol of the program ("s0") -> its name in the artifact's descriptions and messages."""
        if not isinstance(program, torch.export.ExportedProgram):
            raise UserError(f"compile needs an ExportedProgram (torch.export.export), not a {type(program).__name__}")
        self.isas = _parse_isas(isa)
        self.seconds: dict[str, float] = {}
        start = time.perf_counter()
        program = _decompose(program, dtype)
        _refuse_side_effects(program)
        written = _write_back(program)
        self.seconds["decompose"] = -start + (start := time.perf_counter())
        self._arguments = _Arguments(program, written)
        imported = _import(program, self._arguments)
        self.seconds["import"] = -start + (start := time.perf_counter())
        if imported.externs and not extern_ops:
            ops = "; ".join(f"{op} at {imported.extern_sources[op]} ({why})" for op, why in imported.externs.items())
            raise UserError(f"these ops have no native lowering: {ops}")
        self._structures = _structures(program)
        self._compiled = _C.Compilation(
            imported.graph,
            imported.arguments,
            imported.symbols,
            imported.outputs,
            self._arguments.inputs,
            _result_names(program),
            _sizes(program, imported.graph.symbols(), size_names or {}),
            _conditions(program, imported.graph.symbols(), size_names or {}),
            self.isas,
        )
        self.seconds["compile"] = time.perf_counter() - start

    def write(self, path: str | Path, *, embed: bool = True) -> Report:
        """Writes the artifact. `embed`: with its weights, else they go to `<path>.weights`."""
        start = time.perf_counter()
        self._compiled.write(str(path), self._arguments.weights, embed, self._structures)
        self.seconds["write"] = time.perf_counter() - start
        bytes = Path(path).stat().st_size
        return Report(
            str(path), self.isas, self._compiled.steps(), self._compiled.extern_ops(), bytes, dict(self.seconds)
        )

    def kernels(self, form: str) -> dict[str, str]:
        """The kernels of each ISA as text. `form`: "cpp", "loop", "llvm" or "asm"."""
        return self._compiled.kernels(form)


def load(path: str | Path, *, weights: str | Path | None = None, verify_weights: bool = True) -> LoadedModel:
    """Loads an artifact as a module with the inputs and outputs of the original model.

    :param path: the artifact.
    :param weights: the file of weights that are not embedded. Default: `<path>.weights`.
    :param verify_weights: whether to check the weights against their checksums.
    :returns: a LoadedModel.
    :raises UserError: for a file that cannot be read, is not an artifact, or does not suit this machine.

    Example::

        y = ipex.aot.load("model.ipex")(torch.randn(1, 3, 224, 224))
    """
    return LoadedModel(path, weights=weights, verify_weights=verify_weights)


def pack(path: str | Path, *, weights: str | Path | None = None) -> Path:
    """Writes the packed weights of an artifact to `<path>.packed`, in the layout that this CPU's kernels use. Later
    loads, in Python or C++, map this file instead of packing the weights again.

    Run it once, on the machine where the model will run. On another kind of CPU the file is ignored with a warning.

    :param path: the artifact.
    :param weights: as for `load`.
    :returns: the path of the file.
    :raises UserError: if the file cannot be written.
    """
    _C.pack_artifact(str(path), str(weights or ""))
    return Path(f"{path}.packed")


class LoadedModel(torch.nn.Module):
    """A compiled model. It has no parameters: weights are mapped from the file and shared between processes.

    Results are new tensors without gradients, even where the original model returns an input or a view of one. Inputs
    that the model writes to are written. Buffers that it writes to are in `state` (name -> tensor); calls that use
    them run one after the other.
    """

    def __init__(self, path: str | Path, *, weights: str | Path | None = None, verify_weights: bool = True) -> None:
        super().__init__()
        self._model = _C.LoadedModel(str(path), str(weights or ""), verify_weights, link=True)
        structures = json.loads(self._model.manifest())["structures"]
        if "python" not in structures:
            raise UserError(f"{path} was not compiled by ipex.aot.compile: use ipex/model.h")
        signature = json.loads(structures["python"])
        for module in signature["modules"]:
            try:
                importlib.import_module(module)
            except ImportError as error:
                raise UserError(
                    f"{path} has inputs or outputs of classes from {module}, which is not installed"
                ) from error
        self._inputs = pytree.treespec_loads(signature["inputs"])
        self._outputs = pytree.treespec_loads(signature["outputs"])
        self._tensors: list[int] = signature["tensors"]
        self._constants: list[tuple[int, Any]] = signature["constants"]
        self.state: dict[str, torch.Tensor] = self._model.state()
        self.eval()

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        given = self._flatten(args, kwargs)
        for position, expected in self._constants:
            if given[position] != expected:
                raise UserError(
                    f"argument {position} is {given[position]!r}, but the model was exported with {expected!r}, which "
                    "is a constant in the compiled code"
                )
        return pytree.tree_unflatten(self.run([given[i] for i in self._tensors]), self._outputs)

    def run(self, tensors: list[torch.Tensor]) -> list[Any]:
        """Calls the model with a flat list of tensors, in the order of `description()["inputs"]`. Returns the results
        in the order of `description()["results"]`."""
        return self._model.run(tensors)

    def input_sizes(self, sizes: Sequence[int]) -> list[list[int]]:
        """The shape of each input for given values of the dynamic sizes, in the order of `description()["dims"]`."""
        return self._model.input_sizes(list(sizes))

    def _flatten(self, args: tuple, kwargs: dict[str, Any]) -> list[Any]:
        names = self._inputs.child(1).context
        if set(names) == set(kwargs):
            kwargs = {name: kwargs[name] for name in names}
        flat, spec = pytree.tree_flatten((args, kwargs))
        if spec != self._inputs:
            raise UserError(f"called with the structure {spec}, but the model was exported with {self._inputs}")
        return flat

    def description(self) -> dict[str, Any]:
        """Inputs, outputs, dynamic sizes, ISAs, steps and memory as a dict: what `ipexc inspect` prints."""
        return describe(self._model)


def describe(model: Any) -> dict[str, Any]:
    """The description of a _C.LoadedModel, linked or not."""
    description = dict(model.description())
    manifest = json.loads(model.manifest())
    kinds: dict[str, int] = {}
    for step in description["steps"]:
        kinds[step["kind"]] = kinds.get(step["kind"], 0) + 1
    return description | {
        "format": manifest["format"],
        "ipex": manifest["ipex"],
        "torch": manifest["torch"],
        "extern_ops": manifest["extern_ops"],
        "weights": manifest["weights"]["kind"],
        "step_counts": kinds,
    }


# ---- from an exported program to a Graph ----


def _parse_isas(isa: Sequence[str] | str | None) -> list[str]:
    names = [_C.target()] if isa is None else isa.split(",") if isinstance(isa, str) else list(isa)
    for name in names:
        if name not in ISAS:
            raise UserError(f"unknown ISA {name!r}: use one or more of {', '.join(ISAS)}")
    if not names:
        raise UserError(f"no ISA given: use one or more of {', '.join(ISAS)}")
    return sorted(set(names), key=ISAS.index)


def _decompose(program: torch.export.ExportedProgram, dtype: torch.dtype | None) -> torch.export.ExportedProgram:
    """Decomposes the program into ops that the importer supports. Casts of autocast become explicit ops."""
    if dtype not in (None, torch.float32, torch.bfloat16):
        raise UserError(f"dtype must be torch.float32 or torch.bfloat16, not {dtype}")
    autocast: Any = nullcontext()
    if dtype is torch.bfloat16:
        program, autocast = torch_private.without_dtype_checks(program), torch.autocast("cpu", torch.bfloat16)
    with torch.no_grad(), autocast, tracing.as_eager():
        return program.run_decompositions(ahead_of_time_decompositions())


def _refuse_side_effects(program: torch.export.ExportedProgram) -> None:
    for node in program.graph.nodes:
        if node.op == "call_function" and node.target is torch.ops.higher_order.with_effects:
            raise UserError(
                f"{node.args[1]} is called for its side effect, which an artifact cannot contain: remove it"
            )


def _write_back(program: torch.export.ExportedProgram) -> set[str]:
    """Replaces the outputs that export adds for mutations by copies into placeholders, as AOTAutograd does. Returns the
    names of these placeholders. Weights that the model returns are cloned."""
    graph = program.graph
    placeholders = {node.name: node for node in graph.nodes if node.op == "placeholder"}
    inputs = program.graph_signature.input_specs
    by_target = {spec.target: spec.arg.name for spec in inputs if spec.target is not None}
    kinds, user_input = torch.export.graph_signature.OutputKind, torch.export.graph_signature.InputKind.USER_INPUT
    of_the_user = {spec.arg.name for spec in inputs if spec.kind is user_input}
    written: set[str] = set()
    results = []
    output = graph.output_node()
    for spec, value in zip(program.graph_signature.output_specs, output.args[0], strict=True):
        with graph.inserting_before(output):
            if spec.kind is kinds.USER_OUTPUT:
                is_input = isinstance(value, torch.fx.Node) and value.op == "placeholder"
                is_weight = is_input and value.name not in of_the_user
                results.append(_call_like(graph, torch.ops.aten.clone.default, value) if is_weight else value)
                continue
            name = spec.target if spec.kind is kinds.USER_INPUT_MUTATION else by_target[spec.target]
            _call_like(graph, torch.ops.aten.copy_.default, placeholders[name], value)
            written.add(name)
    output.args = (tuple(results),)
    program.graph_module.recompile()
    return written


def _call_like(graph: torch.fx.Graph, op: Any, like: torch.fx.Node, *others: Any) -> torch.fx.Node:
    """A call whose result has the metadata of its first argument."""
    node = graph.call_function(op, (like, *others))
    node.meta["val"] = like.meta["val"]
    return node


class _Arguments:
    """The placeholders of a program: which are weights, which are written to, and the memory of the weights."""

    def __init__(self, program: torch.export.ExportedProgram, written: set[str]) -> None:
        self.examples: list[Any] = []
        self.static: set[int] = set()
        self.inputs: list[tuple[str, str, bool]] = []  # (name, member of the artifact or "", whether it is written)
        self.weights: list[tuple[str, int, int]] = []  # (member, address, bytes)
        self.user_tensors: list[int] = []  # positions among the user's flat arguments
        self.user_constants: list[tuple[int, Any]] = []
        self._kept: list[torch.Tensor] = []
        members: dict[tuple[int, int], str] = {}
        values = {n.name: n.meta.get("val") for n in program.graph.nodes if n.op == "placeholder"}
        user = 0
        for position, spec in enumerate(program.graph_signature.input_specs):
            value = values[spec.arg.name]
            if spec.kind is torch.export.graph_signature.InputKind.USER_INPUT:
                if isinstance(value, torch.Tensor):
                    self.user_tensors.append(user)
                    self.inputs.append((spec.arg.name, "", spec.arg.name in written))
                elif not isinstance(value, torch.SymInt):
                    self.user_constants.append((user, value))
                self.examples.append(value)
                user += 1
                continue
            weight = _dense(_weight(program, spec))
            self._kept.append(weight)
            self.examples.append(weight)
            is_state = spec.arg.name in written
            if not is_state:
                self.static.add(position)
            at = (weight.data_ptr(), weight.numel() * weight.element_size())
            tied = members.setdefault(at, f"weights/{spec.target}")
            if tied == f"weights/{spec.target}":
                self.weights.append((tied, *at))
            self.inputs.append((spec.target, tied, is_state))
            sharing = [name for name, member, state in self.inputs if member == tied and (state or is_state)]
            if weight.numel() and len(sharing) > 1:
                raise UserError(f"the model writes to {sharing[0]}, which shares memory with {sharing[1]}")


def _weight(program: torch.export.ExportedProgram, spec: Any) -> torch.Tensor:
    value = program.state_dict.get(spec.target)
    if value is None:
        value = program.constants.get(spec.target)
    if not isinstance(value, torch.Tensor):
        raise UserError(f"{spec.target} is a {type(value).__name__}: an artifact can contain only tensors")
    return value.detach()


def _dense(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor without gaps in memory: the artifact stores its memory as it is."""
    dense = torch_private.memory_order(tensor) is not None if tensor.numel() else True
    return tensor if dense else tensor.contiguous()


def _import(program: torch.export.ExportedProgram, arguments: _Arguments) -> Any:
    module = program.graph_module
    if cut := segments.first_cut(module):
        node, why = cut
        raise UserError(f"{node_source(node)} can only run in PyTorch: {why}; use torch.compile for this model")
    try:
        imported = import_graph(module, arguments.examples, static=frozenset(arguments.static), checks_divisors=False)
    except (GraphFallback, Unsupported) as error:
        raise UserError(f"the model cannot be compiled ahead of time: {error}") from error
    if imported.derived:
        names = ", ".join(str(d.expression) for d in imported.derived)
        raise UserError(f"computing {names} from sizes needs Python: export the model with fixed sizes")
    return imported


def _sizes(
    program: torch.export.ExportedProgram, symbols: Sequence[str], names: dict[str, str]
) -> list[tuple[str, int, int]]:
    """Name, minimum and maximum of each symbol. `s0_4` is a fourth of the program's s0 (see compiler/sizes.py)."""
    known = {str(symbol): limits for symbol, limits in program.range_constraints.items()}
    sizes = []
    for symbol in symbols:
        whole, _, k = (symbol, "", 1) if symbol in known or "_" not in symbol else symbol.rpartition("_")
        low, high = _limits(known.get(whole))
        name = names.get(whole, whole) + symbol.removeprefix(whole)
        sizes.append((name, -(-low // int(k)), high // int(k)))
    return sizes


def _conditions(
    program: torch.export.ExportedProgram, symbols: Sequence[str], names: dict[str, str]
) -> list[tuple[str, str]]:
    """Conditions on several sizes that tracing found: as text, and as an expression that must be >= 0."""
    parts = {}
    for symbol in symbols:
        whole, _, k = symbol.rpartition("_")
        parts[whole or symbol] = (symbol, int(k) if whole else 1)
    conditions = []
    for text, nonnegative in torch_private.relations_of_sizes(program):
        if all(str(s) in parts for s in nonnegative.free_symbols):
            named = {
                s: k * torch_private.positive_symbol(part)
                for s in nonnegative.free_symbols
                for part, k in [parts[str(s)]]
            }
            conditions.append((_renamed(text, names), print_expression(nonnegative.xreplace(named))))
    return conditions


def _renamed(text: str, names: dict[str, str]) -> str:
    return re.sub(r"\b[su]\d+\b", lambda symbol: names.get(symbol[0], symbol[0]), text)


def _limits(limits: Any) -> tuple[int, int]:
    if limits is None:
        return 0, _NO_LIMIT
    low, high = limits.lower, limits.upper
    return (int(low) if low.is_Integer else 0), (int(high) if high.is_Integer else _NO_LIMIT)


# ---- structures ----


def _structures(program: torch.export.ExportedProgram) -> dict[str, str]:
    arguments = program.graph_signature.input_specs
    user = [s for s in arguments if s.kind is torch.export.graph_signature.InputKind.USER_INPUT]
    values = {n.name: n.meta.get("val") for n in program.graph.nodes if n.op == "placeholder"}
    tensors = [i for i, s in enumerate(user) if isinstance(values[s.arg.name], torch.Tensor)]
    constants = [(i, values[s.arg.name]) for i, s in enumerate(user) if i not in tensors]
    specs = program.call_spec.in_spec, program.call_spec.out_spec
    try:
        inputs, outputs = (pytree.treespec_dumps(spec) for spec in specs)
        python = json.dumps(
            {
                "inputs": inputs,
                "outputs": outputs,
                "modules": sorted(set().union(*(_modules(spec) for spec in specs))),
                "tensors": tensors,
                "constants": constants,
            }
        )
    except (TypeError, NotImplementedError) as error:
        raise UserError(f"the structure of the model's inputs or outputs cannot be serialized: {error}") from error
    return {"python": python}


def _modules(spec: pytree.TreeSpec) -> set[str]:
    """The modules that define the classes in a structure, except Python's own."""
    found = set() if spec.type is None else {spec.type.__module__}
    return (found | set().union(*(_modules(child) for child in spec.children()))) - {"builtins", "collections"}


def _result_names(program: torch.export.ExportedProgram) -> list[str]:
    """The names of the results in C++: the path of each in the model's output, or "output" if it is the only one."""
    spec = program.call_spec.out_spec
    paths, _ = pytree.tree_flatten_with_path(pytree.tree_unflatten(range(spec.num_leaves), spec))
    return [".".join(_key_text(key) for key in path) or "output" for path, _ in paths]


def _key_text(key: Any) -> str:
    for attribute in ("key", "name", "idx"):
        if hasattr(key, attribute):
            return str(getattr(key, attribute))
    return str(key)


__all__ = ["Compilation", "LoadedModel", "Report", "compile", "load"]

"""The one place that touches PyTorch's private modules.

When a PyTorch release moves something, only this file changes. Each function says what it stands for; callers see
plain data.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import hashlib
import math
import os
import sys
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any
from unittest import mock

import torch
from torch.utils.checkpoint import CheckpointPolicy

# ---- decompositions ----


def core_decompositions() -> dict[Any, Callable]:
    """PyTorch's core ATen decomposition table, without the ops that are compositions of others for every device: those
    autograd takes apart before AOTAutograd looks, and listing them takes a tenth of a second."""
    from torch._decomp import _core_aten_decompositions_post_autograd

    return dict(_core_aten_decompositions_post_autograd())


def registered_decompositions(ops: Iterable[Any]) -> dict[Any, Callable]:
    """The registered decompositions of these ops (overloads or packets)."""
    from torch._decomp import get_decompositions

    return get_decompositions(list(ops))


def implicit_decompositions() -> dict[Any, Callable]:
    """What takes apart the ops that are compositions of others for every device (linear, matmul, ...): autograd does it
    before AOTAutograd traces, torch.export only when told."""
    from torch._export.utils import _collect_all_valid_cia_ops_for_aten_namespace, _get_decomp_for_cia

    return {op: _get_decomp_for_cia(op) for op in _collect_all_valid_cia_ops_for_aten_namespace()}


def rounded_once() -> Callable:
    """The op x * y + z with one rounding, which ATen does not have."""
    from torch._inductor import inductor_prims

    return inductor_prims.fma


def without_dtype_checks(program: torch.export.ExportedProgram) -> torch.export.ExportedProgram:
    """A copy of an exported program without its assertions on dtypes, which autocast changes."""
    program = copy.copy(program)
    program._graph_module = copy.deepcopy(program._graph_module)
    graph = program._graph_module.graph
    for node in list(graph.nodes):
        if node.target is torch.ops.aten._assert_tensor_metadata.default:
            graph.erase_node(node)
    program._graph_module.recompile()
    return program


# ---- AOTAutograd ----


def aot_backend(**kwargs: Any) -> Callable:
    """A Dynamo backend out of forward, backward and inference compilers."""
    from torch._dynamo.backends.common import aot_autograd

    return aot_autograd(**kwargs)


@dataclass(frozen=True)
class Cut:
    """Which values of a graph of both passes the minimal cut between them saves, and what it knows of a node."""

    saved: list[torch.fx.Node]
    in_forward: Callable[[torch.fx.Node], bool]  # whether the forward pass computes it
    is_static: Callable[[torch.fx.Node], bool]  # a parameter or buffer
    written: frozenset[torch.fx.Node]  # arguments that the graph changes: the backward pass finds them changed

    def must_save(self, node: torch.fx.Node) -> bool:
        """Whether the user said so (torch.utils.checkpoint's policies)."""
        return node.meta.get("recompute") in (CheckpointPolicy.MUST_SAVE, CheckpointPolicy.PREFER_SAVE)


def _written_arguments(graph: torch.fx.Graph) -> frozenset[torch.fx.Node]:
    """Placeholders that a graph of both passes writes to, itself or by returning what AOTAutograd copies into them."""
    from torch._functorch._aot_autograd.descriptors import InputMutationAOTOutput

    (output,) = graph.find_nodes(op="output")
    copied = [d.mutated_input for d in output.meta.get("desc", ()) if isinstance(d, InputMutationAOTOutput)]
    written = {node for node in graph.find_nodes(op="placeholder") if node.meta.get("desc") in copied}
    for node in filter(writes, graph.nodes):
        written.update(argument for argument in node.all_input_nodes if argument.op == "placeholder")
    return frozenset(written)


def writes(node: torch.fx.Node) -> bool:
    """Whether the op changes one of its arguments."""
    return isinstance(node.target, torch._ops.OpOverload) and node.target._schema.is_mutable


def min_cut_partition(review: Callable[[torch.fx.Graph, Cut], list[torch.fx.Node]]) -> Callable:
    """The partitioner that recomputes cheap values in the backward pass instead of saving them. `review` gets what it
    would save, may change the graph, and returns what to save."""
    from torch._functorch import compile_utils, partitioners

    # What is never one op for two: PyTorch's list of random ops lacks most.
    choose = partitioners.choose_saved_values_set

    def reviewed(graph: torch.fx.Graph, info: Any, **budget: Any) -> list[torch.fx.Node]:
        saved, statics = choose(graph, info, **budget), info.static_lifetime_input_nodes
        return review(graph, Cut(saved, info.is_required_fw, statics.__contains__, _written_arguments(graph)))

    def partition(joint: torch.fx.GraphModule, *args: Any, **kwargs: Any) -> tuple:
        with (
            mock.patch.object(partitioners, "choose_saved_values_set", reviewed),
            mock.patch.object(
                compile_utils, "rand_ops", {n.target.overloadpacket for n in filter(draws, joint.graph.nodes)}
            ),
            _with_draws_where_they_are(joint.graph),
        ):
            return partitioners.min_cut_rematerialization_partition(joint, *args, **kwargs)

    return partition


def default_partition(joint: torch.fx.GraphModule, *args: Any, **kwargs: Any) -> tuple:
    """The partitioner that saves whatever the backward pass needs."""
    from torch._functorch import partitioners

    with _with_draws_where_they_are(joint.graph):
        return partitioners.default_partition(joint, *args, **kwargs)


def draws(node: torch.fx.Node) -> bool:
    """Whether the op draws random numbers."""
    return isinstance(node.target, torch._ops.OpOverload) and torch.Tag.nondeterministic_seeded in node.target.tags


def _with_draws_where_they_are(graph: torch.fx.Graph) -> Any:
    """Inside, each pass draws its own random numbers, also those that no gradient decides or nobody reads; what
    checkpoints draw again is left to the partitioner. Of unread draws PyTorch's reordering of the backward graph knows
    nothing."""
    from torch._functorch import partitioners

    reorder = partitioners.reordering_to_mimic_autograd_engine
    for node in filter(draws, graph.nodes):
        if not node.users:
            node.meta.pop("recompute", None)  # a checkpoint leaves the generator as the forward pass does
            node.meta.setdefault("tensor_meta", None)  # the default partitioner asks for it: nothing is to be saved
        if "recompute" not in node.meta and not str(node.meta.get("partitioner_tag")).startswith("must_be"):
            forward = node.meta.get("partitioner_tag") == "is_forward"
            node.meta["partitioner_tag"] = "must_be_in_forward" if forward else "must_be_in_backward"

    def reordered(module: torch.fx.GraphModule) -> torch.fx.GraphModule:
        unread = any(draws(node) and not node.users for node in module.graph.nodes)
        return module if unread else reorder(module)

    return mock.patch.object(partitioners, "reordering_to_mimic_autograd_engine", reordered)


def bytes_of(node: torch.fx.Node) -> int:
    """Of a traced tensor; a symbolic size counts as it was in the example."""
    from torch._functorch import partitioners

    return partitioners._size_of(node)


def forward_metadata() -> Any:
    """AOTAutograd's description of the forward graph being compiled; None outside of a compilation."""
    from torch._guards import TracingContext

    context = TracingContext.try_get()
    return context.fw_metadata if context is not None else None


def donate_nothing() -> None:
    """Says of the forward graph being compiled that its backward reuses no saved tensor: where nobody has said so, a
    backward that retains its graph is refused."""
    metadata = forward_metadata()
    if metadata is not None:
        metadata.bw_donated_idxs = []


def static_input_positions() -> list[int]:
    """Positions among the forward graph's inputs of parameters and buffers."""
    metadata = forward_metadata()
    return list(metadata.static_input_indices or ()) if metadata is not None else []


def _effect_tokens() -> int:
    """Leading inputs, and as many leading outputs, of the forward graph that only order its side effects; nobody beyond
    the graph counts them."""
    metadata = forward_metadata()
    return len(metadata.tokens) if metadata is not None else 0


def calls_need_no_wrapper() -> bool:
    """Whether what AOTAutograd puts around a call of the inference graph being compiled only passes arguments and
    results on: none is changed, an alias, a subclass, a token, or marked as dynamic, and no global state changes."""
    metadata = forward_metadata()
    if metadata is None:
        return False
    kinds = (*metadata.subclass_inp_meta, *metadata.subclass_fw_graph_out_meta)
    plain = all(type(kind).__name__ == "PlainTensorMeta" for kind in kinds)
    return plain and not (
        any(info.mutates_data or info.mutates_metadata for info in metadata.input_info)
        or metadata.num_outputs_aliased
        or metadata.num_intermediate_bases
        or metadata.dynamic_outputs
        or metadata.tokens
        or metadata.is_rng_op_functionalized
        or metadata.grad_enabled_mutation is not None
    )


def user_output_count(default: int) -> int:
    """How many leading outputs of the forward graph the user sees; the rest is saved for the backward."""
    metadata = forward_metadata()
    return _effect_tokens() + metadata.num_forward_returns if metadata is not None else default


def views_of_inputs() -> dict[int, int]:
    """Outputs of the forward graph that AOTAutograd makes again from an input, with the input's position: views of it,
    and the input itself where it changes, in data or only in geometry. Of what the graph returns it looks at sizes,
    strides and offset only."""
    metadata = forward_metadata()
    if metadata is None:
        return {}
    returned = enumerate(metadata.mutated_inp_runtime_indices)
    views = {k: i for k, i in returned if not metadata.input_info[i].mutates_data}
    for i in metadata.aliased_out_indices:
        info = metadata.output_info[i]
        kind = info.output_type.name
        if kind == "alias_of_input" or (kind == "is_input" and metadata.input_info[info.base_idx].mutates_data):
            views[metadata.num_mutated_inp_runtime_indices + i] = info.base_idx
    tokens = _effect_tokens()
    return {tokens + k: tokens + i for k, i in views.items()}


def changed_in_data_and_geometry() -> list[int]:
    """Outputs of the forward graph that are inputs it writes to and also views otherwise: AOTAutograd gives the input
    the sizes, strides and offset of such an output, then copies it."""
    metadata = forward_metadata()
    if metadata is None:
        return []
    infos = [metadata.input_info[i] for i in metadata.mutated_inp_runtime_indices]
    return [k for k, info in enumerate(infos, _effect_tokens()) if info.mutates_data and info.mutates_metadata]


def report_output_strides(strides: Iterable[tuple[int, ...] | None]) -> None:
    """Tells AOTAutograd the strides that the forward's outputs really have (None: as traced)."""
    from torch._guards import TracingContext

    context = TracingContext.try_get()
    if context is not None and context.output_strides is not None and not context.output_strides:
        context.output_strides.extend(list(strides)[_effect_tokens() :])


def rng_state_wrappers() -> tuple[Any, Any]:
    """What PyTorch's partitioner wraps random ops in that a backward pass repeats: (saves the state, takes it)."""
    from torch._prims import rng_prims

    return rng_prims.run_and_save_rng_state, rng_prims.run_with_rng_state


def rng_state() -> torch.Tensor:
    """The state of the CPU's generator, also while PyTorch traces."""
    from torch._subclasses.fake_tensor import unset_fake_temporarily

    with unset_fake_temporarily():
        return torch.get_rng_state()


def numbers_passed_as_tensors(module: torch.fx.GraphModule) -> set[int]:
    """Placeholders of a Dynamo graph for numbers that become tensors at each call: Python's own random numbers, whose
    floats are traced in the default type and passed as float64, and numpy's."""
    arguments = [node.meta.get("grapharg") for node in module.graph.find_nodes(op="placeholder")]
    return {i for i, argument in enumerate(arguments) if getattr(argument, "pass_arg_as_tensor", False)}


def differentiates_forward() -> bool:
    """Whether a level of forward-mode differentiation is open: tensors may have tangents. Guards it, which Dynamo does
    only for programs that open levels themselves."""
    from torch._dynamo.guards import GuardBuilder
    from torch._dynamo.source import GlobalStateSource
    from torch._guards import TracingContext

    context = TracingContext.try_get()
    if context is not None:
        context.guards_context.dynamo_guards.add(GlobalStateSource().make_guard(GuardBuilder.DUAL_LEVEL))
    return torch.autograd.forward_ad._current_level >= 0


def value_of_call(graph: torch.fx.Graph, node: torch.fx.Node) -> Any:
    """What tracing would have seen of an op's results: meta["val"] of a node without one, from its arguments'."""
    from torch._guards import detect_fake_mode

    mode = detect_fake_mode([n.meta.get("val") for n in graph.nodes if n.op == "placeholder"])
    args, kwargs = torch.fx.map_arg((node.args, dict(node.kwargs)), lambda n: n.meta["val"])
    with mode:
        return node.target(*args, **kwargs)


def without_version_bump(tensors: Iterable[torch.Tensor]) -> Any:
    """A context in which in-place writes to `tensors` leave their version counters alone."""
    return torch.autograd._unsafe_preserve_version_counter(tuple(tensors))


def disable_dynamo(function: Callable, reason: str) -> Callable:
    return torch._dynamo.disable(function, reason=reason)


def reset_dynamo() -> None:
    """Forgets every compiled function."""
    torch._dynamo.reset()


# ---- AOTAutograd's on-disk cache ----
#
# An entry holds the compiled graphs themselves ("bundled"), not the keys of Inductor's own cache; PyTorch has one
# setting for that, read when an entry is looked up and when it is saved.


def output_code() -> type:
    """The base class of compiled graphs that AOTAutograd can keep."""
    from torch._inductor.output_code import OutputCode

    return OutputCode


def cacheable_compiler(output: type, function: Callable) -> Callable:
    """A compiler for `aot_backend` whose results, instances of `output`, are kept on disk."""
    from torch._functorch.aot_autograd import SerializableAOTDispatchCompiler

    return SerializableAOTDispatchCompiler(output, function)


def cache_bypass(reason: str) -> Exception:
    """What a compiled graph raises when it cannot be kept."""
    from torch._functorch._aot_autograd.autograd_cache import BypassAOTAutogradCache

    return BypassAOTAutogradCache(reason)


def specialized_float() -> str | None:
    """A guard on the value of a Python float in the compilation under way, as text; None where there is none. A key of
    the cache holds no floats that are arguments, and an entry's guards speak of integer arguments alone: code that was
    made for one value of a float would be found, without a guard, for every other."""
    from torch._guards import TracingContext
    from torch.utils._sympy.symbol import SymT, symbol_is_type

    context = TracingContext.try_get()
    if context is None or context.fake_mode is None or context.fake_mode.shape_env is None:
        return None
    for guard in context.fake_mode.shape_env.guards:
        if any(symbol_is_type(symbol, SymT.FLOAT) for symbol in guard.expr.free_symbols):
            return str(guard.expr)
    return None


def autograd_cache_directories() -> tuple[str, str]:
    """Where entries are read from: PyTorch's directory and AOTAutograd's in it."""
    from torch._functorch._aot_autograd.autograd_cache import AOTAutogradCache
    from torch._inductor.runtime.runtime_utils import cache_dir

    return cache_dir(), AOTAutogradCache._get_tmp_dir()


@contextlib.contextmanager
def autograd_cache(tag: str) -> Iterator[None]:
    """Looks entries up and saves them under keys that hold `tag`.

    Donated buffers are switched off: nothing here reuses them, and an entry that was saved with them would refuse
    `backward(retain_graph=True)`. Inductor's code generators, half a second of imports that the key would ask for
    their settings, have no say in these graphs. PyTorch's own sources count by their files' times and sizes: reading
    them all takes a quarter of a second in every process.
    """
    from torch._functorch import config
    from torch._inductor import codecache
    from torch.compiler import config as compiler_config

    generators = {
        "init_backend_registration": lambda: None,
        "custom_backend_passes": {},
        "custom_backend_codegen_configs": {},
        "torch_key": _torch_identity,
    }
    with (
        compiler_config.patch(cache_key_tag=f"{compiler_config.cache_key_tag} {tag}"),
        config.patch(bundled_autograd_cache=True, donated_buffer=False),
        mock.patch.multiple(codecache, **generators),
    ):
        yield


@functools.cache
def _torch_identity() -> bytes:
    """A digest of PyTorch's version, and of the names, times and sizes of its Python files."""
    digest = hashlib.sha256(f"{torch.__version__} {torch.version.git_version}".encode())
    folders = [os.path.dirname(torch.__file__)]
    while folders:
        with os.scandir(folders.pop()) as entries:
            for entry in sorted(entries, key=lambda e: e.name):
                if entry.name.endswith(".py"):
                    status = entry.stat()
                    digest.update(f"{entry.path} {status.st_mtime_ns} {status.st_size}\n".encode())
                elif entry.is_dir() and os.path.exists(os.path.join(entry.path, "__init__.py")):
                    folders.append(entry.path)
    return digest.digest()


_bundled_compilations: weakref.WeakSet = weakref.WeakSet()


@functools.cache
def _recognize_bundled_compilations() -> None:
    """Makes PyTorch's test for bundled entries ask also which compilation is going on in its thread."""
    from torch._functorch._aot_autograd import autograd_cache, graph_compile
    from torch._guards import CompileContext

    configured = autograd_cache.should_bundle_autograd_cache

    def should_bundle() -> bool:
        return configured() or CompileContext.try_get() in _bundled_compilations

    autograd_cache.should_bundle_autograd_cache = graph_compile.should_bundle_autograd_cache = should_bundle


def cache_backward() -> None:
    """Has the entry saved that waits for its backward graph. That is compiled at the first backward pass, by whatever
    thread runs it, long after `autograd_cache` was left; what stays the same is the compilation it belongs to. (A
    setting changed here would have no end to change it back: PyTorch's callbacks at the end of a compilation run once
    for all threads that compile at the time.)"""
    from torch._guards import CompileContext

    _recognize_bundled_compilations()
    context = CompileContext.try_get()
    if context is not None:
        _bundled_compilations.add(context)


# ---- tensors and sizes ----


def is_plain_tensor(value: Any) -> bool:
    """A dense, strided CPU tensor (or the fake of one): what a Graph value can stand for."""
    from torch._subclasses.fake_tensor import FakeTensor

    return (
        type(value) in (torch.Tensor, FakeTensor, torch.nn.Parameter, torch.nn.Buffer)
        and value.device.type == "cpu"
        and value.layout is torch.strided
        and not value.is_quantized
    )


@dataclass(frozen=True)
class Batched:
    """A tensor of vmap: at which nesting level, its values with the batch in front, and how results are made such."""

    level: int
    values: torch.Tensor
    wrap: Callable[[torch.Tensor], torch.Tensor]

    @staticmethod
    def of(tensor: torch.Tensor) -> Batched | None:
        functorch = torch._C._functorch
        if functorch.is_legacy_batchedtensor(tensor):  # of the vmap that autograd runs a backward pass under
            level = torch._C._vmapmode_increment_nesting() - 1
            torch._C._vmapmode_decrement_nesting()
            values = torch._remove_batch_dim(tensor, level, 1, 0)
            return Batched(level, values, lambda result: torch._add_batch_dim(result, 0, level))
        if functorch.is_batchedtensor(tensor):
            level = functorch.maybe_get_level(tensor)
            values = functorch.get_unwrapped(tensor).movedim(functorch.maybe_get_bdim(tensor), 0)
            return Batched(level, values, lambda result: functorch._add_batch_dim(result, 0, level))
        return None


def memory_identity(tensor: torch.Tensor) -> int:
    """Equal for tensors (or fakes) that share memory."""
    return tensor.untyped_storage()._cdata


def traced_object(value: Any) -> Any:
    """What a traced stand-in of an object that is no tensor (a device mesh) stands for; None if `value` is none."""
    from torch._library.fake_class_registry import FakeScriptObject

    return value.real_obj if isinstance(value, FakeScriptObject) else None


def size_hint(size: torch.SymInt | torch.SymFloat, expr: Any) -> int:
    """The value of `expr`, of the same tracing as `size`, in the example inputs; a guess where it depends on data."""
    return int(size.node.shape_env.optimization_hint(expr, fallback=64))


def least_value(size: torch.SymInt, expr: Any) -> int:
    """What `expr`, of the same tracing as `size`, is never less than; far below 0 where nothing is known."""
    low = size.node.shape_env.bound_sympy(expr).lower
    return int(low) if low.is_Integer else -(2**63)


def bounds(number: torch.SymInt | torch.SymFloat) -> tuple[float, float]:
    """The least and the greatest value that a number known only at a call may have."""
    if isinstance(number, torch.SymFloat):
        return -sys.float_info.max, sys.float_info.max
    found = number.node.shape_env.bound_sympy(number.node.expr)
    low, high = found.lower, found.upper
    return int(low) if low.is_Integer else -(2**63), int(high) if high.is_Integer else 2**63 - 1


def known_factors(size: torch.SymInt) -> dict[Any, int]:
    """Symbols, of the tracing that gave `size`, that its guards know to be multiples of a number: after
    `view(n // 7, 7)` no other n passes."""
    import sympy
    from torch.utils._sympy.functions import FloorDiv, Mod

    facts = [guard.expr for guard in size.node.shape_env.guards if isinstance(guard.expr, sympy.Eq)]
    multiples = {side.args for fact in facts for side in fact.args if isinstance(side, Mod) and 0 in fact.args}
    factors: dict[Any, int] = {}

    def add(n: Any, k: Any) -> None:
        if n.is_Symbol and k.is_Integer and k > 1:
            factors[n] = math.lcm(factors.get(n, 1), int(k))

    for n, k in multiples:
        add(n, k)
    for fact in facts:
        for a, b in (fact.args, fact.args[::-1]):
            if not isinstance(a, FloorDiv):
                continue
            n, k = a.args
            if isinstance(k, FloorDiv) and (n, k) in multiples and k.args == (n, b):
                add(n, b)  # n // (n // b) == b, and n // b divides n
            if isinstance(b, FloorDiv) and b.args == (n + k - 1, k):
                add(n, k)  # rounding up and down agree
    return factors


def positive_symbol(name: str) -> Any:
    import sympy

    return sympy.Symbol(name, integer=True, positive=True)


def data_dependent_symbols(value: Any) -> set:
    """Symbols in a traced value that stand for what data decide (the number of non-zeros)."""
    from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols

    return set(free_unbacked_symbols(value)) if value is not None else set()


def symbols_in(value: Any) -> dict[Any, torch.SymInt | torch.SymFloat]:
    """The symbols of a traced value's sizes and strides, or of a traced number, each as a SymInt or SymFloat."""
    from torch.utils._sympy.symbol import SymT, symbol_is_type

    numbers = [*value.shape, *value.stride()] if isinstance(value, torch.Tensor) else [value]
    found = {}
    for number in numbers:
        if isinstance(number, (torch.SymInt, torch.SymFloat, torch.SymBool)):
            environment = number.node.shape_env
            for symbol in number.node.expr.free_symbols:
                is_float = symbol_is_type(symbol, (SymT.FLOAT, SymT.UNBACKED_FLOAT))
                make = environment.create_symfloatnode if is_float else environment.create_symintnode
                found[symbol] = make(symbol, hint=None)
    return found


def symbol_told_by(number: Any) -> Any:
    """The symbol whose value a traced number is (item() of booleans: 1 where it is true), or None."""
    import sympy

    expr = number.node.expr
    if isinstance(expr, sympy.Eq) and expr.args[1] == 1:
        expr = expr.args[0]
    return expr if expr.is_Symbol else None


def relations_of_sizes(program: torch.export.ExportedProgram) -> list[tuple[str, Any]]:
    """Guards of an exported program about several sizes at once, which neither it nor its ranges check: each as text,
    and as an integer expression that is not below 0."""
    import sympy

    sizes = [s for n in program.graph.nodes if n.op == "placeholder" for s in getattr(n.meta.get("val"), "shape", ())]
    environments = [s.node.shape_env for s in sizes if isinstance(s, torch.SymInt)]
    found: dict[tuple[str, Any], None] = {}  # each once
    for guard in environments[0].guards if environments else ():
        expr = guard.expr
        if len(expr.free_symbols) < 2:
            continue
        if isinstance(expr, (sympy.Le, sympy.Lt)):
            found[str(expr), expr.rhs - expr.lhs - int(isinstance(expr, sympy.Lt))] = None
        elif isinstance(expr, (sympy.Ge, sympy.Gt)):
            found[str(expr), expr.lhs - expr.rhs - int(isinstance(expr, sympy.Gt))] = None
        elif isinstance(expr, sympy.Eq):
            for difference in (expr.lhs - expr.rhs, expr.rhs - expr.lhs):
                found[f"{expr.lhs} == {expr.rhs}", difference] = None
    return list(found)


def is_known(condition: bool | torch.SymBool) -> bool:
    """Whether it holds for every size, asked without a guard: False where nobody knows yet."""
    from torch.fx.experimental.symbolic_shapes import statically_known_true

    return statically_known_true(condition)


def guard_equal(m: int | torch.SymInt, n: int | torch.SymInt) -> bool:
    """Adds a guard that two sizes are the same; False where they were not in tracing, or it is too late for guards."""
    equal = m == n
    if isinstance(equal, bool) or equal.node.shape_env.frozen or not equal.node.has_hint():
        return False
    environment = equal.node.shape_env
    return equal.node.hint and bool(type(environment).evaluate_sym_node(environment, equal.node))


@contextlib.contextmanager
def no_guards(values: Iterable[Any], refuse: Callable[[Any], Exception]) -> Iterator[None]:
    """Inside, asking for the value of a number computed from symbols, of the tracing that `values` come from, raises
    `refuse(expression)` unless the answer is the same for all their values: PyTorch would specialise the symbols."""
    numbers = (n for v in values for n in ([*v.shape, *v.stride()] if isinstance(v, torch.Tensor) else [v]))
    symbolic = (n for n in numbers if isinstance(n, (torch.SymInt, torch.SymFloat, torch.SymBool)))
    environment = next((n.node.shape_env for n in symbolic if n.node.shape_env is not None), None)
    if environment is None:
        yield
        return

    def evaluate(node: Any, size_oblivious: bool = False, fallback_value: bool | None = None) -> Any:
        known = environment._maybe_evaluate_static(node.expr)
        if known is not None:
            return known
        if fallback_value is not None:
            return fallback_value
        raise refuse(node.expr)

    with mock.patch.object(environment, "evaluate_sym_node", evaluate):
        yield


def expression(number: int | torch.SymInt) -> Any:
    """A traced integer as sympy has it."""
    import sympy

    return number.node.expr if isinstance(number, torch.SymInt) else sympy.Integer(number)


def positive(number: int | torch.SymInt) -> int | torch.SymInt:
    """The number, or 0 where it is below."""
    return torch.sym_max(number, 0) if isinstance(number, torch.SymInt) else max(number, 0)


def same_count(a: Sequence[int | torch.SymInt], b: Sequence[int | torch.SymInt]) -> bool:
    """Is it known without a guard that two traced shapes have as many elements?"""
    return is_known(math.prod(a) == math.prod(b))


def convolution_shape(x: torch.Tensor, weight: torch.Tensor, *settings: Any) -> list[int | torch.SymInt]:
    """The shape of a convolution's result. settings: stride, padding, dilation, transposed, groups, output_padding
    (None unless transposed)."""
    from torch._meta_registrations import calc_conv_nd_return_shape

    return calc_conv_nd_return_shape(x, weight, *settings)


def without_empty_case(stride: torch.SymInt) -> torch.SymInt:
    """A stride with s for each max(1, s) in it."""
    expr = stride.node.expr
    maxima = [m for m in expr.atoms(*symbolic_extrema()[1]) if len(m.args) == 2 and 1 in m.args]
    if not maxima:
        return stride
    plain = expr.subs({m: next(a for a in m.args if a != 1) for m in maxima})
    return stride.node.shape_env.create_symintnode(plain, hint=None)


def symbolic_function(expr: Any, parameters: Sequence[Any]) -> Callable:
    """A Python function of the symbols in `parameters` that computes a sympy expression over them."""
    import sympy
    from torch.utils._sympy.printers import PythonPrinter

    names = {symbol: sympy.Symbol(f"p{i}") for i, symbol in enumerate(parameters)}
    text = PythonPrinter().doprint(expr.xreplace(names))
    return eval(f"lambda {', '.join(map(str, names.values()))}: {text}", {"math": math, "torch": torch})


def symbolic_functions() -> tuple[tuple, tuple]:
    """The sympy function classes for floor division and for Python's modulo."""
    from torch.utils._sympy import functions

    divisions = (functions.FloorDiv, functions.CleanDiv)
    modulos = (functions.Mod, functions.PythonMod)
    return divisions, modulos


def symbolic_extrema() -> tuple[tuple, tuple]:
    """The sympy function classes for minimum and maximum."""
    import sympy
    from torch.utils._sympy import functions

    return (sympy.Min, functions.Min), (sympy.Max, functions.Max)


def memory_order(tensor: torch.Tensor) -> list[int] | None:
    """Dims from outermost to innermost of a tensor whose elements fill their memory; None where that is not known.
    Symbolic sizes are compared as expressions: no guard is added."""

    def hint(size: int | torch.SymInt) -> int:
        return size if isinstance(size, int) else size_hint(size, size.node.expr)

    order = sorted(range(tensor.dim()), key=lambda d: (-hint(tensor.stride(d)), hint(tensor.size(d))))
    step: int | torch.SymInt = 1
    for d in reversed(order):
        size, stride = tensor.size(d), tensor.stride(d)
        if not is_known(size == 1) and not is_known(stride == step):
            return None
        step = step * size
    return order


@contextlib.contextmanager
def onednn_on() -> Iterator[None]:
    """torch.backends.mkldnn.enabled, which may not be assigned in every process; its flags() sets other flags too."""
    was_on = torch._C._get_mkldnn_enabled()
    torch._C._set_mkldnn_enabled(True)
    try:
        yield
    finally:
        torch._C._set_mkldnn_enabled(was_on)

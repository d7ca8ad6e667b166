"""The `torch.compile` backend: it imports, compiles and calls AOTAutograd's forward, backward and inference graphs.

A graph that cannot be compiled runs eagerly with a warning; IPEX_STRICT=1 makes that an error.
"""

from __future__ import annotations

import contextlib
import copy
import gc
import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import Any

import torch
from torch import fx

from .. import _C, torch_private
from ..errors import CutNeeded, GraphFallback
from . import extern, native, random_state, records, segments, time_limit, tracing, warm_start
from .decompose import Decompositions
from .importer import import_graph
from .options import Options
from .partition import partition
from .warm_start import CompiledCode, EagerCode

log = logging.getLogger("ipex")

# Raised if a version of PyTorch lacks a private name or has changed it.
_CHANGES_OF_PYTORCH = (AttributeError, ImportError, KeyError, NameError, TypeError, ValueError)


def ipex(
    module: fx.GraphModule,
    example_inputs: Sequence[Any],
    *,
    mode: str | None = None,
    options: dict[str, Any] | None = None,
    **ignored: Any,
) -> Callable:
    """Compiles an FX graph that Dynamo captured and returns a callable with the graph's signature.

    `mode` and `options` are those of `torch.compile` (see compiler/options.py); UserError where they are invalid.
    """
    settings = Options.parse(options, mode)
    try:
        if torch_private.differentiates_forward():
            return _run_as_captured(module, "inputs may carry tangents of forward-mode differentiation", settings)
        return _compile_captured(module, example_inputs, settings)
    except _CHANGES_OF_PYTORCH as error:
        return _run_as_captured(module, f"{type(error).__name__}: {error}", settings, error)


def _compile_captured(module: fx.GraphModule, example_inputs: Sequence[Any], settings: Options) -> Callable:
    numbers = torch_private.numbers_passed_as_tensors(module)
    narrow = (torch.float16, torch.bfloat16, torch.float32)
    floats = {i for i in numbers if example_inputs[i].dtype in narrow and not example_inputs[i].shape}
    if floats and _all_float64(example_inputs, numbers):
        # These are Python numbers passed as float32 tensors. With float64 tensors, eager computes with them in double.
        example_inputs = [x.double() if i in floats else x for i, x in enumerate(example_inputs)]
    partitioner = partition if settings.recompute else torch_private.default_partition
    cached = warm_start.enabled()
    compiler = partial(torch_private.cacheable_compiler, CompiledCode) if cached else lambda function: function
    with native.compile_lock, _gc_of_new_objects_only(), tracing.as_eager():
        aot = torch_private.aot_backend(
            fw_compiler=compiler(partial(_compile, kind="forward", options=settings)),
            bw_compiler=compiler(partial(_compile, kind="backward", options=settings)),
            inference_compiler=compiler(partial(_compile, kind="inference", options=settings)),
            decompositions=Decompositions(),
            keep_inference_input_mutations=True,
            partition_fn=partitioner,
        )
        with torch_private.autograd_cache(warm_start.cache_tag(settings)) if cached else contextlib.nullcontext():
            warm_start.direct_codes.clear()
            try:
                run = aot(module, example_inputs)
                run = _direct_call(len(example_inputs)) or run
                return _with_casts(run, {i: example_inputs[i].dtype for i in floats}) if floats else run
            finally:
                warm_start.direct_codes.clear()  # only the caller keeps a graph alive


def _run_as_captured(module: fx.GraphModule, why: str, options: Options, cause: Exception | None = None) -> Callable:
    """Runs the graph that Dynamo captured eagerly. If inputs may carry tangents, the operators are needed one by one;
    Dynamo guards on the active level of forward-mode differentiation."""
    _allow_eager("a graph", "inference", module, why, cause or GraphFallback(why), options)
    return module.forward


def _allow_eager(name: str, kind: str, module: fx.GraphModule, why: str, cause: Exception, options: Options) -> None:
    """Warns about a graph that runs eagerly, and records it. Raises `cause` if eager graphs are not allowed."""
    if _C.flag("IPEX_STRICT") or not options.fallback:
        raise cause
    log.warning("%s runs eagerly: %s", name, why, extra={"cause": cause})
    records.add_eager(kind, module, why)


def _all_float64(inputs: Sequence[Any], numbers: set[int]) -> bool:
    """Whether all other tensors among the inputs are float64. Then a number in double does not change their type."""
    dtypes = {x.dtype for i, x in enumerate(inputs) if isinstance(x, torch.Tensor) and i not in numbers}
    return dtypes == {torch.float64}


def _with_casts(run: Callable, dtypes: dict[int, torch.dtype]) -> Callable:
    """`run`, with the arguments in `dtypes` cast to the type they were traced in."""

    def run_cast(*arguments: Any) -> Any:
        return run(*(a.to(dtypes[i]) if i in dtypes else a for i, a in enumerate(arguments)))

    return run_cast


@contextlib.contextmanager
def _gc_of_new_objects_only() -> Iterator[None]:
    """Garbage collections inside the context skip older objects: PyTorch alone has 400,000, and a full collection takes
    0.2 s to find nothing among them. If the program itself has frozen objects, nothing is done."""
    if gc.get_freeze_count() > 0 or not _C.flag("IPEX_FREEZE_GC"):
        yield
        return
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


def _direct_call(arguments: int) -> Callable | None:
    """The entry point of the single graph that was compiled or loaded, if it takes the caller's arguments unchanged and
    AOTAutograd adds nothing around it. Skipping AOTAutograd's Python frames saves more than a small kernel costs."""
    codes = warm_start.direct_codes
    return codes[0].call if len(codes) == 1 and codes[0].arguments == arguments else None


def _compile(
    module: fx.GraphModule, example_inputs: Sequence[Any], *, kind: str, options: Options
) -> CompiledCode | EagerCode:
    """Compiles one AOTAutograd graph to a boxed callable, which takes a list of arguments and empties it."""
    if kind == "forward":
        torch_private.donate_nothing()
    try:
        with native.compile_lock, time_limit.compilation():
            return _compile_native(module, example_inputs, kind, options)
    except GraphFallback as reason:
        run = _run_eagerly(module, kind, str(reason), reason, options)
    except Exception as error:
        run = _run_eagerly(module, kind, f"{type(error).__name__}: {error}", error, options)
    if kind != "backward":
        torch_private.report_output_strides(_traced_strides(module))
    return run


def _compile_native(
    module: fx.GraphModule, example_inputs: Sequence[Any], kind: str, options: Options
) -> CompiledCode | EagerCode:
    static = frozenset(torch_private.static_input_positions()) if kind == "inference" and options.hoist else frozenset()
    user_outputs = torch_private.user_output_count(0) if kind == "forward" else None
    random_state.expand(module)
    if kind != "backward":
        _refuse_moved_inputs(module)
    views = torch_private.views_of_inputs() if kind != "backward" else {}
    refused: dict[fx.Node, str] = {}  # ops that a Graph cannot represent, with the reason
    if not segments.needs_cut(module):
        direct = kind == "inference" and torch_private.calls_need_no_wrapper()
        try:
            code, strides = _import_and_compile(
                module, example_inputs, kind, options, static, user_outputs, views, direct=direct
            )
        except CutNeeded as found:
            refused = found.ops
        else:
            if kind != "backward":
                torch_private.report_output_strides(strides)
            elif warm_start.enabled():
                torch_private.cache_backward()
            return code
    parts = _compile_parts(module, kind, options, static, user_outputs, refused, views)
    if kind != "backward":
        torch_private.report_output_strides(_traced_strides(module))
    return parts


def _compile_parts(
    module: fx.GraphModule,
    kind: str,
    options: Options,
    static: frozenset[int],
    user_outputs: int | None,
    refused: dict[fx.Node, str],
    views: Mapping[int, int] = MappingProxyType({}),
) -> EagerCode:
    """Cuts the graph at ops that a Graph cannot represent and compiles the parts in between."""
    compile_one = partial(_compile_segment, kind=kind, options=options)
    run, ops = segments.compile_segments(module, static, compile_one, user_outputs, refused, views)
    for op, why in ops:
        if why != segments.DATA_DEPENDENT:
            extern.note(op, why)
    records.add_aten_calls(kind, ops)
    return EagerCode(run, ops[0][1])


def _refuse_moved_inputs(module: fx.GraphModule) -> None:
    """A compiled graph returns tensors with storage offset 0, so it cannot change an input's storage offset."""
    outputs = module.graph.output_node().args[0]
    for position in torch_private.changed_in_data_and_geometry():
        value = outputs[position].meta.get("val")
        if isinstance(value, torch.Tensor) and not torch_private.is_known(value.storage_offset() == 0):
            raise GraphFallback("an input is written to and gets another storage offset")


def _compile_segment(
    module: fx.GraphModule, example_inputs: Sequence[Any], static: frozenset[int], *, kind: str, options: Options
) -> CompiledCode | EagerCode:
    """Compiles part of a graph. If that fails, only this part runs eagerly. Outputs keep the traced strides."""
    try:
        try:
            return _import_and_compile(module, example_inputs, kind, options, static, None)[0]
        except CutNeeded as found:
            return _compile_parts(module, kind, options, static, 0, found.ops)
    except Exception as error:
        return _run_eagerly(module, kind, str(error), error, options)


def _import_and_compile(
    module: fx.GraphModule,
    example_inputs: Sequence[Any],
    kind: str,
    options: Options,
    static: frozenset[int],
    user_outputs: int | None,
    input_views: dict[int, int] | None = None,
    *,
    direct: bool = False,
) -> tuple[CompiledCode, list[tuple[int, ...] | None]]:
    """The compiled code and the strides of its outputs. `direct`: it is the whole graph, and calls need no wrapper."""
    start = time.perf_counter()
    imported = import_graph(module, example_inputs, static=static, user_outputs=user_outputs, input_views=input_views)
    import_ms = (time.perf_counter() - start) * 1e3
    state = {
        "kind": kind,
        "arguments": imported.arguments,
        "symbols": imported.symbols,
        "outputs": imported.outputs,
        "derived": imported.derived,
        "hoist": kind == "inference" and options.hoist,
        "autotune": options.autotune,
        # ATen calls need the settings of AOTAutograd's wrapper: no gradients, no autocast.
        "direct": direct and not (imported.externs or imported.derived),
        "nodes": records.count_calls(module),
        "externs": imported.externs,
    }
    compiled = native.compile_graph(imported.graph, state)
    records.add(state, imported.graph, compiled, import_ms, (time.perf_counter() - start) * 1e3, warm=False)
    return CompiledCode(state, imported.graph, compiled), compiled.output_strides()


def _run_eagerly(module: fx.GraphModule, kind: str, why: str, cause: Exception, options: Options) -> EagerCode:
    """A callable that interprets the graph as AOTAutograd traced it, op by op."""
    _allow_eager(f"the {kind} graph", kind, module, why, cause, options)
    positions = segments.mutated_positions(module)
    interpreter = fx.Interpreter(module)
    interpreter.garbage_collect_values = True

    def run(arguments: list[Any]) -> Any:
        values = list(arguments)
        arguments.clear()
        # AOTAutograd bumps the version counters itself.
        mutated = [values[i] for i in positions]
        with torch_private.without_version_bump(mutated) if mutated else contextlib.nullcontext():
            return copy.copy(interpreter).boxed_run(values)  # an interpreter stores its values: one per call

    return EagerCode(run, why)


def _traced_strides(module: fx.GraphModule) -> list[tuple[int, ...] | None]:
    """The strides of each output, or None if it is not a tensor or its strides are symbolic."""
    return [
        tuple(v.stride()) if isinstance(v, torch.Tensor) and all(isinstance(s, int) for s in v.stride()) else None
        for v in _output_values(module)
    ]


def _output_values(module: fx.GraphModule) -> list[Any]:
    output = next(iter(reversed(module.graph.nodes)))
    return [n.meta.get("val") if isinstance(n, fx.Node) else n for n in output.args[0]]

"""Runs cases of OpInfo in a backend, many in one graph without Dynamo, and compares each with eager.

A failing graph is bisected to find the failing case, which then runs with aot_eager. Cases that fail with aot_eager too
(a data-dependent size in Python code, for example) are not failures of the backend.
"""

import contextlib
import functools
import logging
import operator
from collections import Counter
from dataclasses import dataclass, field

import torch
from comparison import TOLERANCES, first_line, memory_order
from torch._dynamo.backends.registry import lookup_backend
from torch._guards import TracingContext, tracing
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensorMode,
)
from torch.fx.experimental.symbolic_shapes import ShapeEnv

BATCH = 32
SINGLES = 8  # a failing graph of at most so many cases is tested case by case
# Our error against fp64 (2-norm) may be at most this factor times eager's.
ERROR_RATIO = {torch.bfloat16: 1.1, torch.float16: 1.1, torch.float32: 2.0}


@dataclass
class Tally:
    """The outcomes of the cases of one op, dtype and form."""

    passed: int = 0
    refused: int = 0  # refused by eager
    untraceable: Counter = field(default_factory=Counter)  # aot_eager fails too: how
    failed: list[tuple[str, str]] = field(default_factory=list)  # label, what happened
    native: int = 0
    extern: Counter = field(default_factory=Counter)
    eager_graphs: Counter = field(default_factory=Counter)  # why a graph was not compiled
    errors: list[float] = field(default_factory=lambda: [0.0, 0.0, 0.0])  # squares: ours, eager's, the reference

    def as_dict(self):
        return {key: dict(value) if isinstance(value, Counter) else value for key, value in vars(self).items()}


def check(cases, backend, tally):
    """Runs `cases` and adds their outcomes to `tally`."""
    accepted = []
    for case in cases:
        if accepted_by_eager(case):
            accepted.append(case)
        else:
            tally.refused += 1
        if len(accepted) == BATCH:
            _check_batch(accepted, backend, tally)
            accepted = []
    if accepted:
        _check_batch(accepted, backend, tally)


def _check_batch(cases, backend, tally):
    try:
        found = _differences(cases, backend, tally)
    except Exception as error:
        if len(cases) > 1:
            size = 1 if len(cases) <= SINGLES else (len(cases) + 3) // 4
            for start in range(0, len(cases), size):
                _check_batch(cases[start : start + size], backend, tally)
            return
        found = [_message(error)]
    if any(found) and backend != "aot_eager":
        _arbitrate(cases, found, backend, tally)
        return
    for case, message in zip(cases, found, strict=True):
        _count_in(tally, case, message)


def _arbitrate(cases, found, backend, tally):
    """Runs differing cases with aot_eager, in the same graph and alone. Those that fail there too are not ours."""
    theirs = _attempt(cases, "aot_eager")
    for case, message, other in zip(cases, found, theirs, strict=True):
        if message is None or other is None:
            _count_in(tally, case, message)
        elif (other := _attempt([case], "aot_eager")[0]) is not None:
            tally.untraceable[other] += 1
        else:
            _count_in(tally, case, message if len(cases) == 1 else _attempt([case], backend)[0])


def _count_in(tally, case, message):
    if message is None:
        tally.passed += 1
    else:
        tally.failed.append((case.label, message))


def _attempt(cases, backend):
    """For each case None if the backend agrees with eager, else a description."""
    try:
        return _differences(cases, backend, Tally())
    except Exception as error:
        return [_message(error)] * len(cases)


def _message(error):
    return f"{type(error).__name__}: {first_line(error)}"


# ---- running ----


def accepted_by_eager(case):
    """Computes eager's results; False if eager refuses the case."""
    try:
        _run_eager(case)
    except Exception:  # cases that eager rejects are not tested
        return False
    return True


def _run_eager(case):
    before = torch.get_rng_state()
    tensors = case.arguments()
    case.expected = _results([case], [case.run(tensors)], [tensors])[0]
    case.random = not torch.equal(before, torch.get_rng_state())
    case.expected_constants = case.constants


def _results(cases, results, tensors):
    """The values to compare for each case: results, changed inputs, gradients."""
    if cases[0].form == "gradient":
        return _with_gradients(results, tensors)
    written = [own if case.form == "inplace" else [] for case, own in zip(cases, tensors, strict=True)]
    return [[t.detach() for t in rs + ws] for rs, ws in zip(results, written, strict=True)]


def _with_gradients(results, tensors):
    """For each case, its results and d(results weighted by fixed numbers) / d(tensors)."""
    values = [[r.detach() for r in rs] for rs in results]
    sources = [r for rs in results for r in rs if r.requires_grad]
    wanted = [[t for t in ts if t.requires_grad] for ts in tensors]
    flat = [t for ts in wanted for t in ts]
    found = iter(torch.autograd.grad(sources, flat, [_weights(r) for r in sources], allow_unused=True))
    return [v + [next(found) for _ in ts] for v, ts in zip(values, wanted, strict=True)]


def _weights(result):
    """Weights between 1 and 2, which are the same for a case in every graph, and do not cancel in sums."""
    count = torch.arange(result.numel(), dtype=torch.float64)
    return (1 + count * 0.618034 % 1).reshape(result.shape).to(result.dtype)


def _compiled_results(cases, backend, tally):
    """The results of each case from one graph of all cases."""
    tensors = [case.arguments() for case in cases]
    fallback = {"options": {"fallback": len(cases) == 1}} if backend == "ipex" else {}
    with _quiet(), _counting(backend, tally):
        run, inputs = compiled_together(cases, tensors, functools.partial(lookup_backend(backend), **fallback))
        torch.manual_seed(0)
        flat = iter(run(*inputs))
        return _results(cases, [[next(flat) for _ in range(_count(case))] for case in cases], tensors)


def compiled_together(cases, tensors, backend):
    """The compiled graph of all cases, and its inputs."""
    graph = torch.fx.Graph()
    outputs = []
    placeholders = [tuple(graph.placeholder(f"x{i}_{j}") for j in range(len(own))) for i, own in enumerate(tensors)]
    for case, own in zip(cases, placeholders, strict=True):
        call = graph.call_function(_traceable(case), own)
        outputs += [graph.call_function(operator.getitem, (call, i)) for i in range(_count(case))]
    graph.output(tuple(outputs))
    module = torch.fx.GraphModule({}, graph)
    inputs = [t for own in tensors for t in own]

    def compiled(shapes):
        with tracing(TracingContext(FakeTensorMode(shape_env=shapes, static_shapes=True))):
            return backend(module, inputs)

    try:
        return compiled(None), inputs
    except (
        DataDependentOutputException,
        DynamicOutputShapeException,
    ):  # use symbols only where needed, because they take time
        return compiled(ShapeEnv()), inputs


def _traceable(case):
    def call(*tensors):
        return case.run(tensors)

    return call


def _count(case):
    """The number of results of the call itself among the compared values."""
    beside = {"gradient": sum(t.requires_grad for t in case.tensors), "inplace": len(case.tensors)}
    return len(case.expected) - beside.get(case.form, 0)


@contextlib.contextmanager
def _quiet():
    logging.disable(logging.ERROR)
    try:
        yield
    finally:
        logging.disable(logging.NOTSET)


@contextlib.contextmanager
def _counting(backend, tally):
    """Counts native and Extern ops of the graphs that are compiled in the context, if all of them are compiled."""
    if backend != "ipex":
        yield
        return
    from intel_extension_for_pytorch.compiler.records import record_reports

    with record_reports() as reports:
        yield
    native, extern = op_counts(reports)
    tally.native += native
    tally.extern.update(extern)
    tally.eager_graphs.update(report["eager"] for report in reports if report["eager"])


def op_counts(reports):
    """(native ops, Extern ops by name) of compiled graphs."""
    extern = Counter()
    for report in reports:
        if report["eager"]:
            extern["graph that runs eagerly"] += report["nodes"]
        extern.update(op.partition(": ")[0].removeprefix("aten::").removeprefix("aten.") for op in report["extern_ops"])
    return sum(report["native_ops"] for report in reports), extern


# ---- comparing ----


def _differences(cases, backend, tally):
    """For each case None, or how it differs from eager."""
    if any(case.random for case in cases):
        torch.manual_seed(0)
        for case in cases:
            _run_eager(case)
    results = _compiled_results(cases, backend, tally)
    return [_difference(case, ours, tally) for case, ours in zip(cases, results, strict=True)]


def _difference(case, ours, tally):
    if _plain(case.constants) != _plain(case.expected_constants):
        return f"{case.constants}, eager has {case.expected_constants}"
    truth = functools.cache(lambda: _reference(case))
    for position, (a, b) in enumerate(zip(ours, case.expected, strict=True)):
        if a is None or b is None:
            message = None if a is b else f"{a}, eager has {b}"
        else:
            message = _form_difference(a, b)
            if message is None and not case.unwritten and not _same(a, b):
                message = _value_difference(_real(a), _real(b), lambda p=position: truth()[p], case.tolerances)
        if message is not None:
            return f"result {position}: {message}"
    if case.form == "forward" and not (case.random or case.unwritten):
        for triple in zip(ours, case.expected, truth(), strict=True):
            if triple[0].dtype is torch.float32 and triple[2] is not None:
                tally.errors = [e + s for e, s in zip(tally.errors, _squares(*triple), strict=True)]
    return None


def _plain(values):
    return [v for v in values if isinstance(v, (bool, int, float, str))]


def _form_difference(ours, eager):
    if ours.dtype != eager.dtype:
        return f"dtype {ours.dtype}, eager has {eager.dtype}"
    if ours.shape != eager.shape or ours.layout != eager.layout:
        return f"shape {tuple(ours.shape)} {ours.layout}, eager has {tuple(eager.shape)} {eager.layout}"
    if ours.layout is torch.strided and eager.numel() and memory_order(ours) != memory_order(eager):
        return f"strides {ours.stride()}, eager has {eager.stride()}"
    return None


def _same(a, b):
    return a.layout is torch.strided and torch.equal(a, b)


def _reference(case):
    """The results in fp64, or None for each if the op does not support that."""
    torch.manual_seed(0)
    tensors = case.wide_arguments()
    try:
        results = [_real(t) for t in _results([case], [case.run(tensors, wide=True)], [tensors])[0]]
    except Exception:
        results = []
    shapes = [[t if t is None else t.shape for t in ts] for ts in (results, map(_real, case.expected))]
    return results if shapes[0] == shapes[1] else [None] * len(case.expected)


def _value_difference(ours, eager, truth, own):
    """Compares values: within the dtype's tolerance or OpInfo's, or with an error against fp64 that is not larger than
    eager's."""
    rtol, atol = TOLERANCES.get(eager.dtype, (0, 0))
    close = torch.isclose(ours, eager, rtol=rtol, atol=atol, equal_nan=True)
    if bool(close.all()):
        return None
    if eager.dtype in ERROR_RATIO and (exact := truth()) is not None:
        error, eager_error, scale = _squares(ours, eager, exact)
        near = torch.isclose(ours, exact.to(ours.dtype), rtol=rtol, atol=atol, equal_nan=True)
        special = ~(
            torch.isfinite(ours) & torch.isfinite(eager)
        )  # where eager overflows in an intermediate result, use fp64
        one_rounding = (torch.finfo(eager.dtype).eps / 4) ** 2 * scale
        within = error <= ERROR_RATIO[eager.dtype] ** 2 * max(eager_error, one_rounding)
        if within and not (special & ~close & ~near).any():
            return None
    if eager.dtype in own and torch.allclose(ours, eager, *own[eager.dtype], equal_nan=True):
        return None
    where = tuple((~close).nonzero()[0].tolist())
    return f"at {where}: {ours[where].item()!r}, eager has {eager[where].item()!r}"


def _squares(ours, eager, exact):
    """The squares of our error, of eager's error, and of the exact values, where all are finite."""
    finite = torch.isfinite(ours) & torch.isfinite(eager) & torch.isfinite(exact)
    exact = exact.where(finite, 0).double()
    errors = [(t.where(finite, 0).double() - exact).square().sum().item() for t in (ours, eager)]
    return [*errors, exact.square().sum().item()]


def _real(t):
    if t is None:
        return None
    t = t.to_dense() if t.layout is not torch.strided else t
    return torch.view_as_real(t.resolve_conj()) if t.is_complex() else t

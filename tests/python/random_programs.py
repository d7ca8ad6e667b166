"""Tensor programs as data. They run eagerly, in fp64 and compiled, for one or several sets of sizes, and are compared.

A program is a list of steps over earlier values; steps may change values in place. A dynamic program has sizes as
arguments of its steps (`Extent`), and inputs for several bindings of its sizes. It is compiled once, for the first
binding, and runs with all bindings that the guards of that compilation admit.

Tolerances are not guessed: the program also runs in fp64, and eager's distance from that sets the scale.
"""

import functools
import math
import operator
import os
import re
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import Any
from unittest import mock

import torch
from conftest import BACKEND
from graphs import compile_graph
from interpreted import by_interpreter
from op_cases import UNFIXED_SPECIALS
from torch._dynamo.backends.registry import lookup_backend
from torch._dynamo.source import ConstantSource
from torch._guards import TracingContext, tracing
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.symbolic_shapes import DimDynamic, ShapeEnv, StatelessSymbolicContext
from torch.fx.node import map_aggregate


@dataclass(frozen=True)
class Ref:
    """A reference to a value of the program by its number: inputs first, then the steps' results."""

    index: int


@dataclass(frozen=True)
class Extent:
    """An integer computed when the program runs: (size of dimension `dim` of value `of`) // over + plus."""

    of: int
    dim: int
    over: int = 1
    plus: int = 0

    def value(self, tensor):
        return tensor.shape[self.dim] // self.over + self.plus


@dataclass(frozen=True)
class Step:
    target: Any
    args: tuple
    kwargs: dict
    rounds: bool = True  # whether two correct implementations may differ in the last place

    @property
    def mutates(self):
        return self.target._schema.is_mutable

    @property
    def draws(self):
        """Whether the step draws random numbers."""
        return torch.Tag.nondeterministic_seeded in self.target.tags

    @property
    def base_name(self):
        """The op's name, without the underscore of in-place ops."""
        return self.target._schema.name.removeprefix("aten::").removesuffix("_")

    def arguments(self, value_of, extent_of):
        """(args, kwargs) with each Ref and Extent replaced by its value."""

        def resolve(argument):
            if isinstance(argument, Ref):
                return value_of(argument.index)
            return extent_of(argument) if isinstance(argument, Extent) else argument

        return map_aggregate((self.args, self.kwargs), resolve)

    def call(self, values):
        args, kwargs = self.arguments(values.__getitem__, lambda e: e.value(values[e.of]))
        return self.target(*args, **kwargs)

    def call_in_fp64(self, values, result):
        """Runs the step on fp64 values. Random numbers are taken from eager's `result`."""
        if not self.draws:
            return self.in_fp64().call(values)
        drawn = fresh(result, widened(result.dtype))
        return values[operands(self)[0]].copy_(drawn) if self.mutates else drawn

    def renumbered(self, number_of):
        args, kwargs = self.arguments(lambda i: Ref(number_of(i)), lambda e: replace(e, of=number_of(e.of)))
        return replace(self, args=args, kwargs=kwargs)

    def in_fp64(self):
        dtype = self.kwargs.get("dtype")
        if dtype is not None and dtype.is_floating_point:
            return replace(self, kwargs={**self.kwargs, "dtype": torch.float64})
        return self


def reads(step):
    """Numbers of the values whose contents or sizes a step uses."""
    found = []
    step.arguments(lambda i: found.append(i), lambda e: found.append(e.of))
    return found


def operands(step):
    found = []
    step.arguments(lambda i: found.append(i), lambda e: 0)
    return found


@dataclass(frozen=True)
class Engine:
    """How a program is compiled and run: instruction set, number of threads, or the interpreter."""

    target: str = ""  # "": the best of the CPU
    threads: int = 0  # 0: the current setting
    interpreter: bool = False

    def __str__(self):
        threads = f", {self.threads} threads" if self.threads else ""
        return "interpreter" if self.interpreter else f"{self.target or 'best target'}{threads}"


@dataclass(frozen=True)
class Program:
    bindings: list[list[torch.Tensor]]  # the inputs for each set of sizes
    steps: list[Step]
    outputs: list[int]
    dynamic: bool = False
    engine: Engine = Engine()
    extreme: bool = False  # values of any magnitude, compared by their own
    outside: bool = False  # some of its ops run in ATen

    def observed(self, values):
        """The values that a caller sees after a run: the outputs, and inputs that may have changed."""
        seen = [values[i] for i in self.outputs]
        return seen + values[: len(self.bindings[0])] if any(s.mutates for s in self.steps) else seen

    def run(self, inputs):
        values = [fresh(t) for t in inputs]
        for step in self.steps:
            values.append(step.call(values))
        return values

    def eager(self, binding=0):
        return self.observed(self.run(self.bindings[binding]))

    def references(self, binding, shakes=1, checked=False):
        """(eager, fp64, perturbed...), each as seen by a caller. None if eager refuses a binding or values become too
        large; eager's error if it divides integers by zero.

        "Perturbed" is fp64 where each rounded result is changed by one rounding error, up or down at random, and then
        in the other direction (two runs for each of `shakes`). It shows how the program amplifies differences that any
        two correct implementations have: the cosine of 1e3 keeps four digits. The generator has checked the first
        binding; `checked` checks it again.
        """
        checked = checked or binding > 0 or any(s.draws for s in self.steps)
        torch.manual_seed(SEED)
        generator = torch.Generator().manual_seed(1)
        eager = [fresh(t) for t in self.bindings[binding]]
        wide, *shaken = ([fresh(t, widened(t.dtype)) for t in eager] for _ in range(1 + 2 * shakes))
        for step in self.steps:
            if checked and step.base_name in UNFIXED_SPECIALS and not all(is_finite(eager[i]) for i in operands(step)):
                return None
            try:
                eager.append(step.call(eager))
            except (RuntimeError, IndexError) as error:
                return error if DIVISION_BY_ZERO in str(error) else None
            if eager[-1].numel() > MAX_ELEMENTS:  # matrix products take long in fp64
                return None
            for values in (wide, *shaken):
                values.append(step.call_in_fp64(values, eager[-1]))
            result = eager[-1]
            if checked and not comparable(result, wide[-1], self.extreme):
                return None
            if not result.is_floating_point() or result.dtype == torch.float64 or not step.rounds:
                continue
            if overlaps_itself(result):
                continue
            exact = has_few_bits(result) and same_values(result, wide[-1]) and step.base_name not in CANCELS
            size = 0 if exact else torch.finfo(result.dtype).eps
            least = size if step.base_name in CANCELS else 2.0**-149 if size else 0
            for k, values in enumerate(shaken):
                if k % 2 == 0:
                    signs = torch.randint(0, 2, result.shape, generator=generator) * 2 - 1
                value, way = values[-1], signs if k % 2 == 0 else -signs
                moved = value * (1 + size * way) + least * way
                # Zeros get random signs. In every other pair, all get the same sign, as in a product starting from 0,
                # and elements that are negligible compared with others become zero, like an exact difference.
                sign = way if k // 2 % 2 == 0 else torch.full_like(way, 1 - 2 * (k % 2))
                nothing = 0 if k // 2 % 2 == 0 or value.numel() == 0 else 2.0**-20 * value.abs().nan_to_num(0, 0).max()
                moved = torch.where(value.abs() <= nothing, torch.zeros_like(value).copysign(sign), moved)
                if step.mutates:
                    value.copy_(moved)
                elif not any(shares_memory(value, values[i]) for i in operands(step)):
                    values[-1] = moved
        return tuple(map(self.observed, (eager, wide, *shaken)))

    def graph(self):
        graph = torch.fx.Graph()
        nodes = [graph.placeholder(f"arg{i}") for i in range(len(self.bindings[0]))]

        def extent(e):
            size = graph.call_function(torch.ops.aten.sym_size.int, (nodes[e.of], e.dim))
            size = graph.call_function(operator.floordiv, (size, e.over)) if e.over != 1 else size
            return graph.call_function(operator.add, (size, e.plus)) if e.plus else size

        for step in self.steps:
            nodes.append(graph.call_function(step.target, *step.arguments(nodes.__getitem__, extent)))
        graph.output(tuple(nodes[i] for i in self.outputs))
        return torch.fx.GraphModule({}, graph)

    def scaled(self, factor):
        """The program with all float arguments of steps multiplied by `factor`."""
        steps = [
            replace(s, **dict(zip(("args", "kwargs"), scaled_floats((s.args, s.kwargs), factor), strict=True)))
            for s in self.steps
        ]
        return replace(self, steps=steps)

    def source(self):
        """Python source that computes the outputs from `factor` (see `scaled`) and the inputs."""
        first = len(self.bindings[0])
        lines = [f"def program({', '.join(['factor', *(f'v{i}' for i in range(first))])}):"]
        lines += [f"    v{i} = {call_of(step, 'factor')}" for i, step in enumerate(self.steps, first)]
        return "\n".join([*lines, f"    return [{', '.join(f'v{i}' for i in self.outputs)}]"])

    def knobs(self):
        target = {"IPEX_TARGET": self.engine.target} if self.engine.target else {}
        return target | ({"IPEX_STRICT": "0"} if self.outside else {})

    def compiled(self):
        """(run, covers): the code compiled for the first binding, and a test whether it accepts given inputs."""
        with mock.patch.dict(os.environ, self.knobs()), by_interpreter() if self.engine.interpreter else nullcontext():
            if not self.dynamic:
                return compile_graph(self.graph(), self.bindings[0]), lambda inputs: True
            return compile_dynamic(self.graph(), self.bindings[0])

    def __str__(self):
        marks = [mark for mark in ("extreme", "outside") if getattr(self, mark)]
        lines = [f"# {', '.join(['dynamic' if self.dynamic else 'static', *marks, str(self.engine)])}"]
        for inputs in self.bindings:
            lines += [f"v{i} = {describe(t)}" for i, t in enumerate(inputs)]
        for i, step in enumerate(self.steps, len(self.bindings[0])):
            lines.append(f"v{i} = {call_of(step)}")
        return "\n".join([*lines, f"return {', '.join(f'v{i}' for i in self.outputs)}"])


def compile_dynamic(module, inputs):
    """(run, covers): the code compiled with symbolic input sizes, as by Dynamo with dynamic=True."""
    shapes = ShapeEnv()
    mode = FakeTensorMode(shape_env=shapes)
    fakes = [as_symbols(mode, fresh(tensor), i) for i, tensor in enumerate(inputs)]
    with tracing(TracingContext(mode)):
        run = lookup_backend(BACKEND)(module, fakes)

    def admits(size, given):
        """Whether the guards accept the inputs. This includes symbols that were specialized while the graph was
        traced."""
        known = size if isinstance(size, int) else shapes.replace(size.node.expr)
        return not (isinstance(known, int) or known.is_number) or known == given

    def covers(others):
        sizes = [size for fake in fakes for size in fake.shape]
        given = [size for other in others for size in other.shape]
        try:
            return all(map(admits, sizes, given)) and shapes.evaluate_guards_for_args(fakes, others)
        except ZeroDivisionError:  # a guard divides by a size that is 0
            return False

    return run, covers


def as_symbols(mode, tensor, position):
    """The tensor with symbolic sizes, as argument `position` of a graph to trace."""
    sizes = StatelessSymbolicContext(dynamic_sizes=[DimDynamic.DYNAMIC] * tensor.dim())
    return mode.from_tensor(tensor, source=ConstantSource(f"arg{position}"), symbolic_context=sizes)


# ---- tensors ----


def fresh(tensor, dtype=None):
    """A copy with the strides of the tensor, including broadcast dimensions."""
    first = tuple(slice(0, 1) if stride == 0 else slice(None) for stride in tensor.stride())
    stored = tensor[first]
    copy = torch.empty_strided(stored.shape, stored.stride(), dtype=dtype or tensor.dtype).copy_(stored)
    return copy.expand(tensor.shape)


def as_given(tensor):
    """A copy of the same kind, such as a negated view or zeros without memory."""
    if tensor._is_zerotensor():
        return torch._efficientzerotensor(tensor.shape, dtype=tensor.dtype)
    return torch._neg_view(fresh(torch._neg_view(tensor))) if tensor.is_neg() else fresh(tensor)


def widened(dtype):
    return torch.float64 if dtype.is_floating_point else dtype


def is_finite(tensor):
    return bool(tensor.isfinite().all())


def shares_memory(a, b):
    return a.untyped_storage().data_ptr() == b.untyped_storage().data_ptr() != 0


def overlaps_itself(tensor):
    return any(stride == 0 and size > 1 for size, stride in zip(tensor.shape, tensor.stride(), strict=True))


def has_few_bits(tensor):
    """Whether all elements are small multiples of 1/256, on which arithmetic does not round, except to bf16."""
    scaled = tensor.double().nan_to_num(0, 0, 0) * 256
    return torch.equal(scaled, scaled.round())


def same_values(narrow, wide):
    return bool(((narrow == wide) | (narrow.isnan() & wide.isnan())).all())


def describe(tensor):
    """A Python expression for the tensor: with its values if it is small, else by shape and strides."""
    kind = "  # zeros without memory" if tensor._is_zerotensor() else "  # a negated view" if tensor.is_neg() else ""
    if tensor.numel() <= 16 and tensor.is_contiguous():
        return f"torch.tensor({fresh(tensor).tolist()}, dtype={tensor.dtype}){kind}"
    strides = tuple(tensor.stride())
    return f"torch.empty_strided({tuple(tensor.shape)}, {strides}, dtype={tensor.dtype})  # random values{kind}"


def call_of(step, factor=""):
    arguments = [show(a, factor) for a in step.args] + [f"{k}={show(v, factor)}" for k, v in step.kwargs.items()]
    return f"torch.ops.{step.target}({', '.join(arguments)})"


def scaled_floats(arguments, factor):
    return map_aggregate(arguments, lambda a: a * factor if isinstance(a, float) else a)


def show(value, factor=""):
    """The value as Python source; floats are multiplied by `factor` if it is given."""
    if isinstance(value, Ref):
        return f"v{value.index}"
    if isinstance(value, Extent):
        size = f"v{value.of}.shape[{value.dim}]"
        size = f"{size} // {value.over}" if value.over != 1 else size
        return f"{size} + {value.plus}" if value.plus else size
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(show(v, factor) for v in value) + "]"
    return f"{value!r} * {factor}" if factor and isinstance(value, float) else repr(value)


@functools.cache
def all_targets():
    try:
        from intel_extension_for_pytorch import _C
    except ImportError:
        return ("",)
    return tuple(_C.supported_targets())


# ---- comparison ----

COMPARED = (torch.float32, torch.bfloat16, torch.int64, torch.int32, torch.int8, torch.uint8, torch.bool)
DIVISION_BY_ZERO = "ZeroDivisionError"
LARGEST = 1e4
CANCELS = {"logaddexp", "logaddexp2"}  # their inner sum may cancel to rounding error
SEED = 7  # seed of the program's random numbers in every run
MAX_ELEMENTS = 1 << 23


def comparable(value, wide, extreme=False):
    """Whether values are moderate (or `extreme`), with special values only where fp64 has them too."""
    if type(value) is not torch.Tensor or value.dtype not in COMPARED or value.shape != wide.shape:
        return False
    if not value.is_floating_point():
        return value.dtype == torch.bool or value.numel() == 0 or bool((value.long().abs() < LARGEST).all())
    if not torch.equal(value.isfinite(), wide.isfinite()) or not torch.equal(value.isnan(), wide.isnan()):
        return False
    return extreme or value.numel() == 0 or bool((value.float().nan_to_num(0, 0, 0).abs() < LARGEST).all())


@dataclass(frozen=True)
class Mismatch:
    binding: int
    output: int
    message: str

    @property
    def kind(self):
        """The message without numbers. A minimised program must fail with the same kind."""
        return re.match(r"[\d\s]*(\w+)", self.message)[1]


def mismatch(program, count=lambda nodes: None):
    """None, or the first Mismatch. `count` is called with the number of steps of each compared run."""
    threads = torch.get_num_threads()
    torch.set_num_threads(program.engine.threads or threads)
    binding = 0
    try:
        run, covers = program.compiled()
        for binding, inputs in enumerate(program.bindings):
            arguments = [as_given(t) for t in inputs]
            if binding and not covers(arguments):
                continue
            references = program.references(binding)
            if references is None:
                continue
            if isinstance(references, Exception):
                torch.manual_seed(SEED)
                if not raises_the_same(references, run, arguments):
                    return Mismatch(binding, 0, f"no {DIVISION_BY_ZERO}, which eager raises")
                count(len(program.steps))
                continue
            torch.manual_seed(SEED)
            ours = list(run(*arguments))
            if any(step.mutates for step in program.steps):
                ours += arguments
            least = 1e-40 if program.extreme else 1e-2
            found = first_difference(ours, *references, least=least)
            if found is not None:  # use more perturbations before reporting a failure
                found = first_difference(ours, *program.references(binding, shakes=16), least=least)
            if found is not None:
                return Mismatch(binding, *found)
            count(len(program.steps))
    except Exception as error:
        if "does not support symbolic shapes" in str(error):  # an error of PyTorch's shape function in tracing
            return None
        if "known only at a call" in str(error) and not program.outside:  # the op is left to ATen: compare that
            return mismatch(replace(program, outside=True), count)
        return Mismatch(binding, 0, f"{type(error).__name__}: {error}")
    finally:
        torch.set_num_threads(threads)
    return None


def mismatch_of_numbers(program, count=lambda nodes: None):
    """None, or the Mismatch of a static program that runs as a Python function with a float argument. The float changes
    between calls while AOTAutograd's cache is on. This tests how Dynamo and the cache treat such numbers."""
    torch._dynamo.reset()
    names = {"torch": torch, "inf": math.inf, "nan": math.nan}
    exec(program.source(), names)
    run = torch.compile(names["program"], backend=BACKEND)
    caching = torch._functorch.config.patch(enable_autograd_cache=True)
    with caching, mock.patch.dict(os.environ, program.knobs()):
        for number, factor in enumerate((1.0, 0.5, 0.75, 0.25)):
            references = program.scaled(factor).references(0, checked=True)
            if not isinstance(references, tuple):
                continue
            torch.manual_seed(SEED)
            try:
                ours = run(factor, *(fresh(t) for t in program.bindings[0]))
            except Exception as error:
                return Mismatch(number, 0, f"{type(error).__name__}: {error}")
            found = first_difference(ours, *references)
            if found is not None:
                found = first_difference(ours, *program.scaled(factor).references(0, shakes=16))
            if found is not None:
                return Mismatch(number, *found)
            count(len(program.steps))
    return None


def raises_the_same(error, run, arguments):
    try:
        run(*arguments)
    except RuntimeError as ours:
        return str(error) in str(ours)
    return False


def specials(tensor):
    """Classifies elements: 0 for a number, 1 for NaN, 2 and 3 for the infinities."""
    return tensor.isnan() + 2 * tensor.isposinf() + 3 * tensor.isneginf()


def first_difference(ours, eager, wide, *all_shaken, least=1e-2):
    """None, or (position, message) of the first output that differs from eager. Magnitudes below `least` count as
    `least`."""
    for position, (a, b, w, *shaken) in enumerate(zip(ours, eager, wide, *all_shaken, strict=True)):
        if (a.dtype, a.shape) != (b.dtype, b.shape):
            return position, f"{a.dtype}{tuple(a.shape)}, eager has {b.dtype}{tuple(b.shape)}"
        if not b.is_floating_point():
            if not torch.equal(a, b):
                return position, f"{int((a != b).sum())} of {b.numel()} elements differ"
            continue
        # At poles and edges of domains, the last bit decides between numbers, infinities and NaN.
        steady = functools.reduce(operator.and_, (specials(b) == specials(t) for t in (w, *shaken)))
        if b.numel() == 0 or not steady.any():
            continue
        clean = [torch.where(steady, t.double(), 0).nan_to_num(0, 0, 0) for t in (a, b, w, *shaken)]
        scale = clean[1].abs().max().item()
        own = (clean[1] - clean[2]).abs().max().item()
        shake = max((moved - clean[2]).abs().max().item() for moved in clean[3:])
        tolerance = 20 * own + 8 * shake + (2e-2 if b.dtype == torch.bfloat16 else 1e-4) * (scale + least)
        off = (clean[0] - clean[1]).abs().max().item()
        if ((specials(a) != specials(b)) & steady).any() or off > tolerance:
            return position, f"off by {off:.3e}, allowed {tolerance:.3e} (eager is {own:.3e} from fp64)"
    return None

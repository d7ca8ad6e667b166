"""Generates random programs of hundreds of steps: pointwise ops, views, reductions, concatenation, indexing, products,
in-place ops.

Only steps whose results can be compared are kept: eager accepts them, and values stay moderate. Discontinuous ops (a
comparison, floor, a cast to integers) are applied only to values that are exact by construction, because a difference
of one ulp before them becomes a large one after them.
"""

import functools
import logging
import random

import op_cases
import torch
from random_programs import (
    SEED,
    Engine,
    Extent,
    Program,
    Ref,
    Step,
    all_targets,
    as_symbols,
    comparable,
    fresh,
    is_finite,
    operands,
    overlaps_itself,
    reads,
    shares_memory,
    widened,
)
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.symbolic_shapes import ShapeEnv

FLOATS = (torch.float32, torch.bfloat16)
DTYPES = (*FLOATS, torch.int64)
aten = torch.ops.aten

JUMPS = {
    "ceil", "floor", "round", "trunc", "fix", "frac", "sign", "sgn", "fmod", "remainder", "floor_divide", "heaviside",
    "signbit", "logical_and", "logical_or", "logical_xor", "logical_not", "eq", "ne", "lt", "le", "gt", "ge", "isinf",
    "isnan", "isfinite", "argmax", "argmin", "any", "all", "threshold", "hardshrink", "softshrink", "copysign",
    "nextafter", "frexp", "isposinf", "isneginf", "clamp_max", "div", "hardtanh_backward", "threshold_backward",
    "pow of a negative number",
}  # fmt: skip
# Ops without rounding, so that exact values stay exact on every instruction set.
EXACT = JUMPS - {"div", "remainder", "fmod", "frac"} | {
    "neg", "abs", "relu", "maximum", "minimum", "where", "clone", "clamp", "hardtanh", "bitwise_and", "bitwise_or",
    "bitwise_xor", "bitwise_not",
}  # fmt: skip
VIEWS = ("permute", "unsqueeze", "expand", "slice", "reshape", "flip", "select", "pad", "repeat", "roll", "split")
EXTENTS = (2, 3, 5, 8, 16, 17, 33, 70)
CONSTANTS = (0, 1, 2, 0.5, -1, 3)
DRAWS = ("rand_like", "randn_like", "randint_like", "dropout", "rand", "bernoulli", "uniform_")
OTHER_EXTENTS = (2, 3, 7, 16, 31, 64, 65, 130)  # sizes for later runs of a dynamic program


def layout(x):
    """The layout of a tensor as a caller can see it."""
    strides = [stride for size, stride in zip(x.shape, x.stride(), strict=True) if size > 1]
    return x.dtype, x.shape, strides if x.numel() > 0 else []


def random_program(seed, more_bindings=0):
    """The program for this seed. A third of all programs are dynamic, some use smaller instruction sets, and a few are
    interpreted, have values of any magnitude, or have ops that run in ATen and draw random numbers.

    `more_bindings`: the number of additional inputs (and sizes, if dynamic) to run it with. It does not change the
    program.
    """
    rng = random.Random(seed)
    steps = rng.choice((6, 12, 24, 50, 100, 200))
    threads = rng.choice((0, 0, 1, 3))
    target = rng.choice((*all_targets(), "", ""))
    engine = Engine(target, threads, interpreter=steps <= 24 and rng.random() < 0.2)
    dynamic, extreme = rng.random() < 0.35, steps <= 50 and rng.random() < 0.15
    outside = steps <= 50 and not extreme and not engine.interpreter and rng.random() < 0.2
    return Generator(seed, dynamic, engine, more_bindings, extreme, outside).program(steps)


class Generator:
    """Generates one program. `values`: eager results; `wide`: the same in fp64; `fakes`: the results of PyTorch's shape
    functions; `exact`: which values are not affected by rounding."""

    def __init__(self, seed, dynamic=False, engine=None, more_bindings=0, extreme=False, outside=False):
        self.random = random.Random(seed)
        self.torch_random = torch.Generator().manual_seed(seed)
        # Additional bindings use their own random generators, so that the program does not depend on their number.
        more_random, self.more_torch_random = random.Random(seed + 1), torch.Generator().manual_seed(seed + 1)
        self.dynamic = dynamic
        self.engine = engine or Engine()
        self.extreme, self.outside = extreme, outside
        self.max_elements = 200_000
        self.bindings, self.steps = [[]], []
        self.values, self.wide, self.fakes, self.exact = [], [], [], []
        self.fake_mode = FakeTensorMode(shape_env=ShapeEnv() if dynamic else None)
        if dynamic:  # different sizes, because equal ones would be one symbol
            first = self.random.sample(EXTENTS, 3)
            others = [[self.random.choice(OTHER_EXTENTS) for _ in first] for _ in range(3)]
            more = [[more_random.choice(OTHER_EXTENTS) for _ in first] for _ in range(more_bindings)]
            self.extents, self.usual_bindings = [first, *others, *more], 4
        else:
            sizes, self.usual_bindings = [self.random.choice((1, *EXTENTS)) for _ in range(3)], 3
            self.extents = [sizes] * (self.usual_bindings + more_bindings)
        self.bindings = [[] for _ in self.extents]

    def program(self, steps):
        self.max_elements = max(4_000, 400_000 // steps)
        for _ in range(self.random.randint(1, 4 if steps < 50 else 8)):
            self.add_input()
        moves = [self.pointwise] * 12 + [self.view] * 6 + [self.reduction] * 4 + [self.in_place] * 2
        moves += [self.cast, self.join, self.lookup, self.product, self.composite] * 2
        moves += [self.count, self.divide, self.constant]
        moves += [self.outside_op, self.draw] * 4 if self.outside else []
        torch.manual_seed(SEED)
        logging.disable(logging.ERROR)  # shape functions log what they refuse
        for _ in range(20 * steps):
            if len(self.steps) < steps:
                self.random.choice(moves)()
        logging.disable(logging.NOTSET)
        used = {i for step in self.steps for i in reads(step)}
        first = len(self.bindings[0])
        outputs = [i for i in range(first, len(self.values)) if i not in used or self.random.random() < 0.1]
        if any(step.mutates for step in self.steps):  # eager refuses to write to zeros without memory
            self.bindings = [[fresh(t) if t._is_zerotensor() else t for t in inputs] for inputs in self.bindings]
        return Program(self.bindings, self.steps, outputs, self.dynamic, self.engine, self.extreme, self.outside)

    # ---- inputs ----

    def add_input(self):
        which = [(d, self.random.random() < 0.33) for d in range(self.random.randint(0, 2), 3)]
        dtype = self.random.choice(DTYPES)
        transposed, repeated = self.random.random() < 0.3, self.random.random() < 0.15
        kind = self.random.choices(("plain", "negated", "zero"), (30, 1, 1))[0] if dtype.is_floating_point else "plain"
        scale = 10.0 ** self.random.uniform(-30, 30) if self.extreme and dtype.is_floating_point else 1
        offset = self.random.choice((0, 0, 1e3, 1e6)) if scale != 1 else 0
        for number, (inputs, extents) in enumerate(zip(self.bindings, self.extents, strict=True)):
            shape = [1 if is_one else extents[d] for d, is_one in which]
            generator = self.torch_random if number < self.usual_bindings else self.more_torch_random
            tensor = op_cases.random_values(dtype, shape[::-1] if transposed else shape, generator)
            if scale != 1:
                tensor = ((tensor.double() + offset) * scale).to(dtype)
            if transposed:
                tensor = tensor.permute(*range(len(shape))[::-1])
            if kind == "negated":
                tensor = torch._neg_view(tensor)
            elif kind == "zero":
                tensor = torch._efficientzerotensor(shape, dtype=dtype)
            inputs.append(tensor.expand(2, *tensor.shape) if repeated and kind == "plain" else tensor)
        tensor = fresh(self.bindings[0][-1])
        mode = self.fake_mode
        fake = as_symbols(mode, tensor, len(self.values)) if self.dynamic else mode.from_tensor(tensor)
        self.remember(tensor, fresh(tensor, widened(tensor.dtype)), fake, exact=True)

    def remember(self, value, wide, fake, exact):
        self.values.append(value)
        self.wide.append(wide)
        self.fakes.append(fake)
        self.exact.append(exact)

    # ---- steps ----

    def pick(self, accept=lambda value: True):
        """The number of a random value, preferably a recent one."""
        fitting = [i for i, value in enumerate(self.values) if accept(value)]
        if not fitting:
            return None
        return self.random.choice(fitting[-4:] if self.random.random() < 0.6 else fitting)

    def extent(self, index, dim, over=1, plus=0):
        """A size as an argument: an Extent in a dynamic program, a number in a static one."""
        extent = Extent(index, dim, over, plus)
        return extent if self.dynamic else extent.value(self.values[index])

    def add(self, target, *args, name=None, **kwargs):
        """Appends the step if eager accepts it and its result can be compared. Returns its number, or None."""
        step = Step(target, args, kwargs)
        read = operands(step)
        exact = all(self.exact[i] for i in read)
        integral = all(not self.values[i].is_floating_point() for i in read)
        if name in JUMPS and not exact and (name != "div" or kwargs.get("rounding_mode")):
            return None
        memory = [t[read[0]].untyped_storage() for t in (self.values, self.wide)] if step.mutates else []
        saved = [storage.clone() for storage in memory]
        try:
            value = step.call(self.values)
            wide = step.call_in_fp64(self.wide, value)
            accepted = value.numel() <= self.max_elements and value.dim() <= 5
            accepted = accepted and comparable(value, wide, self.extreme)
            accepted = accepted and (value.is_floating_point() or exact)
            if accepted:  # PyTorch's shape functions must agree with eager, because a compiler depends on them
                with self.fake_mode:
                    fake = step.call(self.fakes)
                accepted = layout(fake) == layout(value)
            # For fp16 and bf16, eager rounds between the division and the floor, but a compiler need not.
            rounds_inside = name == "floor_divide" or kwargs.get("rounding_mode") is not None
            accepted = accepted and not (rounds_inside and value.dtype in (torch.bfloat16, torch.float16))
        except Exception:  # eager refuses these operands: try another step
            accepted = False
        if not accepted:
            for storage, before in zip(memory, saved, strict=True):
                storage.copy_(before)
            return None
        moves_bits = name is None or name in EXACT or (integral and not value.is_floating_point())
        stays_exact = exact and moves_bits
        self.steps.append(Step(target, args, kwargs, rounds=not moves_bits))
        self.remember(value, wide, fake, stays_exact)
        if step.mutates and not stays_exact:
            for i, other in enumerate(self.values):
                self.exact[i] = self.exact[i] and not shares_memory(other, value)
        return len(self.values) - 1

    def pointwise(self):
        op = self.random.choice(pointwise_ops())
        arguments = dict(self.random.choice(op_cases.variants(op)))
        for argument in op_cases.tensor_arguments(op):
            wants_bool = argument.name == "condition"
            index = self.pick(lambda v, b=wants_bool: (v.dtype == torch.bool) == b or not b)
            if index is None:
                return
            arguments[argument.name] = Ref(index)
        name = op._schema.name.removeprefix("aten::")
        if name in op_cases.UNFIXED_SPECIALS and not self.are_finite(arguments):
            return
        base = arguments.get("self")
        if name == "pow" and not isinstance(base, Ref) and base < 0:
            name = "pow of a negative number"
        call = op_cases.call_by_name(op, arguments, "")
        self.add(op, *call.args, name=name, **call.kwargs)

    def are_finite(self, arguments):
        return all(is_finite(self.values[a.index]) for a in arguments.values() if isinstance(a, Ref))

    def in_place(self):
        index = self.pick(lambda v: v.numel() > 0 and not overlaps_itself(v))
        if index is None or self.is_view_of_expanded(index):
            return
        x, ref, kind = self.values[index], Ref(index), self.random.choice(("pointwise",) * 4 + ("copy", "fill", "zero"))
        if kind == "copy":
            other = self.pick(lambda v: v.dtype == x.dtype)
            self.add(aten.copy_.default, ref, Ref(other))
        elif kind == "fill":
            self.add(aten.fill_.Scalar, ref, self.random.choice((0, 2, -1)))
        elif kind == "zero":
            self.add(aten.zero_.default, ref)
        else:
            op = self.random.choice(in_place_ops())
            name = op._schema.name.removeprefix("aten::").removesuffix("_")
            arguments = dict(self.random.choice(op_cases.variants(op)))
            for argument in op_cases.tensor_arguments(op):
                other = index if argument.name == "self" else self.pick()
                arguments[argument.name] = Ref(other)
            if name in op_cases.UNFIXED_SPECIALS and not self.are_finite(arguments):
                return
            call = op_cases.call_by_name(op, arguments, "")
            self.add(op, *call.args, name=name, **call.kwargs)

    def is_view_of_expanded(self, index):
        """Whether writes are not possible: PyTorch functionalizes a write to such a view to base + (new - base), which
        keeps NaN, and refuses to write to an input with overlapping elements."""
        first = len(self.bindings[0])
        while index >= first:
            step = self.steps[index - first]
            source = next(iter(operands(step)), index)
            if source == index or not shares_memory(self.values[index], self.values[source]):
                return False
            if step.target is aten.expand.default:
                return True
            index = source
        return overlaps_itself(self.values[index])

    def view(self):
        index = self.pick()
        x, ref, rng = self.values[index], Ref(index), self.random
        kind = rng.choice(VIEWS)
        if x.dim() == 0 or x.dim() > 4:
            kind = "unsqueeze" if x.dim() == 0 else "select"
        dim = rng.randrange(x.dim()) if x.dim() else 0
        size = x.shape[dim] if x.dim() else 1
        if kind == "permute":
            self.add(aten.permute.default, ref, rng.sample(range(x.dim()), x.dim()))
        elif kind == "unsqueeze":
            self.add(aten.unsqueeze.default, ref, rng.randint(0, x.dim()))
        elif kind == "expand":
            self.add(aten.expand.default, ref, [self.some_extent() if n == 1 else -1 for n in x.shape])
        elif kind == "slice":
            start = self.extent(index, dim, over=2) if rng.random() < 0.5 else rng.randint(0, 1)
            self.add(aten.slice.Tensor, ref, dim, start, self.extent(index, dim), rng.choice((1, 1, 2, 3)))
        elif kind == "reshape":
            kept = range(dim if x.numel() else 0)
            self.add(aten.reshape.default, ref, [*(self.extent(index, d) for d in kept), -1])
        elif kind == "split":  # the last dimension of another value, split
            other = self.pick(lambda v: v.dim() > 0)
            if other is not None:
                self.add(aten.reshape.default, ref, [-1, self.extent(other, self.values[other].dim() - 1)])
        elif kind == "flip":
            self.add(aten.flip.default, ref, [dim])
        elif kind == "roll":
            self.add(aten.roll.default, ref, [rng.choice((1, -2))], [dim])
        elif kind == "select":
            at = rng.choice((0, -1)) if self.dynamic else rng.randrange(-size, size or 1)
            self.add(aten.select.int, ref, dim, at)
        elif kind == "pad":
            self.add(aten.constant_pad_nd.default, ref, [rng.randint(0, 2), rng.randint(-1, 2)], rng.choice((0, 1)))
        elif kind == "repeat":
            self.add(aten.repeat.default, ref, [rng.choice((1, 2)) for _ in x.shape])

    def some_extent(self):
        index = self.pick(lambda v: v.dim() > 0)
        if index is None or self.random.random() < 0.5:
            return self.random.choice((1, 2, 3))
        return self.extent(index, self.random.randrange(self.values[index].dim()))

    def reduction(self):
        index = self.pick(lambda v: v.dim() > 0)
        if index is None:
            return
        x, ref = self.values[index], Ref(index)
        dim, keep = self.random.randrange(x.dim()), self.random.random() < 0.5
        kind = self.random.choice(("sum", "mean", "amax", "amin", "var", "argmax", "any", "cumsum", "all", "prod"))
        if kind in ("argmax", "any"):
            self.add(getattr(aten, kind).dim if kind == "any" else aten.argmax.default, ref, dim, keep, name=kind)
        elif kind == "all":
            self.add(aten.sum.dim_IntList, ref, list(range(x.dim())), keep, name="sum")
        elif kind == "cumsum":
            self.add(aten.cumsum.default, ref, dim, name=kind)
        elif (
            kind == "prod" and x.shape[dim] <= 8 and not self.dynamic
        ):  # with more factors, the order decides whether inf is multiplied by 0
            self.add(aten.prod.dim_int, ref, dim, keep, name=kind)
        elif kind == "var":
            self.add(aten.var.correction, ref, [dim], correction=self.random.choice((0, 1)), keepdim=keep, name=kind)
        elif kind in ("amax", "amin"):
            self.add(getattr(aten, kind).default, ref, [dim], keep)
        else:
            self.add(aten.sum.dim_IntList if kind == "sum" else aten.mean.dim, ref, [dim], keep, name=kind)

    def composite(self):
        """Ops as in models: several reductions and pointwise ops over one row."""
        index = self.pick(lambda v: v.dim() > 0 and v.is_floating_point())
        if index is None:
            return
        x, ref = self.values[index], Ref(index)
        dim = self.random.randrange(x.dim())
        kind = self.random.choice(("_softmax", "_log_softmax", "logsumexp", "layer_norm"))
        if kind == "logsumexp":
            self.add(aten.logsumexp.default, ref, [dim], self.random.random() < 0.5, name=kind)
        elif kind == "layer_norm":
            self.add(aten.layer_norm.default, ref, [self.extent(index, x.dim() - 1)], name=kind)
        else:
            self.add(getattr(aten, kind).default, ref, dim, False, name=kind)

    def product(self):
        index = self.pick(lambda v: v.dim() == 2 and v.is_floating_point())
        if index is None:
            return
        x = self.values[index]
        other = self.pick(lambda v: v.dim() == 2 and v.dtype == x.dtype and x.shape[1] in v.shape)
        if other is None:
            return
        if self.values[other].shape[0] != x.shape[1]:
            other = self.add(aten.t.default, Ref(other))
        if other is not None:
            self.add(aten.mm.default, Ref(index), Ref(other), name="mm")

    def cast(self):
        dtype = self.random.choice((*DTYPES, torch.int32, torch.bool))
        index = self.pick()
        narrows = dtype == torch.bfloat16 or not dtype.is_floating_point
        if narrows and not self.exact[index] and not dtype.is_floating_point:
            return
        # A fused kernel may keep this value in a wider type, so it is no longer exact.
        self.add(aten._to_copy.default, Ref(index), dtype=dtype, name="round_to" if narrows else None)

    def count(self):
        """An index that is a range, cast to a type that may not hold all of it, beside other indices."""
        index = self.pick(lambda v: v.dim() >= 2 and v.numel() > 0)
        if index is None:
            return
        size = self.values[index].shape[0]
        many = self.extent(index, 0) if self.random.random() < 0.5 else self.random.choice((130, 258, 300))
        places = self.add(aten.arange.default, many)
        narrow = self.random.choice((torch.uint8, torch.int8, torch.bfloat16))
        # uint8 and int8 wrap around, and bf16 rounds to even, in the same way everywhere.
        for dtype in (narrow, torch.int64):
            places = None if places is None else self.add(aten._to_copy.default, Ref(places), dtype=dtype)
        if places is None:
            return
        if self.values[places].shape[0] != size or self.random.random() < 0.5:
            places = self.add(aten.remainder.Scalar, Ref(places), self.extent(index, 0), name="remainder")
        other = self.pick(lambda v: v.dtype == torch.int64 and v.dim() == 1 and v.numel() > 0)
        if self.dynamic:  # there would be no guard that two symbols are equal
            other = places
        if places is None or other is None:
            return
        other = self.add(aten.remainder.Scalar, Ref(other), self.extent(index, 1), name="remainder")
        if other is not None:
            self.add(aten.index.Tensor, Ref(index), [Ref(places), Ref(other)])

    def divide(self):
        """A division of integers without zeros in the divisor. With other inputs there may be zeros."""
        divisor = self.pick(lambda v: v.dtype == torch.int64 and bool((v != 0).all()))
        index = self.pick(lambda v: v.dtype == torch.int64)
        if divisor is None or index is None:
            return
        kind = self.random.choice(("floor_divide", "remainder", "fmod"))
        op = getattr(aten, kind)
        self.add(op.Tensor if kind != "floor_divide" else op.default, Ref(index), Ref(divisor), name=kind)

    def constant(self):
        """A constant tensor, which a compiler may store as one element."""
        index = self.pick()
        sizes = [self.extent(index, d) for d in range(self.values[index].dim())]
        self.add(aten.full.default, sizes, self.random.choice(CONSTANTS), dtype=self.random.choice(FLOATS))

    def outside_op(self):
        """Ops that run in ATen, often with a constant operand."""
        constants = [i for i, value in enumerate(self.values) if value.is_floating_point() and self.is_constant(i)]
        x = self.pick(lambda v: v.dtype == torch.float32)
        other = self.pick(lambda v: v.dtype == torch.float32)
        if constants and self.random.random() < 0.7:
            other = self.random.choice(constants)
        if x is None:
            return
        operands = [Ref(x), Ref(other)]
        self.random.shuffle(operands)
        kind = self.random.choice(("igamma", "igammac", "solve_triangular", "cdist", "matrix_exp"))
        if kind == "solve_triangular":
            self.add(aten.linalg_solve_triangular.default, *operands, upper=self.random.random() < 0.5, name=kind)
        elif kind == "cdist":
            self.add(aten._cdist_forward.default, *operands, self.random.choice((1.0, 2.0, 3.0)), None, name=kind)
        elif kind == "matrix_exp":
            self.add(aten.linalg_matrix_exp.default, operands[0], name=kind)
        else:
            self.add(getattr(aten, kind).default, *operands, name=kind)

    def is_constant(self, index):
        first = len(self.bindings[0])
        return index >= first and self.steps[index - first].target is aten.full.default

    def draw(self):
        """Random numbers. The compiled program must draw the same numbers in the same order."""
        index = self.pick(lambda v: v.is_floating_point())
        if index is None:
            return
        x, ref = self.values[index], Ref(index)
        kind = self.random.choice(DRAWS)
        if kind == "randint_like":
            self.add(aten.randint_like.low_dtype, ref, -3, 9)
        elif kind == "rand":
            self.add(aten.rand.default, [self.extent(index, d) for d in range(x.dim())])
        elif kind == "dropout":
            self.add(aten.dropout.default, ref, 0.5, True)
        elif kind == "bernoulli":
            self.add(aten.bernoulli.p, ref, 0.25)
        elif kind == "uniform_":
            if not overlaps_itself(x) and not self.is_view_of_expanded(index):
                self.add(aten.uniform_.default, ref, 0.0, 2.0)
        else:
            self.add(getattr(aten, kind).default, ref)

    def join(self):
        index = self.pick(lambda v: v.dim() > 0)
        if index is None:
            return
        x = self.values[index]
        other = self.pick(lambda v: v.dim() == x.dim() and v.dtype == x.dtype)
        self.add(aten.cat.default, [Ref(index), Ref(other)], self.random.randrange(x.dim()))

    def lookup(self):
        """Indexing by computed values: gathers of rows or elements, scatters that add or set."""
        index = self.pick(lambda v: v.dim() > 0 and v.numel() > 0)
        if index is None:
            return
        x, ref, kind = self.values[index], Ref(index), self.random.choice(("select", "gather", "add", "put"))
        dim = self.random.randrange(x.dim())
        rank = 1 if kind in ("select", "put") else x.dim()
        rows = self.pick(lambda v: v.dtype == torch.int64 and v.dim() == rank and v.numel() > 0)
        if rows is None:
            return
        rows = self.add(aten.remainder.Scalar, Ref(rows), self.extent(index, dim), name="remainder")
        if rows is None:
            return
        if kind == "select":
            self.add(aten.index_select.default, ref, dim, Ref(rows))
        elif kind == "gather":
            self.add(aten.gather.default, ref, dim, Ref(rows))
        elif kind == "add":
            source = self.pick(lambda v: v.dim() == rank and v.dtype == x.dtype)
            self.add(aten.scatter_add.default, ref, dim, Ref(rows), Ref(source), name="scatter_add")
        else:
            # PyTorch's shape function adds no guard here, so symbols would not be known to be equal.
            source = self.pick(lambda v: v.dtype == x.dtype and (v.numel() == 1 or not self.dynamic))
            one_by_chance = self.dynamic and source is not None and has_symbols(self.fakes[source])
            if source is not None and not one_by_chance:
                self.add(aten.index_put.default, ref, [None] * dim + [Ref(rows)], Ref(source), True, name="index_put")


def has_symbols(fake):
    return any(not isinstance(size, int) for size in fake.shape)


@functools.cache
def pointwise_ops():
    """The pointwise ops of the op matrix, each under one name."""
    return [op for op in op_cases.pointwise_overloads() if not op_cases.is_alias(op)]


@functools.cache
def in_place_ops():
    """The in-place forms of the pointwise ops that have one."""
    found = []
    for op in pointwise_ops():
        packet = getattr(aten, op._schema.name.removeprefix("aten::") + "_", None)
        if packet is not None and op._overloadname in packet.overloads():
            found.append(getattr(packet, op._overloadname))
    return found

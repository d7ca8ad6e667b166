"""The operators of optimizer steps, `torch.ops.torch_ipex.*_fused_step(s)`, in every way of storing a parameter: they
agree with a float64 reference, split bf16 gives the bits of float32, and neither threads nor the ISA change a bit."""

import json
import os
import subprocess
import sys

import intel_extension_for_pytorch  # noqa: F401
import pytest
import torch

ops = torch.ops.torch_ipex
EMPTY = torch.empty(0)
SIZES = [(1,), (7,), (33, 65), (3, 5, 3, 3), (40_000,), (64, 1031)]
MODES = ["f32", "f64", "split", "bf16_copy", "f16_copy"]


def coo(index, values, sizes):
    return torch.sparse_coo_tensor(index, values, sizes, check_invariants=True)


class Stored:
    """A parameter in one of the modes, with the operands that the operators take."""

    def __init__(self, value, mode):
        self.mode = mode
        self.param2 = torch.empty(0, dtype=torch.bfloat16)
        if mode == "f64":
            self.param = value.double()
        elif mode == "split":
            self.param, self.param2 = ops.split_float_bfloat16(value)
        else:
            self.param = value.clone()
            if mode != "f32":
                self.param2 = value.to(torch.bfloat16 if mode == "bf16_copy" else torch.float16)

    @property
    def value(self):
        return ops.cat_bfloat16_float(self.param, self.param2) if self.mode == "split" else self.param

    def grad(self, grad):
        dtype = {"f64": torch.float64, "f32": torch.float32, "f16_copy": torch.float16}.get(self.mode, torch.bfloat16)
        return grad.to(dtype)

    def state(self, fill=0.0):
        return torch.full_like(self.param, fill, dtype=torch.float64 if self.mode == "f64" else torch.float32)

    def check_copy(self):
        if self.mode.endswith("copy"):
            assert torch.equal(self.param2, self.param.to(self.param2.dtype))


def gradients(shape, steps, seed=0):
    """Values that bf16 and f16 represent, so that all modes get the same."""
    generator = torch.Generator().manual_seed(seed)
    return [(torch.randn(shape, generator=generator) / 4).bfloat16().half().float() for _ in range(steps)]


class Sgd:
    grids = (
        {"momentum": 0.0},
        {"momentum": 0.9},
        {"momentum": 0.9, "nesterov": True},
        {"momentum": 0.5, "dampening": 0.3},
    )

    @staticmethod
    def step(stored, grad, state, step, momentum=0.0, dampening=0.0, nesterov=False):
        buf = ops.sgd_fused_step(
            stored.param, grad, state.get("buf"), stored.param2, momentum, 0.1, 0.01, dampening, nesterov
        )
        if momentum:
            state["buf"] = buf

    @staticmethod
    def reference(p, g, state, step, momentum=0.0, dampening=0.0, nesterov=False):
        g = g + 0.01 * p
        if momentum:
            state["buf"] = momentum * state["buf"] + (1 - dampening) * g if "buf" in state else g
            g = g + momentum * state["buf"] if nesterov else state["buf"]
        return p - 0.1 * g


class Lars:
    grids = ({"momentum": 0.0}, {"momentum": 0.9}, {"momentum": 0.9, "nesterov": True})

    @staticmethod
    def step(stored, grad, state, step, momentum=0.0, nesterov=False):
        buf = ops.lars_fused_step(
            stored.param, grad, state.get("buf"), stored.param2, momentum, 0.1, 0.5, 1e-6, 0.01, 0.0, nesterov
        )
        if momentum:
            state["buf"] = buf

    @staticmethod
    def reference(p, g, state, step, momentum=0.0, nesterov=False):
        trust = 0.5 * p.norm() / (g.norm() + 0.01 * p.norm() + 1e-6)
        g = g + 0.01 * p
        if momentum:
            state["buf"] = momentum * state["buf"] + g if "buf" in state else g
            g = g + momentum * state["buf"] if nesterov else state["buf"]
        return p - 0.1 * trust * g


class Adagrad:
    grids = ({"lr_decay": 0.0}, {"lr_decay": 0.1})

    @staticmethod
    def step(stored, grad, state, step, lr_decay):
        total = state.setdefault("sum", stored.state(0.1))
        ops.adagrad_fused_step(stored.param, grad, total, stored.param2, step, 0.1, 0.01, lr_decay, 1e-8)

    @staticmethod
    def reference(p, g, state, step, lr_decay):
        g = g + 0.01 * p
        state["sum"] = state.get("sum", 0.1) + g * g
        return p - 0.1 / (1 + (step - 1) * lr_decay) * g / (state["sum"].sqrt() + 1e-8)


class Adam:
    grids = ({}, {"amsgrad": True}, {"decoupled": True}, {"amsgrad": True, "decoupled": True})

    @staticmethod
    def step(stored, grad, state, step, amsgrad=False, decoupled=False):
        states = [state.setdefault(k, stored.state()) for k in ("m", "v", "max")]
        op = ops.adamw_fused_step if decoupled else ops.adam_fused_step
        op(stored.param, *states, grad, stored.param2, amsgrad, step, 0.8, 0.9, 0.01, 0.1, 1e-6)

    @staticmethod
    def reference(p, g, state, step, amsgrad=False, decoupled=False):
        p, g = (p * (1 - 0.01 * 0.1), g) if decoupled else (p, g + 0.1 * p)
        state["m"] = 0.8 * state.get("m", 0) + 0.2 * g
        state["v"] = 0.9 * state.get("v", 0) + 0.1 * g * g
        v = state["v"]
        if amsgrad:
            v = state["max"] = torch.maximum(state.get("max", v), v)
        return p - 0.01 * (state["m"] / (1 - 0.8**step)) / ((v / (1 - 0.9**step)).sqrt() + 1e-6)


class Lamb:
    grids = ({"decay": 0.0}, {"decay": 0.1})

    @staticmethod
    def step(stored, grad, state, step, decay):
        states = [state.setdefault(k, stored.state()) for k in ("m", "v")]
        ops.lamb_fused_step(stored.param, *states, grad, stored.param2, step, 0.8, 0.9, 0.01, decay, 1e-6)

    @staticmethod
    def reference(p, g, state, step, decay):
        state["m"] = 0.8 * state.get("m", 0) + 0.2 * g
        state["v"] = 0.9 * state.get("v", 0) + 0.1 * g * g
        update = state["m"] / (1 - 0.8**step) / ((state["v"] / (1 - 0.9**step)).sqrt() + 1e-6) + decay * p
        return p - 0.01 * (p.norm() / update.norm() if p.norm() and update.norm() else 1) * update


CASES = [(kind, options) for kind in (Sgd, Lars, Adagrad, Adam, Lamb) for options in kind.grids]
case = pytest.mark.parametrize(
    ("kind", "options"), CASES, ids=[f"{k.__name__}-{'-'.join(f'{n}{v}' for n, v in o.items())}" for k, o in CASES]
)


def run(kind, options, mode, value, grads):
    stored, state = Stored(value, mode), {}
    for i, grad in enumerate(grads, 1):
        kind.step(stored, stored.grad(grad), state, i, **options)
        stored.check_copy()
    return stored, state


@case
@pytest.mark.parametrize("shape", SIZES, ids=str)
@pytest.mark.parametrize("mode", MODES)
def test_agrees_with_a_float64_reference(kind, options, mode, shape):
    value, grads = torch.randn(shape), gradients(shape, 5)
    stored, _ = run(kind, options, mode, value, grads)
    expected, state = value.double(), {}
    for i, grad in enumerate(grads, 1):
        expected = kind.reference(expected, grad.double(), state, i, **options)
    tolerance = 1e-12 if mode == "f64" else 3e-6
    torch.testing.assert_close(stored.value.double(), expected, rtol=tolerance, atol=tolerance)


@case
def test_every_mode_gives_the_bits_of_float32(kind, options):
    value, grads = torch.randn(300, 333), gradients((300, 333), 100)
    plain, plain_state = run(kind, options, "f32", value, grads)
    for mode in ("split", "bf16_copy", "f16_copy"):
        stored, state = run(kind, options, mode, value, grads)
        assert torch.equal(stored.value.view(torch.int32), plain.value.view(torch.int32)), mode
        assert all(torch.equal(state[k], plain_state[k]) for k in plain_state)


@pytest.mark.parametrize("mode", MODES)
@case
def test_layouts(kind, options, mode):
    """Whatever the layouts of parameter, gradient and states, the result has the values of contiguous ones."""
    shape = (6, 5, 3, 4)
    value, grads = torch.randn(shape), gradients(shape, 3)
    expected, _ = run(kind, options, mode, value, grads)
    layouts = {
        "channels_last": lambda t: t.to(memory_format=torch.channels_last),
        "transposed": lambda t: t.transpose(0, 3).contiguous().transpose(0, 3),
        "sliced": lambda t: torch.stack([t, t], -1)[..., 0],
        "contiguous": lambda t: t,
    }
    for name, laid_out in layouts.items():
        for grad_name in (name, "contiguous", "sliced", "channels_last"):
            stored, state = Stored(laid_out(value), mode), {}
            strides = stored.param.stride()
            for i, grad in enumerate(grads, 1):
                kind.step(stored, layouts[grad_name](stored.grad(grad)), state, i, **options)
                stored.check_copy()
            assert stored.param.stride() == strides
            if kind in (Lamb, Lars):  # the norms are summed in the order of memory
                torch.testing.assert_close(stored.value, expected.value)
            else:
                assert torch.equal(stored.value, expected.value), (name, grad_name)


@case
def test_threads_do_not_change_a_bit(kind, options):
    value, grads = torch.randn(400, 500), gradients((400, 500), 3)
    threads = torch.get_num_threads()
    results = []
    for count in (1, 2, 3):
        torch.set_num_threads(count)
        results.append(run(kind, options, "split", value, grads)[0].value)
    torch.set_num_threads(threads)
    assert torch.equal(results[0], results[1])
    assert torch.equal(results[0], results[2])


PRINT_BITS = """
import json, sys, torch
sys.path.insert(0, {folder!r})
from test_optimizer_operators import CASES, gradients, run
torch.manual_seed(0)
value, sums = torch.randn(37, 1001), []
for kind, options in CASES:
    for mode in ("f32", "f64", "split", "f16_copy"):
        stored, state = run(kind, options, mode, value, gradients(value.shape, 4))
        bits = stored.value.view(torch.int32).long()
        sums.append([int(bits.sum()), int((bits * torch.arange(bits.numel()).view(bits.shape)).sum())])
print(json.dumps(sums))
"""


def test_all_isas_give_the_same_bits():
    targets = intel_extension_for_pytorch._C.supported_targets()
    code = PRINT_BITS.format(folder=os.path.dirname(__file__))
    results = [
        json.loads(
            subprocess.run(
                [sys.executable, "-c", code],
                env={**os.environ, "IPEX_TARGET": target},
                capture_output=True,
                text=True,
                check=True,
            ).stdout
        )
        for target in targets
    ]
    assert len(results[0]) == 4 * len(CASES)
    assert all(result == results[0] for result in results)


def test_lists_of_parameters():
    """The operators for lists do what those for one parameter do, and count steps."""
    torch.manual_seed(1)
    values = [torch.randn(shape) for shape in SIZES] + [torch.randn(0, 3), torch.randn(())]
    grads = [torch.randn_like(v).to(torch.bfloat16) for v in values]
    one, many = ([Stored(v, "split") for v in values] for _ in range(2))
    states = [[s.state() for s in many] for _ in range(3)]
    steps = [torch.tensor(float(i)) for i in range(len(values))]
    ops.adam_fused_steps(
        [s.param for s in many], grads, *states, [s.param2 for s in many], steps,
        lr=0.1, beta1=0.9, beta2=0.99, weight_decay=0.1, eps=1e-8, amsgrad=True, decoupled=True, maximize=True,
    )  # fmt: skip
    for i, (stored, grad) in enumerate(zip(one, grads, strict=True)):
        own = [stored.state() for _ in range(3)]
        ops.adamw_fused_step(
            stored.param, *own, -grad, stored.param2, True, i + 1, 0.9, 0.99, 0.1, 0.1, 1e-8
        )  # fmt: skip
        assert torch.equal(stored.value, many[i].value)
        assert all(torch.equal(a, b[i]) for a, b in zip(own, states, strict=True))
    assert [float(s) for s in steps] == [i + 1.0 for i in range(len(values))]


def test_gradient_scale_and_first_momentum():
    p, buf, grad = torch.ones(5), torch.full((5,), float("nan")), torch.arange(5.0)
    ops.sgd_fused_steps(
        [p], [grad * 4], [buf], [], lr=0.5, momentum=0.9, weight_decay=0, dampening=0.5, nesterov=False, first=True,
        maximize=True, grad_scale=4.0,
    )  # fmt: skip
    assert torch.equal(buf, -grad)
    assert torch.equal(p, 1 + 0.5 * grad)
    assert torch.equal(grad, torch.arange(5.0))


def test_writes_are_counted():
    p, trail = ops.split_float_bfloat16(torch.randn(10))
    m, v = torch.zeros(10), torch.zeros(10)
    grad = torch.randn(10)
    before = [t._version for t in (p, trail, m, v, grad)]
    ops.adam_fused_step(p, m, v, EMPTY, grad, trail, False, 1, 0.9, 0.999, 0.1, 0, 1e-8)
    assert [t._version - b for t, b in zip((p, trail, m, v, grad), before, strict=True)] == [1, 1, 1, 1, 0]


def test_special_values():
    """Infinities and NaN go through as in torch's optimizers, also into the halves and copies."""
    value = torch.tensor([1.0, float("inf"), float("nan"), -0.0, 1e-40, 3e38, 1.0, 1.0])
    grad = torch.tensor([float("inf"), 1.0, 1.0, 0.0, 0.0, -3e38, float("nan"), -0.0])
    expected = value - 1.0 * grad
    for mode in ("f32", "split", "bf16_copy"):
        stored = Stored(value, mode)
        ops.sgd_fused_step(stored.param, grad, None, stored.param2, 0, 1.0, 0, 0, False)
        assert torch.equal(stored.value.nan_to_num(7.0), expected.nan_to_num(7.0))
        assert torch.equal(stored.value.isnan(), expected.isnan())
        if mode == "bf16_copy":
            assert torch.equal(stored.param2.isnan(), expected.isnan())


@pytest.mark.parametrize("sizes", [(20,), (20, 3), (4, 5, 6), (30, 64)], ids=str)
@pytest.mark.parametrize("mode", MODES)
def test_sparse_rows(mode, sizes):
    value = torch.randn(sizes)
    index = torch.tensor([[0, 3, 3, 1, 0]])
    grad = (torch.randn(5, *sizes[1:]) / 4).to(torch.bfloat16).float()
    stored = Stored(value, mode)
    ops.packed_add(stored.param, stored.param2, coo(index, stored.grad(grad), sizes), -0.5)
    # Duplicates are added in the type of the arithmetic.
    dtype = torch.float64 if mode == "f64" else torch.float32
    summed = coo(index, stored.grad(grad).to(dtype), sizes).coalesce().to_dense()
    expected = Stored(value, mode)
    ops.packed_add(expected.param, expected.param2, summed, -0.5)
    assert torch.equal(stored.value, expected.value)
    stored.check_copy()
    totals = [stored.state(0.1), expected.state(0.1)]
    sparse = coo(index, stored.grad(grad), sizes)
    ops.adagrad_fused_step(stored.param, sparse, totals[0], stored.param2, 1, 0.1, 0, 0, 1e-8)
    ops.adagrad_fused_step(expected.param, summed, totals[1], expected.param2, 1, 0.1, 0, 0, 1e-8)
    assert torch.equal(stored.value, expected.value)
    assert torch.equal(totals[0], totals[1])
    stored.check_copy()


def test_sparse_gradient_over_two_dimensions():
    value = torch.randn(4, 5, 3).transpose(0, 1)  # (5, 4, 3), not contiguous
    index = torch.tensor([[0, 4, 0], [1, 3, 1]])
    grad = coo(index, torch.randn(3, 3), (5, 4, 3))
    p = value.clone()
    assert not p.is_contiguous()
    ops.packed_add(p, EMPTY, grad, 2.0)
    torch.testing.assert_close(p, value + 2 * grad.to_dense())


@pytest.mark.parametrize("layout", ["contiguous", "transposed", "sliced", "channels_last_1x1", "expanded", "scalar"])
def test_split_and_cat(layout):
    tensor = {
        "contiguous": torch.randn(5, 6),
        "transposed": torch.randn(5, 6).t(),
        "sliced": torch.randn(5, 6)[:, 1::2],
        "channels_last_1x1": torch.randn(8, 4, 1, 1).to(memory_format=torch.channels_last),
        "expanded": torch.randn(5, 1).expand(5, 3),
        "scalar": torch.tensor(-1.2345),
    }[layout]
    top, trail = ops.split_float_bfloat16(tensor)
    assert top.dtype == trail.dtype == torch.bfloat16
    if layout != "expanded":
        assert top.stride() == trail.stride() == tensor.stride()
    bits = tensor.contiguous().view(torch.int32)
    assert torch.equal(top.contiguous().view(torch.int16), (bits >> 16).short())
    assert torch.equal(trail.contiguous().view(torch.int16), bits.short())
    joined = ops.cat_bfloat16_float(top, trail)
    assert torch.equal(joined, tensor)
    assert joined.stride() == top.stride()
    special = torch.tensor([float("inf"), float("nan"), -0.0, 1e-42])
    again = ops.cat_bfloat16_float(*ops.split_float_bfloat16(special))
    assert torch.equal(again.view(torch.int32), special.view(torch.int32))


def test_copies_in_low_precision():
    master = torch.randn(4, 5).t()
    for op, dtype in (
        (ops.sync_master_weight_to_bf16, torch.bfloat16),
        (ops.sync_master_weight_to_fp16, torch.float16),
    ):
        low = torch.zeros(5, 4, dtype=dtype)
        op(master, low)
        assert torch.equal(low, master.to(dtype))
        with pytest.raises(RuntimeError, match="expects a float32 master weight"):
            op(low, master)


def test_errors():
    p, g, empty = torch.randn(4), torch.randn(4), torch.empty(0)
    m, v = torch.zeros(4), torch.zeros(4)

    def adam(p=p, g=g, m=m, param2=empty, beta1=0.9, lr=0.1, eps=1e-8, decay=0.0):
        ops.adam_fused_step(p, m, v, empty, g, param2, False, 1, beta1, 0.999, lr, decay, eps)

    for arguments, message in (
        ({"lr": -1.0}, "lr must not be negative"),
        ({"eps": -1.0}, "eps must not be negative"),
        ({"decay": -1.0}, "weight_decay must not be negative"),
        ({"beta1": 1.0}, r"beta1 must be in \[0, 1\)"),
        ({"m": torch.zeros(5)}, "param and exp_avg must have the same sizes"),
        ({"g": torch.zeros(5)}, "param and grad must have the same sizes"),
        ({"param2": torch.zeros(5, dtype=torch.bfloat16)}, "param and param2 must have the same sizes"),
        ({"m": torch.zeros(4, dtype=torch.bfloat16)}, "exp_avg must be float32"),
        ({"p": p.bfloat16()}, "a parameter without param2 must be float32 or float64"),
        ({"g": g.double()}, "unsupported dtype of grad"),
        ({"g": g.to_sparse()}, "Adam does not support sparse gradients, please consider SparseAdam instead"),
    ):
        with pytest.raises(RuntimeError, match=message):
            adam(**arguments)
    for lr, decay, lr_decay, message in (
        (-1.0, 0.0, 0.0, "lr"),
        (0.1, -1.0, 0.0, "weight_decay"),
        (0.1, 0.0, -1.0, "lr_decay"),
    ):
        with pytest.raises(RuntimeError, match=f"{message} must not be negative"):
            ops.adagrad_fused_step(p, g, m, empty, 1, lr, decay, lr_decay, 1e-8)
    with pytest.raises(RuntimeError, match="Nesterov momentum requires a momentum and zero dampening"):
        ops.sgd_fused_step(p, g, None, empty, 0, 0.1, 0, 0, True)
    with pytest.raises(RuntimeError, match="weight_decay option is not compatible with sparse gradients"):
        ops.adagrad_fused_step(p, g.to_sparse(), m, empty, 1, 0.1, 0.1, 0, 1e-8)
    unsafe = torch.sparse_coo_tensor(torch.tensor([[9]]), torch.ones(1), (4,), check_invariants=False)
    with pytest.raises(IndexError, match="index 9 of the gradient"):
        ops.packed_add(p, empty, unsafe, 1.0)

"""ipex.llm.modules and ipex.llm.functional against plain PyTorch, eager and compiled."""

import copy

import intel_extension_for_pytorch as ipex
import pytest
import torch
from comparison import assert_close_to_eager
from torch import nn
from torch.nn import functional as F

modules, functional = ipex.llm.modules, ipex.llm.functional
DTYPES = [torch.float32, torch.bfloat16]
FUSED = {
    "LinearSilu": lambda y: F.silu(y),
    "LinearRelu": lambda y: F.relu(y),
    "LinearGelu": lambda y: F.gelu(y),
    "LinearNewGelu": lambda y: F.gelu(y, approximate="tanh"),
    "LinearMul": lambda y, a: y * a,
    "LinearSiluMul": lambda y, a: F.silu(y) * a,
    "LinearAdd": lambda y, a: y + a,
    "LinearAddAdd": lambda y, a, b: y + a + b,
}


def others(count, sizes, dtype):
    return [torch.randn(sizes, dtype=dtype) for _ in range(count)]


def tolerance(dtype):
    return {"rtol": 1e-5, "atol": 1e-5} if dtype == torch.float32 else {"rtol": 2e-2, "atol": 2e-2}


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", FUSED)
def test_fused_linear(name, dtype, bias):
    linear = nn.Linear(24, 10, bias=bias, dtype=dtype)
    module = getattr(modules, name)(linear)
    count = FUSED[name].__code__.co_argcount - 1
    for sizes in ((3,), (2, 5), (7,), (1,), (9,), (11,), (13,), ()):
        x, rest = torch.randn(*sizes, 24, dtype=dtype), others(count, (*sizes, 10), dtype)
        with torch.no_grad():
            ours = module(x, *rest)
        # In f64, because eager rounds between the operations.
        wide = copy.deepcopy(linear).double()
        exact = FUSED[name](wide(x.double()), *[r.double() for r in rest])
        assert ours.dtype == dtype
        torch.testing.assert_close(ours.double(), exact, **tolerance(dtype))


@pytest.mark.parametrize("name", FUSED)
def test_fused_linear_gradients_and_compiled(name, compiled, strict):
    linear = nn.Linear(24, 10)
    module = getattr(modules, name)(linear)
    x = torch.randn(2, 5, 24, requires_grad=True)
    rest = [r.requires_grad_() for r in others(FUSED[name].__code__.co_argcount - 1, (2, 5, 10), torch.float32)]
    leaves = [x, *rest, *linear.parameters()]
    expected = FUSED[name](linear(x), *rest)
    gradients = torch.autograd.grad(expected.pow(2).sum(), leaves)
    for run in (module, compiled(module, fullgraph=True)):
        ours = run(x, *rest)
        assert_close_to_eager(ours, expected, scale=4.0)
        assert_close_to_eager(torch.autograd.grad(ours.pow(2).sum(), leaves), gradients, scale=10.0)


def test_operands_that_broadcast_and_weights_that_change():
    linear = nn.Linear(8, 4)
    module = modules.LinearAdd(linear)
    x = torch.randn(3, 8)
    with torch.no_grad():
        assert_close_to_eager(module(x, torch.ones(4)), linear(x) + torch.ones(4))
        assert_close_to_eager(module(x, x[:, :4]), linear(x) + x[:, :4])
        linear.weight.mul_(2)
        assert_close_to_eager(module(x, x[:, :4]), linear(x) + x[:, :4])
    with pytest.raises(ValueError, match="unknown activation tanh"):
        torch.ops.torch_ipex.linear_fused(x, linear.weight, linear.bias, "tanh", None, [])


def test_linear2_silu_mul_and_autocast(compiled, strict):
    gate, up = nn.Linear(24, 10), nn.Linear(24, 10)
    module = modules.Linear2SiluMul(gate, up)
    x = torch.randn(4, 24)
    with torch.no_grad():
        expected = F.silu(gate(x)) * up(x)
        assert_close_to_eager(module(x), expected, scale=4.0)
        assert_close_to_eager(compiled(module, fullgraph=True)(x), expected, scale=4.0)
        with torch.autocast("cpu", torch.bfloat16):
            ours = module(x)
    assert ours.dtype == torch.bfloat16
    torch.testing.assert_close(ours.float(), expected, **tolerance(torch.bfloat16))


def rms(x, weight, eps):
    return (x.float() * torch.rsqrt(x.float().pow(2).mean(-1, keepdim=True) + eps)).to(x.dtype) * weight


@pytest.mark.parametrize("dtype", DTYPES)
def test_norms(dtype, compiled, strict):
    x, residual = torch.randn(3, 4, 32, dtype=dtype), torch.randn(3, 4, 32, dtype=dtype)
    weight, bias = torch.randn(32, dtype=dtype), torch.randn(32, dtype=dtype)
    module = modules.RMSNorm(32, 1e-5, weight)
    layer_norm = modules.FastLayerNorm((32,), 1e-5, weight, bias)
    cases = [
        (lambda: functional.rms_norm(x, weight, 1e-5), lambda: rms(x, weight, 1e-5)),
        (lambda: module(x), lambda: rms(x, weight, 1e-5)),
        (lambda: layer_norm(x), lambda: F.layer_norm(x, (32,), weight, bias, 1e-5)),
        (
            lambda: functional.add_rms_norm(residual, x, weight, bias, 1e-5),
            lambda: rms(residual + x, weight, 1e-5) + bias,
        ),
        (lambda: functional.add_rms_norm(None, x, weight, None, 1e-5), lambda: rms(x, weight, 1e-5)),
        (
            lambda: functional.add_layer_norm(residual, x, weight, bias, 1e-5),
            lambda: F.layer_norm(residual + x, (32,), weight, bias, 1e-5),
        ),
        (
            lambda: torch.ops.torch_ipex.add_layer_norm(residual, x, 2, [32], weight, bias, 1e-5),
            lambda: F.layer_norm(residual + 2 * x, (32,), weight, bias, 1e-5),
        ),
        (lambda: functional.silu_mul(x, residual), lambda: F.silu(x) * residual),
        (
            lambda: functional.gelu_mul(x, residual, approximate="tanh"),
            lambda: F.gelu(x, approximate="tanh") * residual,
        ),
    ]
    with torch.no_grad():
        for ours, plain in cases:
            expected = plain()
            torch.testing.assert_close(ours(), expected, **tolerance(dtype))
            torch.testing.assert_close(compiled(ours, fullgraph=True)(), expected, **tolerance(dtype))


def test_sums_are_added_back_and_results_written():
    x, residual, weight = torch.randn(3, 32), torch.randn(3, 32), torch.randn(32)
    total = residual + x
    kept = residual.clone()
    assert_close_to_eager(functional.add_rms_norm(kept, x, weight, None, 1e-6, add_back=True), rms(total, weight, 1e-6))
    assert torch.equal(kept, total)
    out = torch.empty(3, 32)
    assert functional.silu_mul(x, residual, out) is out
    assert torch.equal(out, F.silu(x) * residual)


def test_rms_norm_gradients():
    x, weight = torch.randn(3, 8, dtype=torch.float64, requires_grad=True), torch.randn(8, dtype=torch.float64)
    weight.requires_grad_()
    assert torch.autograd.gradcheck(lambda a, b: functional.rms_norm(a, b, 1e-6), (x, weight))


@pytest.mark.parametrize("half", [False, True])
@pytest.mark.parametrize("rotary_dim", [8, 12])
def test_rotary_embedding(rotary_dim, half, compiled, strict):
    module = modules.RotaryEmbedding(50, rotary_dim)
    query, key = torch.randn(2, 5, 4, 12), torch.randn(2, 5, 2, 12)
    positions = torch.randint(0, 50, (2, 5))
    angles = positions[..., None, None] * 10000.0 ** -(torch.arange(0, rotary_dim, 2) / rotary_dim)

    def rotated(x):
        head, rest = x[..., :rotary_dim], x[..., rotary_dim:]
        pairs = head.unflatten(-1, (2, -1)).transpose(-1, -2) if half else head.unflatten(-1, (-1, 2))
        turned = torch.view_as_real(torch.view_as_complex(pairs.contiguous()) * torch.polar(torch.ones(()), angles))
        return torch.cat([(turned.transpose(-1, -2) if half else turned).flatten(-2), rest], -1)

    for run in (module, compiled(module, fullgraph=True)):
        ours = run(query, key, positions, half)
        torch.testing.assert_close(ours, (rotated(query), rotated(key)), rtol=1e-4, atol=1e-4)
    full = [
        t[positions].repeat_interleave(2, -1) if not half else torch.cat([t[positions]] * 2, -1)
        for t in (module.sin, module.cos)
    ]
    assert_close_to_eager(functional.rotary_embedding(query, key, *full, rotary_dim, half), ours)

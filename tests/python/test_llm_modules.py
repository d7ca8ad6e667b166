"""ipex.llm.modules and ipex.llm.functional against plain PyTorch, eager and compiled."""

import copy
import subprocess
import sys

import intel_extension_for_pytorch as ipex
import pytest
import torch
from comparison import assert_close_to_eager
from torch import nn
from torch.nn import functional as F

modules, functional = ipex.llm.modules, ipex.llm.functional
DTYPES = [torch.float32, torch.bfloat16]
ISAS = [
    pytest.param(isa, marks=pytest.mark.needs_cpu(flag)) for isa, flag in {"avx2": "avx2", "avx512": "avx512f"}.items()
]
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


def by_complex_numbers(x, angles, width, neighbours):
    """The first `width` elements of each head, as pairs, times the numbers of these angles."""
    head, rest = x[..., :width].double(), x[..., width:].double()
    pairs = head.unflatten(-1, (-1, 2)) if neighbours else head.unflatten(-1, (2, -1)).transpose(-1, -2)
    one = torch.ones((), dtype=torch.float64)
    turned = torch.view_as_real(torch.view_as_complex(pairs.contiguous()) * torch.polar(one, angles[:, :, None]))
    return torch.cat([(turned if neighbours else turned.transpose(-1, -2)).flatten(-2), rest], -1)


POSITIONS = {
    "each": lambda: torch.randint(0, 50, (2, 5)),
    "row": lambda: torch.arange(5)[None],
    "first": lambda: torch.tensor([7]),
}


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("positions", POSITIONS)
@pytest.mark.parametrize("neighbours", [False, True])
@pytest.mark.parametrize("width, rotary_dim", [(12, 8), (12, 12), (80, 64), (96, 96), (70, 34)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.float64])
def test_rotary_position_embedding(dtype, width, rotary_dim, neighbours, positions, isa, monkeypatch):
    """Query and key by themselves, and as one tensor with the value."""
    monkeypatch.setenv("IPEX_TARGET", isa)
    module, ids = modules.RotaryEmbedding(50, rotary_dim), POSITIONS[positions]()
    full = ids + torch.arange(5)[None] if ids.numel() == 1 else ids
    angles = full[..., None] * 10000.0 ** -(torch.arange(0, rotary_dim, 2, dtype=torch.float64) / rotary_dim)
    all_heads = torch.randn(2, 5, (4 + 2 * 2) * width).to(dtype)
    query, key, value = all_heads.split([4 * width, 2 * width, 2 * width], -1)
    arguments = (width, 1 if neighbours else rotary_dim // 2, rotary_dim)
    expected = [by_complex_numbers(x.unflatten(-1, (-1, width)), angles, rotary_dim, neighbours) for x in (query, key)]
    close = {"rtol": 2e-2, "atol": 2e-2} if dtype.itemsize == 2 else {"rtol": 1e-5, "atol": 1e-5}
    *ours, kept = module(all_heads, ids, 4, *arguments, num_concats=3)
    assert torch.equal(kept, value.unflatten(-1, (2, width))) and all(x.is_contiguous() for x in (*ours, kept))
    for result, x, wanted in zip(ours, (query, key), expected, strict=True):
        assert result.dtype is dtype
        torch.testing.assert_close(result.double(), wanted, **close)
        heads = x.unflatten(-1, (-1, width))
        assert torch.equal(module(heads, ids, heads.shape[2], *arguments), result)


@pytest.mark.parametrize("neighbours", [False, True])
def test_rotary_position_embedding_compiled(neighbours, compiled, strict):
    module = modules.RotaryEmbedding(50, 8)
    run = compiled(module, fullgraph=True)
    for x, heads, concats in ((torch.randn(2, 5, 96), 4, 3), (torch.randn(2, 5, 4, 12), 4, None)):
        for positions in (torch.randint(0, 50, (2, 5)), torch.tensor([3])):
            arguments = (x, positions, heads, 12, 1 if neighbours else 4, 8, None, concats)
            assert_close_to_eager(run(*arguments), module(*arguments))


@pytest.mark.parametrize("offset", [1, 4])
def test_rotary_position_embedding_gradients(offset):
    x = torch.randn(2, 3, 24, dtype=torch.float64, requires_grad=True)
    table = torch.randn(9, 8, dtype=torch.float64, requires_grad=True)

    def run(x, table):
        return torch.ops.torch_ipex.rotary_position_embedding(x, table, torch.tensor([[1, 5, 5]]), 1, 8, offset, 8)

    assert torch.autograd.gradcheck(run, (x, table))
    for ours, by_gradients in zip(run(x.detach(), table.detach()), run(x, table), strict=True):
        torch.testing.assert_close(ours, by_gradients.detach())


def test_rotary_position_embedding_of_other_inputs():
    table = torch.randn(9, 8)
    op = torch.ops.torch_ipex.rotary_position_embedding
    x = torch.randn(4, 2, 3, 8)
    rows = op(x, table, torch.arange(2), 3, 8, 4, 8)[0]
    swapped = x.transpose(1, 2).contiguous().transpose(1, 2)
    assert torch.equal(op(swapped, table, torch.arange(2), 3, 8, 4, 8)[0], rows)
    assert torch.equal(op(x[::2], table, torch.arange(2), 3, 8, 4, 8)[0], rows[::2])
    assert op(x[:0], table, torch.arange(2), 3, 8, 4, 8)[0].shape == (0, 2, 3, 8)
    assert op(x.to("meta"), table.to("meta"), torch.arange(2).to("meta"), 3, 8, 4, 8)[0].shape == x.shape
    grown = modules.RotaryEmbedding(4, 8)
    assert torch.equal(
        grown(x, torch.tensor([[5, 6]]), 3, 8, 4, 8, seq_len=7),
        modules.RotaryEmbedding(7, 8)(x, torch.tensor([[5, 6]]), 3, 8, 4, 8),
    )


@pytest.mark.parametrize(
    "changed, error, message",
    [
        ({1: torch.randn(2, 8)}, IndexError, "position 2 is not in the table of 2 positions"),
        ({0: torch.randn(5, 8)}, RuntimeError, r"an input \[batch, tokens, heads, 8\]"),
        ({0: torch.randn(1, 3, 12)}, RuntimeError, r"an input \[batch, tokens, heads, 8\]"),
        ({0: torch.ones(1, 3, 8, dtype=torch.int64)}, RuntimeError, "floating-point numbers, got"),
        ({1: torch.randn(9, 7)}, RuntimeError, "a table"),
        ({2: torch.ones(1, 3)}, RuntimeError, "integers as positions, got"),
        ({2: torch.ones(2, 3, dtype=torch.int64)}, RuntimeError, r"positions \[1, 3\]"),
        ({5: 2}, RuntimeError, "pairs of neighbours"),
        ({6: 16}, RuntimeError, "at most the 8 of the table, got 16"),
        ({3: 0}, RuntimeError, "positive numbers of heads"),
    ],
)
def test_rotary_position_embedding_errors(changed, error, message):
    arguments = [torch.randn(1, 3, 8), torch.randn(9, 8), torch.tensor([[1, 2, 3]]), 1, 8, 4, 8]
    for position, value in changed.items():
        arguments[position] = value
    with pytest.raises(error, match=message):
        torch.ops.torch_ipex.rotary_position_embedding(*arguments)


@pytest.mark.parametrize("half", [False, True])
@pytest.mark.parametrize("rotary_dim", [8, 12])
def test_rotary_embedding_of_given_angles(rotary_dim, half, compiled, strict):
    module = modules.RotaryEmbedding(50, rotary_dim)
    query, key = torch.randn(2, 5, 4, 12), torch.randn(2, 5, 2, 12)
    positions = torch.randint(0, 50, (2, 5))
    expected = [module(x, positions, x.shape[2], 12, rotary_dim // 2 if half else 1, rotary_dim) for x in (query, key)]
    sin, cos = module.sin_cos.chunk(2, 1)

    def run(*angles):
        return modules.RotaryEmbedding.apply_function(query, key, *angles, rotary_dim, half, positions)

    full = [torch.cat([t, t], -1) if half else t.repeat_interleave(2, -1) for t in (sin, cos)]
    for angles in ((sin, cos), full):
        for ours in (run(*angles), compiled(run, fullgraph=True)(*angles)):
            torch.testing.assert_close(list(ours), expected, rtol=1e-4, atol=1e-4)


@pytest.mark.needs_ipex
def test_fused_linear_follows_the_precision_of_float_products():
    """The library names the precision of each product that it computes."""
    code = """
import intel_extension_for_pytorch as ipex, torch
module, x = ipex.llm.modules.LinearSilu(torch.nn.Linear(64, 32)), torch.randn(8, 64)
for mode in (ipex.FP32MathMode.FP32, ipex.FP32MathMode.BF32):
    ipex.set_fp32_math_mode(mode)
    with torch.no_grad(), ipex.verbose(ipex.VERBOSE_ON):
        module(x)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    products = [line for line in done.stdout.splitlines() if "primitive,exec" in line and "matmul" in line]
    assert ["attr-fpmath:bf16" in line for line in products][-1:] == [True]
    assert sum("attr-fpmath:bf16" in line for line in products) == 1

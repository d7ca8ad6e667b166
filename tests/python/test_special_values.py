"""Infinities, NaN and signed zeros in fused epilogues give the same results as in eager."""

import pytest
import torch
import torch.nn.functional as F
from comparison import assert_close_to_eager
from random_programs import all_targets

SPECIALS = (float("inf"), -float("inf"), float("nan"), 0.0, -0.0, 1.0, -1.0, 3e38, -3e38, 2.5, -100.0, 100.0)
ACTIVATIONS = {
    "relu": torch.relu,
    "relu6": F.relu6,
    "hardtanh": F.hardtanh,
    "leaky_relu": F.leaky_relu,
    "leaky_relu_0": lambda x: F.leaky_relu(x, 0.0),
    "elu": F.elu,
    "silu": F.silu,
    "sigmoid": torch.sigmoid,
    "tanh": torch.tanh,
    "relu_of_sum": lambda x: torch.relu(x + x.new_ones(x.shape)),
}


@pytest.mark.parametrize("dtype", (torch.float32, torch.bfloat16), ids=("fp32", "bf16"))
@pytest.mark.parametrize("name", ACTIVATIONS)
def test_epilogues(name, dtype, compiled, strict):
    """Special values come from the bias and from activations: a row of inf, a pixel of NaN."""
    activation, channels = ACTIVATIONS[name], len(SPECIALS)
    linear = torch.nn.Linear(8, channels)
    conv = torch.nn.Conv2d(4, channels, 3, padding=1)
    for layer in (linear, conv):
        torch.nn.init.zeros_(layer.weight)
        layer.bias.data = torch.tensor(SPECIALS)
        layer.to(dtype)
    positive = torch.nn.Linear(8, channels, bias=False).to(dtype)
    torch.nn.init.constant_(positive.weight, 0.5)

    def run(x, image, rows):
        return activation(linear(x)), activation(conv(image)), activation(positive(rows))

    rows = torch.ones(3, 8, dtype=dtype)
    for row, value in enumerate((float("inf"), -float("inf"), float("nan"))):
        rows[row, 3] = value
    inputs = torch.randn(5, 8, dtype=dtype), torch.randn(2, 4, 6, 6, dtype=dtype), rows
    with torch.no_grad():
        assert_close_to_eager(compiled(run)(*inputs), run(*inputs))


@pytest.mark.parametrize("sizes", ((9, 5, 9), (33, 1023, 129), (128, 65, 256)), ids=str)
def test_infinity_in_the_last_of_an_odd_number_of_terms(sizes, compiled, strict):
    """bf16 pairs along an odd K are padded with a zero, which must not be multiplied by an infinity. For every layout
    of both operands, also with an offset of one column. The reference is fp64, because eager gives NaN if oneDNN is
    limited to AVX512_CORE."""
    rows, terms, columns = sizes

    def layouts(r, c):
        wide = torch.ones(r, c + 1, dtype=torch.bfloat16)
        tall = torch.ones(c, r, dtype=torch.bfloat16)
        return wide[:, 1:].contiguous(), wide[:, 1:], tall.t()

    left, right = layouts(rows, terms), layouts(terms, columns)
    for a in left:
        a[-1, -1] = float("inf")

    def run(left, right):
        return [a @ b for a in left for b in right]

    with torch.no_grad():
        exact = run([a.double() for a in left], [b.double() for b in right])
        for ours, product in zip(compiled(run)(left, right), exact, strict=True):
            assert torch.equal(ours, product.bfloat16())


LIMITS = {
    "relu": torch.relu,
    "relu6": F.relu6,
    "hardtanh": lambda x: F.hardtanh(x, 0, 1),
    "clamp": lambda x: x.clamp(0, 1),
    "clamp_min": lambda x: x.clamp_min(0),
    "clamp_max": lambda x: x.clamp_max(-0.0),
}


@pytest.mark.parametrize("dtype", (torch.float32, torch.float64, torch.bfloat16, torch.float16), ids=str)
def test_limits_leave_a_zero_its_sign(dtype, compiled, strict):
    """In vectors and in the remainder."""
    x = torch.tensor([-0.0, 0.0, float("nan"), -1.0, -0.0] * 15, dtype=dtype)

    def run(x):
        return [limit(part) for limit in LIMITS.values() for part in (x, x[:3])]

    for ours, eager in zip(compiled(run)(x), run(x), strict=True):
        assert_close_to_eager(ours, eager)
        numbers = ~eager.isnan()
        assert torch.equal(ours.signbit()[numbers], eager.signbit()[numbers])


@pytest.mark.parametrize("dtype", (torch.float32, torch.float64), ids=str)
def test_products_that_are_left_out(dtype, compiled):
    """alpha = 0 skips the product, even with infinities; beta = 0 skips the addend."""
    x, a, b = torch.ones(2, 9, 9), torch.full((2, 9, 9), float("inf")), torch.eye(9).repeat(2, 1, 1)

    def run(x, a, b):
        results = []
        for scales in ({"alpha": 0}, {"beta": 0.0}, {"alpha": 0.0, "beta": 2}, {"alpha": 0, "beta": 0}):
            results.append(torch.addmm(x[0], a[0], b[0], **scales))
            results.append(torch.addmv(x[0, 0], a[0], b[0, 0], **scales))
            results.append(torch.addbmm(x[0], a, b, **scales))
            results.append(torch.baddbmm(x, a, b, **scales))
            results.append(torch.addr(x[0], a[0, 0], b[0, 0], **scales))
        return results

    for operands in ((x, a, b), (a, b, b)):
        arguments = [t.to(dtype) for t in operands]
        for ours, eager in zip(compiled(run)(*arguments), run(*arguments), strict=True):
            assert_close_to_eager(ours, eager)


@pytest.mark.parametrize("dynamic", (None, True))
def test_products_that_a_number_leaves_out(dynamic, compiled):
    """A symbolic factor that is 0 in one call. ATen does not skip products of small batches."""
    tensors = torch.ones(2, 9, 9), torch.full((2, 9, 9), float("inf")), torch.eye(9).repeat(2, 1, 1)

    def run(x, a, b, s):
        sums = torch.addmm(x[0], a[0], b[0], alpha=s), torch.addmm(a[0], x[0], b[0], beta=s)
        small, large = (t[:, :5, :5] for t in (x, a, b)), (x, a, b)
        return *sums, *(torch.baddbmm(p, q, r, alpha=s) for p, q, r in (small, large)), torch.baddbmm(a, x, b, beta=s)

    step = compiled(run, dynamic=dynamic)
    for number in (2, 3, 0, 4, 0.5, 0.25, 0.0):
        torch.testing.assert_close(step(*tensors, number), run(*tensors, number), equal_nan=True)


def test_gradient_of_losses_at_nan(compiled, strict):
    x = torch.tensor([float("nan"), 0.5, -3.0, 3.0], requires_grad=True)

    def run(x):
        return F.smooth_l1_loss(x, x.new_zeros(4)) + F.huber_loss(x, x.new_zeros(4)) + F.mse_loss(x, x.new_zeros(4))

    (ours,), (eager,) = (torch.autograd.grad(f(x), x) for f in (compiled(run), run))
    torch.testing.assert_close(ours, eager, equal_nan=True)


@pytest.mark.parametrize("dtype", (torch.bfloat16, torch.float16), ids=str)
def test_batch_norm_of_halves_with_given_statistics(dtype, compiled, strict):
    x, w = torch.rand(4, 3, dtype=dtype), torch.ones(3, dtype=dtype)

    def run(x, mean, variance):
        return torch.ops.aten._native_batch_norm_legit(x, w, w, mean, variance, False, 0.1, 1e-5)[0]

    assert_close_to_eager(compiled(run)(x, w * 0, w.clone()), run(x, w * 0, w.clone()))


INF, NAN = float("inf"), float("nan")
DIFFERENTIATED = {
    "relu": F.relu,
    "relu6": F.relu6,
    "hardtanh": F.hardtanh,
    "hardtanh, one value": lambda x: F.hardtanh(x, 0.25, 0.25),
    "hardsigmoid": F.hardsigmoid,
    "hardswish": F.hardswish,
    "elu": F.elu,
    "elu, infinite": lambda x: F.elu(x, INF),
    "elu in place": lambda x: F.elu(x * 1, 2.5, inplace=True),
    "selu": F.selu,
    "celu": lambda x: F.celu(x, 0.3),
    "leaky_relu": lambda x: F.leaky_relu(x, 0.1),
    "leaky_relu, 0": lambda x: F.leaky_relu(x, 0.0),
    "prelu": lambda x: F.prelu(x, x.new_tensor([0.25])),
    "rrelu": F.rrelu,
    "glu": lambda x: F.glu(torch.stack([x, x]), 0),
    "gelu": F.gelu,
    "gelu by tanh": lambda x: F.gelu(x, approximate="tanh"),
    "logsigmoid": F.logsigmoid,
    "hardshrink": F.hardshrink,
    "hardshrink, 0": lambda x: F.hardshrink(x, 0.0),
    "hardshrink, all": lambda x: F.hardshrink(x, INF),
    "softshrink": F.softshrink,
    "softshrink, 0": lambda x: F.softshrink(x, 0.0),
    "tanhshrink": F.tanhshrink,
    "softsign": F.softsign,
    "softplus": F.softplus,
    "softplus, low threshold": lambda x: F.softplus(x, 2.0, 1.0),
    "threshold": lambda x: F.threshold(x, 1.0, 20.0),
    "threshold, NaN": lambda x: F.threshold(x, NAN, 3.0),
    "sigmoid": torch.sigmoid,
    "tanh": torch.tanh,
    "silu": F.silu,
    "mish": F.mish,
    "logit": torch.logit,
    "clamp": lambda x: x.clamp(-1, 1),
    "clamp, crossed": lambda x: x.clamp(2, -2),
}


@pytest.mark.one_in(2)
@pytest.mark.needs_ipex  # other backends decompose hardshrink and softshrink before differentiation
@pytest.mark.parametrize("target", all_targets())
@pytest.mark.parametrize("dtype", (torch.float32, torch.float64, torch.bfloat16, torch.float16), ids=str)
def test_gradients_of_activations(dtype, target, compiled, strict, monkeypatch):
    """Eager's NaN, infinities and values. Inputs fill whole vectors, because eager often treats the remainder
    differently. Where only eager's arithmetic overflows, the exact result is accepted."""
    if target:
        monkeypatch.setenv("IPEX_TARGET", target)
    edges = [0.0, 0.25, 0.5, 1.0, 1.5, 2.0, 3.0, 6.0, 20.0, 100.0, 1e-38, 1e38, 3e38, INF]
    values = torch.tensor([*edges, *(-e for e in edges), NAN], dtype=torch.float64).to(dtype).repeat_interleave(128)

    def run(*inputs):
        return [f(x) for f, x in zip(DIFFERENTIATED.values(), inputs, strict=True)]

    def both_ways(run, dtype):
        inputs = [values.to(dtype, copy=True).requires_grad_() for _ in DIFFERENTIATED]
        results = run(*inputs)
        yield [r.detach() for r in results]
        for gradient in (1.0, 0.0):
            incoming = [torch.full_like(r, gradient) for r in results]
            yield torch.autograd.grad(results, inputs, incoming, retain_graph=True)

    rtol, atol = {torch.float64: (1e-7, 1e-7), torch.float32: (1e-4, 1e-6)}.get(dtype, (2e-2, 4e-3))
    ways = both_ways(compiled(run), dtype), both_ways(run, dtype), both_ways(run, torch.float64)
    for parts in zip(*ways, strict=True):
        for name, a, b, truth in zip(DIFFERENTIATED, *parts, strict=True):
            kinds = [t.isnan() + 2 * t.isposinf() + 3 * t.isneginf() for t in (a, b, truth.to(b))]
            wrong = (kinds[0] != kinds[1]) & (kinds[0] != kinds[2])
            assert not wrong.any(), f"{name}: {a[wrong].unique()} where eager has {b[wrong].unique()}"
            finite = (kinds[0] == 0) & (kinds[1] == 0)
            torch.testing.assert_close(a[finite], b[finite], rtol=rtol, atol=atol, msg=name)

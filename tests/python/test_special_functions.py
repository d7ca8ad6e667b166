"""The accuracy of special functions over their ranges: f32 against eager in f64, and f64 against eager."""

import pytest
import torch

# Name, range of arguments, and the largest error in ulps in f32 and in f64. For results below 1 the unit is the ulp of
# 1, because of roots and large condition numbers.
CASES = [
    ("special.i0", -80, 80, 8, 8),
    ("special.i0e", -1e4, 1e4, 4, 4),
    ("special.i1", -80, 80, 8, 8),
    ("special.i1e", -1e4, 1e4, 4, 4),
    ("special.modified_bessel_k0", 1e-3, 50, 8, 8),
    ("special.modified_bessel_k1", 1e-3, 50, 8, 8),
    ("special.scaled_modified_bessel_k0", 1e-3, 1e4, 8, 8),
    ("special.scaled_modified_bessel_k1", 1e-3, 1e4, 8, 8),
    ("special.spherical_bessel_j0", -50, 50, 4, 4),
    ("special.bessel_j0", -100, 100, 8, 8),
    ("special.bessel_j1", -100, 100, 8, 8),
    ("special.bessel_y0", 1e-3, 100, 8, 8),
    ("special.bessel_y1", 1e-3, 100, 8, 8),
    ("special.airy_ai", -10, 110, 8, 8),
    ("special.erfcx", -4, 1e4, 4, 8),
    ("special.erfinv", -1, 1, 4, 8),
    ("special.ndtri", 0, 1, 4, 8),
    ("special.log_ndtr", -1e3, 5, 8, 8),
    ("special.gammaln", 1e-30, 1e10, 4, 4),
    ("special.digamma", 1e-3, 1e6, 8, 8),
    ("special.sinc", -50, 50, 8, 8),
    ("special.entr", 0, 1e4, 4, 4),
]


def arguments(low, high, count=200_000):
    """Values in the range: some of every magnitude, dense around 0, and some evenly spaced."""
    even = torch.linspace(low, high, count, dtype=torch.float64)
    small = torch.logspace(-30, 0, count, dtype=torch.float64)
    return torch.cat([even, small * high, small * low]).clamp(low, high)


def error(ours, exact):
    """|ours - exact| in ulps of `ours`, or of 1 if |exact| is less than 1."""
    scale = torch.finfo(ours.dtype).eps * exact.abs().clamp(min=1.0)
    wrong = (ours.double() - exact).abs() / scale
    return torch.where((ours.double() == exact) | (ours.isnan() & exact.isnan()), 0.0, wrong)


@pytest.mark.parametrize("name, low, high, single, double", CASES, ids=[case[0] for case in CASES])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_accuracy(name, low, high, single, double, dtype, compiled, strict):
    function = getattr(torch.special, name.removeprefix("special."))
    x = arguments(low, high).to(dtype)
    wrong = error(compiled(function)(x), function(x.double()))
    at = wrong.argmax()
    assert wrong[at] <= (single if dtype is torch.float32 else double), f"{wrong[at]:.2f} ulp at {x[at].item()!r}"


@pytest.mark.parametrize("order", range(8))
def test_polygamma(order, compiled, strict):
    """For positive arguments against eager in f64 (whose order 1 is accurate to 1e-9 only), else against the
    recurrence."""

    def polygamma(x):
        return torch.special.polygamma(order, x)

    x = torch.cat(
        [torch.linspace(0.02, 40, 4001, dtype=torch.float64), torch.logspace(-3, 4, 101, dtype=torch.float64)]
    )
    exact = polygamma(x)
    ours = compiled(polygamma)(x)
    assert ((ours - exact).abs() / exact.abs().clamp(min=1e-30))[exact.abs() > 1e-3].max() < (
        1e-8 if order == 1 else 1e-13
    )
    single = compiled(polygamma)(x.float()).double()
    wrong = (single - polygamma(x.float().double())).abs() / exact.abs().clamp(min=1.0)
    assert wrong.max() < 4e-6

    # psi_n(x) = psi_n(x + 1) - (-1)**n n! / x**(n + 1)
    left = torch.linspace(-4.97, -0.03, 499, dtype=torch.float64)
    left = left[(left - left.round()).abs() > 0.02]
    step = (-1.0) ** order * torch.exp(torch.lgamma(torch.tensor(order + 1.0, dtype=torch.float64)))
    values, shifted = compiled(polygamma)(left), compiled(polygamma)(left + 1)
    expected = shifted - step * left.pow(-order - 1)
    scale = torch.maximum(values.abs(), shifted.abs()) + left.abs().pow(-order - 1) * step.abs()
    assert ((values - expected).abs() / scale).max() < 1e-12
    half = torch.tensor([-8.5, -3.5, -0.5], dtype=torch.float64)
    single = compiled(polygamma)(half.float()).double()
    assert ((single - polygamma(half)).abs() / polygamma(half).abs()).max() < 4e-6
    poles = compiled(polygamma)(torch.tensor([-3.0, -1.0, 0.0]))
    assert poles.isinf()[2] and not poles.isfinite().any()


OSCILLATING = ["bessel_j0", "bessel_j1", "bessel_y0", "bessel_y1", "airy_ai"]


@pytest.mark.parametrize("name", OSCILLATING)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_special_values(name, dtype, compiled, strict):
    """Zeros, infinities, values too large for trigonometric functions, and both sides of every interval's end."""
    function = getattr(torch.special, name)
    numbers = [0.0, 1e-310, 1e-40, 1e-30, 1e-5, 2.09, 5.0, 103.892, 1e5, 1e10, 1e30, 1e300, float("inf"), float("nan")]
    x = torch.tensor(numbers, dtype=torch.float64).to(dtype)
    x = torch.cat([x, x.nextafter(torch.zeros_like(x)), x.nextafter(torch.full_like(x, torch.inf))])
    x = torch.cat([x, -x])
    ours, eager = compiled(function)(x), function(x)
    torch.testing.assert_close(ours, eager, equal_nan=True)
    zero = (ours == 0) & (eager == 0)
    assert torch.equal(ours.signbit()[zero], eager.signbit()[zero])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_zeta(dtype, compiled, strict):
    zeta = compiled(torch.special.zeta)
    generator = torch.Generator().manual_seed(0)
    draw = torch.rand(2, 100_000, dtype=torch.float64, generator=generator).to(dtype)
    x, q = draw[0] * 30 + 1.01, draw[1] * 60 + 0.1
    exact = torch.special.zeta(x.double(), q.double())
    place = torch.finfo(dtype).eps * exact + torch.finfo(dtype).tiny
    assert ((zeta(x, q).double() - exact).abs() / place).max() < 8

    # For negative arguments, relative to the two largest terms, because they cancel.
    x, q = (draw[0] * 8).floor() + 2, draw[1] * -20
    exact = torch.special.zeta(x.double(), q.double())
    fraction = (q - q.floor()).double()
    place = torch.finfo(dtype).eps * (fraction**-x + (1 - fraction) ** -x)
    wrong = (zeta(x, q).double() - exact).abs() / place
    assert wrong[place < 1].max() < 8

    inf, nan = float("inf"), float("nan")
    x = torch.tensor([inf, -inf, nan, -1, 0, 0.5, 1, 1.5, 2, 3, 10, 11, 50, 1e3, 1e10], dtype=dtype)
    q = torch.tensor([inf, nan, 0, 1e-30, 1e-3, 0.5, 1, 1.5, 2, 30, 1e3, 1e10], dtype=dtype)
    q = torch.cat([q, -q])
    x, q = x[:, None].expand(-1, q.numel()), q.expand(x.numel(), -1)
    torch.testing.assert_close(zeta(x, q), torch.special.zeta(x, q), equal_nan=True)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_nextafter_of_every_number(dtype, compiled, strict):
    x = torch.arange(-(2**15), 2**15, dtype=torch.int32).to(torch.int16).view(dtype)
    for towards in (0.0, -0.0, 1.0, float("inf"), float("-inf"), float("nan")):
        y = torch.full_like(x, towards)
        ours, eager = compiled(torch.nextafter)(x, y), torch.nextafter(x, y)
        torch.testing.assert_close(ours, eager, rtol=0, atol=0, equal_nan=True)
        number = ~eager.isnan()
        assert torch.equal(ours.signbit()[number], eager.signbit()[number])

    def after_rounding(x, y):
        z = x * y
        return z, torch.nextafter(z, y)

    x = torch.linspace(0.5, 2, 999).to(dtype)
    z, ours = compiled(after_rounding)(x, x + 1)
    torch.testing.assert_close(ours, torch.nextafter(z, x + 1), rtol=0, atol=0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16], ids=str)
def test_frexp_and_nextafter(dtype, compiled, strict):
    tiny = torch.finfo(dtype).tiny
    special = [0.0, -0.0, 1.0, -1.0, tiny, -tiny, tiny / 4, float("inf"), float("-inf"), float("nan"), 3.0, 1024.0]
    x = torch.cat([torch.tensor(special, dtype=torch.float64), torch.randn(99, dtype=torch.float64)]).to(dtype)
    for ours, eager in zip(compiled(torch.frexp)(x), torch.frexp(x), strict=True):
        torch.testing.assert_close(ours, eager, rtol=0, atol=0, equal_nan=True)
    y = x.flip(0)
    ours, eager = compiled(torch.nextafter)(x, y), torch.nextafter(x, y)
    torch.testing.assert_close(ours, eager, rtol=0, atol=0, equal_nan=True)
    number = ~eager.isnan()
    assert torch.equal(ours.signbit()[number], eager.signbit()[number])


POLYNOMIALS = [name for name in dir(torch.special) if "_polynomial_" in name]


@pytest.mark.parametrize("name", POLYNOMIALS)
def test_orthogonal_polynomials(name, compiled, strict):
    """With a constant degree: native as far as eager uses the recurrence."""
    function = getattr(torch.special, name)
    x = torch.linspace(-2, 2, 41, dtype=torch.float64)
    for argument in (x, x.float(), x.long()):
        ours = compiled(lambda x: [function(x, n) for n in range(-1, 7)])(argument)
        torch.testing.assert_close(list(ours), [function(argument, n) for n in range(-1, 7)])


# Arguments where intermediate results overflow or underflow in fp32, but the function does not.
EDGES = {
    "cosh": (88.0, 88.5, -89.0, 89.4, 89.5, float("inf")),
    "sinh": (88.0, 88.5, -89.0, -89.4, 89.5, -float("inf"), 1e-45),
    "log1p": (1e-45, -1e-45, 1e-42, -1e-38, 1e-30, -1.0),
    "expm1": (1e-45, -1e-42, 88.7, 88.8, -104.0),
    "asinh": (1e30, -3e38, 1e-30),
    "special.modified_bessel_k0": (1e-45, 1e-38, 1e-30),
}


@pytest.mark.parametrize("name", EDGES)
def test_edges(name, compiled, strict):
    function = getattr(torch.special, name.removeprefix("special."), None) or getattr(torch, name)
    x = torch.tensor(EDGES[name] * 5)
    torch.testing.assert_close(compiled(function)(x), function(x.double()).float(), rtol=3e-7, atol=0)


def test_edges_of_hyperbolic_functions(compiled, strict):
    """In fp64, where eager overflows early, and in bf16, which is computed in fp32."""
    run = compiled(lambda x: (x.cosh(), x.sinh()))
    x = torch.tensor([699.5, 700.5, -701.0, 709.0, 709.7, 710.2, -710.4], dtype=torch.float64)
    exact = (x.abs() - 1).exp() * (0.5 * torch.e)
    ours = run(x)
    torch.testing.assert_close(ours, (exact, exact.copysign(x)), rtol=4e-16 * 2, atol=0)
    assert all(y.isinf().all() for y in run(torch.tensor([710.5, -torch.inf], dtype=torch.float64)))
    for y in run(torch.full((20,), 89.0, dtype=torch.bfloat16)):
        torch.testing.assert_close(y.double(), torch.full_like(y, 2.2448e38, dtype=torch.float64), rtol=4e-3, atol=0)


def test_edges_of_two(compiled, strict):
    def function(x, y):
        return torch.floor_divide(x, y), torch.special.xlog1py(y, x.reciprocal())

    x = torch.tensor([1e30, -1e30, 3e38, 7.0, -7.0])
    y = torch.tensor([1e-45, 1e-40, 1e-10, 2.0, 2.0])
    torch.testing.assert_close(compiled(function)(x, y), function(x, y), rtol=1e-6, atol=0)
    tiny = torch.tensor([1e-45, -1e-42] * 9)
    ours = compiled(torch.special.xlog1py)(torch.full_like(tiny, 5.0), tiny)
    assert torch.equal(ours, 5 * tiny)
    ours = compiled(torch.special.zeta)(
        torch.tensor([1.5, 1.5, 1.00001, 1.00001]), torch.tensor([1e30, 1e37, 1e37, 1e-10])
    )
    torch.testing.assert_close(ours, torch.tensor([2e-15, 6.3245553e-19, 99778.1, 1.000240e10]), rtol=1e-4, atol=0)

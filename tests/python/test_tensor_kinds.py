"""Every kind of PyTorch tensor gives eager's result or a clear error.

Compiled code reads tensors by pointer, but the memory of these kinds does not contain their values: zero tensors
without memory, negated views, fake and batched tensors, tensors with tangents. They are passed as arguments, buffers,
incoming gradients, arguments that are written to, and to artifacts.
"""

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.autograd import forward_ad


def values():
    return torch.tensor([1.0, 2.0, 3.0])


def zero_tensor():
    x = torch.ones(3, requires_grad=True)
    (zero,) = torch.autograd.grad(torch.sgn(x).sum(), x)
    assert zero._is_zerotensor()
    return zero


def negated():
    return torch._neg_view(values())


def fake():
    return FakeTensorMode().from_tensor(values())


def without_storage():
    x = values()
    x.untyped_storage().resize_(0)
    return x


LAZY = pytest.mark.parametrize("make", (zero_tensor, negated))


def program(x):
    return torch.sin(x) * 2 + 1


@LAZY
def test_as_argument(compiled, make):
    first = compiled(program)
    torch.testing.assert_close(first(make()), program(make()))
    torch.testing.assert_close(first(values()), program(values()))
    torch._dynamo.reset()
    second = compiled(program)
    second(values())
    torch.testing.assert_close(second(make()), program(make()))


@LAZY
@pytest.mark.parametrize("view", (lambda x: x.expand(4, 3), lambda x: x.unfold(0, 2, 1), lambda x: x[::2]))
def test_as_argument_that_shares_or_leaves_out_memory(compiled, make, view):
    torch.testing.assert_close(compiled(program)(view(make())), program(view(make())))


def test_written_with_gaps(compiled):
    def write(x):
        x.mul_(3)
        return x + 1

    (ours, base), (eager, expected) = ((torch._neg_view(b)[::2, 1:], b) for b in (torch.ones(4, 3), torch.ones(4, 3)))
    torch.testing.assert_close(compiled(write)(ours), write(eager))
    torch.testing.assert_close(base, expected)


@LAZY
@pytest.mark.parametrize("gradients", (False, True))
def test_as_buffer(compiled, make, gradients):
    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("buffer", make())

        def forward(self, x):
            return (x * self.buffer).relu() + self.buffer.cos()

    model = Model()
    x = values().requires_grad_(gradients)
    optimized = compiled(model)
    for _ in range(2):
        torch.testing.assert_close(optimized(x), model(x))


@LAZY
def test_as_weight_of_a_product(compiled, make):
    torch.manual_seed(0)
    weight = torch.randn(64, 64)
    layer = torch.nn.Linear(64, 64, bias=False).requires_grad_(False)
    layer.weight = torch.nn.Parameter(torch._neg_view(weight) if make is negated else weight * 0, requires_grad=False)
    optimized = compiled(layer)
    x = torch.randn(8, 64)
    with torch.no_grad():
        torch.testing.assert_close(optimized(x), layer(x))
        layer.weight.data.mul_(2)
        torch.testing.assert_close(optimized(x), layer(x))


@pytest.mark.parametrize("make", (zero_tensor, negated, lambda: torch.ones(1).expand(3)))
def test_as_incoming_gradient(compiled, make):
    x, y = (values().requires_grad_() for _ in range(2))
    program(x).backward(make())
    compiled(program)(y).backward(make())
    torch.testing.assert_close(y.grad, x.grad)


def test_sign_after_compiled_code(compiled):
    """The gradient of sgn is a tensor without memory."""

    def gradient(function):
        x = values().requires_grad_()
        a, b = function(x)
        (torch.sgn(a).sum() + (b * 2).sum()).backward()
        return x.grad

    two = lambda x: (x.sin(), x.cos())  # noqa: E731
    torch.testing.assert_close(gradient(compiled(two)), gradient(two))


@pytest.mark.parametrize(
    "view",
    (torch._neg_view, lambda x: x[::2], lambda x: torch._neg_view(x[::2]), lambda x: x.view(2, 3).t()),
    ids=("negated", "strided", "negated_strided", "transposed"),
)
@pytest.mark.parametrize("after_plain", (False, True))
def test_as_written_argument(compiled, view, after_plain):
    def program(x):
        x.add_(1)
        return x * 2

    optimized = compiled(program)
    if after_plain:
        optimized(torch.ones(6))
    base, expected = torch.arange(6.0), torch.arange(6.0)
    given = view(base)
    version = given._version
    torch.testing.assert_close(optimized(given), program(view(expected)))
    torch.testing.assert_close(base, expected)
    assert given._version == version + 1


@pytest.mark.needs_ipex
def test_zeros_without_memory_are_not_written(compiled):
    def program(x):
        x.add_(1)
        return x * 2

    optimized = compiled(program)
    optimized(values())
    with pytest.raises(RuntimeError, match="ZeroTensors are immutable"):
        optimized(zero_tensor())


@pytest.mark.needs_ipex
@pytest.mark.parametrize("make", (fake, without_storage))
def test_without_memory_is_an_error(compiled, make):
    optimized = compiled(program)
    optimized(values())
    with pytest.raises(RuntimeError, match="argument 0 .*no memory"):
        optimized(make())


def test_forward_mode(compiled):
    def derivative(function):
        with forward_ad.dual_level():
            return forward_ad.unpack_dual(function(forward_ad.make_dual(values(), torch.ones(3))))

    optimized = compiled(program)
    optimized(values())  # code that was compiled before does not accept tangents
    result, expected = derivative(optimized), derivative(program)
    torch.testing.assert_close(result.primal, expected.primal)
    torch.testing.assert_close(result.tangent, expected.tangent)
    torch.testing.assert_close(optimized(values()), program(values()))


def test_batched_gradients(compiled):
    def gradients(function):
        torch.manual_seed(0)
        w, x, seeds = torch.randn(4, 3, requires_grad=True), torch.randn(2, 4, requires_grad=True), torch.randn(5, 2, 3)
        return torch.autograd.grad(function(x, w), (x, w), seeds, is_grads_batched=True)

    layer = lambda x, w: torch.nn.functional.gelu(x @ w)  # noqa: E731
    torch.testing.assert_close(gradients(compiled(layer)), gradients(layer))
    jacobian = torch.autograd.functional.jacobian
    torch.testing.assert_close(jacobian(compiled(program), values(), vectorize=True), jacobian(program, values()))


def test_transforms_around_compiled_code(compiled):
    optimized = compiled(program)
    rows = torch.randn(4, 3)
    torch.testing.assert_close(optimized(values()), program(values()))
    torch.testing.assert_close(torch.func.vmap(optimized)(rows), program(rows))
    torch.testing.assert_close(torch.func.jacrev(optimized)(values()), torch.func.jacrev(program)(values()))
    derivative, expected = (torch.func.jvp(f, (values(),), (torch.ones(3),)) for f in (optimized, program))
    torch.testing.assert_close(derivative, expected)


@pytest.mark.needs_ipex
def test_in_artifacts(tmp_path):
    import intel_extension_for_pytorch as ipex

    class Model(torch.nn.Module):
        def forward(self, x):
            return program(x)

    path = tmp_path / "model.ipex"
    ipex.aot.compile(torch.export.export(Model(), (values(),)), path)
    model = ipex.aot.load(path)
    for make in (zero_tensor, negated):
        torch.testing.assert_close(model(make()), program(make()))
    for make in (fake, without_storage):
        with pytest.raises(ipex.UserError, match="input x .*no memory"):
            model(make())
    with forward_ad.dual_level(), pytest.raises(ipex.UserError, match="input x has a tangent"):
        model(forward_ad.make_dual(values(), torch.ones(3)))

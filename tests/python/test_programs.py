"""What programs do beyond calling a module: control flow, checkpointing, transforms,
double backward, hooks. Everything is compared with eager; what it takes natively is another test's business."""

import copy

import pytest
import torch
from comparison import assert_close_to_eager
from torch import nn
from torch.nn import functional as F


def same(compiled, function, *inputs, **arguments):
    """Runs `function` eagerly and compiled on copies of the inputs; compares results and what became of the inputs."""
    ours, eager = copy.deepcopy(inputs), copy.deepcopy(inputs)
    expected = function(*eager)
    result = compiled(function, **arguments)(*ours)
    assert_close_to_eager(result, expected)
    assert_close_to_eager(ours, eager)
    return result


# ---- control flow and higher-order operators ----


def test_cond(compiled):
    def function(x):
        return torch.cond(x.sum() > 0, lambda v: v.sin(), lambda v: v.cos() + 1, (x,))

    same(compiled, function, torch.ones(4))
    same(compiled, function, -torch.ones(4))


def test_while_loop(compiled):
    from torch._higher_order_ops import while_loop

    def function(count, x):
        return while_loop(lambda i, v: i < 5, lambda i, v: (i + 1, v * 1.5 + 1), (count, x))

    same(compiled, function, torch.zeros((), dtype=torch.int64), torch.randn(3))


def test_scan(compiled):
    from torch._higher_order_ops.scan import scan

    def function(start, x):
        return scan(lambda c, v: (c * 0.5 + v, c * v), start, x)

    same(compiled, function, torch.randn(4), torch.randn(6, 4))


def test_map(compiled):
    from torch._higher_order_ops.map import map as torch_map

    same(compiled, lambda x, y: torch_map(lambda v, w: v.sin() * w, x, y), torch.randn(3, 4), torch.randn(4))


@pytest.mark.parametrize("reentrant", [False])
def test_checkpoint_replays_dropout(reentrant, compiled):
    from torch.utils.checkpoint import checkpoint

    layer = nn.Sequential(nn.Linear(8, 8), nn.GELU(), nn.Dropout(0.5))
    twin = copy.deepcopy(layer)
    x = torch.randn(4, 8)

    def gradients(module, run):
        module.zero_grad()
        torch.manual_seed(3)
        run(x.clone().requires_grad_()).square().sum().backward()
        return [p.grad for p in module.parameters()]

    eager = gradients(layer, lambda v: checkpoint(layer, v, use_reentrant=reentrant))
    ours = gradients(twin, compiled(lambda v: checkpoint(twin, v, use_reentrant=reentrant)))
    assert_close_to_eager(ours, eager)


def test_flex_attention(compiled):
    from torch.nn.attention.flex_attention import flex_attention

    def causal(score, b, h, q, k):
        return torch.where(q >= k, score, -float("inf"))

    q, k, v = (torch.randn(1, 2, 16, 8) for _ in range(3))
    with torch.no_grad():
        ours = compiled(lambda q, k, v: flex_attention(q, k, v, score_mod=causal))(q, k, v)
    assert_close_to_eager(ours, F.scaled_dot_product_attention(q, k, v, is_causal=True), scale=20.0)


def test_library_op_that_mutates(compiled):
    @torch.library.custom_op("ipex_programs::accumulate", mutates_args={"total"})
    def accumulate(total: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        total += x
        return total.sum(0)

    @accumulate.register_fake
    def _(total, x):
        return total.new_empty(total.shape[1:])

    same(compiled, lambda t, x: (accumulate(t, x.exp()) * 2, t + 1), torch.zeros(3, 4), torch.randn(3, 4))


def test_autograd_function(compiled):
    class Straight(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x.round()

        @staticmethod
        def backward(ctx, g):
            (x,) = ctx.saved_tensors
            return g * (x.abs() < 1)

    def gradient(run):
        x = torch.linspace(-2, 2, 9, requires_grad=True)
        run(x).sum().backward()
        return x.grad

    assert_close_to_eager(gradient(compiled(lambda x: Straight.apply(x * 1.5) ** 2)), gradient(
        lambda x: Straight.apply(x * 1.5) ** 2))  # fmt: skip


def test_graph_breaks(compiled):
    def function(x):
        y = x.exp()
        torch._dynamo.graph_break()
        if y.sum().item() > 0:
            y = y * 2
        return y + 1

    same(compiled, function, torch.randn(4))


# ---- derivatives ----


def test_double_backward_says_so_or_works(compiled):
    """AOTAutograd's compiled backward is not differentiable; the error must be PyTorch's own, as with aot_eager."""

    def second(run):
        x = torch.randn(4, generator=torch.Generator().manual_seed(0), requires_grad=True)
        (g,) = torch.autograd.grad(run(x).sum(), x, create_graph=True)
        return torch.autograd.grad(g.sum(), x)[0]

    function = lambda x: x.sin() * x**3  # noqa: E731
    try:
        expected = second(torch.compile(function, backend="aot_eager"))
    except RuntimeError as error:
        with pytest.raises(RuntimeError, match=str(error)[:40]):
            second(compiled(function))
    else:
        assert_close_to_eager(second(compiled(function)), expected)


def test_gradient_inside(compiled):
    def function(x):
        return torch.func.grad(lambda v: (v.sin() * v).sum())(x)

    same(compiled, function, torch.randn(5))


def test_vmap_and_jvp_inside(compiled):
    def function(x, t):
        rows = torch.func.vmap(lambda v: torch.softmax(v * 2, 0))(x)
        return rows, torch.func.jvp(lambda v: v.tanh(), (x,), (t,))

    same(compiled, function, torch.randn(3, 5), torch.randn(3, 5))


def test_compiled_autograd(compiled):
    model = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 2))
    twin = copy.deepcopy(model)
    x = torch.randn(4, 6)
    model(x).square().sum().backward()
    with torch._dynamo.config.patch(compiled_autograd=True):

        def step():
            compiled(twin)(x).square().sum().backward()

        compiled(step)()
    assert_close_to_eager([p.grad for p in twin.parameters()], [p.grad for p in model.parameters()])


def test_hooks(compiled):
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU())
    seen = []
    model[0].register_forward_hook(lambda m, i, o: o * 2)
    model[0].weight.register_hook(lambda g: seen.append(g.clone()) or g * 3)
    x = torch.randn(3, 4)
    model(x).sum().backward()
    eager = model[0].weight.grad.clone()
    model.zero_grad()
    compiled(model)(x).sum().backward()
    assert_close_to_eager(model[0].weight.grad, eager)
    assert_close_to_eager(seen[1], seen[0])


def test_anomaly_mode(compiled):
    x = torch.randn(4, requires_grad=True)
    with torch.autograd.detect_anomaly(check_nan=True):
        compiled(lambda v: v.exp().sum())(x).backward()
    assert_close_to_eager(x.grad, x.detach().exp())


def test_deterministic_algorithms(compiled):
    index = torch.randint(0, 5, (100,))
    torch.use_deterministic_algorithms(True)
    try:
        function = lambda x: torch.zeros(5, 3).index_add(0, index, x)  # noqa: E731
        x = torch.randn(100, 3)
        first, second = (compiled(function)(x) for _ in range(2))
        assert torch.equal(first, second)
        assert_close_to_eager(first, function(x), scale=20.0)
    finally:
        torch.use_deterministic_algorithms(False)


# ---- types ----


@pytest.mark.parametrize("dtype", [torch.float8_e4m3fn, torch.float8_e5m2])
def test_float8_goes_through(dtype, compiled):
    same(compiled, lambda x: (x * 2).to(dtype).to(torch.float32) + 1, torch.randn(8))


def test_tensor_subclass(compiled):
    from torch.testing._internal.two_tensor import TwoTensor

    function = lambda t: (t.sin() * 2).sum(0)  # noqa: E731
    t = TwoTensor(torch.randn(3, 4), torch.randn(3, 4))
    ours, eager = compiled(function)(t), function(t)
    assert isinstance(ours, TwoTensor)
    assert_close_to_eager([ours.a, ours.b], [eager.a, eager.b])

"""Derivatives beyond one backward pass of a module: checkpointing, flex_attention, autograd functions, transforms,
double backward, compiled autograd, hooks. Everything is compared with eager."""

import copy
import warnings

import pytest
import torch
from comparison import assert_close_to_eager
from torch import nn


def gradients(run, *inputs):
    """Gradients of the sum of all results of `run` with respect to its inputs."""
    leaves = [x.clone().requires_grad_(x.is_floating_point()) for x in inputs]
    torch.manual_seed(3)
    results = run(*leaves)
    sum(r.sum() for r in torch.utils._pytree.tree_leaves(results)).backward()
    return [leaf.grad for leaf in leaves if leaf.grad is not None]


# ---- checkpointing ----


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(8, 8), nn.GELU(), nn.Dropout(0.5))

    def forward(self, x):
        return x + self.layers(x)


@pytest.mark.parametrize("where", ["inside", "around"])
@pytest.mark.parametrize("reentrant", [False, True])
def test_checkpoint_replays_dropout(reentrant, where, compiled):
    """`inside`: the compiled function contains the checkpoint. `around`: the checkpoint recomputes a compiled
    function."""
    from torch.utils.checkpoint import checkpoint

    eager = nn.ModuleList([Block(), Block()])
    ours = copy.deepcopy(eager)

    def trained(blocks, compile_it):
        if where == "around":
            blocks = [compile_it(block) for block in blocks]

        def run(x):
            for block in blocks:
                x = checkpoint(block, x, use_reentrant=reentrant)
            return x.square()

        return gradients(compile_it(run) if where == "inside" else run, torch.linspace(-1, 1, 32).view(4, 8))

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found, expected = trained(ours, compiled), trained(eager, lambda run: run)
    assert_close_to_eager(found, expected)
    assert_close_to_eager([p.grad for p in ours.parameters()], [p.grad for p in eager.parameters()])


def test_selective_checkpoint(compiled):
    """With a policy that saves products and recomputes everything else."""
    from functools import partial

    from torch.utils.checkpoint import CheckpointPolicy, checkpoint, create_selective_checkpoint_contexts

    def policy(context, op, *args, **kwargs):
        keep = op in (torch.ops.aten.mm.default, torch.ops.aten.addmm.default)
        return CheckpointPolicy.MUST_SAVE if keep else CheckpointPolicy.PREFER_RECOMPUTE

    w = torch.randn(8, 8)

    def function(x, w):
        inner = lambda v, w: torch.nn.functional.dropout(torch.tanh(v @ w) @ w, 0.3).exp()  # noqa: E731
        context = partial(create_selective_checkpoint_contexts, policy)
        return checkpoint(inner, x, w, use_reentrant=False, context_fn=context)

    x = torch.randn(4, 8)
    assert_close_to_eager(gradients(compiled(function), x, w), gradients(function, x, w), scale=10.0)


# ---- flex_attention ----


def causal(batch, head, query, key):
    return query >= key


def with_bias(score, batch, head, query, key):
    return score * 0.5 + 0.01 * (query - key)


@pytest.mark.parametrize("kind", ["score", "mask", "both"])
def test_flex_attention(kind, compiled):
    """With grouped heads. PyTorch has no backward pass on CPU: it raises its own error, as in eager."""
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    mask = create_block_mask(causal, None, None, 32, 32, device="cpu") if kind != "score" else None
    score = with_bias if kind != "mask" else None

    def function(q, k, v):
        return flex_attention(q, k, v, score_mod=score, block_mask=mask, enable_gqa=True)

    q, k, v = torch.randn(2, 4, 32, 16), torch.randn(2, 2, 32, 16), torch.randn(2, 2, 32, 16)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with torch.no_grad():
            assert_close_to_eager(compiled(function)(q, k, v), function(q, k, v), scale=20.0)
        for run in (function, compiled(function)):
            with pytest.raises(NotImplementedError, match="does not support backward on CPU"):
                gradients(run, q, k, v)


def test_flex_attention_with_a_bias_of_its_own(compiled):
    from torch.nn.attention.flex_attention import flex_attention

    def function(q, k, v, bias):
        return flex_attention(q, k, v, score_mod=lambda score, b, h, i, j: score + bias[h, j])

    inputs = [*(torch.randn(1, 2, 16, 8) for _ in range(3)), torch.randn(2, 16)]
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        assert_close_to_eager(compiled(function)(*inputs), function(*inputs), scale=20.0)


# ---- autograd.Function ----


class Straight(torch.autograd.Function):
    """A straight-through estimator: it rounds, and passes the gradient where |x| < 1."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.round()

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return g * (x.abs() < 1)


class Scaled(torch.autograd.Function):
    """A function with two results, a number, an input without a gradient, and a separate setup_context."""

    @staticmethod
    def forward(x, index, factor):
        return x * factor, x[index]

    @staticmethod
    def setup_context(ctx, inputs, output):
        x, index, ctx.factor = inputs
        ctx.save_for_backward(index)
        ctx.shape = x.shape

    @staticmethod
    def backward(ctx, g, g_rows):
        (index,) = ctx.saved_tensors
        return g * ctx.factor + torch.zeros(ctx.shape).index_add(0, index, g_rows), None, None


def test_autograd_function(compiled):
    x = torch.linspace(-2, 2, 9)
    function = lambda x: Straight.apply(x * 1.5) ** 2  # noqa: E731
    assert_close_to_eager(gradients(compiled(function), x), gradients(function, x))


def test_autograd_function_of_several_results(compiled):
    index = torch.tensor([0, 2, 2])

    def function(x):
        y, rows = Scaled.apply(x.sin(), index, 3.0)
        return y * 2, rows.exp()

    x = torch.randn(4, 3)
    assert_close_to_eager(gradients(compiled(function), x), gradients(function, x))


# ---- transforms ----


def product_of_derivatives(x):
    return torch.func.grad(lambda v: (v.sin() * v).sum())(x)


def mapped_gradient(x):
    return torch.func.vmap(torch.func.grad(lambda v: torch.logsumexp(v * 2, 0)))(x)


def forward_mode(x):
    return torch.func.jvp(lambda v: v.tanh() @ v.t(), (x,), (x.cos(),))


def pulled_back(x):
    value, pull = torch.func.vjp(lambda v: v.exp().cumsum(1), x)
    return value, pull(x)


def jacobians(x):
    function = lambda v: v.sin() * v.sum()  # noqa: E731
    return torch.func.jacrev(function)(x[0]), torch.func.jacfwd(function)(x[0])


def second_derivative(x):
    return torch.func.hessian(lambda v: (v**3).sum() * v[0])(x[0])


def mapped_over_columns(x):
    return torch.func.vmap(lambda v, w: torch.softmax(v * w, 0), in_dims=(1, None), out_dims=1)(x, x[:, 0])


TRANSFORMS = [
    product_of_derivatives, mapped_gradient, forward_mode, pulled_back, jacobians, second_derivative,
    mapped_over_columns,
]  # fmt: skip


@pytest.mark.parametrize("function", TRANSFORMS, ids=lambda f: f.__name__)
def test_transform(function, compiled):
    x = torch.randn(3, 5)
    assert_close_to_eager(compiled(function)(x), function(x), scale=10.0)


def test_transform_of_a_module(compiled):
    """Per-sample gradients, by functional_call."""
    model = nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 1))

    def per_sample(parameters, x):
        loss = lambda p, row: torch.func.functional_call(model, p, (row,)).square().sum()  # noqa: E731
        return torch.func.vmap(torch.func.grad(loss), in_dims=(None, 0))(parameters, x)

    parameters = {key: p.detach() for key, p in model.named_parameters()}
    x = torch.randn(5, 4)
    assert_close_to_eager(compiled(per_sample)(parameters, x), per_sample(parameters, x), scale=10.0)


# ---- second derivatives, compiled autograd ----


def test_double_backward_says_so_or_works(compiled):
    """AOTAutograd's compiled backward is not differentiable. The error must be PyTorch's own, as with aot_eager."""

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


def test_gradient_penalty(compiled):
    """A second derivative inside the compiled function."""

    def function(x):
        return torch.func.grad(lambda v: torch.func.grad(lambda u: (u.sin() * u**2).sum())(v).square().sum())(x)

    x = torch.randn(6)
    assert_close_to_eager(compiled(function)(x), function(x), scale=10.0)


@pytest.mark.parametrize("dynamic", [False, True])
def test_a_graph_is_retained_after_one_that_was_not(dynamic, compiled):
    run = compiled(lambda x: x.exp() * x * x.shape[0], dynamic=dynamic)
    x = torch.linspace(-1, 1, 5, requires_grad=True)
    run(x).sum().backward()
    once = x.grad.clone()
    y = run(x)
    y.sum().backward(retain_graph=True)
    y.sum().backward()
    assert_close_to_eager(x.grad, 3 * once)


@pytest.mark.parametrize("retain", [False, True])
def test_backward_twice(retain, compiled):
    def step(run):
        x = torch.linspace(-1, 1, 5, requires_grad=True)
        y = run(x)
        y.sum().backward(retain_graph=retain)
        y.sum().backward()
        return x.grad

    function = lambda x: x.exp() * x  # noqa: E731
    if retain:
        return assert_close_to_eager(step(compiled(function)), step(function))
    with pytest.raises(RuntimeError, match="second time"):
        step(compiled(function))


def test_compiled_autograd(compiled):
    model = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 2))
    twin = copy.deepcopy(model)
    x = torch.randn(4, 6)
    for _ in range(2):
        model(x).square().sum().backward()
    with torch._dynamo.config.patch(compiled_autograd=True):

        def step():
            compiled(twin)(x).square().sum().backward()

        run = compiled(step)
        for _ in range(2):  # the second time gradients are added to those that are there
            run()
    assert_close_to_eager([p.grad for p in twin.parameters()], [p.grad for p in model.parameters()])


# ---- hooks ----


def tripled(parameter):
    parameter.grad.mul_(3)


def test_hooks_of_modules_and_parameters(compiled):
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU())
    seen = []
    model[0].register_forward_pre_hook(lambda m, i: (i[0] + 1,))
    model[0].register_forward_hook(lambda m, i, o: o * 2)
    model[0].weight.register_hook(lambda g: seen.append(g.clone()) or g * 3)
    model[0].bias.register_post_accumulate_grad_hook(tripled)
    x = torch.randn(3, 4)
    model(x).sum().backward()
    eager = [p.grad.clone() for p in model.parameters()]
    model.zero_grad()
    compiled(model)(x).sum().backward()
    assert_close_to_eager([p.grad for p in model.parameters()], eager)
    assert_close_to_eager(seen[1], seen[0])


def test_hooks_of_values(compiled):
    """A hook on a value inside the compiled function, and on its result."""

    def function(x):
        y = x.exp()
        y.register_hook(lambda g: g * 2)
        return y * y

    def gradient(run):
        x = torch.linspace(-1, 1, 5, requires_grad=True)
        y = run(x)
        y.register_hook(lambda g: g + 1)
        y.sum().backward()
        return x.grad

    assert_close_to_eager(gradient(compiled(function)), gradient(function))


def test_full_backward_hook(compiled):
    model = nn.Sequential(nn.Linear(4, 4), nn.Tanh())
    seen = []
    model[1].register_full_backward_hook(lambda m, gi, go: seen.append((gi[0].clone(), go[0].clone())))
    x = torch.randn(3, 4)
    for run in (model, compiled(model)):
        run(x).sum().backward()
    assert_close_to_eager(seen[1], seen[0])


def test_hooks_of_saved_tensors(compiled):
    """Packing to bf16 and unpacking, so that the hooks show in the gradient."""
    packed = []

    def pack(t):
        packed.append(t.shape)
        return t.to(torch.bfloat16)

    def gradient(run):
        x = torch.linspace(-1, 1, 7, requires_grad=True)
        with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t.float()):
            y = run(x)
        y.sum().backward()
        return x.grad

    expected = torch.linspace(-1, 1, 7).exp().to(torch.bfloat16).float()
    found = gradient(compiled(lambda x: x.exp()))
    assert packed
    torch.testing.assert_close(found, expected, rtol=1e-2, atol=1e-2)


def test_tensor_subclass_with_gradient(compiled):
    from torch.testing._internal.two_tensor import TwoTensor

    def gradient(run):
        torch.manual_seed(0)
        t = TwoTensor(torch.randn(3, 4), torch.randn(3, 4)).requires_grad_()
        run(t).sum().backward()
        return [t.grad.a, t.grad.b]

    function = lambda t: (t.sin() * 2) @ t.t()  # noqa: E731
    assert_close_to_eager(gradient(compiled(function)), gradient(function), scale=10.0)

"""Dropout is a native kernel with eager's random numbers: the same mask, values and generator state afterwards."""

import pytest
import torch
import torch.utils.checkpoint

SHAPES = [(1,), (7,), (3, 105), (2, 3, 311), (4, 4, 64, 64)]


def run_twice(function, *arguments):
    """The results of two calls, the second of which starts inside a block of the generator, and the next numbers
    drawn."""
    torch.manual_seed(5)
    results = [*function(*arguments), torch.rand(3), *function(*arguments)]
    return [*results, torch.get_rng_state()]


def assert_equal(ours, eagers):
    for mine, eager in zip(ours, eagers, strict=True):
        assert mine.dtype == eager.dtype and mine.stride() == eager.stride()
        assert torch.equal(mine, eager)


@pytest.mark.parametrize("p", [0.0, 0.1, 0.5, 1.0])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
def test_mask_and_values(dtype, p, compiled, strict):
    def function(*inputs):
        return [r for x in inputs for r in torch.native_dropout(x, p, True)]

    inputs = [torch.randn(shape).to(dtype) for shape in SHAPES]
    assert_equal(run_twice(compiled(function), *inputs), run_twice(function, *inputs))


def test_the_mask_follows_memory_and_not_dims(compiled, strict):
    def function(x, y):
        return [*torch.native_dropout(x, 0.3, True), *torch.native_dropout(y, 0.3, True)]

    inputs = torch.randn(2, 8, 5, 7).to(memory_format=torch.channels_last), torch.randn(33, 65).t()
    assert_equal(run_twice(compiled(function), *inputs), run_twice(function, *inputs))


RANDOM = {
    "randn_like": torch.randn_like,
    "rand_like": torch.rand_like,
    "randint_like": lambda t: torch.randint_like(t, 3, 100),
    "of another type": lambda t: torch.randn_like(t, dtype=torch.float64),
    "contiguous": lambda t: torch.rand_like(t, memory_format=torch.contiguous_format),
    "uniform": lambda t: torch.empty_like(t).uniform_(),
    "exponential": lambda t: torch.zeros_like(t).exponential_(),
    "geometric": lambda t: torch.zeros_like(t).geometric_(0.3),
    "log_normal": lambda t: torch.empty_like(t).log_normal_(),
    "cauchy": lambda t: torch.empty_like(t).cauchy_(),
    "dropout": lambda t: torch.nn.functional.dropout(torch.ones_like(t), 0.5),
    # The draws of these ops depend on values.
    "bernoulli": lambda t: torch.bernoulli(t.float().sigmoid()),
    "normal": lambda t: torch.normal(0.0, t.float().sigmoid()),
    "poisson": lambda t: torch.poisson(t.float().sigmoid()),
    "multinomial": lambda t: torch.multinomial(t.float().sigmoid().flatten(1), 3),
    "rrelu": lambda t: torch.nn.functional.rrelu(t, training=True) == 0,
}
KERNEL = torch.full((4, 4, 3, 3), 0.01)
LAYOUTS = {
    "convolution": lambda x: torch.conv2d(x, KERNEL.to(x.dtype)),
    "permuted": lambda x: x.permute(0, 2, 3, 1) + 1,
    "expanded": lambda x: x[:, :, :1, :1].expand(-1, -1, 5, 5),
    "strided": lambda x: x[:, ::2, 1:, ::3],
    "normalised": lambda x: torch.nn.functional.group_norm(torch.conv2d(x, KERNEL.to(x.dtype)), 2),
    "product": lambda x: torch.matmul(x.transpose(1, 2), x.transpose(1, 2).mT),
}


@pytest.mark.one_in(2)
@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=pytest.mark.nightly) if n == "normalised" else n for n in LAYOUTS]
)
def test_random_numbers_follow_eagers_memory(name, compiled, strict):
    """Random tensors like a value use the memory order of eager's value, even if ours has another layout. For
    contiguous and channels-last images, two types, and any size."""

    def function(x):
        value = LAYOUTS[name](x)
        return [draw(value) for draw in RANDOM.values()]

    run = compiled(function, dynamic=True)
    for dtype, size, layout in (
        (torch.float32, 8, torch.contiguous_format), (torch.float32, 9, torch.channels_last),
        (torch.bfloat16, 8, torch.contiguous_format),
    ):  # fmt: skip
        x = torch.linspace(-1, 1, 8 * size * size).reshape(2, 4, size, size).to(dtype)
        x = x.to(memory_format=layout)
        ours, eagers = run_twice(run, x), run_twice(function, x)
        for kind, a, b in zip([*RANDOM, "state"] * 2, ours, eagers, strict=False):
            if (name, kind) == ("normalised", "bernoulli"):  # rounding decides how many numbers are drawn
                break
            assert a.dtype == b.dtype and torch.equal(a, b) or kind in ("bernoulli", "normal", "poisson"), kind
            if a.is_floating_point():
                torch.testing.assert_close(a, b, rtol=1e-2, atol=1e-2, msg=kind)


IN_PLACE = {
    "bernoulli": lambda t: t.bernoulli_(0.3),
    "bernoulli of a tensor": lambda t: t.bernoulli_(torch.full(t.shape, 0.3)),
    "normal": lambda t: t.normal_(2, 3),
    "uniform": lambda t: t.uniform_(),
    "exponential": lambda t: t.exponential_(),
    "cauchy": lambda t: t.cauchy_(),
    "geometric": lambda t: t.geometric_(0.3),
    "log_normal": lambda t: t.log_normal_(),
    "dropout": lambda t: torch.dropout_(t, 0.5, True),
    "alpha_dropout": lambda t: torch.alpha_dropout_(t, 0.5, True),
    "feature_dropout": lambda t: torch.feature_dropout_(t, 0.5, True),
    "feature_alpha_dropout": lambda t: torch.feature_alpha_dropout_(t, 0.5, True),
}
MEMORY = {
    "contiguous": lambda x: x,
    "permuted": lambda x: x.permute(0, 2, 3, 1),
    "rows": lambda x: x[:, 1:3],
    "part of each row": lambda x: x[..., :5],
    "permuted with gaps": lambda x: x.permute(3, 1, 0, 2)[:, 1:3, :, ::2],
}


@pytest.mark.one_in(2)
@pytest.mark.needs_ipex  # other backends' tracing ignores the layout of the written tensor
@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("name", IN_PLACE)
def test_random_numbers_in_place(name, dynamic, compiled, strict):
    """They are drawn in the order of the written memory, with its gaps: part of a tensor, or a tensor like another
    one."""
    draw = IN_PLACE[name]

    def function(x):
        whole, likes = [], []
        for part in MEMORY.values():
            whole.append(x + 1)
            draw(part(whole[-1]))
            likes.append(draw(torch.ones_like(part(x))))
        return *whole, *likes

    run = compiled(function, dynamic=dynamic)
    for size in (8, 9) if dynamic else (8,):
        x = torch.linspace(-1, 1, 8 * size * size).reshape(2, 4, size, size)
        for ours, eager in zip(run_twice(run, x), run_twice(function, x), strict=True):
            assert ours.stride() == eager.stride()
            torch.testing.assert_close(ours, eager)


@pytest.mark.needs_ipex  # other backends' tracing omits such draws
@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("training", [False, True])
def test_a_draw_that_nobody_reads_counts(training, dynamic, compiled, strict):
    """Later draws are the same as in eager, in the graph and after the call."""
    draws = [*RANDOM.values(), *(lambda x, write=write: write(torch.ones_like(x)) for write in IN_PLACE.values())]

    def function(x):
        drawn = []
        for draw in draws:
            draw(x)
            drawn.append(torch.rand(3))
        return *drawn, x * torch.randn(draw(x).shape)

    x = torch.linspace(-1, 1, 600).reshape(2, 3, 10, 10).requires_grad_(training)
    for ours, eager in zip(run_twice(compiled(function, dynamic=dynamic), x), run_twice(function, x), strict=True):
        assert torch.equal(ours, eager)


class DrawsInBackward(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * torch.rand(3)

    @staticmethod
    def backward(ctx, gradient):
        (x,) = ctx.saved_tensors
        torch.rand(3)
        return gradient * torch.rand(3) + torch.rand_like(gradient) * torch.dropout(x, 0.5, True)


@pytest.mark.needs_ipex  # other backends' tracing omits unused draws
@pytest.mark.parametrize("recompute", [True, False])
def test_each_pass_draws_its_own_numbers(recompute, compiled, strict):
    """The backward pass draws in each of its runs, also numbers that do not depend on gradients, and unused ones."""

    def function(x):
        torch.dropout(x, 0.5, True)
        return DrawsInBackward.apply(x)

    def results(call):
        torch.manual_seed(0)
        x = torch.ones(3, requires_grad=True)
        y = call(x)
        between = torch.rand(2)
        gradients = [torch.autograd.grad(y.sum(), x, retain_graph=again)[0] for again in (True, False)]
        return y.detach(), between, *gradients, torch.rand(2)

    torch.testing.assert_close(results(compiled(function, options={"recompute": recompute})), results(function))


@pytest.mark.needs_ipex  # other backends' tracing omits unused draws
@pytest.mark.parametrize("reentrant", [True, False])
def test_unread_draws_in_a_checkpoint(reentrant, compiled, strict):
    def body(x):
        torch.rand(3)
        torch.dropout(x, 0.3, True)
        return torch.dropout(x.sin(), 0.5, True) * torch.rand_like(x)

    def function(x):
        return torch.utils.checkpoint.checkpoint(body, x, use_reentrant=reentrant) * torch.rand_like(x)

    def results(call):
        torch.manual_seed(0)
        x = torch.linspace(-1, 1, 24).requires_grad_()
        y = call(x)
        y.sum().backward()
        return y.detach(), x.grad, torch.rand(2)

    torch.testing.assert_close(results(compiled(function)), results(function))


@pytest.mark.needs_ipex  # other backends' tracing draws random numbers
def test_dropout_of_everything_draws_nothing(compiled, strict):
    def function(x):
        return torch.dropout(x, 1.0, True), torch.rand(2)

    x = torch.tensor([1.0, -2.0, torch.nan, torch.inf])
    torch.testing.assert_close(run_twice(compiled(function), x), run_twice(function, x), equal_nan=True)


@pytest.mark.parametrize("p", [0.5, 1.0])
def test_dropout_of_nothing(p, compiled, strict):
    run = compiled(lambda x: torch.dropout(x * 2, p, True))
    x = torch.ones(0, 4, requires_grad=True)
    assert run(x).shape == (0, 4) and torch.autograd.grad(run(x).sum(), x)[0].shape == (0, 4)


@pytest.mark.needs_ipex  # PyTorch's partitioner merges two equal calls
@pytest.mark.parametrize("name", [*RANDOM, *IN_PLACE])
def test_training_draws_each_time(name, compiled, strict):
    """Two equal calls draw different numbers."""

    def draw(x):
        return RANDOM[name](x) if name in RANDOM else IN_PLACE[name](torch.ones_like(x))

    def step(call):
        torch.manual_seed(0)
        x = torch.linspace(-1, 1, 600).reshape(2, 3, 10, 10).requires_grad_()
        result = call(x)
        (gradient,) = torch.autograd.grad(result.sum(), x)
        return result.detach(), gradient, torch.get_rng_state()

    def function(x):
        return (x[:, :2] * draw(x.detach()).sum() + x[:, 1:] * draw(x.detach()).sum()).sum(1)

    torch.testing.assert_close(step(compiled(function)), step(function), equal_nan=True)


@pytest.mark.parametrize("p", [-0.5, 1.5])
def test_no_probability(p, compiled):
    with pytest.raises(RuntimeError, match=rf"bernoulli_ expects p to be in \[0, 1\], but got p={p}"):
        compiled(lambda x: x.clone().bernoulli_(p))(torch.ones(3))


def test_not_finite(compiled, strict):
    def function(x):
        return torch.native_dropout(x, 0.5, True)

    x = torch.tensor([torch.inf, -torch.inf, torch.nan, 1e38, 0.0, -0.0] * 50)
    ours, eagers = run_twice(compiled(function), x), run_twice(function, x)
    torch.testing.assert_close(ours[0], eagers[0], rtol=0, atol=0, equal_nan=True)


def test_gradient_and_any_size(compiled, strict):
    def function(x):
        y = torch.nn.functional.dropout(x, 0.25) * 3
        return y, torch.autograd.grad(y.sum(), x)[0]

    run = compiled(function, dynamic=True)
    for rows in (3, 311, 2, 625):
        x = torch.randn(rows, 5, requires_grad=True)
        assert_equal(run_twice(run, x), run_twice(function, x))


def test_in_evaluation(compiled, strict):
    layer = torch.nn.Dropout(0.5).eval()
    x = torch.randn(5)
    assert torch.equal(compiled(layer)(x), x)
    mine, mask = compiled(lambda x: torch.native_dropout(x, 0.5, False))(x)
    assert torch.equal(mine, x) and mask.all()


class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.linear = torch.nn.LayerNorm(32), torch.nn.Linear(32, 32)

    def forward(self, x):
        x = x + torch.nn.functional.dropout(torch.nn.functional.gelu(self.linear(self.norm(x))), 0.3)
        return x * torch.rand_like(x)


@pytest.mark.parametrize("dynamic", [False, True])
def test_checkpoints_draw_the_same_again(dynamic, compiled, strict):
    """The backward pass recomputes the blocks with the random numbers of the forward pass. Draws after each pass are
    the same as in eager."""
    torch.manual_seed(0)
    blocks = torch.nn.ModuleList(Block() for _ in range(3))

    def function(x):
        for block in blocks:
            x = torch.utils.checkpoint.checkpoint(block, x, use_reentrant=False)
        return x.sum() + torch.randn(())

    def step(call, rows):
        torch.manual_seed(3)
        x = torch.linspace(-1, 1, rows * 32).reshape(rows, 32).requires_grad_()
        loss = call(x)
        after_forward = torch.get_rng_state()
        gradients = torch.autograd.grad(loss, [x, *blocks.parameters()])
        return loss.detach(), *gradients, after_forward, torch.get_rng_state()

    call = compiled(function, dynamic=dynamic)
    for rows in (8, 11) if dynamic else (8,):
        torch.testing.assert_close(step(call, rows), step(function, rows))

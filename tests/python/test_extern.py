"""ATen calls and custom operators: missing results, results that share memory, operands that are read by pointer."""

import pytest
import torch
import torch.nn.functional as F
from comparison import assert_close_to_eager, assert_near_in_norm

LIBRARY = torch.library.Library("ipex_extern_test", "FRAGMENT")


def define(schema, function, traced):
    name = schema.partition("(")[0]
    LIBRARY.define(schema)
    LIBRARY.impl(name, function, "CPU")
    torch.library.register_fake(f"ipex_extern_test::{name}", traced, lib=LIBRARY)
    return getattr(torch.ops.ipex_extern_test, name)


def three(x):
    return x * 2, x + 1, x * 3


def aliases(x):
    doubled = x * 2
    return doubled, doubled[1:], x


absent = define(
    "absent(Tensor x, int missing) -> (Tensor, Tensor, Tensor)",
    lambda x, missing: tuple(None if i == missing else t for i, t in enumerate(three(x))),
    lambda x, missing: three(x),
)
sharing = define(
    "sharing(Tensor x) -> (Tensor, Tensor, Tensor)", aliases, lambda x: tuple(map(torch.clone, aliases(x)))
)
strides_of = define(
    "strides_of(Tensor x, Tensor[] more) -> Tensor",
    lambda x, more: torch.tensor([s for t in (x, *more) for s in t.stride()]),
    lambda x, more: x.new_empty(sum(t.dim() for t in (x, *more)), dtype=torch.int64),
)


@pytest.mark.parametrize("missing", [0, 1, 2])
def test_a_result_that_is_no_tensor(missing, compiled):
    """The other results are identified by position, and live as long as they are used."""

    def run(x):
        results = absent(x.sin(), missing)
        kept = [r for i, r in enumerate(results) if i != missing]
        scratch = [(x * k).cos().sum(0) for k in range(4)]  # temporaries that would reuse the memory of a freed result
        return kept[0] + 1, kept[1].exp(), *scratch

    def expected(x):
        kept = [r for i, r in enumerate(three(x.sin())) if i != missing]
        return kept[0] + 1, kept[1].exp(), *[(x * k).cos().sum(0) for k in range(4)]

    optimised = compiled(run)
    for seed in range(5):
        x = torch.randn(64, 33, generator=torch.Generator().manual_seed(seed))
        assert_close_to_eager(optimised(x), expected(x))


@pytest.mark.needs_ipex
def test_a_result_that_is_needed_but_no_tensor(compiled):
    with pytest.raises(Exception, match="returned no tensor, but tracing saw one"):
        compiled(lambda x: absent(x * 1, 1)[1] + 1)(torch.randn(3, 4))


def test_results_that_share_memory(compiled):
    """Their memory must not be reused while one of them is still needed."""

    def run(x):
        whole, part, same = sharing(x + 1)
        grown = whole.exp() + whole  # the last use of `whole`
        return grown, part * 2, same - 1

    optimised = compiled(run)
    # PyTorch warns about such operators, and refuses them in CI.
    with torch._functorch.config.patch(error_on_custom_op_aliasing=False):
        for _ in range(5):
            x = torch.randn(40, 50)
            assert_close_to_eager(optimised(x), run(x))


def test_operands_have_the_strides_of_tracing(compiled):
    """Operators that read by pointer get the same strides as in eager, without additional broadcasts."""

    def run(x):
        zeros = torch.zeros(3, 4)
        return strides_of(zeros, [x.t(), x.expand(2, 3, 4).contiguous(), x[:, 1:3] * 1])

    x = torch.randn(3, 4)
    assert torch.equal(compiled(run)(x), run(x))
    assert torch.equal(compiled(run, dynamic=True)(x), run(x))


def test_expanded_operands(compiled):
    """A constant is stored as one element, but an operator may need it with other strides."""
    x, a = torch.arange(1.0, 10.0).reshape(3, 3), torch.eye(3) * 2 + 1
    column = torch.tensor([[1.0], [2.0], [3.0]])

    def run(x, a, column):
        ones = torch.ones(3, 1)
        everywhere = torch.full((1, 1), 2.0).expand(3, 3)
        return (
            torch.igamma(ones.expand(3, 3), x),
            torch.igammac(everywhere, x),
            torch.linalg.solve(a, ones.expand(3, 3)),
            torch.linalg.solve(a, column.expand(3, 3)),
            torch.linalg.solve_triangular(a.triu(), ones.expand(3, 3), upper=True),
            torch.linalg.solve_triangular(a.triu(), everywhere, upper=False),
            torch.igamma(torch.arange(1.0, 4.0)[:, None].expand(3, 3), x),
            torch.igamma(torch.ones(()).expand(0, 3), x[:0]),
        )

    for dynamic in (False, True):
        assert_close_to_eager(compiled(run, dynamic=dynamic)(x, a, column), run(x, a, column))

    def strides(x):
        ones, two = torch.ones(3, 1), torch.full((), 2.0)
        return strides_of(ones.expand(3, 4), [two.expand(2, 3), x[:1].expand(3, 4)])

    for dynamic in (False, True):
        assert torch.equal(compiled(strides, dynamic=dynamic)(torch.randn(3, 4)), strides(torch.randn(3, 4)))


kept = []


@torch.library.custom_op("ipex_extern_test::tap", mutates_args=())
def tap(x: torch.Tensor, row: int, fails: bool) -> torch.Tensor:
    kept.append(x[row:] if row else x)
    if fails:
        raise ValueError("after the tap")
    return x.clone()


tap.register_fake(lambda x, row, fails: torch.empty_like(x))


@torch.library.custom_op("ipex_extern_test::add_and_tap", mutates_args={"x"})
def add_and_tap(x: torch.Tensor) -> None:
    x.add_(1)
    kept.append(x)


def sample(seed):
    return torch.randn(64, 33, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("row", [0, 1])
@pytest.mark.parametrize("made", [torch.exp, lambda x: x], ids=["temporary", "input"])
def test_an_operator_keeps_its_argument(made, row, compiled):
    """An operator keeps a reference to its argument, and must see the values of its call even after the memory is
    reused."""
    optimised = compiled(lambda x: tap(made(x), row, False) + 1)
    kept.clear()
    for seed in range(3):
        assert_close_to_eager(optimised(sample(seed)), made(sample(seed)) + 1)
    for seed, tensor in zip(range(3), kept, strict=True):
        assert_close_to_eager(tensor, made(sample(seed))[row:])


def test_an_operator_keeps_its_argument_and_raises(compiled):
    optimised = compiled(lambda x: tap(x.exp(), 0, True) + 1)
    kept.clear()
    for seed in range(3):
        with pytest.raises(ValueError, match="after the tap"):
            optimised(sample(seed))
    for seed, tensor in zip(range(3), kept, strict=True):
        assert_close_to_eager(tensor, sample(seed).exp())


def test_an_operator_keeps_what_it_has_written(compiled):
    """The graph sees the operator's write during the call, but no later one."""

    def run(x):
        y = x.exp()
        add_and_tap(y)
        return y * 2

    optimised = compiled(run)
    kept.clear()
    results = []
    for seed in range(3):
        results.append(optimised(sample(seed)))
        kept[-1].mul_(3)
    for seed in range(3):
        assert_close_to_eager(kept[seed], (sample(seed).exp() + 1) * 3)
        assert_close_to_eager(results[seed], (sample(seed).exp() + 1) * 2)


@pytest.mark.parametrize("wanted", ["x", "w", "xw", "b", "xwb"])
def test_convolution_gradients_in_fp64(wanted, compiled):
    """These run in ATen, which returns no tensor for unneeded gradients."""
    made = {"x": torch.randn(2, 3, 8, 8), "w": torch.randn(4, 3, 3, 3), "b": torch.randn(4)}
    results = []
    for run in (F.conv2d, compiled(F.conv2d)):
        leaves = {name: t.double().requires_grad_(name in wanted) for name, t in made.items()}
        run(leaves["x"], leaves["w"], leaves["b"]).sin().sum().backward()
        results.append([leaves[name].grad for name in wanted])
    assert_near_in_norm(results[1], results[0], bound=1e-12)


DRAWN = {
    "normal": lambda y: torch.normal(y, y.abs()),
    "normal around 1": lambda y: torch.normal(1.0, y.abs()),
    "poisson": lambda y: torch.poisson(y.abs() * 3),
    "gamma": lambda y: torch._standard_gamma(y.abs() + 1),
}


@pytest.mark.parametrize("name", DRAWN)
def test_numbers_drawn_into_contiguous_memory(name, compiled):
    """Random numbers are drawn into contiguous memory, whatever the layout of the operands."""

    def function(x, w):
        return [DRAWN[name](y) for y in (x.transpose(1, 3) * 2, x.mT, torch.conv2d(x, w).relu())]

    arguments = torch.randn(2, 3, 5, 4), torch.randn(8, 3, 2, 2)
    results = []
    for run in (compiled(function), function):
        torch.manual_seed(0)
        results.append(run(*arguments))
    for ours, eager in zip(*results, strict=True):
        torch.testing.assert_close(ours, eager)
        assert ours.stride() == eager.stride()

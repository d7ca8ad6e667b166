"""Inference graphs that are called without AOTAutograd's wrapper: which these are, and that their results are right."""

import pytest
import torch
from comparison import assert_close_to_eager, tensors_of

pytestmark = pytest.mark.needs_ipex


@pytest.fixture
def direct_calls(monkeypatch):
    """For each compilation, whether its graph is called directly."""
    from intel_extension_for_pytorch.compiler import backend

    choose, chosen = backend._direct_call, []

    def recording(arguments):
        call = choose(arguments)
        chosen.append(call is not None)
        return call

    monkeypatch.setattr(backend, "_direct_call", recording)
    return chosen


def computed(x, y):
    return torch.nn.functional.gelu(x) * y, x.sum()


def of_an_input(x, y):
    return x + y, x.t()


def of_a_result(x, y):
    z = x + y
    return z, z[1:]


def changing_an_input(x, y):
    return x.add_(y) * 2


def drawing(x, y):
    return x + torch.nn.functional.dropout(y, 0.5)


def same_argument_twice(x, y):
    return torch.cat([x, x]) * y.sum()


def of_complex_numbers(x, y):
    return torch.view_as_real(torch.complex(x, y) * 2).sum(-1) + x


def one_of_two(x, y):
    return torch.cond(x.sum() > 1e9, lambda a: a + y, lambda a: a * y - 1, (x,))


@pytest.mark.parametrize(
    ("function", "direct"),
    [
        (computed, True),
        (same_argument_twice, True),
        (of_an_input, False),
        (of_a_result, None),  # a view that autograd recreates, except in inference mode
        (changing_an_input, False),
        (drawing, False),
        (of_complex_numbers, False),  # the graph is cut, so the compiled part is not the whole graph
        (one_of_two, False),
    ],
)
@pytest.mark.parametrize("mode", [torch.inference_mode, torch.no_grad, torch.enable_grad])
def test_only_what_needs_no_wrapper_goes_without(direct_calls, function, direct, mode):
    x, y = torch.randn(4, 4), torch.randn(4, 4)
    torch._dynamo.reset()
    with mode():
        compiled = torch.compile(function, backend="ipex")
        torch.manual_seed(3)
        ours = compiled(x.clone(), y)
        if direct is not None:
            assert direct_calls == [direct]
        torch.manual_seed(3)
        eager = function(x.clone(), y)
    assert_close_to_eager(tensors_of(ours), tensors_of(eager), strides=True)
    assert [t.is_inference() for t in tensors_of(ours)] == [t.is_inference() for t in tensors_of(eager)]


def test_the_same_tensor_for_two_arguments(direct_calls):
    x = torch.randn(5)
    torch._dynamo.reset()
    with torch.no_grad():
        assert_close_to_eager(torch.compile(computed, backend="ipex")(x, x), computed(x, x))


def test_gradients_are_never_lost(direct_calls):
    x, y = torch.randn(4, requires_grad=True), torch.randn(4)
    torch._dynamo.reset()
    compiled = torch.compile(computed, backend="ipex")
    with torch.no_grad():
        compiled(x, y)
        assert direct_calls == [True]
    compiled(x, y)[0].sum().backward()
    expected = torch.autograd.grad(computed(x, y)[0].sum(), x)[0]
    assert_close_to_eager([x.grad], [expected])


def test_autocast_inside_and_outside(direct_calls):
    layer, x = torch.nn.Linear(8, 8), torch.randn(3, 8)
    torch._dynamo.reset()
    compiled = torch.compile(lambda t: layer(t).softmax(-1), backend="ipex")
    with torch.no_grad():
        single = compiled(x)
        with torch.autocast("cpu", torch.bfloat16):
            half = compiled(x)
            expected = layer(x).softmax(-1)
    assert (single.dtype, half.dtype) == (torch.float32, expected.dtype)
    assert_close_to_eager([half], [expected])


def test_sizes_that_change(direct_calls):
    torch._dynamo.reset()
    compiled = torch.compile(computed, backend="ipex", dynamic=True)
    with torch.no_grad():
        for size in (3, 5, 9):
            x, y = torch.randn(size, 4), torch.randn(size, 4)
            assert_close_to_eager(compiled(x, y), computed(x, y))


def test_a_warm_start_is_direct_too(direct_calls, tmp_path, monkeypatch):
    monkeypatch.setenv("IPEX_CACHE", str(tmp_path / "kernels"))
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "graphs"))
    x, y = torch.randn(4, 4), torch.randn(4, 4)
    with torch._functorch.config.patch(enable_autograd_cache=True), torch.no_grad():
        for _ in range(2):
            torch._dynamo.reset()
            torch._dynamo.utils.counters.clear()
            ours = torch.compile(computed, backend="ipex")(x, y)
            assert_close_to_eager(ours, computed(x, y))
    assert torch._dynamo.utils.counters["aot_autograd"]["autograd_cache_hit"] == 1
    assert direct_calls == [True, True]

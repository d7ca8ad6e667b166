"""torch_ipex::dropout and the layer of `ipex.optimize` that calls it in training: eager's random numbers and values."""

import copy

import intel_extension_for_pytorch as ipex
import pytest
import torch
from comparison import assert_close_to_eager, assert_near_in_norm, relative_error
from intel_extension_for_pytorch.nn.utils._weight_prepack import _IPEXDropout
from torch import nn
from torch.utils.checkpoint import checkpoint

dropout = torch.ops.torch_ipex.dropout


def step(layer, x, grad):
    """The result, the gradient, and the state of the generator after them."""
    torch.manual_seed(3)
    x = x.detach().requires_grad_()
    y = layer(x)
    return y.detach(), torch.autograd.grad(y, x, grad)[0], torch.get_rng_state()


@pytest.mark.parametrize("p", [0.0, 0.1, 0.5, 1.0])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
def test_masks_and_values_are_eagers(dtype, p):
    ours, eager = _IPEXDropout(p), nn.Dropout(p)
    for n in range(1, 8):  # more sizes than programs with exact sizes
        x = torch.randn(n, 5, 3).to(dtype)
        layouts = [x, x.transpose(0, 2), torch.randn(n, 3, 4, 5).to(dtype).to(memory_format=torch.channels_last)]
        for given in [*layouts, x[:, ::2], x[:0], torch.randn(n, 1, 3).to(dtype).expand(n, 5, 3)]:
            grad = torch.randn_like(given)
            got, expected = step(ours, given, grad), step(eager, given, grad)
            assert torch.equal(got[2], expected[2])
            for a, b in zip(got[:2], expected[:2], strict=True):
                assert a.dtype is b.dtype and a.stride() == b.stride()
                if dtype in (torch.float64, torch.float32):
                    assert torch.equal(a, b)
            if dtype in (torch.bfloat16, torch.float16) and given.numel() and p < 1:
                kept = expected[0] != 0
                assert torch.equal(kept, got[0] != 0)
                for a, b, values in zip(got[:2], expected[:2], (given, grad), strict=True):
                    exact = values.double() * kept / (1 - p)
                    assert relative_error(a, exact) <= 1.1 * relative_error(b, exact)


def test_infinities():
    x = torch.tensor([float("inf"), float("nan"), -float("inf"), 1.0] * 20)
    assert_close_to_eager(step(_IPEXDropout(), x, x)[:2], step(nn.Dropout(), x, x)[:2])


def test_without_gradients():
    x = torch.randn(40)
    for mode in (torch.no_grad, torch.inference_mode):
        with mode():
            results = []
            for layer in (_IPEXDropout(), nn.Dropout()):
                torch.manual_seed(0)
                results.append(layer(x))
            assert torch.equal(*results)
    assert _IPEXDropout().eval()(x) is x
    inplace = _IPEXDropout(inplace=True)
    assert inplace(x) is x and (x == 0).any()


def test_second_derivatives():
    def layer(x):
        torch.manual_seed(0)
        return dropout(x, 0.5) ** 2

    assert torch.autograd.gradgradcheck(layer, torch.randn(12, dtype=torch.float64, requires_grad=True))


def test_function_transforms():
    x = torch.randn(5, 40)
    torch.manual_seed(0)
    ours = torch.vmap(lambda x: dropout(x, 0.5), randomness="different")(x)
    torch.manual_seed(0)
    assert torch.equal(ours, torch.vmap(lambda x: nn.functional.dropout(x, 0.5), randomness="different")(x))
    for randomness, is_same in (("same", True), ("different", False)):  # of a tensor that is not batched
        a, b = torch.vmap(lambda s: dropout(x, 0.5) * s, randomness=randomness)(torch.ones(2))
        assert torch.equal(a, b) == is_same
    with pytest.raises(RuntimeError, match="randomness"):
        torch.vmap(lambda s: dropout(x, 0.5) * s)(torch.ones(2))
    gradient = torch.func.grad(lambda x: dropout(x, 0.5).sum())(x)
    assert set(gradient.flatten().tolist()) == {0.0, 2.0}


def test_checkpoint():
    """The mask is drawn again in the backward pass."""
    x, results = torch.randn(64, requires_grad=True), []
    for layer in (_IPEXDropout(), nn.Dropout()):
        torch.manual_seed(0)
        y = checkpoint(lambda x, layer=layer: layer(x).sin(), x, use_reentrant=False)
        results += [y, *torch.autograd.grad(y.sum(), x)]
    assert_close_to_eager(results[:2], results[2:])


def optimized(dtype=None):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 16), nn.Dropout(0.2), nn.Linear(16, 4))
    return ipex.optimize(model, dtype=dtype, optimizer=torch.optim.SGD(model.parameters(), lr=0.1))[0]


def test_optimize():
    model = optimized()
    assert type(model[1]) is _IPEXDropout and type(copy.deepcopy(model)[1]) is _IPEXDropout
    assert isinstance(ipex.optimize(model.eval())[1], nn.Identity)


@pytest.mark.parametrize("dtype", [torch.float32, pytest.param(torch.bfloat16, marks=pytest.mark.needs_cpu("avx512f"))])
def test_compiled(dtype, compiled, strict):
    """An optimized model compiles with the masks that it has in eager mode."""
    model, x, losses = optimized(dtype), torch.randn(32, 8), []
    with torch.autocast("cpu", enabled=dtype is torch.bfloat16):
        for target in (compiled(model, fullgraph=True), model):
            torch.manual_seed(1)
            losses.append(target(x).float().square().sum())
    gradients = [torch.autograd.grad(loss, [*model.parameters()]) for loss in losses]
    assert_close_to_eager(*losses, scale=4)
    assert_near_in_norm(*gradients, bound=1e-2 if dtype is torch.bfloat16 else 1e-5)

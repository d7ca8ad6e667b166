"""FrozenBatchNorm2d and IPEXLinearEltwise against plain PyTorch, eager and compiled."""

import intel_extension_for_pytorch as ipex
import pytest
import torch
from comparison import assert_close_to_eager
from torch import nn


def frozen(channels=6):
    module = ipex.nn.FrozenBatchNorm2d(channels, eps=1e-3)
    for name in ("weight", "bias", "running_mean"):
        getattr(module, name).normal_()
    module.running_var.uniform_(0.5, 2)
    return module


def exact(module, x):
    norm = nn.BatchNorm2d(module.num_features, eps=module.eps).double().eval()
    norm.load_state_dict({**module.state_dict(), "num_batches_tracked": torch.tensor(0)})
    return norm(x)


@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
def test_frozen_batch_norm(dtype, last):
    module = frozen()
    for sizes in ((2, 6, 5, 7), (1, 6, 1, 3), (4, 6, 9, 2), (3, 6, 4, 4), (5, 6, 3, 3), (6, 6, 2, 5), (0, 6, 2, 5)):
        x = torch.randn(sizes).to(dtype, memory_format=torch.channels_last if last else torch.contiguous_format)
        x.requires_grad_()
        y = module(x)
        twin = x.detach().double().requires_grad_()
        expected = exact(module, twin)
        weight = torch.randn(sizes).to(dtype)
        y.backward(weight)
        expected.backward(weight.double())
        assert y.dtype == dtype
        assert y.stride() == x.stride()
        torch.testing.assert_close(y, expected.to(dtype))
        torch.testing.assert_close(x.grad, twin.grad.to(dtype))


def test_frozen_batch_norm_loads_states():
    trained = nn.BatchNorm2d(6)
    trained(torch.randn(4, 6, 3, 3))
    module = ipex.nn.FrozenBatchNorm2d(6)
    module.load_state_dict(trained.state_dict())
    assert list(module.state_dict()) == ["weight", "bias", "running_mean", "running_var"]
    assert not list(module.parameters())
    x = torch.randn(2, 6, 4, 4)
    assert_close_to_eager(module(x), trained.eval()(x))
    with torch.no_grad():
        module.weight.mul_(2)  # noticed
        trained.weight.mul_(2)
    assert_close_to_eager(module(x), trained(x))


def test_frozen_batch_norm_refuses_other_sizes():
    with pytest.raises(RuntimeError, match=r"statistics \[5\], got \[6\]"):
        frozen()(torch.randn(2, 5, 3, 3))


@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_frozen_batch_norm_compiled(dtype, last, compiled, strict):
    module = frozen()
    x = torch.randn(2, 6, 5, 7).to(dtype, memory_format=torch.channels_last if last else torch.contiguous_format)
    x.requires_grad_()
    y = compiled(module, fullgraph=True)(x)
    y.float().pow(2).sum().backward()
    grad, x.grad = x.grad, None
    expected = module(x)
    expected.float().pow(2).sum().backward()
    assert_close_to_eager([y, grad], [expected, x.grad], strides=True, scale=4.0)


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("name", ["relu", "sigmoid"])
def test_linear_eltwise(name, bias, compiled, strict):
    linear = nn.Linear(12, 7, bias=bias)
    module = ipex.nn.modules.IPEXLinearEltwise(linear, name)
    x = torch.randn(3, 5, 12, requires_grad=True)
    expected = getattr(torch, name)(linear(x))
    gradients = torch.autograd.grad(expected.sum(), [x, *linear.parameters()])
    for run in (module, compiled(module, fullgraph=True)):
        y = run(x)
        assert_close_to_eager(y, expected)
        assert_close_to_eager(torch.autograd.grad(y.sum(), [x, *linear.parameters()]), gradients)
        with torch.no_grad():
            assert_close_to_eager(run(x), expected)
    with pytest.raises(ValueError, match="'relu' or 'sigmoid', got 'tanh'"):
        ipex.nn.modules.IPEXLinearEltwise(linear, "tanh")

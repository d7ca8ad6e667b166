"""Forward-mode derivatives (torch.autograd.forward_ad) of layers that `ipex.optimize` converts, and of operators."""

import copy

import intel_extension_for_pytorch as ipex
import pytest
import torch
from comparison import assert_close_to_eager
from torch import nn
from torch.autograd import forward_ad

ops = torch.ops.torch_ipex
LAYERS = {
    "linear": (nn.Linear(4, 3), (2, 4)),
    "convolution": (nn.Conv2d(3, 4, 3), (2, 3, 5, 5)),
    "transposed": (nn.ConvTranspose2d(3, 4, 3), (2, 3, 5, 5)),
    "batch norm": (nn.BatchNorm2d(3), (2, 3, 5, 5)),
    "dropout": (nn.Dropout(0.5), (6, 7)),
}


def with_tangent(function, shape):
    torch.manual_seed(0)
    x = torch.randn(shape)
    with forward_ad.dual_level():
        dual = forward_ad.unpack_dual(function(forward_ad.make_dual(x, x.cos())))
        assert dual.tangent is not None
        return [dual.primal, dual.tangent]


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("name", LAYERS)
def test_layers(name, training):
    layer, shape = LAYERS[name]
    model = nn.Sequential(copy.deepcopy(layer), nn.Tanh()).train(training)
    if training:
        optimizer = torch.optim.SGD([*model.parameters(), torch.ones(1)], lr=0.1)
        ours, _ = ipex.optimize(model, optimizer=optimizer, auto_kernel_selection=True)
    else:
        ours = ipex.optimize(model)
    assert_close_to_eager(with_tangent(ours, shape), with_tangent(model, shape), scale=10)


def test_functions():
    weight, ones, zeros = torch.randn(4), torch.ones(3), torch.zeros(3)
    for ours, eager, shape in (
        (lambda x: ops.rmsnorm(x, weight, 1e-6), lambda x: nn.functional.rms_norm(x, (4,), weight, 1e-6), (2, 4)),
        (lambda x: ops.frozen_batch_norm(x, ones, zeros, zeros, ones * 4, 0.0), lambda x: x / 2, (2, 3, 4, 4)),
    ):
        assert_close_to_eager(with_tangent(ours, shape), with_tangent(eager, shape), scale=10)


def test_frozen_script():
    model = nn.Sequential(nn.Linear(4, 3), nn.ReLU()).eval()
    script = torch.jit.freeze(torch.jit.trace(ipex.optimize(model), torch.randn(2, 4)))
    for _ in range(3):
        script(torch.randn(2, 4))  # compiles
    assert_close_to_eager(with_tangent(script, (2, 4)), with_tangent(model, (2, 4)), scale=10)

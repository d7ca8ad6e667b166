"""Batch norm in inference moves into the convolution before it, and the user's tensors never show it."""

import copy

import pytest
import torch

pytestmark = [pytest.mark.needs_ipex, pytest.mark.usefixtures("strict")]


@torch.no_grad()
def network(dtype):
    layers = torch.nn.Sequential(
        torch.nn.Conv2d(6, 16, 3, padding=1, bias=False),
        torch.nn.BatchNorm2d(16),
        torch.nn.ReLU(),
        torch.nn.Conv2d(16, 16, 3, groups=16),
        torch.nn.BatchNorm2d(16),
        torch.nn.Conv2d(16, 8, 1),
        torch.nn.BatchNorm2d(8, affine=False),
    )
    return redraw(layers.eval().to(dtype))


def redraw(layers):
    """New weights and statistics, in place."""
    for layer in layers:
        if isinstance(layer, torch.nn.BatchNorm2d):
            layer.running_mean.normal_()
            layer.running_var.uniform_(0.2, 3)
        for parameter in layer.parameters():
            parameter.normal_()
    return layers


def error(actual, exact):
    return ((actual.double() - exact).norm() / exact.norm()).item()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@torch.no_grad()
def test_each_convolution_is_one_step_and_sees_updates(compiled, dtype):
    from intel_extension_for_pytorch import record_reports

    model, x = network(dtype), torch.randn(2, 6, 14, 14).to(dtype)
    before = copy.deepcopy(model.state_dict())
    run = compiled(model)
    with record_reports() as reports:
        run(x)
    steps = [step for report in reports for step in report["steps"]]
    convolutions = [step for step in steps if step["name"] == "onednn.conv"]
    assert len(convolutions) == 3
    assert all("+bias" in step["detail"] for step in convolutions)
    # Rounding the scaled weights stands for rounding the convolution's result. Its error is the same at every pixel, so
    # that one draw of 16 channels says little: six draws together.
    ours = theirs = 0.0
    for _ in range(6):
        exact = copy.deepcopy(model).double()(x.double())
        ours += error(run(x), exact) ** 2
        theirs += error(model(x), exact) ** 2
        redraw(model)
    assert ours**0.5 <= 1.1 * theirs**0.5
    model.load_state_dict(before)
    for name, value in model.state_dict().items():
        assert torch.equal(value, before[name])


@torch.no_grad()
def test_not_without_hoisting(compiled):
    """With nothing kept between calls, scaling the weights each time would be wasted."""
    from intel_extension_for_pytorch import record_reports

    model, x = network(torch.float32), torch.randn(2, 6, 14, 14)
    with record_reports() as reports:
        torch.testing.assert_close(compiled(model, options={"hoist": False})(x), model(x), rtol=1e-4, atol=1e-5)
    details = [s["detail"] for r in reports for s in r["steps"] if s["name"] == "onednn.conv"]
    assert sum("+bias" in detail for detail in details) == 2  # the convolutions that have one of their own

"""torch_ipex::batch_norm and the layers of `ipex.optimize` that call it in training, against eager and float64."""

import copy
import io
from pathlib import Path

import intel_extension_for_pytorch as ipex
import pytest
import torch
from comparison import assert_close_to_eager, relative_error
from intel_extension_for_pytorch.nn.utils._weight_prepack import (
    _IPEXBatchNorm2d,
    _IPEXBatchNorm3d,
)
from torch import nn

batch_norm = torch.ops.torch_ipex.batch_norm
FLOORS = {torch.float64: 1e-14, torch.float32: 2e-6}
LAST = {2: torch.channels_last, 3: torch.channels_last_3d}


def converted(norm):
    ours = copy.deepcopy(norm)
    ours.__class__ = _IPEXBatchNorm2d if isinstance(norm, nn.BatchNorm2d) else _IPEXBatchNorm3d
    return ours


def step(norm, x, grad):
    """The result, all gradients and the running statistics."""
    x = x.detach().requires_grad_()
    y = norm(x)
    gradients = torch.autograd.grad(y, [x, *norm.parameters()], grad.to(y.dtype))
    buffers = [b.clone() for b in norm.buffers() if b.is_floating_point()]
    return [y, *gradients, *buffers]


def assert_as_near_as_eager(ours, eager, reference, x, grad):
    results = [step(m, x.double() if m is reference else x, grad) for m in (ours, eager, reference)]
    for position, (a, b, c) in enumerate(zip(*results, strict=True)):
        assert a.dtype is b.dtype and a.stride() == b.stride()
        error, allowed = relative_error(a, c), relative_error(b, c)
        assert error <= max(1.1 * allowed, FLOORS.get(a.dtype, 0)), f"tensor {position}: {error}, eager {allowed}"


@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize(
    ("rank", "settings"),
    [
        (2, {}),
        (2, {"affine": False, "momentum": None}),
        (2, {"track_running_stats": False, "eps": 1e-2}),
        (3, {"momentum": 0.3}),
    ],
)
def test_training(rank, settings, dtype, last):
    torch.manual_seed(0)
    eager = (nn.BatchNorm2d if rank == 2 else nn.BatchNorm3d)(24, **settings)
    for parameter in eager.parameters():
        nn.init.normal_(parameter)
    if dtype is torch.float64:
        eager.double()
    ours, reference = converted(eager), copy.deepcopy(eager).double()
    for n in range(1, 8):  # more sizes than programs with exact sizes
        x = torch.randn(n, 24, 5 + n, *(7, 3)[: rank - 1]).mul(3).add(1).to(dtype)
        if last:
            x = x.to(memory_format=LAST[rank])
        grad = torch.randn_like(x)
        assert_as_near_as_eager(ours, eager, reference, x, grad)


def test_parameters_in_the_inputs_type():
    """Weights, statistics and the input in bf16, and a gradient that is expanded."""
    eager = nn.BatchNorm2d(8).bfloat16()
    x, grad = torch.randn(4, 8, 6, 6).bfloat16(), torch.randn(4, 8, 1, 1).bfloat16().expand(4, 8, 6, 6)
    assert_as_near_as_eager(converted(eager), eager, copy.deepcopy(eager).double(), x, grad)


@pytest.mark.parametrize("frozen", ["weight", "bias", "input"])
def test_only_some_gradients(frozen):
    eager = nn.BatchNorm2d(8)
    ours, x, results = converted(eager), torch.randn(4, 8, 6, 6), []
    for norm in (ours, eager):
        leaves = {"weight": norm.weight, "bias": norm.bias, "input": x.clone()}
        for name, leaf in leaves.items():
            leaf.requires_grad_(name != frozen)
        norm(leaves["input"]).square().sum().backward()
        results.append([leaf.grad for leaf in leaves.values() if leaf.requires_grad])
        assert leaves[frozen].grad is None
    assert_close_to_eager(*results, scale=10)


def test_without_gradients():
    eager = nn.BatchNorm2d(8)
    ours = converted(eager)
    for mode in (torch.no_grad, torch.inference_mode):
        with mode():
            x = torch.randn(4, 8, 6, 6)
            assert_close_to_eager(ours(x), eager(x))
            assert_close_to_eager([*ours.buffers()], [*eager.buffers()])
    x = torch.randn(4, 8, 6, 6)
    assert_close_to_eager(ours.eval()(x), eager.eval()(x))


def test_second_derivatives():
    norm = converted(nn.BatchNorm2d(3).double())
    x = torch.randn(2, 3, 2, 2, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradgradcheck(norm, x)


def test_function_transforms():
    x = torch.randn(5, 4, 3, 2, 2)

    def ours(x):
        return batch_norm(x, None, None, None, None, 0.1, 1e-5)

    def eager(x):
        return nn.functional.batch_norm(x, None, None, training=True)

    assert_close_to_eager(torch.vmap(ours)(x), torch.vmap(eager)(x))
    assert_close_to_eager(torch.func.functionalize(ours)(x[0]), eager(x[0]))
    with pytest.raises(ValueError, match="more than 1 value per channel"):
        torch.vmap(ours)(x[:, :1, :, :1, :1])
    by_grad = [torch.func.grad(lambda x, f=f: f(x).pow(3).sum())(x[0]) for f in (ours, eager)]
    assert_close_to_eager(*by_grad, scale=10)


@pytest.mark.parametrize("create_graph", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("settings", [{"affine": False}, {"bias": False}, {}], ids=str)
def test_some_operands(settings, dtype, create_graph):
    """Without statistics, without parameters, and with a bias only."""
    for without_weight in (False, True):
        eager = nn.BatchNorm2d(6, track_running_stats=False, **settings).to(dtype)
        if without_weight:
            eager.weight = None
        ours = converted(eager)
        x = torch.randn(4, 6, 5, 5, dtype=dtype, requires_grad=True)
        results = [
            torch.autograd.grad(m(x).float().pow(3).sum(), [x, *m.parameters()], create_graph=create_graph)
            for m in (ours, eager)
        ]
        for a, b in zip(*results, strict=True):
            assert a.dtype is b.dtype and relative_error(a, b) < (2e-2 if dtype is torch.bfloat16 else 1e-5)


def test_results_have_the_layout_of_the_input():
    whole = torch.randn(4, 16, 6, 6).to(memory_format=torch.channels_last)
    for x in (whole[::2], whole[:, :8], whole[:, :, ::2], whole[:, :, :1, :1], whole[:, :1]):
        eager = nn.BatchNorm2d(x.shape[1])
        assert converted(eager)(x).stride() == eager(x).stride()


def test_images_of_many_sizes_in_batches_of_one():
    """They share a program after the first ones, as larger batches do: each program has mappings of its own."""
    eager = nn.BatchNorm2d(3)
    norm = converted(eager)
    mappings = []
    for size in range(2, 34):
        x, grad = torch.randn(2, 1, 3, size, 40 - size)
        assert_close_to_eager(step(norm, x, grad), step(eager, x, grad), scale=10)
        mappings.append(Path("/proc/self/maps").read_text().count("\n"))
    assert mappings[-1] - mappings[7] < 20


@pytest.mark.parametrize("norm", [_IPEXBatchNorm2d(3), nn.BatchNorm2d(3)])
def test_refuses(norm):
    with pytest.raises(ValueError, match=r"Expected more than 1 value per channel when training, got input size.*1, 3"):
        norm(torch.randn(1, 3, 1, 1))
    with pytest.raises(ValueError, match=r"expected 4D input \(got 3D input\)"):
        norm(torch.randn(3, 1, 1))
    with pytest.raises(RuntimeError, match="running_mean should contain 4 elements not 3"):
        norm(torch.randn(2, 4, 1, 1))


def test_saved_tensors_are_watched():
    norm = converted(nn.BatchNorm2d(3))
    x = torch.randn(2, 3, 4, 4, requires_grad=True) * 1
    y = norm(x)
    with torch.no_grad():
        x.zero_()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()
    version = norm.running_mean._version
    norm(torch.randn(2, 3, 4, 4))
    assert norm.running_mean._version > version


def network():
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 4, 3), nn.BatchNorm2d(4))


def optimized(dtype=None):
    model = network()
    return ipex.optimize(model, dtype=dtype, optimizer=torch.optim.SGD(model.parameters(), lr=0.1))


def test_optimize_converts_and_keeps_states():
    model, _ = optimized()
    assert isinstance(model[1], _IPEXBatchNorm2d)
    assert list(model.state_dict()) == list(network().state_dict())
    x = torch.randn(4, 3, 9, 9)
    model(x)
    stored = io.BytesIO()
    torch.save(model, stored)
    stored.seek(0)
    for again in (copy.deepcopy(model), torch.load(stored, weights_only=False)):
        assert type(again[1]) is _IPEXBatchNorm2d
        assert torch.equal(again(x), copy.deepcopy(model)(x))
    unprepared = network()
    unprepared.load_state_dict(model.state_dict())
    assert_close_to_eager(model(x), unprepared(x), scale=10)
    inference = ipex.optimize(model.eval())
    assert_close_to_eager(inference(x), unprepared.eval()(x), scale=10)


@pytest.mark.parametrize("dtype", [torch.float32, pytest.param(torch.bfloat16, marks=pytest.mark.needs_cpu("avx512f"))])
def test_compiled(dtype, compiled, strict):
    """An optimized model compiles as the plain one, with its statistics."""
    ours, x = optimized(dtype)[0], torch.randn(4, 3, 9, 9)
    target, twin = compiled(ours, fullgraph=True), copy.deepcopy(ours)
    with torch.autocast("cpu", enabled=dtype is torch.bfloat16):
        for _ in range(2):
            results = [m(x).float().square().mean() for m in (target, twin)]
    assert_close_to_eager(*results, scale=4)
    for loss in results:
        loss.backward()
    scale = 10 if dtype is torch.float32 else 4
    assert_close_to_eager([p.grad for p in ours.parameters()], [p.grad for p in twin.parameters()], scale=scale)
    assert_close_to_eager([*ours.buffers()], [*twin.buffers()], scale=scale)


def test_fx_keeps_the_layers():
    """As it keeps those of torch.nn, which may be switched to evaluation later."""
    net = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.Dropout(0.5))
    model, _ = ipex.optimize(net.train(), optimizer=torch.optim.SGD(net.parameters(), lr=0.1))
    traced = torch.fx.symbolic_trace(model).eval()
    x = torch.randn(2, 3, 8, 8)
    assert torch.equal(traced(x), model.eval()(x))
    assert [node.target for node in traced.graph.nodes if node.op == "call_module"][-2:] == ["1", "2"]

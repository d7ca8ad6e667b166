"""The operators for linear layers, convolutions and LSTMs against eager: values, gradients, and changes of weights."""

import copy
import threading

import intel_extension_for_pytorch as ipex  # noqa: F401 - registers the operators
import pytest
import torch
from comparison import assert_close_to_eager, relative_error
from intel_extension_for_pytorch.nn.utils._lstm_convert import _LSTM
from intel_extension_for_pytorch.nn.utils._weight_prepack import (
    _IPEXConv2d,
    _IPEXLinear,
    weight_prepack_with_ipex,
)
from torch import nn
from torch.fx.experimental.proxy_tensor import make_fx

ops = torch.ops.torch_ipex
DTYPES = [torch.float32, torch.bfloat16]
CONVS = {1: nn.Conv1d, 2: nn.Conv2d, 3: nn.Conv3d}
TRANSPOSED = {2: nn.ConvTranspose2d, 3: nn.ConvTranspose3d}
LAST = {1: torch.contiguous_format, 2: torch.channels_last, 3: torch.channels_last_3d}


def packed(module):
    """A copy whose layers keep packed weights."""
    ours = copy.deepcopy(module)
    weight_prepack_with_ipex(ours, training=False)
    return ours


def gradients(module, inputs, grad):
    leaves = [*inputs, *module.parameters()]
    return torch.autograd.grad(module(*inputs), leaves, grad)


def assert_as_good(ours, eager, reference, *inputs):
    """Results and gradients: the error against fp64 is at most 1.1 times eager's, or within fp32 rounding."""
    low = [x.detach().requires_grad_() for x in inputs]
    high = [x.detach().double().requires_grad_() for x in inputs]
    exact = reference(*high)
    grad = torch.randn(exact.shape, generator=torch.Generator().manual_seed(1)).to(inputs[0].dtype)
    wanted = [exact, *gradients(reference, high, grad.double())]
    got = [ours(*low), *gradients(ours, low, grad)]
    theirs = [eager(*low), *gradients(eager, low, grad)]
    for position, (a, b, c) in enumerate(zip(got, theirs, wanted, strict=True)):
        assert a.dtype is b.dtype and a.shape == b.shape
        floor = 2e-6 if a.dtype is torch.float32 else 0.0
        error, allowed = relative_error(a, c), relative_error(b, c)
        assert error <= max(1.1 * allowed, floor), f"tensor {position}: {error}, eager {allowed}"
    return got[0], theirs[0]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("features", [(1, 1), (33, 17), (64, 96), (96, 1024)])
def test_linear(dtype, bias, features):
    """Seven row counts, so that programs for exact and for symbolic sizes run; inputs of one to four dims."""
    torch.manual_seed(0)
    eager = nn.Linear(*features, bias=bias).to(dtype)
    ours, reference = packed(eager), copy.deepcopy(eager).double()
    for sizes in [(), (1,), (2,), (3,), (5,), (2, 3), (2, 1, 4), (7,), (11,)]:
        assert_as_good(ours, eager, reference, torch.randn(*sizes, features[0]).to(dtype))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("layout", ["contiguous", "channels_last"])
@pytest.mark.parametrize(
    "settings",
    [{}, {"stride": 2, "padding": 1}, {"groups": 4, "padding": 1}, {"dilation": 2, "padding": 2, "bias": False}],
    ids=["plain", "stride", "groups", "dilation"],
)
@pytest.mark.parametrize("kind", ["1d", "2d", "3d", "2d transposed", "3d transposed"])
def test_convolution(kind, settings, layout, dtype):
    torch.manual_seed(0)
    rank, transposed = int(kind[0]), "transposed" in kind
    if transposed and "stride" in settings:
        settings = {**settings, "output_padding": 1}
    eager = (TRANSPOSED if transposed else CONVS)[rank](8, 12, 3, **settings).to(dtype)
    last = layout == "channels_last" and rank > 1
    if last:
        eager = eager.to(memory_format=LAST[rank])
    ours, reference = packed(eager), copy.deepcopy(eager).double()
    assert type(ours) is not type(eager)
    for n in range(6):
        x = torch.randn(1 + n % 3, 8, *(7 + n + d for d in range(rank))).to(dtype)
        y, z = assert_as_good(ours, eager, reference, x.to(memory_format=LAST[rank]) if last else x)
        assert rank != 2 or y.stride() == z.stride()
    assert_as_good(ours, eager, reference, x[0])  # without a batch


@pytest.mark.parametrize("padding", ["same", "valid"])
@pytest.mark.parametrize("mode", ["zeros", "reflect", "circular"])
@pytest.mark.parametrize("kernel", [3, (2, 5)])
def test_named_paddings(padding, mode, kernel):
    eager = nn.Conv2d(4, 6, kernel, padding=padding, padding_mode=mode)
    x = torch.randn(2, 4, 9, 8)
    assert_close_to_eager(packed(eager)(x), eager(x), scale=10)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("batch_first", [True, False])
@pytest.mark.parametrize("settings", [{}, {"num_layers": 2, "bidirectional": True}, {"bias": False}])
def test_lstm(settings, batch_first, dtype):
    torch.manual_seed(0)
    eager = nn.LSTM(16, 32, batch_first=batch_first, **settings).to(dtype)
    ours, reference = copy.deepcopy(eager), copy.deepcopy(eager).double()
    ours.__class__ = _LSTM
    states = eager.num_layers * (2 if eager.bidirectional else 1)
    for batch, steps in [(1, 4), (2, 3), (3, 3), (4, 5), (5, 7), (6, 8), (7, 9)]:
        x = torch.randn(*((batch, steps) if batch_first else (steps, batch)), 16).to(dtype)
        hx = tuple(torch.randn(states, batch, 32).to(dtype) for _ in range(2))
        with torch.no_grad():
            for given in (None, hx):
                exact = reference(x.double(), given and tuple(t.double() for t in given))
                for a, b, c in zip(*map(flat, (ours(x, given), eager(x, given), exact)), strict=True):
                    assert a.dtype is b.dtype and a.shape == b.shape
                    floor = 2e-6 if dtype is torch.float32 else 0.0
                    assert relative_error(a, c) <= max(1.1 * relative_error(b, c), floor)
    x.requires_grad_()
    ones = torch.ones_like(eager(x)[0])
    for a, b in zip(*(torch.autograd.grad(m(x)[0], [x, *m.parameters()], ones) for m in (ours, eager)), strict=True):
        assert torch.equal(a, b)


def flat(result):
    return [result[0], *result[1]]


def changes(weight):
    """Every way to write a weight that a training script or a user takes."""
    yield "in place", lambda: weight.mul_(2)
    yield "data", lambda: weight.data.mul_(0.5)
    yield "copy", lambda: weight.copy_(torch.ones_like(weight))
    yield "new data", lambda: setattr(weight, "data", torch.full_like(weight, 0.25))
    yield (
        "numpy",
        lambda: weight.detach().view(torch.int16 if weight.dtype is torch.bfloat16 else weight.dtype).numpy().fill(0),
    )


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("make", [lambda: nn.Linear(64, 48), lambda: nn.Conv2d(64, 48, 1)], ids=["linear", "conv"])
def test_changed_weights(make, dtype):
    eager = make().to(dtype)
    ours = packed(eager)
    x = torch.randn(4, 64, *(() if isinstance(eager, nn.Linear) else (3, 3))).to(dtype)
    with torch.no_grad():
        for (name, ours_changes), (_, eager_changes) in zip(changes(ours.weight), changes(eager.weight), strict=True):
            for _ in range(2):
                assert_close_to_eager(ours(x), eager(x), scale=10)
            ours_changes()
            eager_changes()
            assert_close_to_eager(ours(x), eager(x), scale=10), name


@pytest.mark.parametrize("dtype", DTYPES)
def test_training_steps(dtype):
    torch.manual_seed(0)
    eager = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 36, 5)).to(dtype)
    ours = packed(eager)
    optimizers = [torch.optim.SGD(m.parameters(), lr=0.05, momentum=0.9) for m in (ours, eager)]
    for _ in range(8):
        x = torch.randn(4, 3, 8, 8).to(dtype)
        losses = []
        for model, optimizer in zip((ours, eager), optimizers, strict=True):
            optimizer.zero_grad()
            loss = model(x).square().mean()
            loss.backward()
            optimizer.step()
            losses.append(loss.detach())
        assert_close_to_eager(*losses, scale=30)


def test_threads():
    """Another number of threads, and calls from several threads at once, give the same values."""
    layer = packed(nn.Linear(256, 128)).bfloat16()
    x = torch.randn(64, 256).bfloat16()
    threads = torch.get_num_threads()
    with torch.no_grad():
        results = []
        for count in (1, 2, 1):
            torch.set_num_threads(count)
            results.append(layer(x))
        torch.set_num_threads(threads)
        together = [None] * 8

        def call(i):
            with torch.no_grad():
                together[i] = layer(x)

        workers = [threading.Thread(target=call, args=(i,)) for i in range(8)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
    assert all(torch.equal(r, results[0]) for r in [*results, *together])


def test_tracing_sees_aten():
    """make_fx, vmap, torch.func, export and meta tensors take the definition by ATen ops."""
    model = packed(nn.Sequential(nn.Conv2d(3, 4, 3), nn.Flatten(), nn.Linear(16, 2)))
    x = torch.randn(2, 3, 4, 4)
    targets = {str(n.target) for n in make_fx(model)(x).graph.nodes if n.op == "call_function"}
    assert {"aten.convolution.default", "aten.addmm.default"} <= targets
    exported = torch.export.export(model, (x,)).run_decompositions()
    assert not any("torch_ipex" in str(n.target) for n in exported.graph.nodes)
    assert_close_to_eager(exported.module()(x), model(x), scale=10)
    assert_close_to_eager(torch.vmap(model)(x[:, None])[:, 0], model(x), scale=10)
    assert model.to("meta")(x.to("meta")).shape == (2, 2)


def test_compiled_as_the_plain_model(strict):
    """torch.compile makes the same steps of a model with packed layers as of the plain one."""
    eager = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 36, 5))
    x = torch.randn(4, 3, 8, 8)
    steps = []
    for model in (eager, packed(eager)):
        with ipex.record_reports() as reports:
            torch.compile(model, backend="ipex")(x)
        steps.append([(step["kind"], step["name"], step["detail"]) for r in reports for step in r["steps"]])
    assert steps[0] and steps[0] == steps[1]


def test_double_backward():
    layer, eager = _IPEXLinear(4, 3), nn.Linear(4, 3)
    eager.load_state_dict(layer.state_dict())
    x = torch.randn(5, 4, requires_grad=True)
    results = []
    for module in (layer, eager):
        (first,) = torch.autograd.grad(module(x).square().sum(), x, create_graph=True)
        results.append(torch.autograd.grad(first.square().sum(), [x, module.weight]))
    assert_close_to_eager(*results, scale=10)
    conv = packed(nn.Conv2d(2, 3, 3))
    image = torch.randn(1, 2, 5, 5, requires_grad=True)
    (first,) = torch.autograd.grad(conv(image).square().sum(), image, create_graph=True)
    torch.autograd.grad(first.square().sum(), conv.weight)


def test_frozen_layers_pass_gradients_on():
    layer = packed(nn.Linear(4, 3)).requires_grad_(False)
    x = torch.randn(5, 4, requires_grad=True)
    layer(x).sum().backward()
    assert_close_to_eager(x.grad, layer.weight.sum(0).expand(5, 4), scale=10)
    assert layer.weight.grad is None


def test_inputs_of_another_dtype():
    """bf16 weights take fp32 inputs, and the gradient has the input's dtype."""
    for layer, x in [(nn.Linear(4, 3), torch.randn(2, 4)), (nn.Conv2d(4, 3, 1), torch.randn(2, 4, 5, 5))]:
        ours = packed(layer).bfloat16()
        x.requires_grad_()
        y = ours(x)
        y.sum().backward()
        assert y.dtype is torch.bfloat16 and x.grad.dtype is torch.float32


def test_autocast():
    layer, eager = _IPEXLinear(8, 4), nn.Linear(8, 4)
    eager.load_state_dict(layer.state_dict())
    conv = _IPEXConv2d(8, 4, 1)
    with torch.amp.autocast("cpu"):
        assert_close_to_eager(layer(torch.ones(2, 8)), eager(torch.ones(2, 8)))
        assert conv(torch.ones(2, 8, 3, 3)).dtype is torch.bfloat16
    assert layer(torch.ones(2, 8)).dtype is torch.float32


def test_types_without_kernels():
    """fp64 and tensors without elements are ATen's."""
    layer, eager = _IPEXLinear(8, 4).double(), nn.Linear(8, 4).double()
    eager.load_state_dict(layer.state_dict())
    x = torch.randn(3, 8, dtype=torch.float64, requires_grad=True)
    assert_close_to_eager(
        gradients(layer, [x], torch.ones(3, 4).double()), gradients(eager, [x], torch.ones(3, 4).double())
    )
    assert _IPEXLinear(8, 4)(torch.empty(0, 8)).shape == (0, 4)


@pytest.mark.parametrize(
    "call, message",
    [
        (
            lambda: ops.ipex_linear(torch.ones(2, 3), torch.ones(4, 5), None),
            "input has 3 features, the weight expects 5",
        ),
        (lambda: ops.ipex_linear(torch.ones(2, 3), torch.ones(4), None), "weight"),
        (lambda: packed(nn.Conv2d(3, 4, 3))(torch.ones(1, 2, 5, 5)), "2 channels, the weight expects 3"),
        (lambda: packed(nn.Conv2d(3, 4, 3))(torch.ones(1, 3, 2, 2)), "smaller than the window"),
        (lambda: packed(nn.Conv2d(3, 4, 3))(torch.ones(3)), "dimensions"),
    ],
)
def test_bad_shapes(call, message):
    with pytest.raises(RuntimeError, match=message):
        call()

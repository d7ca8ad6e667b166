"""Values that a forward pass saves for its backward pass: not those that are cheap to recompute."""

import copy

import pytest
import torch
from comparison import relative_error
from torch import nn

pytestmark = pytest.mark.needs_ipex
MB = 1 << 20
KEEP = {"recompute": False}


class Residual(nn.Module):
    """Two residual blocks. Each sum is the argument of the next, so the chain of recomputed values must end
    somewhere."""

    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.Conv2d(32, 32, 3, padding=1, bias=False), nn.BatchNorm2d(32), nn.ReLU(),
                          nn.Conv2d(32, 32, 1, bias=False), nn.BatchNorm2d(32))
            for _ in range(4)
        )  # fmt: skip
        self.head = nn.Conv2d(32, 16, 1)

    def forward(self, x):
        for block in self.blocks:
            x = torch.relu(x + block(x))
        return self.head(x)


class Gated(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.gate, self.up = nn.RMSNorm(256), nn.Linear(256, 1024), nn.Linear(256, 1024)
        self.down = nn.Linear(1024, 256)

    def forward(self, x):
        x = self.norm(x)
        return self.down(torch.nn.functional.silu(self.gate(x)) * self.up(x))


def tokens():
    return torch.randn(4, 512, 256)


def images():
    return torch.randn(8, 32, 48, 48)


def convolved(*layers):
    """Convolutions around these layers. None has a bias before a norm, whose gradient would be only rounding error."""
    return nn.Sequential(nn.Conv2d(32, 64, 3, bias=False), *layers, nn.Conv2d(64, 64, 1))


# A module, its input, and the MB (fp32) by which recomputation reduces the saved memory.
CASES = {
    "layer norm, GELU": (
        lambda: nn.Sequential(nn.LayerNorm(256), nn.Linear(256, 1024), nn.GELU(), nn.Linear(1024, 256)), tokens, 10,
    ),
    "GELU by tanh": (lambda: nn.Sequential(nn.Linear(256, 1024), nn.GELU("tanh"), nn.Linear(1024, 256)), tokens, 8),
    "gated SiLU": (Gated, tokens, 8),
    "batch norm, ReLU": (lambda: convolved(nn.BatchNorm2d(64), nn.ReLU()), images, 4),
    "batch norm without weights": (lambda: convolved(nn.BatchNorm2d(64, affine=False), nn.SiLU()), images, 4),
    "group norm": (lambda: convolved(nn.GroupNorm(8, 64), nn.SiLU()), images, 4),
    "residual": (Residual, images, 12),
    "max pool": (lambda: convolved(nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(3, 2, 1)), images, 5.4),
}  # fmt: skip


def saved_by(result):
    """The tensors that the autograd graph of `result` holds; shared memory counts once."""
    held = {t.untyped_storage().data_ptr(): t for t in result.grad_fn.saved_tensors if not isinstance(t, nn.Parameter)}
    return list(held.values())


def bytes_of(tensors):
    return sum(t.untyped_storage().nbytes() for t in tensors)


def trained(model, run, x, gradient):
    """The result, the tensors that its graph holds, and all gradients and buffers."""
    x = x.detach().clone().requires_grad_(True)
    y = run(x)
    held = saved_by(y) if run is not model else []
    y.backward(gradient.to(y.dtype))
    return y, held, [y.detach(), x.grad, *(p.grad for p in model.parameters()), *model.buffers()]


@pytest.mark.one_in(2)
@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize(
    ("dynamic", "precision"),
    [
        pytest.param(False, "fp32", id="static-fp32"),
        pytest.param(False, "bf16", id="static-bf16"),
        pytest.param(True, "fp32", id="dynamic-fp32", marks=pytest.mark.nightly),
        pytest.param(True, "bf16", id="dynamic-bf16", marks=pytest.mark.nightly),
    ],
)
def test_cheap_values_are_not_saved(name, dynamic, precision, compiled, strict):
    make, given, less = CASES[name]
    model, x = make().train(), given()
    models = [copy.deepcopy(model) for _ in range(4)]
    wide, eager, kept, ours = models
    gradient = torch.randn_like(model(x))
    reference = trained(wide.double(), wide, x.double(), gradient.double())[2]
    with torch.autocast("cpu", torch.bfloat16, enabled=precision == "bf16"):
        expected = trained(eager, eager, x, gradient)[2]
        _, saves_all, all_found = trained(kept, compiled(kept, dynamic=dynamic, options=KEEP), x, gradient)
        _, saves, found = trained(ours, compiled(ours, dynamic=dynamic), x, gradient)
    # If rounding changes the sign of a ReLU's argument, it does so with and without recomputation.
    for mine, saved, theirs, exact in zip(found, all_found, expected, reference, strict=True):
        allowed = max(relative_error(saved, exact), relative_error(theirs, exact))
        assert relative_error(mine, exact) < max(5e-6, 1.1 * allowed)
    less = less * MB / (2 if precision == "bf16" else 1)
    assert bytes_of(saves) <= bytes_of(saves_all) - less, [(t.dtype, tuple(t.shape)) for t in saves]


@pytest.mark.parametrize(("side", "dtype"), [(16, torch.uint8), (24, torch.int16), (184, torch.int32)])
def test_positions_of_maxima_are_narrow(side, dtype, compiled, strict):
    x = torch.randn(2, 3, side, side, requires_grad=True)
    pool = nn.MaxPool2d(3, 2)
    y = compiled(lambda x: pool(x * 2))(x)
    assert [t.dtype for t in saved_by(y) if not t.is_floating_point()] == [dtype]
    y.square().sum().backward()
    found, x.grad = x.grad, None
    pool(x * 2).square().sum().backward()
    assert torch.equal(found, x.grad)


def test_positions_that_the_user_asks_for_stay_whole(compiled, strict):
    x = torch.randn(2, 3, 24, 24, requires_grad=True)
    y, positions = compiled(lambda x: nn.functional.max_pool2d(x * 2, 3, return_indices=True))(x)
    expected, at = nn.functional.max_pool2d(x * 2, 3, return_indices=True)
    assert positions.dtype is torch.int64 and torch.equal(positions, at)
    y.sum().backward()
    found, x.grad = x.grad, None
    expected.sum().backward()
    assert torch.equal(found, x.grad)


def test_results_and_what_checkpoint_keeps_stay_saved(compiled, strict):
    """Results of the model are in memory anyway. Values that a policy of torch.utils.checkpoint saves are saved."""
    from functools import partial

    from torch.utils.checkpoint import CheckpointPolicy, checkpoint, create_selective_checkpoint_contexts

    first, second = nn.Linear(256, 1024), nn.Linear(1024, 256)

    def shows(x):
        hidden = nn.functional.gelu(first(x))
        return second(hidden), hidden

    def keeps(x):
        def policy(context, op, *arguments, **named):
            kept = op in (torch.ops.aten.gelu.default, torch.ops.aten.addmm.default)
            return CheckpointPolicy.MUST_SAVE if kept else CheckpointPolicy.PREFER_RECOMPUTE

        inner = lambda x: second(nn.functional.gelu(first(x)))  # noqa: E731
        context = partial(create_selective_checkpoint_contexts, policy)
        return (checkpoint(inner, x, use_reentrant=False, context_fn=context),)

    for function in (shows, keeps):
        x = torch.randn(1024, 256, requires_grad=True)
        saved = saved_by(compiled(function)(x)[0])
        assert [t.numel() for t in saved].count(1024 * 1024) == 2, function.__name__


class Shifted(nn.Module):
    """Changes a buffer after its last use, so that a backward pass that reads it would see the new value."""

    def __init__(self, last):
        super().__init__()
        self.first, self.second, self.last = nn.Linear(256, 1024), nn.Linear(1024, 256), last
        self.register_buffer("shift", torch.zeros(1024))

    def forward(self, x):
        y = self.first(x)
        y = nn.functional.gelu(y + self.shift) if self.last == "gelu" else nn.functional.gelu(y) + self.shift
        self.shift.add_(1.0)
        return self.second(y)


def gradients_agree(ours, run, eager, x, between=lambda model: None):
    for model, call in ((eager, eager), (ours, run)):
        model.zero_grad()
        loss = call(x).square().sum()
        between(model)
        loss.backward()
    for found, expected in zip(ours.parameters(), eager.parameters(), strict=True):
        assert relative_error(found.grad, expected.grad) < 5e-6


@pytest.mark.parametrize("last", ["gelu", "shift"])
def test_the_backward_pass_reads_what_the_graph_changes_as_it_was(last, compiled, strict):
    """For a buffer that is needed to recompute a value, and for one that is saved itself."""
    eager = Shifted(last)
    ours = copy.deepcopy(eager)
    run, x = compiled(ours), torch.randn(1024, 256)
    for _ in range(3):
        gradients_agree(ours, run, eager, x)
        assert torch.equal(ours.shift, eager.shift)


def test_parameters_that_eager_does_not_save_may_change_between_the_passes(compiled, strict):
    eager = convolved(nn.BatchNorm2d(64), nn.SiLU()).train()
    ours = copy.deepcopy(eager)

    def between(model):
        model[1].bias.data.add_(3.0)

    gradients_agree(ours, compiled(ours), eager, images(), between)


def test_a_norm_that_is_returned_as_well(compiled, strict):
    """The returned value is the norm's result, with the norm's strides."""
    batch, layer = nn.BatchNorm2d(32), nn.LayerNorm(64)
    inner, outer, dense = nn.Conv2d(32, 32, 3, bias=False), nn.Conv2d(32, 32, 3), nn.Linear(64, 64)

    def of_images(x):
        y = batch(inner(x))
        return outer(torch.relu(y)), y

    def of_columns(x):
        y = layer(x.transpose(1, 2))
        return dense(y), y

    for function, x in ((of_images, images()), (of_columns, torch.randn(8, 64, 1024))):
        for ours, eager in zip(compiled(function)(x), function(x), strict=True):
            assert ours.stride() == eager.stride()
            torch.testing.assert_close(ours, eager, rtol=1e-4, atol=1e-4)


def test_large_temporaries_take_the_memory_of_what_was_saved(compiled, strict):
    """The peak memory of a backward pass is that of saved values and gradients, without additional temporaries."""
    from intel_extension_for_pytorch import _C

    layers = [layer for _ in range(6) for layer in (nn.Linear(512, 512), nn.Tanh())]
    run = compiled(nn.Sequential(*layers))
    x = torch.randn(8192, 512, requires_grad=True)  # 16 MB
    for _ in range(2):
        y = run(x)
        held = _C.memory()["live_bytes"]
        y.sum().backward()
        del y
        x.grad = None
    _C.trim_memory()
    start = _C.memory()["live_bytes"] + _C.memory()["cached_bytes"]
    y = run(x)
    y.sum().backward()
    peak = (
        _C.memory()["live_bytes"] + _C.memory()["cached_bytes"] - start
    )  # freed memory stays cached, so this is the peak
    assert peak < held - start + 50 * MB

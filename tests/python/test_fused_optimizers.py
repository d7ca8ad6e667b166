"""Fused optimizers: `fuse(optimizer, params_attr)` agrees with the optimizer that it was given, over its options and in
all ways of storing parameters, and has the interface of every optimizer of PyTorch."""

import copy
import io
import itertools
import warnings

import pytest
import torch
from intel_extension_for_pytorch.nn.utils import _parameter_wrapper
from intel_extension_for_pytorch.optim import Lamb, Lars
from intel_extension_for_pytorch.optim._fused import FUSED, PreparedOptimizer, fuse, own_class
from torch import nn
from torch.optim import SGD, Adagrad, Adam, AdamW

# What test_agreement covers for each class: the product of these options.
GRIDS = {
    SGD: {
        "lr": [0.05],
        "momentum": [0, 0.9],
        "dampening": [0, 0.2],
        "weight_decay": [0, 0.1],
        "nesterov": [False, True],
        "maximize": [False, True],
        "foreach": [None],
    },
    Adagrad: {
        "lr": [0.05],
        "lr_decay": [0, 0.1],
        "weight_decay": [0, 0.1],
        "initial_accumulator_value": [0, 0.1],
        "eps": [1e-6],
        "maximize": [False, True],
    },
    Adam: {
        "lr": [0.01],
        "betas": [(0.9, 0.999), (0.3, 0.8)],
        "eps": [1e-6],
        "weight_decay": [0, 0.1],
        "amsgrad": [False, True],
        "maximize": [False, True],
        "foreach": [None, True],
    },
    AdamW: {
        "lr": [0.01],
        "betas": [(0.9, 0.99)],
        "weight_decay": [0, 0.1],
        "eps": [1e-6],
        "amsgrad": [False, True],
        "fused": [None, True],
    },
    Lamb: {"lr": [0.01], "betas": [(0.9, 0.99)], "eps": [1e-6], "weight_decay": [0, 0.1]},
    Lars: {"lr": [0.5], "momentum": [0, 0.9], "eeta": [0.1], "weight_decay": [0, 0.1], "epsilon": [0, 1e-6]},
}
CASES = [
    pytest.param(kind, dict(zip(grid, values, strict=True)), id=f"{kind.__name__}-{'-'.join(map(str, values))}")
    for kind, grid in GRIDS.items()
    for values in itertools.product(*grid.values())
    if not (kind is SGD and values[4] and (not values[1] or values[2]))  # Nesterov needs momentum, no dampening
]
ONE_EACH = [
    (SGD, {"lr": 0.05, "momentum": 0.9, "weight_decay": 0.01}),
    (Adagrad, {"lr": 0.05, "eps": 1e-6}),
    (Adam, {"lr": 0.01, "eps": 1e-6, "amsgrad": True}),
    (AdamW, {"lr": 0.01, "eps": 1e-6}),
    (Lamb, {"lr": 0.01, "weight_decay": 0.01}),
    (Lars, {"lr": 0.5, "eeta": 0.1, "momentum": 0.9}),
]
each = pytest.mark.parametrize(("kind", "options"), ONE_EACH, ids=[k.__name__ for k, _ in ONE_EACH])
MODES = ["plain", "split", "bf16 master", "fp16 master"]
every_mode = pytest.mark.parametrize("mode", MODES)


class Model(nn.Module):
    """Parameters of several shapes and layouts, one of which gets no gradient."""

    def __init__(self):
        super().__init__()
        self.convolution = nn.Conv2d(3, 8, 3).to(memory_format=torch.channels_last)
        self.hidden = nn.Linear(8, 300)
        self.out = nn.Linear(300, 2)
        self.scale = nn.Parameter(torch.tensor(0.5))
        self.unused = nn.Parameter(torch.ones(3))


def cast(model, mode):
    """The wrappers of all parameters of a model, which are cast in place."""
    if mode == "plain":
        return {}
    dtype = torch.float16 if mode == "fp16 master" else torch.bfloat16
    return {p: _parameter_wrapper.cast(p, dtype, training=True, split=mode == "split") for p in model.parameters()}


def prepared(kind, options, mode, model=None, fused=True):
    model = Model() if model is None else model
    optimizer = kind(model.parameters(), **options)
    params_attr = cast(model, mode)
    fuse(optimizer, params_attr, fused)
    return model, optimizer


def set_gradients(model, seed, like=None):
    """The same gradients in every dtype: values that bf16 and f16 represent."""
    generator = torch.Generator().manual_seed(seed)
    for name, p in model.named_parameters():
        value = (torch.randn(p.shape, generator=generator) / 4).bfloat16().half()
        p.grad = None if name == "unused" else torch.empty_like(p).copy_(value)


def values(model, optimizer):
    attr = getattr(optimizer, "params_attr", {})
    return [attr[p].public_value() if p in attr else p.detach() for p in model.parameters()]


def states(optimizer):
    return [v for state in optimizer.state_dict()["state"].values() for v in state.values()]


def assert_same_bits(first, second):
    assert len(first) == len(second)
    for a, b in zip(first, second, strict=True):
        assert a.dtype is b.dtype
        assert torch.equal(a, b)


def train(model, optimizer, seeds):
    for seed in seeds:
        set_gradients(model, seed)
        optimizer.step()


@pytest.mark.parametrize(("kind", "options"), CASES)
def test_agreement(kind, options):
    """Within the rounding of float32 of the class's own step, values and states, after ten steps."""
    plain = Model()
    theirs = kind(plain.parameters(), **options)
    model, ours = prepared(kind, options, "plain", copy.deepcopy(plain))
    for seed in range(10):
        train(plain, theirs, [seed])
        train(model, ours, [seed])
    for a, b in zip(model.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(a, b, rtol=2e-6, atol=2e-6)
    assert ours.state_dict()["state"].keys() == theirs.state_dict()["state"].keys()
    for a, b in zip(states(ours), states(theirs), strict=True):
        torch.testing.assert_close(a, b, rtol=2e-6, atol=2e-6)


@each
def test_float64(kind, options):
    plain = Model().double()
    theirs = kind(plain.parameters(), **options)
    model, ours = prepared(kind, options, "plain", copy.deepcopy(plain))
    for each_model, optimizer in ((plain, theirs), (model, ours)):
        train(each_model, optimizer, range(5))
    for a, b in zip(model.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-12, atol=1e-12)


@each
@pytest.mark.parametrize("mode", MODES[1:])
def test_low_precision_gives_the_bits_of_float32(kind, options, mode):
    torch.manual_seed(3)
    base = Model()
    plain, expected = prepared(kind, options, "plain", copy.deepcopy(base))
    model, ours = prepared(kind, options, mode, base)
    for each_model, optimizer in ((plain, expected), (model, ours)):
        train(each_model, optimizer, range(100))
    assert_same_bits(values(model, ours), values(plain, expected))
    assert_same_bits(states(ours), states(expected))
    for p in model.parameters():
        wrapper = ours.params_attr[p]
        if mode == "split":
            bits = wrapper.public_value().contiguous().view(torch.int32)
            assert torch.equal(p.detach().contiguous().view(torch.int16), (bits >> 16).short())
        else:
            assert torch.equal(p, wrapper.master_parameter.to(p.dtype))


@each
@every_mode
def test_threads(kind, options, mode):
    torch.manual_seed(4)
    base, threads, results = Model(), torch.get_num_threads(), []
    base.big = nn.Parameter(torch.randn(300, 301))
    for count in (1, 2):
        torch.set_num_threads(count)
        model, ours = prepared(kind, options, mode, copy.deepcopy(base))
        train(model, ours, range(3))
        results.append([*values(model, ours), *states(ours)])
    torch.set_num_threads(threads)
    assert_same_bits(*results)


@each
@every_mode
def test_interface(kind, options, mode):
    model, optimizer = prepared(kind, options, mode)
    assert isinstance(optimizer, kind)
    assert own_class(optimizer) is kind
    assert type(optimizer).__name__ == kind.__name__
    assert repr(optimizer) == repr(kind(Model().parameters(), **options))
    assert optimizer.fused is True
    assert all(p is q for p, q in zip(optimizer.param_groups[0]["params"], model.parameters(), strict=True))
    for p, wrapper in optimizer.params_attr.items():
        assert wrapper.parameter is p
        assert wrapper.original_dtype is torch.float32
        assert wrapper.casted_dtype is p.dtype
        assert wrapper.split is (mode == "split")
        assert (wrapper.master_parameter is None) is (mode == "split")
        assert (wrapper.parameter_trail is None) is (mode != "split")
    # Other optimizers of the class are not touched.
    assert not isinstance(kind(Model().parameters(), **options), PreparedOptimizer)
    set_gradients(model, 0)
    calls = []
    handles = [
        optimizer.register_step_pre_hook(lambda *_: calls.append("before")),
        optimizer.register_step_post_hook(lambda *_: calls.append("after")),
    ]
    assert optimizer.step(lambda: calls.append(torch.is_grad_enabled()) or 7) == 7
    assert calls == ["before", True, "after"]
    for handle in handles:
        handle.remove()
    optimizer.zero_grad(set_to_none=False)
    assert all(p.grad is None or not p.grad.any() for p in model.parameters())
    optimizer.zero_grad()
    assert all(p.grad is None for p in model.parameters())
    assert optimizer.step() is None


@each
@every_mode
@pytest.mark.parametrize("way", ["same", "plain to ours", "ours to plain", "file", "deepcopy", "pickle"])
def test_state_round_trips(kind, options, mode, way):
    """Training goes on with the same bits after the state has gone through a state_dict, a copy or a file."""
    torch.manual_seed(5)
    base = Model()
    model, optimizer = prepared(kind, options, mode, copy.deepcopy(base))
    train(model, optimizer, range(3))
    state = optimizer.state_dict()
    for p, own in zip(model.parameters(), (state["state"].get(i, {}) for i in range(99)), strict=False):
        for value in own.values():
            assert value.dtype is torch.float32
            assert value.shape in (p.shape, ())
    train(model, optimizer, [3, 4])
    expected = values(model, optimizer)

    again, other = prepared(kind, options, mode, copy.deepcopy(base))
    train(again, other, range(3))
    if way == "same":  # as Accelerate does
        other.load_state_dict(other.state_dict())
    elif way == "file":
        file = io.BytesIO()
        torch.save(other.state_dict(), file)
        file.seek(0)
        _, other = again, again_prepared(kind, options, again, other.params_attr)
        other.load_state_dict(torch.load(file))
    elif way == "plain to ours":
        plain = kind(copy.deepcopy(base).parameters(), **options)
        plain.load_state_dict(copy.deepcopy(other.state_dict()))
        other = again_prepared(kind, options, again, other.params_attr)
        other.load_state_dict(plain.state_dict())
    elif way == "ours to plain":
        plain_model = copy.deepcopy(base)
        with torch.no_grad():
            for p, value in zip(plain_model.parameters(), values(again, other), strict=True):
                p.copy_(value)
        plain = kind(plain_model.parameters(), **options)
        plain.load_state_dict(other.state_dict())
        train(plain_model, plain, [3, 4])
        for a, b in zip(plain_model.parameters(), expected, strict=True):
            torch.testing.assert_close(a.detach(), b, rtol=2e-6, atol=2e-6)
        return
    elif way == "deepcopy":
        old, again_and_other = again, copy.deepcopy((again, other))
        again, other = again_and_other
        assert again.out.weight is not old.out.weight
    elif way == "pickle":
        file = io.BytesIO()
        torch.save((again, other), file)
        file.seek(0)
        again, other = torch.load(file, weights_only=False)
    assert all(p is q for p, q in zip(other.param_groups[0]["params"], again.parameters(), strict=True))
    assert other.fused
    train(again, other, [3, 4])
    assert_same_bits(values(again, other), expected)


def again_prepared(kind, options, model, params_attr):
    optimizer = kind(model.parameters(), **options)
    fuse(optimizer, params_attr)
    return optimizer


@every_mode
def test_states_follow_the_layout(mode):
    """States that were saved contiguous get the channels-last layout of their parameter."""
    model, optimizer = prepared(AdamW, {}, mode)
    train(model, optimizer, [0])
    state = optimizer.state_dict()
    state["state"] = {i: {k: v.contiguous() for k, v in s.items()} for i, s in state["state"].items()}
    optimizer.load_state_dict(state)
    assert optimizer.state[model.convolution.weight]["exp_avg"].stride() == model.convolution.weight.stride()


@each
@every_mode
def test_groups_that_are_added(kind, options, mode):
    torch.manual_seed(6)
    base = Model()
    model, optimizer = prepared(kind, options, mode, copy.deepcopy(base))
    added = nn.Parameter(torch.ones(5, 5))
    optimizer.add_param_group({"params": [added], "lr": 0.25})
    added.grad = torch.full((5, 5), 0.5)
    train(model, optimizer, [0])
    alone, other = prepared(kind, options, mode, copy.deepcopy(base))
    train(alone, other, [0])
    assert_same_bits(values(model, optimizer), values(alone, other))
    reference = nn.Parameter(torch.ones(5, 5))
    reference.grad = added.grad.clone()
    kind([reference], **{**options, "lr": 0.25}).step()
    torch.testing.assert_close(added, reference)


@pytest.mark.parametrize("before", [False, True], ids=["after", "before"])
@every_mode
def test_schedulers(mode, before):
    """A scheduler that was made before or after sees the steps, without a warning, and sets the learning rate."""
    base = Model()
    plain = copy.deepcopy(base)
    theirs = SGD(plain.parameters(), lr=0.5)
    other_schedule = torch.optim.lr_scheduler.StepLR(theirs, 1, gamma=0.5)
    ours = SGD(base.parameters(), lr=0.5)
    schedule = torch.optim.lr_scheduler.StepLR(ours, 1, gamma=0.5) if before else None
    fuse(ours, cast(base, mode))
    schedule = schedule or torch.optim.lr_scheduler.StepLR(ours, 1, gamma=0.5)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for seed in range(3):
            for model, optimizer, lr in ((base, ours, schedule), (plain, theirs, other_schedule)):
                train(model, optimizer, [seed])
                lr.step()
    assert ours.param_groups[0]["lr"] == 0.5**4
    for a, b in zip(values(base, ours), plain.parameters(), strict=True):
        torch.testing.assert_close(a, b.detach(), rtol=1e-6, atol=1e-6)


@every_mode
@each
def test_grad_scaler(kind, options, mode):
    """torch.amp.GradScaler: the same bits as without it, and a step with an infinite gradient is skipped."""
    torch.manual_seed(7)
    base = Model()
    plain, expected = prepared(kind, options, mode, copy.deepcopy(base))
    train(plain, expected, range(2))
    model, optimizer = prepared(kind, options, mode, base)
    scaler = torch.amp.GradScaler("cpu", init_scale=8.0)
    for seed in range(2):
        set_gradients(model, seed)
        for p in model.parameters():
            if p.grad is not None:
                p.grad = scaler.scale(p.grad).to(p.dtype)
        scaler.step(optimizer)
        scaler.update()
    assert_same_bits(values(model, optimizer), values(plain, expected))
    set_gradients(model, 2)
    model.out.weight.grad[0, 0] = float("inf")
    scaler.step(optimizer)
    scaler.update()
    assert scaler.get_scale() == 4.0
    assert_same_bits(values(model, optimizer), values(plain, expected))
    assert_same_bits(states(optimizer), states(expected))


@pytest.mark.parametrize("lr", [torch.tensor(0.05), torch.tensor([0.05], dtype=torch.float64)])
@pytest.mark.parametrize("kind", [SGD, Adagrad, Adam, AdamW])
def test_lr_as_a_tensor(kind, lr):
    torch.manual_seed(8)
    base = Model()
    results = []
    for value in (lr, 0.05):
        model, optimizer = prepared(kind, {"lr": value}, "split", copy.deepcopy(base))
        train(model, optimizer, range(2))
        results.append(values(model, optimizer))
    for a, b in zip(*results, strict=True):
        torch.testing.assert_close(a, b)


def test_every_class_is_tested():
    assert {kind for kind, _ in ONE_EACH} == set(GRIDS) == set(FUSED)
